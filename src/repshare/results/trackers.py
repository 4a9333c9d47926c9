"""Trackers: a run's curves as TensorBoard's event files, or in MLflow. Each value is a mean over clients.

A round that is carried out again after an interruption replaces the values that were noted before.
"""

import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from repshare import imports
from repshare.errors import ConfigError
from repshare.imports import in_one_line
from repshare.results.records import Line, find

MEASURES = {  # fields of a record, and their names in a tracker
    "test_accuracy": "accuracy/test",
    "test_own": "accuracy/own mix",
    "test_unseen": "accuracy/unseen classes",
    "train_accuracy": "accuracy/train",
    "ce": "loss/cross-entropy",
    "kd": "loss/distillation",
    "disc": "loss/discrimination",
    "bytes_up": "traffic/bytes up",
    "bytes_down": "traffic/bytes down",
    "seconds": "seconds",
}


class Tracker(Protocol):
    """Takes the means of a round under the name of its run, and the round's number."""

    def note(self, run: str, round: int, means: Mapping[str, float]) -> None:
        """Note the means of a round. Rounds come in order, perhaps from an earlier one on again."""

    def close(self) -> None:
        """Write down whatever is not yet."""


def mean_measures(records: Sequence[Line]) -> dict[str, float]:
    """Return the mean over clients of each measure that a round's records have."""
    return {name: statistics.fmean(values) for field, name in MEASURES.items() if (values := find(records, field))}


class TensorBoard:
    """Event files, in one folder for each method and seed."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as error:
            raise imports.missing(error) from error
        self._make, self._folder = SummaryWriter, folder
        self._writers: dict[str, SummaryWriter] = {}

    def note(self, run: str, round: int, means: Mapping[str, float]) -> None:
        """Note the means of a round."""
        if run not in self._writers:
            self._writers[run] = self._make(str(self._folder / run), purge_step=round)
        for name, mean in means.items():
            self._writers[run].add_scalar(name, mean, round)
        self._writers[run].flush()

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()


class MLflow:
    """An MLflow experiment with a run for each method and seed: in a folder, or at a server. No telemetry is sent."""

    def __init__(self, place: str, experiment: str, setting: Mapping[str, Any]) -> None:
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder, which MLflow keeps but no longer extends
        try:
            from mlflow import MlflowClient
        except ModuleNotFoundError as error:
            raise imports.missing(error) from error
        self._setting, self._noted = setting, dict[str, tuple[str, int]]()  # a run's id, and its last round
        try:
            self._client = MlflowClient(place)
            held = self._client.get_experiment_by_name(experiment)
            self._experiment = held.experiment_id if held else self._client.create_experiment(experiment)
        except Exception as error:  # MLflow's own, those of its transport, and of a file system
            raise ConfigError(f"MLflow cannot use {place}: {in_one_line(error)[:200]}") from error

    def note(self, run: str, round: int, means: Mapping[str, float]) -> None:
        """Note the means of a round, unless they are noted: the same round gives the same numbers."""
        if run not in self._noted:
            self._noted[run] = self._find(run) or self._begin(run)
        number, last = self._noted[run]
        if round > last:
            for name, mean in means.items():
                self._client.log_metric(number, name, mean, step=round)
            self._noted[run] = number, round

    def close(self) -> None:
        """Tell MLflow that nothing more will come."""
        for number, _ in self._noted.values():
            self._client.set_terminated(number)

    def _find(self, run: str) -> tuple[str, int] | None:
        name = f"attributes.run_name = '{run}'"
        for held in self._client.search_runs([self._experiment], name, max_results=1):
            steps = [each.step for each in self._client.get_metric_history(held.info.run_id, "seconds")]
            return held.info.run_id, max(steps, default=0)
        return None

    def _begin(self, run: str) -> tuple[str, int]:
        number = self._client.create_run(self._experiment, run_name=run).info.run_id
        for name, value in self._setting.items():
            if name != "rounds":  # which may grow, and MLflow changes no parameter
                self._client.log_param(number, name, str(value))
        return number, 0
