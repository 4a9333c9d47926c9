"""`auto`: bf16 where it is faster, chosen once, told in run.json, and never mixed."""

import pytest
import torch

from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.network import steps
from repshare.network.learner import NetworkLearner
from repshare.network.models import LeNet5, ResNet9
from repshare.network.states import copy_state
from repshare.network.steps import choose_compute, is_large
from repshare.records import Folder
from repshare.samples import Samples
from repshare_lab.config import Setting
from repshare_lab.experiments.catalogue import EXPERIMENTS
from repshare_lab.experiments.comparison import describe
from repshare_lab.experiments.experiment import usual_setting
from repshare_lab.simulation import resolve
from repshare_lab.simulation.plan import make_run

AUTO = Policy(compute="auto")


@pytest.fixture(params=[True, False], ids=["bf16 here", "no bf16 here"])
def able(request, monkeypatch):
    monkeypatch.setattr(steps, "has_bf16", lambda: request.param)
    return request.param


def test_auto_is_bf16_for_large_networks_on_processors_that_have_it(able):
    assert (is_large(ResNet9()), is_large(LeNet5())) == (True, False)
    assert choose_compute(AUTO, "cpu", large=True) == ("bf16" if able else "fp32")
    assert choose_compute(AUTO, "cpu", large=False) == choose_compute(AUTO, "cuda", large=True) == "fp32"
    assert choose_compute(Policy(compute="bf16"), "cpu", large=False) == "bf16"
    assert choose_compute(Policy(), "cpu", large=True) == "fp32"


def test_what_the_processor_has_is_read_from_pytorch():
    assert steps.has_bf16() == (torch.cpu._is_avx512_bf16_supported() or torch.cpu.get_capabilities()["amx_bf16"])


def test_a_simulation_says_what_was_chosen_and_is_not_resumed_with_another(tmp_path, monkeypatch):
    def describe_here(able):
        monkeypatch.setattr(steps, "has_bf16", lambda: able)
        setting = resolve(Setting(dataset="fashion_mnist", policy=AUTO), 60_000)
        return describe([make_run("FL", 0, setting)], setting)

    one, other = describe_here(True), describe_here(False)
    assert (one["setting"]["policy"]["compute"], other["setting"]["policy"]["compute"]) == ("bf16", "fp32")
    Folder(tmp_path / "run", one, resume=False)
    Folder(tmp_path / "run", one, resume=True)
    with pytest.raises(ConfigError, match=r"already holds another run \(.*compute.*bf16.*fp32"):
        Folder(tmp_path / "run", other, resume=True)


def test_networks_of_several_kinds_compute_alike(able):
    mixed = resolve(Setting(dataset="mnist", model=("resnet9", "lenet5"), policy=AUTO), 60_000)
    assert mixed.policy.compute == "fp32"


def test_a_client_keeps_its_choice_on_another_machine(digits, monkeypatch):
    (images, labels), _ = digits
    monkeypatch.setattr(steps, "has_bf16", lambda: True)
    monkeypatch.setattr(steps, "LARGE", 1000)

    def make(policy):
        torch.manual_seed(0)
        return NetworkLearner(LeNet5(), Samples((images[:50], labels[:50])), policy, name="a", seed=0)

    first = make(AUTO)
    first.train()
    monkeypatch.setattr(steps, "has_bf16", lambda: False)
    second, exact = make(AUTO), make(Policy())
    assert (first.compute, second.compute) == ("bf16", "fp32")
    second.load_state(copy_state(first.state()))
    assert second.compute == "bf16"
    assert second.train() == first.train()
    assert "compute" not in exact.state()


def test_a_study_of_precision_keeps_each_variants_own(able):
    setting = usual_setting("fashion_mnist", 60_000)
    cells = [cell.computed_in("fp32") for cell in EXPERIMENTS["compute"].plan(setting, 1)]
    assert [cell.run.setting.policy.compute for cell in cells] == ["fp32", "bf16"]
    cell = EXPERIMENTS["compute"].plan(setting, 1)[0]
    assert cell.computed_in("auto").run.setting.policy.compute == ("bf16" if able else "fp32")


@pytest.mark.parametrize(("model", "largest"), [(ResNet9(), 32), (LeNet5(), 50)])
def test_large_networks_are_tested_in_smaller_batches(model, largest):
    samples = Samples((torch.randn(50, 1, 28, 28), torch.arange(50) % 10))
    learner, seen = NetworkLearner(model, samples, Policy(), name="a", seed=0), []
    model.register_forward_hook(lambda module, inputs, logits: seen.append(len(logits)))
    learner.scores(samples)
    assert max(seen) == largest
    assert sum(seen) == 50
