"""The study of topologies: which runs it has, what it shows of them, and that traffic does not grow with the crowd."""

from repshare_lab.config import Setting
from repshare_lab.experiments.experiment import fill
from repshare_lab.experiments.topologies import RELAY, STYLES, TOPOLOGIES, WAYS, plan
from repshare_lab.results.records import RunFolder
from repshare_lab.simulation import Inline, resolve

TINY = Setting(dataset="digits", samples=200, rounds=2)


def test_every_way_is_there_at_one_size_and_some_at_others():
    cells = plan(TINY, 2)
    keys = [tuple(cell.key.values()) for cell in cells]
    assert len(set(keys)) == len(keys) == 2 * (len(WAYS) + 2 * len(STYLES))
    ways = {cell.run.setting.topology for cell in cells}
    assert ways == {None, "complete", "ring"}
    assert {cell.run.setting.eval_every for cell in cells} == {2}


def test_what_a_client_downloads_does_not_grow_with_the_number_of_clients(tmp_path, splits):
    setting = resolve(TINY, len(splits.train.labels))
    cells = [cell for cell in plan(setting, 1) if cell.key["row"] == "complete, 2 peers"]
    folder = RunFolder(tmp_path / "study", TOPOLOGIES.describe(setting), resume=True)
    with Inline() as workers:
        for _ in fill(TOPOLOGIES, cells, lambda _: splits, folder, workers):
            pass
    found = {line["clients"]: line["bytes_down"] / line["client_rounds"] for line in folder.records.read()}
    assert 0 < found[20] <= found[10] <= found[5]  # those with few samples lack a class now and then


def test_the_difference_to_the_relay_is_taken_seed_by_seed(tmp_path):
    lines = [
        {
            "row": row,
            "clients": 10,
            "seed": seed,
            "accuracy": 80.0 + more + 5 * seed,
            "bytes_down": 700,
            "client_rounds": 1,
        }
        for row, more, seeds in ((RELAY, 0.0, (0, 1, 2)), ("ring, 2 peers", -1.0, (1, 2)))
        for seed in seeds
    ]
    table, png, svg = TOPOLOGIES.show(lines, tmp_path, TINY)
    assert "| ring, 2 peers | 86.50 ± 3.54 (2) | -1.00 | 700 B |" in table.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "ring, 2 peers" in svg.read_text()
