"""`make soak` goes on where it was cut off."""

import pytest

from soak import __main__ as soak


@pytest.fixture
def done(tmp_path, monkeypatch):
    """A soak of two runs, the second of which fails at first; the titles of those that were begun."""
    begun, faults = [], [True]

    def sound(folder, *, times, seed):
        begun.append("sound")
        return {"times": times}

    def shaky(folder, *, seed):
        begun.append("shaky")
        if faults.pop():
            faults.append(False)
            raise AssertionError("lost")
        return {"lost": 0}

    runs = [("A sound run", sound, {"times": 1000}), ("A shaky run", shaky, {})]
    for name, value in {"KEPT": tmp_path / "kept", "PAGE": tmp_path / "soak.md", "RUNS": runs}.items():
        monkeypatch.setattr(soak, name, value)
    with pytest.raises(AssertionError, match="lost"):
        soak.main([])
    assert not soak.PAGE.exists(), "a page of runs that failed"
    return begun


def test_what_was_done_is_not_done_again(done):
    soak.main([])
    assert done == ["sound", "shaky", "shaky"]
    page = soak.PAGE.read_text()
    assert page.index("## A sound run") < page.index("| times | 1,000 |") < page.index("## A shaky run")


def test_a_run_whose_parameters_changed_is_done_again(done, monkeypatch):
    (title, run, _), other = soak.RUNS
    monkeypatch.setattr(soak, "RUNS", [(title, run, {"times": 7}), other])
    soak.main([])
    assert done == ["sound", "shaky", "sound", "shaky"]


def test_one_can_begin_anew(done):
    soak.main(["--restart"])
    assert done == ["sound", "shaky", "sound", "shaky"]


def test_some_runs_alone_write_no_page_while_others_are_missing(done, capsys):
    soak.main(["sound", "--restart"])
    assert not soak.PAGE.exists()
    assert "still to do: A shaky run" in capsys.readouterr().out
