"""docs/joining.md: its commands, as they stand, with real processes, and its Python."""

import ast
import re
import shlex
import signal
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from repshare import load
from support.common_parties import NAMES
from support.processes import PATIENCE_SECONDS, Process, eventually, records
from support.relays import prepare, start_relay
from support.warm import run_warm

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/joining.md").read_text()


def find_commands(title):
    """The commands in a section, by its title, each as a list of words."""
    section = re.search(rf"^## {re.escape(title)}\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL).group(1)
    blocks = "".join(re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in blocks.splitlines() if line.startswith("repshare ")]


def test_three_parties_join_as_the_page_says_and_have_a_classifier_of_all_digits(tmp_path):
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
    shown = run_warm(*dry, cwd=tmp_path).stdout
    for line in re.search(r"```\nwhat leaves in a round\n(.*?)```", PAGE, re.DOTALL).group(1).splitlines():
        assert line.strip() in shown
    with start_relay(tmp_path) as relay, ExitStack() as stack:
        names = [words[3].rpartition(":")[2] for words in joins]
        for name, words in zip(names, joins, strict=True):
            process = Process("join", relay.url, *words[2:], "--threads", 1, cwd=tmp_path, name=name)
            stack.callback(process.stop)
            stack.callback(process.process.wait, PATIENCE_SECONDS)
            stack.callback(process.process.send_signal, signal.SIGINT)
        folders = [tmp_path / f"repshare-digits-{name}" for name in names]
        eventually(lambda: all(len(records(folder)) >= 20 for folder in folders), "all have learned")
    for name in names:
        told = (tmp_path / f"{name}.out").read_text()
        assert re.search(r"alone +[\d.]+%, with 2 others +[\d.]+% \(own held-out samples\)", told)
        assert float(re.search(r"test accuracy ([\d.]+)%", told).group(1)) > 95
        assert f"the classifier is in repshare-digits-{name}/classifier.safetensors" in told
        print(told)

    (code,) = re.findall(r"```python\n(from repshare import load_classifier.*?)```", PAGE, re.DOTALL)
    given = 'from repshare import load\nimages = load("digits").test.images.astype("float32")\n'
    (tmp_path / "mine.py").write_text(given + code)
    done = run_warm(cwd=tmp_path, script=str(tmp_path / "mine.py"))
    assert done.returncode == 0, done.stderr
    named, labels = ast.literal_eval(done.stdout.splitlines()[0]), load("digits").test.labels
    assert np.mean([name == NAMES[label] for name, label in zip(named, labels, strict=True)]) > 0.95
    print(shown, done.stdout[-600:])
