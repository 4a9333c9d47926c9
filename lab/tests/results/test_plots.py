import numpy as np

from repshare_lab.results.plots import draw_accuracy, draw_partition


def lines(methods, clients=3, rounds=4, seeds=2):
    return [
        {"method": m, "seed": s, "round": r, "client": str(c), "test_accuracy": None if r == 1 else 0.1 * r + 0.01 * c}
        for m in methods
        for s in range(seeds)
        for r in range(1, rounds + 1)
        for c in range(clients)
    ]


def is_picture(path):
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000


def test_accuracy_is_drawn_for_known_and_unknown_methods(tmp_path):
    draw_accuracy(lines(["IL", "RS", "mine"]), tmp_path / "a.png", "title")
    assert is_picture(tmp_path / "a.png")


def test_partitions_of_few_and_many_clients_can_be_drawn(tmp_path):
    for clients in (1, 5, 300):
        draw_partition(np.random.default_rng(0).integers(0, 9, (clients, 10)), tmp_path / "p.png", "title")
        assert is_picture(tmp_path / "p.png")


def test_the_same_lines_give_the_same_picture(tmp_path):
    for name in ("a.png", "b.png"):
        draw_accuracy(lines(["IL", "RS"]), tmp_path / name, "title")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
