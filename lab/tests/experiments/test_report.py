"""`repshare report`: what stands in the file, that it needs nothing else, and that names are only text in it."""

import base64
import json
import re
import shutil
import statistics
from pathlib import Path

import pytest

from repshare.errors import ConfigError
from repshare_lab.experiments.report import make_report
from support.browsers import Visit, start_browser
from support.warm import run_warm

ROOT = Path(__file__).parents[3]
HOSTILE = """<script>document.title = 'stolen'</script><img src=x onerror="document.title = 'stolen'"><b>[/x]bold"""
LOADS = r"""(?:src|href|action|data|poster)\s*=\s*["']?(?!data:|#)[\w./:]|url\(|@import"""

LOADED = "[...document.images].every((image) => image.complete && image.naturalWidth > 0)"


def repshare(*arguments, cwd):
    return run_warm(*arguments, cwd=cwd, timeout=240)


def report(folder, *runs):
    """The report on these runs."""
    done = repshare("report", *runs, "--output", "report.html", cwd=folder)
    assert done.returncode == 0, done.stderr
    return (folder / "report.html").read_text()


def drawn(shown):
    """The figures of a report, by name."""
    found = re.findall(r'alt="([^"]*)" src="data:image/(?:png|svg\+xml);base64,([^"]*)"', shown)
    return {label: base64.b64decode(figure) for label, figure in found}


def change(folder, name, edit):
    path = folder / name
    path.write_text(edit(path.read_text()))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A real small comparison."""
    folder = tmp_path_factory.mktemp("runs")
    options = ("--dataset", "digits", "--clients", "2", "--samples", "60", "--rounds", "3", "--eval-every", "1")
    done = repshare(
        "compare", *options, "--methods", "IL", "RS", "--seeds", "2", "--workers", "0", "--name", "a", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "a"


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it to spoil."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture(scope="module")
def browser():
    with start_browser() as browser:
        yield browser


def test_a_report_shows_a_run_and_opens_without_a_network(run, browser):
    shown = report(run.parent, "run")
    assert "Unfinished" not in shown
    assert re.findall(LOADS, shown) == []
    assert drawn(shown) == {name: (run / f"{name}.png").read_bytes() for name in ("figure", "partition")}

    visit = Visit(browser, offline=True, color_scheme="dark")
    visit.page.goto((run.parent / "report.html").as_uri())
    visit.wait(LOADED)
    assert visit.page.evaluate("document.images.length") == 2
    lines = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    last = [100 * line["test_accuracy"] for line in lines if (line["method"], line["round"]) == ("RS", 3)]
    assert re.search(rf"RS +{statistics.fmean(last):.2f} ± ", visit.text("pre"))
    assert "representation sharing (the paper)" in visit.text("pre")
    assert '"learning_rate": 0.001' in shown.replace("&#34;", '"')
    assert visit.errors == []
    assert visit.hosts == {""}
    visit.close()


def test_names_are_only_text(run, browser):
    change(run, "records.jsonl", lambda text: text.replace('"RS"', json.dumps(HOSTILE)).replace("client 1", "<i>x"))
    change(run, "finished.json", lambda text: text.replace('"RS"', json.dumps(HOSTILE)))
    change(
        run, "run.json", lambda text: text.replace('"RS"', json.dumps(HOSTILE)).replace('"digits"', json.dumps(HOSTILE))
    )
    shown = report(run.parent, "run")
    assert HOSTILE not in shown
    visit = Visit(browser)
    visit.page.goto((run.parent / "report.html").as_uri())
    visit.wait(LOADED)
    assert visit.page.title() != "stolen"
    assert "[/x]bold, 2 clients".endswith(visit.text("h1"))
    assert HOSTILE[:30] in visit.text("pre")
    assert visit.page.evaluate("document.querySelectorAll('article img[src=x], article b, article i').length") == 0
    assert visit.errors == []
    visit.close()


def test_no_script_runs_in_a_figure_or_a_table_that_a_run_left(tmp_path, browser):
    folder = Path(shutil.copytree(ROOT / "docs/results/skew-mnist", tmp_path / "skew"))
    change(folder, "figure.svg", lambda text: text.replace("</svg>", "<script>top.document.title = 1</script></svg>"))
    change(folder, "table.md", lambda text: f"[press](javascript:alert()) {HOSTILE}\n\n{text}")
    shown = report(tmp_path, "skew")
    assert b"<script" in drawn(shown)["figure"]
    visit = Visit(browser)
    visit.page.goto((tmp_path / "report.html").as_uri())
    visit.wait(LOADED)
    assert visit.page.title() == "skew, mnist · repshare"
    assert visit.page.evaluate("document.querySelectorAll('a, script, article b').length") == 0
    assert "uniform" in visit.text("pre")
    assert visit.errors == []
    visit.close()


def test_of_an_unfinished_run_the_table_has_what_is_finished(run):
    change(run, "finished.json", lambda _: '[["IL", 0], ["IL", 1], ["RS", 0]]')
    change(run, "run.json", lambda text: text.replace('"IL"', '"IL", "CS"'))
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    left = [line for line in lines if '"RS", "seed": 1, "round": 3' not in line]
    change(run, "records.jsonl", lambda _: "".join(left))
    (run / "figure.png").unlink()
    tests = [json.loads(line) for line in left if '"RS", "seed": 0, "round": 3' in line]
    shown = report(run.parent, "run")
    assert "Unfinished.</strong> Missing: RS, seed 1: after round 2; 2 not begun." in shown
    assert re.search(rf"RS +{100 * statistics.fmean(line['test_accuracy'] for line in tests):.2f} ", shown)
    assert drawn(shown)["figure"].startswith(b"\x89PNG")


def test_the_papers_table_and_clients_of_a_relay_can_be_reported_on_together(tmp_path):
    table = Path(shutil.copytree(ROOT / "docs/results/table-mnist", tmp_path / "table"))
    change(table, "records.jsonl", lambda text: "".join(line for line in text.splitlines(True) if '"CA ' not in line))
    client = tmp_path / "client"
    client.mkdir()
    (client / "run.json").write_text(json.dumps({"client": "alice", "task": "wards", "seed": 0, "model": "Mine"}))
    line = {"round": 1, "client": "alice", "ce": 2.0, "kd": None, "disc": None, "bound": None, "train_accuracy": 0.5,
            "test_accuracy": None, "bytes_up": 10, "bytes_down": 0, "seconds": 0.1, "trouble": None}  # fmt: skip
    (client / "records.jsonl").write_text(json.dumps(line) + "\n")
    shown = report(tmp_path, table, client)
    assert "<title>2 runs" in shown
    assert "82.33 ± 0.71 (82.07)" in shown
    assert "row CA (the space alone), clients 2, seed 0" in shown
    assert "<h1>client alice in task wards</h1>" in shown
    assert "client alice in task wards: not tested yet" in shown


def test_where_clients_differ_they_are_shown_by_their_own_classes(run):
    change(run, "records.jsonl", lambda text: re.sub(r'"test_unseen": [\d.]+', '"test_unseen": null', text))
    assert "own mix" not in make_report([run])
    change(run, "run.json", lambda text: text.replace('"uniform"', '"dirichlet"'))
    shown = make_report([run])
    assert "<h1>digits, 2 clients, Dirichlet 0.5</h1>" in shown
    lines = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    own = [100 * line["test_own"] for line in lines if (line["method"], line["round"]) == ("RS", 3)]
    assert f" {statistics.fmean(own):.2f} ± " in shown


def test_what_is_no_run_is_said(run, monkeypatch):
    monkeypatch.chdir(run.parent)
    for name, described in (("empty", None), ("other", "[]")):
        Path(name).mkdir()
        if described:
            Path(name, "run.json").write_text(described)
    done = repshare("report", "empty", cwd=".")
    assert (done.returncode, done.stderr[:55]) == (2, "repshare: empty is no run: run.json cannot be read ([Er")
    assert not Path("report.html").exists()
    with pytest.raises(ConfigError, match=r"other/run\.json describes no run"):
        make_report([Path("other")])
    change(run, "records.jsonl", lambda _: '{"round": 1}\n')
    with pytest.raises(ConfigError, match=r"run/records\.jsonl: line 1 has no bytes_down"):
        make_report([Path("run")])
    change(run, "records.jsonl", lambda _: "")
    with pytest.raises(ConfigError, match="run has no records"):
        make_report([Path("run")])
