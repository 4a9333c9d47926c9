"""`repshare report`: what stands in the file, that it needs nothing else, and that names are only text in it."""

import base64
import json
import re
import shutil
import statistics
from pathlib import Path

import pytest

from repshare.errors import ConfigError
from repshare.experiments.report.document import make_report
from repshare.experiments.report.reading import read_run
from support.browsers import Visit, start_browser
from support.warm import run_warm

ROOT = Path(__file__).parents[2]
HOSTILE = """<script>document.title = 'stolen'</script><img src=x onerror="document.title = 'stolen'"><b>bold"""
LOADS = r"""(?:src|href|action|data|poster)\s*=\s*["']?(?!data:|#)[\w./:]|url\(|@import"""

LOADED = "[...document.images].every((image) => image.complete && image.naturalWidth > 0)"


def repshare(*arguments, cwd):
    return run_warm(*arguments, cwd=cwd, timeout=240)


def report(folder, *runs):
    """The report on these runs."""
    done = repshare("report", *runs, "--output", "report.html", cwd=folder)
    assert done.returncode == 0, done.stderr
    return (folder / "report.html").read_text()


def drawn(shown):
    """The figures of a report, by what they are labelled with."""
    found = re.findall(r'alt="([^"]*)" src="data:image/svg\+xml;base64,([^"]*)"', shown)
    return {label: base64.b64decode(figure).decode() for label, figure in found}


def change(folder, name, edit):
    path = folder / name
    path.write_text(edit(path.read_text()))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A real small comparison."""
    folder = tmp_path_factory.mktemp("runs")
    options = ("--dataset", "digits", "--clients", "2", "--samples", "60", "--rounds", "3", "--eval-every", "1")
    done = repshare("compare", *options, "--methods", "IL", "RS", "--seeds", "2", "--inline", "--name", "a", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "a"


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it to spoil."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture(scope="module")
def browser():
    with start_browser() as browser:
        yield browser


def test_a_report_shows_a_run_and_opens_without_a_network(run, browser):
    shown = report(run.parent, "run")
    for title in ("Results", "Test accuracy by round", "By client", "Traffic", "Who has what", "Configuration"):
        assert f"<h2>{title}</h2>" in shown
    assert "Unfinished" not in shown
    assert "The bound is one for clients whose classes are about equally frequent." in shown
    assert re.findall(LOADS, shown) == []

    visit = Visit(browser, offline=True, color_scheme="dark")
    visit.page.goto((run.parent / "report.html").as_uri())
    visit.wait(LOADED)
    assert visit.page.evaluate("document.images.length") == len(drawn(shown)) + 1  # and who has what
    lines = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    last = [100 * line["test_accuracy"] for line in lines if (line["method"], line["round"]) == ("RS", 3)]
    assert f"{sum(last) / len(last):.2f} ±" in visit.text("table")
    assert f"RS  {sum(last) / len(last):.1f}" in drawn(shown)["test accuracy [%] by communication round"]
    assert "test accuracy [%] by sent and received so far, a client [kB]" in drawn(shown)
    assert {"cross-entropy by communication round", "distillation loss, before λ by communication round"} < set(
        drawn(shown)
    )
    assert visit.errors == []
    assert visit.hosts == {""}
    visit.close()


def test_names_are_only_text(run, browser):
    change(run, "records.jsonl", lambda text: text.replace('"RS"', json.dumps(HOSTILE)).replace("client 1", "<i>x"))
    change(
        run, "run.json", lambda text: text.replace('"RS"', json.dumps(HOSTILE)).replace('"digits"', json.dumps(HOSTILE))
    )
    shown = report(run.parent, "run")
    assert HOSTILE not in shown
    visit = Visit(browser)
    visit.page.goto((run.parent / "report.html").as_uri())
    visit.wait(LOADED)
    assert visit.page.title() != "stolen"
    assert HOSTILE in visit.text("h1")
    figure = drawn(shown)["test accuracy [%] by communication round"]
    assert "document.title" in figure  # the name is there, as text
    assert "<script" not in figure
    assert visit.page.evaluate("document.querySelectorAll('main img:not(.picture), main b, main i').length") == 0
    assert visit.errors == []
    visit.close()


def test_no_script_runs_in_a_figure_that_a_run_left(tmp_path, browser):
    folder = Path(shutil.copytree(ROOT / "docs/results/skew-mnist", tmp_path / "skew"))
    change(folder, "figure.svg", lambda text: text.replace("</svg>", "<script>top.document.title = 1</script></svg>"))
    change(folder, "table.md", lambda text: text.replace("uniform", HOSTILE))
    shown = report(tmp_path, "skew")
    assert "<script" in drawn(shown)["Figure of the experiment"]
    visit = Visit(browser)
    visit.page.goto((tmp_path / "report.html").as_uri())
    visit.wait(LOADED)
    assert visit.page.title() == "skew, mnist, 100 rounds · repshare"
    assert HOSTILE in visit.text("table")
    assert visit.errors == []
    visit.close()


def cut(run):
    """Nobody was there in the last round of RS with seed 1. What its last tests were, by seed and round."""
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    left = [line for line in lines if '"RS", "seed": 1, "round": 3' not in line]
    change(run, "records.jsonl", lambda _: "".join(left))
    tests = [line for line in map(json.loads, left) if line["method"] == "RS"]
    keys = {(line["seed"], line["round"]): [] for line in tests}
    for line in tests:
        keys[line["seed"], line["round"]].append(100 * line["test_accuracy"])
    return {key: statistics.fmean(each) for key, each in keys.items()}


def test_an_unfinished_run_is_shown_as_one(run):
    change(run, "finished.json", lambda _: '[["IL", 0], ["IL", 1], ["RS", 0]]')
    tests = cut(run)
    shown = report(run.parent, "run")
    assert "Unfinished.</strong> Missing: RS, seed 1: round 2 of 3." in shown
    assert f"{(tests[0, 2] + tests[1, 2]) / 2:.2f} ±" in shown  # seeds in step


def test_a_seed_in_which_nobody_was_left_counts_with_its_last_test(run):
    tests = cut(run)
    assert f"{(tests[0, 3] + tests[1, 2]) / 2:.2f} ±" in make_report([read_run(run)])


def test_the_papers_table_and_clients_of_a_relay_can_be_reported_on_together(tmp_path):
    client = tmp_path / "client"
    client.mkdir()
    (client / "run.json").write_text(json.dumps({"client": "alice", "task": "wards", "seed": 0, "model": "Mine"}))
    line = {"round": 1, "client": "alice", "ce": 2.0, "kd": None, "disc": None, "bound": None, "train_accuracy": 0.5,
            "test_accuracy": None, "bytes_up": 10, "bytes_down": 0, "seconds": 0.1, "trouble": None}  # fmt: skip
    (client / "records.jsonl").write_text(json.dumps(line) + "\n")
    shown = report(tmp_path, ROOT / "docs/results/table-mnist", client)
    assert "<h1>2 runs</h1>" in shown
    assert "82.37 ± 0.77 (82.07)" in shown
    assert "not tested yet" in shown
    assert "<h1>client alice in task wards</h1>" in shown
    assert "Who has what" not in shown


def lacking_nothing(run):
    change(run, "records.jsonl", lambda text: re.sub(r'"test_unseen": [\d.]+', '"test_unseen": null', text))
    return run


def test_where_clients_differ_they_are_shown_by_their_own_classes(run):
    plain = make_report([read_run(lacking_nothing(run))])
    assert "own mix" not in plain
    change(run, "run.json", lambda text: text.replace('"uniform"', '"dirichlet"'))
    shown = make_report([read_run(run)])
    assert "<h1>digits, 2 clients, Dirichlet 0.5, 3 rounds</h1>" in shown
    lines = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    own = [100 * line["test_own"] for line in lines if (line["method"], line["round"]) == ("RS", 3)]
    assert f"<td>{statistics.fmean(own):.2f} ±" in shown
    assert "own mix of classes: test accuracy [%] by communication round" in drawn(shown)


def test_several_runs_begin_with_one_table(run, tmp_path):
    other = lacking_nothing(Path(shutil.copytree(run, tmp_path / "other")))
    change(other, "records.jsonl", lambda text: text.replace('"RS"', '"FL"'))
    change(other, "run.json", lambda text: text.replace('"RS"', '"FL"'))
    shown = make_report([read_run(lacking_nothing(run)), read_run(other), read_run(ROOT / "docs/results/table-mnist")])
    first = shown[shown.index("<table>") : shown.index("</table>")]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in first.split("<tr")[2:]]
    assert [row[:2] for row in cells] == [["run", "IL"], ["", "RS"], ["other", "IL"], ["", "FL"], ["table-mnist", ""]]
    assert cells[1][2:] == cells[3][2:]


def test_the_best_is_bold_only_if_it_is_clearly_so(run):
    assert 'class="best"' not in make_report([read_run(run)])
    change(run, "records.jsonl", lambda text: re.sub(r'("IL".*"test_accuracy": )[\d.]+', r"\g<1>0.99", text))
    shown = make_report([read_run(run)])
    assert 'class="best"><th scope="row">IL</th>' in shown


def test_what_is_no_run_is_said(run, monkeypatch):
    monkeypatch.chdir(run.parent)
    for name, described in (("empty", None), ("other", "[]")):
        Path(name).mkdir()
        if described:
            Path(name, "run.json").write_text(described)
    done = repshare("report", "empty", cwd=".")
    assert (done.returncode, done.stderr) == (2, "repshare: empty is no run: there is no empty/run.json\n")
    assert not Path("report.html").exists()
    with pytest.raises(ConfigError, match=r"other/run\.json describes no run"):
        read_run(Path("other"))
    change(run, "records.jsonl", lambda _: '{"round": 1}\n')
    with pytest.raises(ConfigError, match=r"run/records\.jsonl: line 1 has no bytes_down"):
        read_run(Path("run"))
    change(run, "records.jsonl", lambda _: "")
    with pytest.raises(ConfigError, match="run has no records"):
        read_run(Path("run"))
