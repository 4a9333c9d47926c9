"""What releases show of single samples stands beside the accuracy that they buy."""

import re
from pathlib import Path

import numpy as np

from repshare.cli.main import main
from repshare_lab.config import Setting
from repshare_lab.experiments.comparison import tell_exposure
from repshare_lab.simulation import resolve
from repshare_lab.simulation.plan import make_run

RESULTS = Path(__file__).parents[3] / "docs" / "results"
TOLD = re.compile(r"A release of CS tells who is among a client's samples with AUC ([01]\.\d\d)(?: to [01]\.\d\d)?, by")


def test_every_committed_table_of_comparisons_with_cs_tells_it():
    tables = [file for file in RESULTS.glob("*/table.md") if not re.search("leakage|field", str(file))]
    with_rows = [file for file in tables if re.search(r"\| CS \|", file.read_text())]
    assert len(with_rows) > 8
    assert [file for file in with_rows if not TOLD.search(file.read_text())] == []


def test_longer_rows_of_fewer_samples_show_more():
    example = np.zeros((1, 1, 8, 8), np.float32)

    def told(methods=("CS",), clients=3, **setting):
        resolved = resolve(Setting(dataset="digits", clients=clients, **setting), 1200)
        return tell_exposure([make_run(method, 0, resolved) for method in methods], example, 10)

    areas = [
        float(TOLD.search(told(clients=clients, samples=1200, space=("patches", f"components={d}"))).group(1))
        for d, clients in ((2, 1), (9, 1), (9, 3), (32, 3))
    ]
    assert areas == sorted(areas)
    assert areas[0] < 0.56 < areas[1] <= 0.60 < areas[2]
    assert told(methods=("IL", "CA", "RS")) == ""


def test_compare_tells_it_below_its_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = "--dataset digits --methods CA CS --clients 3 --samples 90 --rounds 1 --workers 0"
    main(["compare", *words.split()])
    assert TOLD.search(" ".join(capsys.readouterr().out.split()))
