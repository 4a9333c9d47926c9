"""A party whose labels are in another order joins a relay: it is left out, and all who should know are told why."""

import json

from repshare.sharing import wire
from repshare.space import Patches
from repshare.space.agreement import Agreement
from repshare.space.dual import Dual
from support.processes import eventually
from support.relays import create_task, invite, prepare, start_relay

CLASSES, SIZE = 10, 120
COMMON = Agreement(Patches((1, 8, 8), sizes=(3, 4)))
VALUES = ("--input-shape", 1, 8, 8, "--classes", CLASSES)
PARTY_FILE = """
from repshare import Party, Policy
from repshare_lab import load

def make(number):
    def party():
        train, _, _ = load("digits")
        images, labels = (each[number * 120 :][:120] for each in (train.images, train.labels))
        images = images.astype("float32") / 8 - 1
        if number == 3:
            labels = (labels + 1) % 10
        return Party(data=(images, labels), policy=Policy(accept_exposure=True), accept_space=True)
    return party

for number in range(4):
    globals()[f"p{number}"] = make(number)
"""


def make_first_part(digits, number):
    (images, labels), _ = digits
    rows = slice(number * SIZE, (number + 1) * SIZE)
    own = Dual(COMMON.space(images[rows]).numpy(), (labels[rows].numpy() + (number == 3)) % CLASSES, CLASSES)
    own.improve()
    return own.release(1, COMMON.name)


def test_a_part_with_other_labels_is_refused_by_its_classes_and_listed(tmp_path, digits):
    create_task(tmp_path, "t", *VALUES)
    tokens = {f"p{number}": invite(tmp_path, f"p{number}", "--task", "t") for number in range(4)}
    viewer = invite(tmp_path, "v", "--task", "t", "--role", "viewer")
    with start_relay(tmp_path, "--audit-log", "audit.jsonl") as relay:
        task = relay.ask("GET", "/v1/tasks/t", viewer).json()
        assert (task["compared"], task["most_share"], task["space"]) == (True, 0.5, COMMON.name)
        for number, name in [(3, "p3"), (0, "p0"), (1, "p1"), (2, "p2")]:
            body = wire.encode_release(make_first_part(digits, number), "fp16")
            assert relay.publish(name, body, tokens[name], "t").status_code == 200
        status = relay.ask("GET", "/v1/tasks/t/status", viewer).json()
        assert sorted(row["name"] for row in status["shown"]) == ["p0", "p1", "p2"]
        (left_out,) = status["left_out"]
        assert left_out["name"] == "p3"
        assert "are like others' for class" in left_out["reason"]
        own = relay.ask("GET", "/v1/tasks/t/status", tokens["p3"]).json()["left_out"]
        assert [row["name"] for row in own] == ["p3"]
        assert relay.ask("GET", "/v1/tasks/t/status", tokens["p0"]).json()["left_out"] == []
        answer = relay.publish(
            "p3", wire.encode_release(make_first_part(digits, 3)._replace(round=2)), tokens["p3"], "t"
        )
        assert (answer.status_code, answer.json()["type"]) == (412, "urn:repshare:problem:left-out")
    assert "left out: p3: its rows for class" in prepare("relay", "tasks", "list", cwd=tmp_path)
    noted = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    (noted,) = [line for line in noted if line["action"] == "leave-out"]
    assert (noted["client"], "compare its labels" in noted["reason"]) == ("p3", True)


def test_join_tells_a_party_with_other_labels_why_it_is_left_out(tmp_path):
    from contextlib import ExitStack

    from support.processes import Process, records

    (tmp_path / "party.py").write_text(PARTY_FILE)
    create_task(tmp_path, "t", *VALUES)
    with ExitStack() as stack:
        relay = stack.enter_context(start_relay(tmp_path))
        for number in range(4):
            name = f"p{number}"
            (tmp_path / f"{name}.token").write_text(invite(tmp_path, name, "--task", "t"))
            (tmp_path / f"{name}.token").chmod(0o600)
            arguments = ["--party", f"party.py:{name}", "--token-file", f"{name}.token", "--threads", 1]
            stack.callback(Process("join", relay.url, *arguments, cwd=tmp_path, name=name).stop)

        def told(name):
            return [line["trouble"] or "" for line in records(tmp_path / f"repshare-t-{name}")]

        eventually(lambda: any("compare its labels with the others'" in each for each in told("p3")), "p3 is told")
        eventually(lambda: all(len(told(f"p{number}")) > 3 for number in range(3)), "the others go on")
        assert not any(each for number in range(3) for each in told(f"p{number}"))
