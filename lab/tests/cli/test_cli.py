"""The commands as a user runs them: real processes, real files, exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from repshare.cli.groups import COMMON, LAYOUTS
from repshare.cli.main import CommandGroup, all_commands, main
from repshare.cli.parsing import options_of
from support.processes import REPSHARE, Process
from support.warm import run_warm

TINY = ["--dataset", "digits", "--samples", "90", "--clients", "3", "--rounds", "2"]


def repshare(*arguments, cwd, **environment):
    return run_warm(*arguments, cwd=cwd, env={**os.environ, **environment})


def repshare_cold(*arguments, cwd):
    """From nothing, as a user starts it."""
    command = [*REPSHARE, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def files(folder):
    paths = (path for path in Path(folder).rglob("*") if path.is_file() and path.name != ".lock")
    return sorted(str(path.relative_to(folder)) for path in paths)


def records(folder):
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def test_compare_shows_a_table_and_writes_figure_records_and_configuration(tmp_path):
    done = repshare_cold("compare", *TINY, "--name", "first", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("CL", "IL", "FL", "FD", "RS", "CA", "CS", "±", "in all", "runs/first/figure.png"):
        assert word in done.stdout
    assert files(tmp_path) == [
        f"runs/first/{name}" for name in ("figure.png", "finished.json", "partition.png", "records.jsonl", "run.json")
    ]
    assert (tmp_path / "runs/first/figure.png").read_bytes().startswith(b"\x89PNG")
    described = json.loads((tmp_path / "runs/first/run.json").read_text())
    assert described["setting"]["samples"] == 90
    assert described["setting"]["policy"]["lambda_kd"] == 10.0
    lines = records(tmp_path / "runs/first")
    assert len(lines) == (5 * 3 + 1) * 2 + 3  # two rounds of everyone, but CA has one
    assert {"ce", "kd", "disc", "bound", "train_accuracy", "test_accuracy", "bytes_up", "bytes_down"} <= set(lines[0])


def test_json_prints_one_document_and_nothing_else(tmp_path):
    done = repshare("compare", *TINY, "--methods", "IL", "RS", "--seeds", "1", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert list(document["methods"]) == ["IL", "RS"]
    for method in document["methods"].values():
        assert {"accuracy", "std", "bytes_up", "bytes_down", "seconds"} <= set(method)
        assert 0 < method["accuracy"] < 100
    assert document["methods"]["RS"]["bytes_up"] == sum(
        line["bytes_up"] for line in records(next((tmp_path / "runs").iterdir())) if line["method"] == "RS"
    )
    assert document["config"]["setting"]["dataset"] == "digits"


def test_a_name_in_use_is_refused_with_the_way_out(tmp_path):
    arguments = ["compare", *TINY, "--methods", "IL", "--name", "mine", "--workers", "0"]
    assert repshare(*arguments, cwd=tmp_path).returncode == 0
    before = (tmp_path / "runs/mine/records.jsonl").read_bytes()
    again = repshare(*arguments, cwd=tmp_path)
    other = repshare(*arguments, "--lambda-kd", "3", cwd=tmp_path)
    other_resumed = repshare(*arguments, "--lambda-kd", "3", "--resume", cwd=tmp_path)
    assert [each.returncode for each in (again, other, other_resumed)] == [2, 2, 2]
    assert "continue it with --resume, or choose another --name" in again.stderr
    assert "another run (lambda_kd 10.0 there, 3.0 here)" in other.stderr
    assert (tmp_path / "runs/mine/records.jsonl").read_bytes() == before
    assert repshare(*arguments, "--resume", cwd=tmp_path).returncode == 0
    assert (tmp_path / "runs/mine/records.jsonl").read_bytes() == before


def test_a_killed_comparison_resumes_to_the_same_records(tmp_path):
    arguments = ["compare", *TINY, "--rounds", "30", "--methods", "IL", "RS", "--workers", "0"]
    repshare(*arguments, "--name", "whole", cwd=tmp_path)
    victim = Process(*arguments, "--name", "cut", cwd=tmp_path, name="victim").process
    path = tmp_path / "runs/cut/records.jsonl"
    deadline = time.monotonic() + 60
    while not (path.exists() and '"RS"' in path.read_text()):  # in the middle of the second method
        assert time.monotonic() < deadline
        time.sleep(0.01)
    victim.send_signal(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    assert 0 < len(records(tmp_path / "runs/cut")) < len(records(tmp_path / "runs/whole"))
    with path.open("a") as file:
        file.write('{"method": "RS", "se')  # as a kill in the middle of a write leaves it
    assert repshare(*arguments, "--name", "cut", "--resume", cwd=tmp_path).returncode == 0
    assert records(tmp_path / "runs/cut") == records(tmp_path / "runs/whole")


def test_ctrl_c_says_how_to_go_on(tmp_path):
    command = Process("compare", *TINY, "--rounds", "5000", "--name", "long", cwd=tmp_path, name="long")
    path = tmp_path / "runs/long/records.jsonl"
    deadline = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert command.stop(signal.SIGINT) == 130
    error = command.err.read_text()
    assert "resume with --name long --resume" in error
    assert "Traceback" not in error


OWN = """
from dataclasses import dataclass
import numpy as np
from repshare.methods import RS, Method
from torch import nn

@dataclass(frozen=True)
class Options:
    width: float = 1.0
    'How wide it is.'

def rows(n=60):
    rng = np.random.default_rng(0)
    return rng.uniform(size=(n, 8, 8)).astype(np.float32), np.arange(n) % 3

def good():
    return rows(), rows(30)

def bad_label():
    images, labels = rows()
    return (images, np.where(np.arange(60) == 7, 5, labels)), rows(30), 3

def nan():
    images, labels = rows()
    images[4, 0, 0] = np.nan
    return (images, labels), rows(30)

RS2 = RS._replace(name="RS2", options=Options())

"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dataset", "mnits"], "mnits"),
        (["--model", "lenet6"], "unknown model 'lenet6'"),
        (["--methods", "IL", "XX"], "unknown method 'XX'"),
        (["--methods"], "--methods: expected at least one argument"),
        (
            ["--methods", "own.py"],
            "unknown method 'own.py': choose CL, IL, FL, FD, RS, CA, CS, another of `repshare methods`, or your own as",
        ),
        (["--methods", "IL", "none.py:MINE"], "none.py:MINE: there is no file none.py"),
        (["--methods", "own.py:MINE"], "there is no 'MINE'; the methods in this file are RS2"),
        (["--methods", "own.py:RS2", "--method-options", "RS2.widht=3"], "use width=…; did you mean width?"),
        (["--lambda-kd", "-1"], "lambda_kd must be at least 0 and finite, not -1.0"),
        (["--workers", "4"], "4 workers are too many for 3 clients"),
        (["--methods", "RS,CS"], "unknown method 'RS,CS': divide methods by spaces, as in RS CS"),
        (["--name", "../x"], "--name ../x leads out of runs/"),
        (["--name", "/tmp/x"], "--name /tmp/x leads out of runs/"),
        (["--resume"], "--resume needs --name: which run should be continued?"),
        (["--dropout", "0.999"], "seed 0: no client is present in any round that is tested"),
        (["--dataset", "own.py:bad_label", "--samples", "60"], "label 5 at index 7"),
        (["--dataset", "own.py:nan", "--samples", "60"], "nan at (4, 0, 0, 0)"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2_and_writes_nothing(tmp_path, monkeypatch, capsys, arguments, words):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit:
        main(["compare", *TINY, *arguments])
    out, error = capsys.readouterr()
    assert exit.value.code == 2
    assert words in error
    assert out == ""
    assert len(error.strip().splitlines()) == 1
    assert [file for file in files(tmp_path) if "__pycache__" not in file] == ["own.py"]


def test_a_data_set_that_cannot_be_had_is_an_error_unless_another_is_allowed(tmp_path):
    nowhere = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "REPSHARE_OFFLINE": "1"}
    arguments = ["compare", "--clients", "2", "--rounds", "1", "--methods", "IL", "--workers", "0"]
    refused = repshare(*arguments, cwd=tmp_path, **nowhere)
    assert refused.returncode == 2
    assert "mnist" in refused.stderr
    allowed = repshare(*arguments, "--fallback", "digits", cwd=tmp_path, **nowhere)
    assert allowed.returncode == 0, allowed.stderr
    assert "Using digits instead of mnist." in allowed.stdout


def test_reproduce_knows_what_the_paper_has(tmp_path):
    done = repshare("reproduce", "table", "--dataset", "digits", cwd=tmp_path)
    assert done.returncode == 2
    assert "choose mnist, fashion_mnist, cifar10" in done.stderr


def test_data_lists_and_fetches(tmp_path):
    listed = repshare("data", "list", cwd=tmp_path)
    for name in ("mnist", "fashion_mnist", "cifar10", "digits", "breast_cancer", "wine", "colour_names"):
        assert re.search(rf"{name} .* (built in|in the cache|not fetched yet)", listed.stdout), name
    fetched = repshare("data", "fetch", "digits", cwd=tmp_path)
    assert "1,200 training" in fetched.stdout
    assert repshare("data", "fetch", "nothing", cwd=tmp_path).returncode == 2


def walk(commands, *before):
    """Every command with the words that call it."""
    for name, command in commands.items():
        if isinstance(command, CommandGroup):
            yield from walk(command.commands, *before, name)
        else:
            yield " ".join([*before, name]), command


COMMANDS = all_commands()
LEAVES = dict(walk(COMMANDS))
BY_NAME = {name: command.layout or LAYOUTS.get(name) for name, command in LEAVES.items()}
GROUPS = ["", "privacy", "relay", "relay tasks"]


def call(capsys, *arguments):
    """The exit code, and what was printed to whom."""
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    return exit.value.code or 0, *capsys.readouterr()


@pytest.mark.parametrize("group", GROUPS)
def test_the_list_of_commands_fits_on_a_screen_with_a_line_for_each(capsys, group):
    code, shown, error = call(capsys, *group.split(), "--help")
    assert (code, error) == (0, "")
    lines = shown.splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    held = COMMANDS
    for name in group.split():
        held = held[name].commands
    for name, command in held.items():
        assert sum(line.startswith(f"  {name} ") and line.endswith(command.summary) for line in lines) == 1, name
    assert call(capsys, *group.split()) == (2, shown, "")  # the same without --help, but it is no success


def test_the_list_of_commands_ends_with_examples_that_are_right(capsys):
    _, shown, _ = call(capsys, "--help")
    examples = re.findall(r"^  (repshare .*)$", shown, re.MULTILINE)
    assert len(examples) == 3
    assert all(example.split()[1] in COMMANDS for example in examples)


def options(name):
    """The options of a command."""
    return [option for option in options_of(LEAVES[name].load(), BY_NAME[name]) if not option.positional]


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_explains_itself_and_each_option_once(capsys, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    code, shown, error = call(capsys, *name.split(), "--help")
    assert (code, error) == (0, "")
    assert call(capsys, *name.split(), "--unknown", "-h") == (0, shown, "")
    assert shown.startswith(f"usage: repshare {name} ")
    assert f"  repshare {name}" in shown.partition("\n")[2]  # an example
    assert sorted(re.findall(r"^  (--[a-z-]+)", shown, re.MULTILINE)) == sorted(each.flag for each in options(name))
    for option in options_of(LEAVES[name].load(), BY_NAME[name]):
        assert option.description.endswith("."), option.name
        assert option.description.count("Default:") <= 1, option.name


def test_all_commands_together_have_few_options():
    assert sum(len(options(name)) for name in LEAVES) <= 270


@pytest.mark.parametrize("name", [name for name, layout in BY_NAME.items() if layout])
def test_long_helps_begin_with_the_common_options_and_list_none_twice(name):
    words = " ".join(BY_NAME[name].values()).split()
    assert next(iter(BY_NAME[name])) == COMMON
    assert sorted(words) == sorted(option.name.replace("_", "-") for option in options(name))


def test_defaults_are_shown_as_they_are_typed(capsys):
    words = " ".join(call(capsys, "compare", "--help")[1].split())
    assert "file.py:NAME. Default: CL IL FL FD RS CA CS. --method-options" in words
    assert "--clients N Number of clients that the data is divided among. Default: 5." in words
    assert "for the paper's sum, give λ_disc · C. Default: 1." in words
    assert "--rounds N Number of communication rounds. Default: the paper's, or what suits the dataset." in words


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "compare --share-samples 3",
            "--share-samples is no option here: set share_samples in Python, in Policy(…), for repshare_lab.compare or",
        ),
        (
            "compare --no-weighted",
            "--no-weighted is no option here: set weighted in Python",
        ),
    ],
)
def test_what_is_set_in_python_only_is_refused_with_where(capsys, command, said):
    code, out, error = call(capsys, *command.split())
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert error.startswith(f"repshare: {said}")


def test_the_list_of_methods_has_every_method_with_its_source(capsys, monkeypatch):
    from repshare.methods import METHODS

    main(["methods", "--json"])
    assert json.loads(capsys.readouterr().out) == {
        m.name: {"title": m.title, "source": m.source} for m in METHODS.values()
    }
    assert {name for name, method in METHODS.items() if not method.source} == {"CL", "IL"}
    monkeypatch.setenv("COLUMNS", "80")
    main(["methods"])
    listed = capsys.readouterr().out
    assert all(re.search(rf"^  {name} +{re.escape(m.title)}", listed, re.MULTILINE) for name, m in METHODS.items())
    assert max(map(len, listed.splitlines())) <= 80


def test_a_method_that_is_named_is_shown_with_its_options(tmp_path, monkeypatch, capsys):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    main(["methods", "own.py:RS2", "fc", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert shown["RS2"]["options"] == {"RS2.width=1.0": "How wide it is."}
    assert shown["FC"]["options"] == {}  # they are the command's
    main(["methods", "own.py:RS2"])
    assert "RS2.width=1.0  How wide it is.\n" in capsys.readouterr().out
    main(["methods", "AFL"])
    assert "AFL.ridge=30.0  λ, " in capsys.readouterr().out
    code, _, error = call(capsys, "methods", "XX")
    assert (code, error.count("\n"), "unknown method 'XX'" in error) == (2, 1, True)


def test_an_own_method_runs_from_the_command_line_and_goes_on_where_it_stopped(tmp_path):
    example = Path(__file__).parents[3] / "examples/fedprox.py"
    (tmp_path / "mine.py").write_text(example.read_text())
    arguments = ["compare", *TINY, "--methods", "FL", "mine.py:PROX", "--method-options", "PROX.mu=0.5"]
    seen = {}
    for name, where in (("inline", ["--workers", "0"]), ("two", ["--workers", "2"])):
        done = repshare(*arguments, "--name", name, *where, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "PROX  FedAvg, kept close" in done.stdout
        seen[name] = records(tmp_path / "runs" / name)
    assert seen["inline"] == seen["two"]
    assert {line["method"] for line in seen["two"]} == {"FL", "PROX"}
    described = json.loads((tmp_path / "runs/two/run.json").read_text())
    assert described["methods"] == ["FL", "mine.py:PROX"]
    assert described["setting"]["method_options"] == ["PROX.mu=0.5"]
    other = repshare(*arguments[:-1], "PROX.mu=0.6", "--name", "two", "--resume", cwd=tmp_path)
    assert (other.returncode, "method_options ['PROX.mu=0.5'] there" in other.stderr) == (2, True)
    assert repshare(*arguments, "--name", "two", "--resume", cwd=tmp_path).returncode == 0
    again = repshare("compare", "--name", "two", "--resume", cwd=tmp_path)  # all else is in run.json
    assert again.returncode == 0, again.stderr
    assert "PROX  FedAvg, kept close" in again.stdout
    assert records(tmp_path / "runs/two") == seen["two"]
    assert repshare("report", "runs/two", cwd=tmp_path).returncode == 0
    reported = (tmp_path / "report.html").read_text()
    assert "Unfinished" not in reported
    assert "PROX  FedAvg, kept close" in reported


def test_the_version_is_told(capsys):
    from repshare import __version__

    main(["--version"])
    assert capsys.readouterr().out == f"repshare {__version__}\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("demo --unknwon 1", "unknown option --unknwon. See `repshare demo --help`"),
        ("comapre", "unknown command comapre: did you mean compare? See `repshare --help`"),
        ("relay srve", "unknown command srve: did you mean serve? See `repshare relay --help`"),
        ("relay tasks lst", "unknown command lst: did you mean list? See `repshare relay tasks --help`"),
        ("quux", "unknown command quux. See `repshare --help`"),
        ("--verison", "unknown option --verison: did you mean --version? See `repshare --help`"),
        ("compare --lr 0.1", "unknown option --lr: did you mean --learning-rate? See `repshare compare --help`"),
        ("compare --dirichlet 0.3", "unknown option --dirichlet: did you mean --partition dirichlet?"),
        ("compare --qqq", "unknown option --qqq. See `repshare compare --help`"),
        ("compare --clients five", "--clients: invalid int value: 'five'. See `repshare compare --help`"),
        ("compare --partition unifrom", "--partition: invalid choice: 'unifrom' (choose from 'uniform', "),
        ("compare digits", "unrecognized arguments: digits. See `repshare compare --help`"),
        ("peer --key a", "the following arguments are required: --party, --name. See `repshare peer --help`"),
        ("relay tasks create", "the following arguments are required: NAME. See `repshare relay tasks create --help`"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_one_line_with_what_was_meant(capsys, command, said):
    code, out, error = call(capsys, *command.split())
    assert (code, out) == (2, "")
    assert error.startswith(f"repshare: {said}")
    assert len(error.splitlines()) == 1


def test_help_needs_neither_pytorch_nor_numpy_nor_the_parser():
    code = (
        "import sys, contextlib, repshare.cli.main\n"
        "with contextlib.suppress(SystemExit): repshare.cli.main.main(['--help'])\n"
        "sys.exit(bool({'torch', 'numpy', 'argparse', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


WITHOUT_PYTORCH = """
import sys
class Finder:  # importing PyTorch raises ModuleNotFoundError, as where it is not installed
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Finder())
from repshare.cli.main import main
for arguments in ARGUMENTS:
    try:
        main(arguments)
    except SystemExit as end:
        print(f"exit code {end.code}", file=sys.stderr)
"""


def test_without_pytorch_every_help_works_and_commands_say_what_to_install():
    helps = [[*name.split(), "--help"] for name in [*GROUPS, *LEAVES]]
    needing = [["compare", "--dataset", "digits"], ["methods"], ["join", "http://localhost:1", "--party", "a.py:b"]]
    code = WITHOUT_PYTORCH.replace("ARGUMENTS", repr([*helps, *needing]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    how = "pip install -c constraints.txt '.[learn]' in a clone of repshare"
    install = f"repshare: this needs torch, which is not installed: {how}"
    assert done.stderr.splitlines() == ["exit code 0"] * len(helps) + [install, "exit code 2"] * len(needing)


def test_a_folder_that_is_being_written_is_left_alone(tmp_path):
    command = ["compare", *TINY, "--rounds", "5000", "--name", "busy", "--resume"]
    first = Process(*command, cwd=tmp_path, name="first")
    path = tmp_path / "runs/busy/records.jsonl"
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    second = repshare(*command, cwd=tmp_path)
    first.stop()
    assert second.returncode == 2
    assert "is being written by another process" in second.stderr


def test_names_that_look_like_markup_or_mathematics_are_only_names(tmp_path):
    (tmp_path / "a$x^$.py").write_text(OWN)
    done = repshare(
        "compare", "--dataset", "a$x^$.py:good", "--clients", "2", "--rounds", "1", "--methods", "IL", "--workers", "0",
        "--name", "[/x] [red]", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "runs/[/x] [red]/figure.png" in done.stdout


def test_a_table_that_nobody_standardised_is_told(tmp_path):
    rows = [f"{number},{number % 7},{'ab'[number % 2]}" for number in range(60)]
    (tmp_path / "raw.csv").write_text("\n".join(["dose,day,class", *rows]))
    arguments = ("compare", "--dataset", "raw.csv", "--clients", "2", "--methods", "CA", "--workers", "0")
    told = "columns reach 57: networks and the usual space expect -4 to 4; see --standardise"
    assert told in repshare(*arguments, cwd=tmp_path).stdout
    assert "columns reach" not in repshare(*arguments, "--standardise", cwd=tmp_path).stdout


def test_a_narrow_terminal_loses_columns_but_no_digits_and_a_file_nothing(tmp_path):
    methods = ("--methods", "IL", "RS", "CS", "--seeds", "2", "--workers", "0")
    wide = repshare("compare", *TINY, *methods, "--name", "a", cwd=tmp_path).stdout
    narrow = repshare("compare", "--name", "a", "--resume", cwd=tmp_path, FORCE_COLOR="1", COLUMNS="80").stdout
    assert ("by round" in wide, "by round" in narrow) == (True, False)
    assert "…" not in wide + narrow
    numbers = re.findall(r"[0-9.]+ ± [0-9.]+|[0-9.]+ kB", wide)
    assert len(numbers) == 18
    assert [number for number in numbers if number not in narrow] == []
    assert "accuracy   in percent, mean over clients ± seeds (standard deviation over 2)" in wide
    assert "±          ± clients (standard deviation over them)" in wide
