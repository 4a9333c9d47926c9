"""`repshare_lab.compare`: tables from Python, comparisons that grow, and models that are kept."""

import json

import pandas
import pytest
import safetensors.torch
import torch

from repshare import Policy, load_classifier
from repshare.cli.main import main
from repshare.errors import ConfigError
from repshare_lab import compare
from repshare_lab.config import Run, Setting
from repshare_lab.networks import build
from repshare_lab.simulation import Processes, make_plan, resolve
from support.warm import run_warm

SMALL = {"samples": 90, "clients": 3, "partition": "shards", "classes_per_client": 6}


def lines(folder, *, timed=False):
    found = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return found if timed else [{**line, "seconds": None} for line in found]


def make(folder, splits, workers, methods, **options):
    return compare("digits", methods, splits=splits, folder=folder, workers=workers, **SMALL, **options)


FEW = {"methods": ["RS", "IL"], "seeds": 1, "rounds": 5, "eval_every": 2}
ALL = {"methods": ["FL", "IL", "CS", "RS"], "seeds": 2, "rounds": 5, "eval_every": 2}


@pytest.fixture(scope="module")
def whole(splits, inline, tmp_path_factory):
    """A comparison that had everything from the start."""
    folder = tmp_path_factory.mktemp("whole")
    make(folder, splits, inline, **ALL, keep_models=True)
    return folder


def test_a_comparison_that_grew_equals_one_that_had_all_from_the_start(whole, splits, inline, tmp_path):
    folder = tmp_path / "run"
    make(folder, splits, inline, **FEW, keep_models=True)
    make(folder, splits, inline, **ALL, keep_models=True, resume=True)
    assert lines(folder) == lines(whole)
    for file in ("run.json", "finished.json"):
        assert (folder / file).read_text() == (whole / file).read_text()


def test_more_methods_and_seeds_repeat_nothing(splits, inline, tmp_path):
    make(tmp_path / "run", splits, inline, ["RS"], rounds=2)
    first = lines(tmp_path / "run", timed=True)
    make(tmp_path / "run", splits, inline, ["IL", "RS"], seeds=2, rounds=2, resume=True)
    grown = lines(tmp_path / "run", timed=True)
    assert [line for line in grown if (line["method"], line["seed"]) == ("RS", 0)] == first
    assert [(line["method"], line["seed"]) for line in grown[::6]] == [("IL", 0), ("RS", 0), ("IL", 1), ("RS", 1)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"methods": ["RS"]}, "has also the methods IL: name all that it has"),
        ({"rounds": 1}, r"another run \(rounds 5 there, 1 here\)"),
        ({"alpha": 3.0, "seeds": 4}, r"another run \(alpha 0.5 there, 3.0 here\)"),
    ],
)
def test_what_the_folder_has_must_be_wanted(change, words, splits, inline, tmp_path):
    make(tmp_path / "run", splits, inline, **FEW)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(ConfigError, match=words):
        make(tmp_path / "run", splits, inline, **FEW | change, resume=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_run_of_an_earlier_version_is_told_how_to_go_on(splits, inline, tmp_path):
    make(tmp_path / "run", splits, inline, **FEW | {"eval_every": 10})  # the default once
    with pytest.raises(ConfigError, match=r"eval_every 10 there, None here\): --eval-every 10 continues it, or choose"):
        make(tmp_path / "run", splits, inline, **FEW | {"eval_every": None}, resume=True)


def test_a_comparison_that_began_without_a_teacher_in_round_1_goes_on_without(splits, inline, tmp_path):
    run, whole, untaught = tmp_path / "run", tmp_path / "whole", Policy(start="none")
    make(run, splits, inline, ["RS"], rounds=1, policy=untaught)
    described = json.loads((run / "run.json").read_text())
    assert described["setting"]["policy"].pop("start") == "none"  # earlier versions had no such option
    (run / "run.json").write_text(json.dumps(described))
    make(run, splits, inline, ["RS"], seeds=2, rounds=1, resume=True)
    make(whole, splits, inline, ["RS"], seeds=2, rounds=1, policy=untaught)
    assert lines(run) == lines(whole)
    assert {line["kd"] for line in lines(run)} == {None}


def test_pandas_reads_the_table_and_the_records(whole):
    result = compare("digits", ["IL", "RS"], workers=0, rounds=2, **SMALL)
    table = pandas.DataFrame(result.rows).set_index("method")
    records = pandas.DataFrame(result.records)
    last = records[records["round"] == 2].groupby("method")
    assert table.accuracy.to_dict() == pytest.approx((100 * last.test_accuracy.mean()).to_dict())
    assert table.own_mix.to_dict() == pytest.approx((100 * last.test_own.mean()).to_dict())
    assert table.worst_client.to_dict() == pytest.approx((100 * last.test_own.min()).to_dict())
    assert table.unseen.to_dict() == pytest.approx((100 * last.test_unseen.mean()).to_dict())
    assert result.folder is None
    assert "own_mix" not in compare("digits", ["IL"], workers=0, rounds=1, samples=400, clients=2).rows[0]


def test_kept_models_are_those_that_were_tested_last(whole, splits):
    setting = resolve(Setting(dataset="digits", rounds=5, **SMALL), 1200)
    plan = make_plan(Run("RS", 0, setting), splits)
    images, labels = torch.from_numpy(plan.test_inputs), torch.from_numpy(plan.test_labels)
    last = {
        (line["method"], line["client"]): line["test_accuracy"]
        for line in lines(whole)
        if line["seed"] == 0 and line["round"] == 5
    }
    for method, file, client in (
        ("RS", "client-2", "client 2"),
        ("FL", "model", "client 1"),
        ("IL", "client-3", "client 3"),
    ):
        model = build("lenet5", channels=1, classes=10, dimension=None, seed=7)
        model.load_state_dict(safetensors.torch.load_file(whole / f"models/{method}-0/{file}.safetensors"))
        with torch.no_grad():
            right = (model.eval()(images).argmax(1) == labels).double().mean()
        assert float(right) == pytest.approx(last[method, client])
    classify = load_classifier(whole / "models/CS-0/client-1.classifier.safetensors")
    right = (classify.scores(images).argmax(1) == labels).double().mean()
    assert float(right) == pytest.approx(last["CS", "client 1"])
    assert [path.name for path in (whole / "models/FL-0").iterdir()] == ["model.safetensors"]


def test_the_one_model_of_fedavg_is_the_average_whoever_was_there_last(splits, inline, tmp_path):
    make(tmp_path, splits, inline, ["FL"], seeds=3, rounds=2, participation=0.4, keep_models=True)
    last = {line["seed"]: line for line in lines(tmp_path)}
    assert any(line["client"] != "client 1" for line in last.values())
    for seed, line in last.items():
        plan = make_plan(Run("FL", seed, resolve(Setting(dataset="digits", **SMALL), 1200)), splits)
        model = build("lenet5", channels=1, classes=10, dimension=None, seed=7)
        model.load_state_dict(safetensors.torch.load_file(tmp_path / f"models/FL-{seed}/model.safetensors"))
        with torch.no_grad():
            chosen = model.eval()(torch.from_numpy(plan.test_inputs)).argmax(1).numpy()
        assert (chosen == plan.test_labels).mean() == pytest.approx(line["test_accuracy"])


def test_models_have_the_same_bits_from_any_workers(splits, inline, tmp_path):
    with Processes(2) as processes:
        for name, workers in (("one", inline), ("two", processes)):
            make(tmp_path / name, splits, workers, ["FL", "RS", "CS"], rounds=1, keep_models=True)
    one, two = tmp_path / "one", tmp_path / "two"
    files = sorted(path.relative_to(one) for path in (one / "models").rglob("*.safetensors"))
    assert len(files) == 1 + 3 + 3
    assert all((one / file).read_bytes() == (two / file).read_bytes() for file in files)


def test_models_that_were_not_kept_cannot_be_asked_for_later(splits, inline, tmp_path):
    make(tmp_path / "run", splits, inline, ["IL"], rounds=1)
    with pytest.raises(ConfigError, match="models were not kept: IL, seed 0"):
        make(tmp_path / "run", splits, inline, ["IL"], rounds=1, keep_models=True, resume=True)


def test_a_script_without_a_guard_is_told_so(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from repshare_lab import compare\n"
        "compare('digits', ['IL'], folder='run', workers=2, samples=60, clients=2, rounds=1)\n"
    )
    done = run_warm(cwd=tmp_path, script=str(tmp_path / "mine.py"))
    assert done.returncode == 1
    assert 'put what it does under `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]


def test_the_command_shows_what_suits_clients_whose_classes_differ(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = ["--dataset", "digits", "--samples", "200", "--clients", "3", "--rounds", "5", "--name", "a"]
    given = ["compare", *few, "--workers", "0", "--methods", "CL", "IL", "--partition", "dirichlet", "--alpha", "0.3"]
    main(given)
    shown = capsys.readouterr().out
    assert "digits, 3 clients, Dirichlet 0.3, 5 rounds: test accuracy at the end" in shown
    assert "still improving at the end: more --rounds would help CL" in shown
    main([*given, "--resume", "--json"])
    methods = json.loads(capsys.readouterr().out)["methods"]
    assert 0 < methods["IL"]["worst_client"] < methods["IL"]["own_mix"] < 100
    rows = (line for line in shown.partition("own mix")[2].splitlines() if line.startswith("  IL"))
    names = ("accuracy", "own_mix", "worst_client", "unseen")
    assert next(rows).split()[1:] == [f"{methods['IL'][name]:.2f}" for name in names]
