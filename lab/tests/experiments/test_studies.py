"""Studies beyond the paper: what they run, and what they make of it."""

from pathlib import Path
from shutil import copytree

import pytest

from repshare_lab.config import Setting
from repshare_lab.experiments.catalogue import EXPERIMENTS
from repshare_lab.experiments.comparison import keep_begun
from repshare_lab.experiments.experiment import arrange, fill, missing, usual_setting
from repshare_lab.experiments.studies import EXTERNAL, KINDS, STUDIES
from repshare_lab.experiments.study import Panel, Study, Variant, apart, condense, even
from repshare_lab.results.records import RunFolder
from repshare_lab.simulation import Inline, resolve

RESULTS = Path(__file__).parents[3] / "docs" / "results"
NOTEBOOK = Path(__file__).parents[2] / "notebook"
MNIST = usual_setting("mnist", 60_000)
NAMES = [study.name for study in STUDIES]
SMALL = Study(
    "small",
    (Variant("usual"), Variant("no λ", policy={"lambda_kd": 0.0, "lambda_disc": 0.0}, methods=("RS",))),
    (Panel("a title", "an axis", {"usual": "as it is", "no λ": "without"}, "own"),),
)


@pytest.mark.parametrize("name", NAMES)
def test_every_study_has_the_others_beside_sharing_and_no_run_twice(name):
    cells = EXPERIMENTS[name].plan(MNIST, 3)
    more = {"CL", "FD"} if name == "length" else set()
    usual = {"space": set(), "compute": {"FL"}}.get(name, {"IL", "FL", "RS"})
    assert {cell.run.method for cell in cells} - {"FC", "CA", "CS"} == usual | more
    assert ("CA" in {cell.run.method for cell in cells}) == ("CS" in {cell.run.method for cell in cells})
    assert {cell.run.seed for cell in cells} == {0, 1, 2}
    assert len({repr(cell.run) for cell in cells}) == len(cells) == len({cell.title for cell in cells})
    assert all(cell.run.setting.eval_every == cell.run.setting.rounds for cell in cells)
    assert not any(cell.run.setting.independent_starts for cell in cells)


@pytest.mark.parametrize("name", NAMES)
def test_every_variant_of_a_study_is_shown(name):
    study = EXPERIMENTS[name].plan.args[0]
    shown = {label for panel in study.panels for label in panel.ticks}
    assert shown == {variant.label for variant in study.variants} - {"together"}


def test_a_study_is_carried_out_and_drawn_to_the_same_bytes_twice(tmp_path, splits):
    experiment = SMALL.experiment()
    setting = resolve(Setting(dataset="digits", samples=60, rounds=2), len(splits.train.labels))
    folder = RunFolder(tmp_path / "small", experiment.describe(setting), resume=True)
    with Inline() as workers:
        list(fill(experiment, experiment.plan(setting, 2), lambda _: splits.first(test=60), folder, workers))
    lines = folder.records.read()
    alone, usual, without = (
        [line["accuracy"] for line in lines if (line["method"], line["variant"]) == which]
        for which in (("IL", "usual"), ("RS", "usual"), ("RS", "no λ"))
    )
    assert without == alone != usual
    files = {file: file.read_bytes() for file in experiment.show(lines, folder.path, setting)}
    assert {file.suffix for file in files} == {".md", ".png", ".svg"}
    assert {file: file.read_bytes() for file in experiment.show(lines, folder.path, setting)} == files
    assert "| no λ | RS |" in (folder.path / "table.md").read_text()


def test_what_clients_have_and_lack_is_kept_in_percent():
    usual = {"method": "RS", "seed": 0, "bytes_up": 1, "bytes_down": 1, "seconds": 0.0, "round": 1}
    tests = [(0.5, 0.75, 0.0), (0.25, 0.25, 0.5)]
    lines = [{**usual, "test_accuracy": all_, "test_own": own, "test_unseen": lack} for all_, own, lack in tests]
    study = EXPERIMENTS["unseen"].plan.args[0]
    (line,) = condense(study, None, lines)
    assert (line["accuracy"], line["own"], line["unseen"]) == (37.5, 50.0, 25.0)
    (line,) = condense(study, None, [*lines, {**usual, "test_accuracy": 1.0, "test_own": 1.0, "test_unseen": None}])
    assert line["unseen"] is None  # someone has samples of all classes


def test_means_are_over_seeds_of_which_everything_is_there():
    cells = EXPERIMENTS["precision"].plan(MNIST, 2)
    lines = [cell.key for cell in cells]
    assert even(cells, lines) == lines
    assert even(cells, lines[:-1]) == [line for line in lines if line["seed"] == 0]
    assert even(cells, lines[:2]) == lines[:2]  # a first glance


def test_kinds_that_were_together_are_shown_beside_the_same_clients_among_their_like():
    together = {"variant": "together", "method": "RS", "accuracies": [90, 80, 70, 92, 82, 72], "accuracy": 81}
    alone = {"variant": "mlp", "method": "RS", "accuracies": [1, 2, 74, 4, 5, 76], "accuracy": 27}
    lines = apart([alone, together], KINDS)
    assert [(line["variant"], line["method"], line["accuracy"]) for line in lines] == [
        ("mlp", "RS", 75),
        *zip(KINDS, ["RS together"] * 3, [91, 81, 71], strict=True),
    ]


@pytest.mark.parametrize("name", [name for name in NAMES if (RESULTS / EXPERIMENTS[name].folder("mnist")).exists()])
def test_committed_studies_can_be_gone_on_with(name, tmp_path):
    experiment = EXPERIMENTS[name]
    copy = Path(copytree(RESULTS / experiment.folder("mnist"), tmp_path / name))
    setting = keep_begun(MNIST, copy)
    wanted, held = (
        experiment.plan(setting, 3),
        RunFolder(copy, experiment.describe(setting), resume=True).records.read(),
    )
    gone = [line for line in held if len(missing(wanted, [line])) == len(wanted)]
    assert len(held) - len(gone) + len(missing(wanted, held)) == len(wanted)
    assert {line["variant"] for line in gone} == (set(EXTERNAL) if name == "discriminator" else set())
    assert arrange(wanted, held) == held


@pytest.mark.parametrize("name", [name for name in NAMES if (RESULTS / f"{name}-mnist" / "table.md").exists()])
def test_the_page_shows_the_tables_as_they_are(name):
    page = (NOTEBOOK / "studies.md").read_text()
    assert (RESULTS / f"{name}-mnist" / "table.md").read_text() in page
