"""The same bits on a Ray cluster of two nodes, started here."""

import builtins
import os
from dataclasses import replace
from pathlib import Path

import pytest

from repshare.errors import ConfigError, WorkerFailed
from repshare_lab.config import Run, Setting
from repshare_lab.simulation import Checkpoint, Inline, simulate
from repshare_lab.simulation.cluster import Cluster

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, and those of what it brings along

SMALL = Setting(dataset="digits", samples=120, clients=3, rounds=3, eval_every=2, model=("lenet5",), dropout=0.2)


def plain(rounds):
    return [[replace(record, seconds=0.0) for record in records] for records in rounds]


@pytest.fixture(scope="module")
def two_nodes():
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    import ray
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    ray.init(address=nodes.address, log_to_driver=False, configure_logging=False)
    yield ray
    ray.shutdown()
    nodes.shutdown()


def test_two_nodes_give_the_same_bits_as_one_process(two_nodes, splits, tmp_path):
    assert len([node for node in two_nodes.nodes() if node["Alive"]]) == 2
    with Inline() as inline, Cluster() as cluster:
        assert cluster.count == 2
        for method in (f"{Path(__file__).parents[3]}/examples/fedprox.py:PROX", "FL", "RS"):
            run = Run(method, 0, SMALL)
            whole = plain(simulate(run, splits, inline))
            assert plain(simulate(run, splits, cluster)) == whole
        first = plain([next(simulate(run, splits, cluster, Checkpoint(tmp_path / "c", run)))])
        rest = plain(simulate(run, splits, inline, Checkpoint(tmp_path / "c", run)))
        assert first + rest == whole
        assert len([*Path(cluster._scratch.name).iterdir()]) == 1  # of four runs


def test_errors_and_deaths_on_the_cluster_are_told(two_nodes, splits):
    with Cluster(count=1) as cluster, pytest.raises(WorkerFailed, match="died"):
        for _ in simulate(Run("RS", 0, SMALL), splits, cluster):
            two_nodes.kill(cluster._actors[0])


def test_more_workers_than_cores_are_refused(two_nodes):
    with pytest.raises(ConfigError, match="3 workers are too many for a cluster of 2 CPUs"):
        Cluster(count=3).__enter__()
    with Cluster(count=2) as cluster:
        assert cluster.count == 2


def test_without_ray_the_error_names_what_to_install(monkeypatch):
    real = builtins.__import__

    def without_ray(name, *rest):
        if name == "ray":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_ray)
    with pytest.raises(ConfigError, match=r"pip install -c constraints.txt . './lab\[ray\]' in a clone"):
        Cluster().__enter__()
