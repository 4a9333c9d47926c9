"""A user's own method: found in a file, with options of its own, in this process and in workers."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from repshare import Client, LeNet5, LocalExchange, Task
from repshare.errors import ConfigError
from repshare.methods import METHODS
from repshare_lab.config import Run, Setting
from repshare_lab.experiments.comparison import choose_methods, describe, plan_comparison
from repshare_lab.methods import FL, find_method
from repshare_lab.results.records import RunFolder
from repshare_lab.simulation import Processes
from support.simulations import bits, resumed_bits

ROOT = Path(__file__).parents[3]
PROX, CONTRAST = f"{ROOT}/examples/fedprox.py:PROX", f"{ROOT}/examples/own_loss.py:CONTRAST"
SMALL = Setting(dataset="digits", samples=120, clients=3, rounds=3, eval_every=2, model=("lenet5",))
OWN = '''
from dataclasses import dataclass
from typing import Literal
import torch
from repshare.methods import RS, Method
from repshare.network.learner import NetworkLearner
from repshare_lab.methods import FL

@dataclass(frozen=True)
class Options:
    size: float = 1
    """How large."""
    kind: Literal["a", "b"] = "a"
    """Which."""
    often: int | None = None
    """How often."""
    on: bool = False
    """Whether."""

class Counted(NetworkLearner):
    def own_loss(self, batch):
        self.remembered["steps"] = self.remembered.get("steps", torch.zeros(())) + 1
        return self.options.size * self.remembered["steps"] * batch.features.square().mean()

class Vector(NetworkLearner):
    def own_loss(self, batch):
        return batch.features.sum(dim=1)

TITLE = "a loss that grows with every step"
COUNTED = RS._replace(name="COUNTED", title=TITLE, learner=Counted.open, options=Options())
PLAIN = Method("PLAIN", "alone, once more")
TAKEN = Method("rs", "a name that is taken")
ODD = Method("../up", "a name that is no name")
BARE = Method("BARE", "no options", options={"size": 1})
VECTOR = RS._replace(name="VECTOR", learner=Vector.open)

class Noting(FL.serve):
    given = []
    def __init__(self, task, start, options):
        super().__init__(task, start, options)
        self.given.append(options.size)

SERVED = FL._replace(name="SERVED", serve=Noting, options=Options())
'''


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return str(tmp_path / "own.py")


def with_options(*words):
    return replace(SMALL, method_options=words)


@pytest.mark.parametrize("method", [PROX, CONTRAST])
def test_workers_find_a_method_in_its_file_and_give_the_same_bits(method, splits, inline):
    run = Run(method, 0, with_options("PROX.mu=0.5", "CONTRAST.weight=0.7"))
    with Processes(2) as processes:
        assert bits(run, splits, processes) == bits(run, splits, inline)


def test_fedprox_without_its_term_is_fedavg_to_the_bit(splits, inline):
    fedavg = bits(Run("FL", 0, SMALL), splits, inline)
    assert bits(Run(PROX, 0, with_options("PROX.mu=0")), splits, inline) == fedavg
    assert bits(Run(PROX, 0, with_options("PROX.mu=0.1")), splits, inline) != fedavg


def test_the_term_of_fedprox_is_half_mu_times_the_squared_way_from_the_average(digits):
    (images, labels), _ = digits
    method = find_method(PROX, with_options("PROX.mu=3"))
    client = Client(LeNet5(), (images[:50], labels[:50]), LocalExchange(FL.serve(Task(10, 84)), "a"), method=method)
    client.collect()
    weights = list(client.learner.network.model.parameters())
    for tensor in weights:
        tensor.data += 0.5
    term = client.learner.own_loss(None)
    assert float(term.detach()) == pytest.approx(3 / 2 * 0.25 * sum(tensor.numel() for tensor in weights), rel=1e-4)
    term.backward()
    assert all(tensor.grad.flatten()[0] == pytest.approx(3 * 0.5, rel=1e-4) for tensor in weights)


def test_an_own_loss_without_weight_is_the_method_it_was_added_to(splits, inline):
    sharing = bits(Run("RS", 0, SMALL), splits, inline)
    assert bits(Run(CONTRAST, 0, with_options("CONTRAST.weight=0")), splits, inline) == sharing
    assert bits(Run(CONTRAST, 0, SMALL), splits, inline) != sharing


def test_what_a_method_remembers_survives_an_interruption(own, splits, inline, tmp_path):
    run = Run(f"{own}:COUNTED", 0, SMALL)
    whole = bits(run, splits, inline)
    assert resumed_bits(run, splits, inline, tmp_path / "c", after=1) == whole[1:]


def test_options_are_read_by_their_types_and_wrong_ones_name_what_there_is(own):
    def options(*words):
        return find_method(f"{own}:COUNTED", with_options(*words)).options

    assert options("counted.size=0.5", "COUNTED.kind=b", "COUNTED.often=3", "COUNTED.on=true").__dict__ == {
        "size": 0.5, "kind": "b", "often": 3, "on": True,
    }  # fmt: skip
    assert options("COUNTED.often=None", "OTHER.size=7").size == 1
    for word, message in [
        ("sise=1", "COUNTED has no option 'sise=1': use size=…, kind=…, often=…, on=…; did you mean size?"),
        ("size", "COUNTED has no option 'size': use"),
        ("size=large", "size cannot be 'large': its default is 1"),
        ("kind=c", "kind cannot be 'c': its default is 'a'"),
        ("often=1.5", "often cannot be '1.5': its default is None"),
        ("on=1", "on cannot be '1': its default is False"),
    ]:
        with pytest.raises(ConfigError) as refused:
            options(f"COUNTED.{word}")
        assert str(refused.value).startswith(message)


def test_an_authors_check_of_options_is_told_in_one_line():
    with pytest.raises(ConfigError, match="options of CONTRAST are refused: ValueError: temperature must be above 0"):
        find_method(CONTRAST, with_options("CONTRAST.temperature=0"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MISSING", "there is no 'MISSING'; the methods in this file are COUNTED, PLAIN, TAKEN"),
        ("Options", "Options is a type; the methods in this file are"),
        ("TAKEN", "is called rs, as a method here is: give it another name"),
        ("ODD", r"is called '../up': use 1 to 20 letters"),
        ("BARE", "has options that are not a value of a dataclass"),
    ],
)
def test_what_is_no_method_is_refused(own, name, message):
    with pytest.raises(ConfigError, match=message):
        find_method(f"{own}:{name}")


def test_a_comparison_refuses_two_methods_of_one_name_and_options_of_none(own, tmp_path, splits):
    shutil.copy(own, tmp_path / "copy.py")
    with pytest.raises(ConfigError, match="two methods are called PLAIN"):
        choose_methods(["IL", f"{own}:PLAIN", f"{tmp_path}/copy.py:PLAIN"], SMALL)
    for word in ("XX.mu=1", "mu=1"):
        with pytest.raises(ConfigError, match=f"'{word}' is no METHOD.option=value: .* are IL, PLAIN"):
            plan_comparison(with_options(word), ["IL", f"{own}:PLAIN"], 1, splits)
    with pytest.raises(ConfigError, match="PLAIN has no options: leave mu=1 out"):
        plan_comparison(with_options("PLAIN.mu=1"), ["IL", f"{own}:PLAIN"], 1, splits)


def test_a_run_is_not_resumed_with_a_file_that_has_changed(own, splits, tmp_path):
    def resume():
        runs = plan_comparison(SMALL, ["IL", f"{own}:PLAIN"], 1, splits)
        RunFolder(tmp_path / "run", describe(runs, runs[0].setting), resume=True)

    resume()
    resume()
    Path(own).write_text(f"{OWN}\n# changed\n")
    with pytest.raises(ConfigError, match=rf"another run \({own} 'sha256 (\w+)' there, 'sha256 (?!\1)\w+' here\)"):
        resume()
    described = json.loads((tmp_path / "run/run.json").read_text())
    del described["code"]  # as an earlier version left it
    (tmp_path / "run/run.json").write_text(json.dumps(described))
    resume()


def test_a_file_that_has_changed_is_read_again(own):
    assert find_method(f"{own}:PLAIN") is find_method(f"{own}:PLAIN")
    Path(own).write_text(OWN.replace("once more", "at last"))
    assert find_method(f"{own}:PLAIN").title == "alone, at last"


def test_a_loss_must_be_one_number(own, digits):
    (images, labels), _ = digits
    client = Client(LeNet5(), (images[:50], labels[:50]), method=find_method(f"{own}:VECTOR"))
    with pytest.raises(ConfigError, match=r"own loss must be one number, not torch.Size\(\[32\]\)"):
        client.round()


def test_every_method_of_the_folder_is_found_in_the_tables_order():
    assert list(METHODS)[:7] == ["CL", "IL", "FL", "FD", "RS", "CA", "CS"]
    assert set(list(METHODS)[7:]) == {"FC", "AFL", "FH"}


def test_an_installed_package_adds_a_method(tmp_path):
    (tmp_path / "newest.py").write_text('from repshare.methods import Method\nNEW = Method("NEW", "one file")\n')
    about = tmp_path / "newest-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: newest\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[repshare.methods]\nNEW = newest:NEW\n")
    shown = subprocess.run(
        [sys.executable, "-c", "from repshare.cli.main import main\nmain(['methods'])\nmain(['methods', 'NEW'])"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert [line.split() for line in shown.splitlines() if "NEW" in line] == [["NEW", "one", "file"]] * 2
