"""docs/join.md: its commands, as they stand, with real processes, and its Python."""

import ast
import re
import shlex
import signal
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from repshare import load_classifier
from repshare_lab import load
from support.processes import PATIENCE_SECONDS, Process, eventually, records, run
from support.relays import prepare, start_relay
from support.space_parties import NAMES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/join.md").read_text()


def find_commands(title):
    """The commands in a section, by its title, each as a list of words."""
    section = re.search(rf"^## {re.escape(title)}\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL).group(1)
    blocks = "".join(re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in blocks.splitlines() if line.startswith("repshare ")]


def test_three_parties_join_as_the_page_says_and_have_a_classifier_of_all_digits(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = find_commands("Try it on one machine")
    prepared = [words for words in commands if words[0] == "relay" and words[1] != "serve"]
    dry, *joins = [words for words in commands if words[0] == "join"]
    assert (len(prepared), dry[-1], len(joins)) == (5, "--dry-run", 3)
    for words in prepared:
        words, _, file = " ".join(words).partition(" > ")
        told = prepare(*words.split(), cwd=tmp_path)
        if file:
            (tmp_path / file).write_text(told)
    shown = prepare(*dry, cwd=tmp_path)
    for line in re.search(r"```\nwhat leaves in a round\n(.*?)```", PAGE, re.DOTALL).group(1).splitlines():
        assert line.strip() in shown
    with start_relay(tmp_path) as relay, ExitStack() as stack:
        processes = {}
        for _, _, *words in joins:
            name = words[1].rpartition(":")[2]
            processes[name] = Process("join", relay.url, *words, "--threads", 1, cwd=tmp_path, name=name)
            stack.callback(processes[name].stop)
        eventually(lambda: all(map(knows_all_digits, processes)), "all have learned all digits")
        for process in processes.values():
            process.process.send_signal(signal.SIGINT)
        for name, process in processes.items():
            assert process.process.wait(PATIENCE_SECONDS) == 130
            *_, summary, place = process.out.read_text().splitlines()
            assert re.search(
                r"alone +[\d.]+% \(.*\), with 2 others +[\d.]+% .*\(own samples left out in turn\); test accuracy 9",
                summary,
            )
            assert f"the classifier is in repshare-digits-{name}/classifier.safetensors" in place

    test = load("digits").test
    np.save("new.npy", test.images[:5])
    used = find_commands("Using your model")
    assert [words[0] for words in used] == ["predict", "predict", "export"]
    for words in used:
        run(capsys, *words)
    predicted = Path("predictions.csv").read_text().splitlines()
    assert (predicted[0], len(predicted)) == ("sample,class,name,probability", 6)
    scores = load_classifier("repshare-digits-alice/classifier.safetensors").scores(test.images.astype("float32"))
    session = onnxruntime.InferenceSession("classifier.onnx")
    (same,) = session.run(["scores"], {"input": test.images.astype("float32")})
    assert same == pytest.approx(scores.numpy(), abs=1e-3)

    (code,) = re.findall(r"```python\n(from repshare import load_classifier.*?)```", PAGE, re.DOTALL)
    capsys.readouterr()
    exec(compile(code, "join.md", "exec"), {"images": test.images.astype("float32")})
    named = ast.literal_eval(capsys.readouterr().out.splitlines()[0])
    assert np.mean([name == NAMES[label] for name, label in zip(named, test.labels, strict=True)]) > 0.9


def knows_all_digits(name):
    return any(record["test_accuracy"] > 0.95 for record in records(f"repshare-digits-{name}")[-1:])
