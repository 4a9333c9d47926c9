"""Curves in TensorBoard's and MLflow's own files, read back by themselves."""

import builtins
import json
import statistics

import pytest

from repshare.cli.main import main
from repshare.errors import ConfigError
from repshare.results.trackers import MLflow, TensorBoard

FEW = ["--dataset", "digits", "--samples", "60", "--clients", "2", "--methods", "IL", "RS", "--inline", "--name", "a"]


@pytest.mark.filterwarnings("ignore")  # TensorBoard's and MLflow's own, as they read
def test_both_trackers_hold_what_the_records_hold_also_of_a_run_that_went_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [*FEW, "--tensorboard", "board", "--mlflow", "flow"]
    main(["compare", *given, "--rounds", "2"])
    main(["compare", *given, "--rounds", "3", "--resume"])  # from the start again
    lines = [json.loads(line) for line in (tmp_path / "runs/a/records.jsonl").read_text().splitlines()]
    wanted = [
        [statistics.fmean(line["test_accuracy"] for line in lines if (line["method"], line["round"]) == ("RS", number))]
        for number in (1, 2, 3)
    ]

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "board/a/RS-0"))
    events.Reload()
    held = events.Scalars("accuracy/test")
    assert [event.step for event in held] == [1, 2, 3]
    assert [[event.value] for event in held] == [pytest.approx(each) for each in wanted]

    from mlflow import MlflowClient
    from mlflow.telemetry.utils import is_telemetry_disabled

    assert is_telemetry_disabled()
    client = MlflowClient(str(tmp_path / "flow"))
    number = client.get_experiment_by_name("a").experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([number])}
    assert set(runs) == {"IL-0", "RS-0"}
    history = client.get_metric_history(runs["RS-0"].info.run_id, "accuracy/test")
    assert [(point.step, [point.value]) for point in history] == [
        (step, pytest.approx(each)) for step, each in enumerate(wanted, start=1)
    ]
    assert runs["RS-0"].data.params["dataset"] == "digits"
    assert runs["RS-0"].info.status == "FINISHED"


def test_what_is_missing_is_named(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *arguments):
        if name in ("torch.utils.tensorboard", "mlflow"):
            raise ModuleNotFoundError(name=name.replace("torch.utils.", ""))
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"needs tensorboard, .* pip install .*'\.\[trackers\]'"):
        TensorBoard(tmp_path)
    with pytest.raises(ConfigError, match=r"needs mlflow, .* pip install .*'\.\[trackers\]'"):
        MLflow(str(tmp_path), "a", {})
