"""The page's endpoints on a real relay: who may look, what clients may tell, what is served and how."""

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest

from repshare.errors import ConfigError, Refused
from repshare.exchange.relay import RelayExchange
from repshare.relay.auth import check_client_name
from repshare.relay.tasks import Tasks
from repshare.stores import open_database
from support.processes import eventually
from support.relays import DIGITS, create_task, invite, release, repshare, start_open_relay, start_relay

PAGE = "/v1/tasks/digits/status"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A relay with tokens, and some: by role or name."""
    folder = tmp_path_factory.mktemp("guarded")
    create_task(folder)
    create_task(folder, "other")
    with start_relay(folder, "--rate", 0) as relay:
        relay.tokens = {
            "alice": invite(folder, "alice", "--task", "digits"),
            "bob": invite(folder, "bob", "--task", "digits"),
            "viewer": invite(folder, "viewer", "--role", "viewer"),
            "stranger": invite(folder, "stranger", "--role", "viewer", "--task", "other"),
        }
        yield relay


@pytest.fixture
def open_relay(tmp_path):
    with start_open_relay(tmp_path, "--rate", 0) as relay:
        yield relay


def report(relay, client, token=None, **told):
    return relay.ask("PUT", f"/v1/tasks/digits/clients/{client}/report", token, json={"round": 1, **told})


def page(relay, token=None):
    return relay.ask("GET", PAGE, token).json()


def member(relay, name):
    """What the page says of a client, if it is there."""
    return next((each for each in page(relay)["shown"] if each["name"] == name), None)


def test_looking_needs_a_token_of_the_task(guarded):
    for path in (PAGE, "/v1/tasks"):
        assert guarded.ask("GET", path).status_code == 401
    assert guarded.ask("GET", "/v1/tasks/other/status", guarded.tokens["alice"]).status_code == 403
    assert [each["name"] for each in guarded.ask("GET", "/v1/tasks", guarded.tokens["alice"]).json()["tasks"]] == [
        "digits"
    ]
    assert guarded.ask("GET", PAGE, guarded.tokens["stranger"]).status_code == 403
    assert guarded.ask("GET", PAGE, guarded.tokens["viewer"]).status_code == 200
    assert guarded.ask("GET", "/v1/tasks/nothing/status", guarded.tokens["viewer"]).status_code == 404


def test_a_public_page_needs_no_token_but_a_wrong_one_is_not_let_through(tmp_path):
    with start_relay(tmp_path, "--db", "memory", "--public-page", "--task", "digits", *DIGITS) as relay:
        for path in (PAGE, "/v1/tasks"):
            assert relay.ask("GET", path).status_code == 200
            assert relay.ask("GET", path, "rs_0_wrong").status_code == 401
        assert 'data-needs-token="no"' in relay.ask("GET", "/").text
        assert relay.ask("GET", "/v1/tasks/digits/news?wait=0").json() == {"version": 0}
        assert relay.ask("GET", "/v1/tasks/digits/news?wait=0&client=alice").status_code == 403, "nobody is seen there"
        assert relay.ask("GET", "/v1/tasks/digits").status_code == 401  # nothing else is public
        assert report(relay, "alice").status_code == 401


def test_a_client_tells_only_of_itself(guarded):
    tokens = guarded.tokens
    assert report(guarded, "alice", tokens["alice"]).json() == {}
    assert report(guarded, "alice", tokens["bob"]).status_code == 403
    assert report(guarded, "alice", tokens["viewer"]).status_code == 403
    assert report(guarded, "alice").status_code == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("nonsense", 400),
        ("[" * 4000, 400),
        ("[]", 422),
        ("{}", 422),
        ('{"round": 0}', 422),
        ('{"round": 1e300}', 422),
        ('{"round": 1, "test_accuracy": 1.5}', 422),
        ('{"round": 1, "held_out": 1.5}', 422),
        ('{"round": 1, "held_out_alone": -0.1}', 422),
        ('{"round": 1, "gap": -1}', 422),
        ('{"round": 1, "gap": Infinity}', 422),
        ('{"round": 1, "privacy": {"epsilon": -1}}', 422),
        ('{"round": 1, "model": "%s"}' % ("x" * 101), 422),
        ('{"round": 1, "model": "%s"}' % ("x" * 5000), 413),
    ],
)
def test_a_report_that_is_none_is_refused(guarded, body, status):
    path = "/v1/tasks/digits/clients/bob/report"
    answer = guarded.ask("PUT", path, guarded.tokens["bob"], content=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_page_has_what_clients_shared_and_told(open_relay):
    body = release(round=4, classes=(0, 3), count=12)
    open_relay.publish("alice", body)
    taught = open_relay.teacher(client="alice").content
    privacy = {"epsilon": 3.5, "delta": 1e-5, "mode": "release"}
    report(open_relay, "alice", round=4, test_accuracy=0.75, model="LeNet5", privacy=privacy, samples=[1, 2])
    alice = eventually(
        lambda: (found := member(open_relay, "alice")) and found["bytes_down"] and found, "alice was seen"
    )
    assert alice | {"seen": None, "published": None} == {
        "name": "alice",
        "round": 4,
        "published": None,
        "seen": None,
        "online": True,
        "samples": [12, 0, 0, 12, 0, 0, 0, 0, 0, 0],
        "samples_total": 24,
        "bytes_up": len(body),
        "bytes_down": len(taught),
        "model": "LeNet5",
        "privacy": privacy,
        "test_accuracy": 0.75,
        "strangeness": None,
        "outlier": False,
        "refused": None,
    }


def wait_for_one_to_be_away(relay, news):
    """Let one of two clients ask for news again and again: who is online once somebody is not."""

    def online():
        news()
        names = {each["name"] for each in page(relay)["shown"] if each["online"]}
        return names if len(names) < 2 else None

    return eventually(online, "one of two is away")


def test_a_client_that_waits_for_news_is_online(tmp_path):
    """In a common space, a client that has settled does nothing else."""
    create_task(tmp_path, "digits")
    with start_relay(tmp_path, "--away-seconds", 3, "--public-page") as relay:
        tokens = {name: invite(tmp_path, name, "--task", "digits") for name in ("watching", "gone")}
        for name, token in tokens.items():
            relay.publish(name, release(), token).raise_for_status()
        path, query = "/v1/tasks/digits/news", {"since": 2, "wait": 0.3}
        news = partial(relay.ask, "GET", path, tokens["watching"], params=query)
        assert wait_for_one_to_be_away(relay, news) == {"watching"}


def test_on_an_open_relay_a_client_that_waits_for_news_says_who_it_is(tmp_path):
    with start_open_relay(tmp_path, "--away-seconds", 3) as relay:
        for name in ("watching", "gone"):
            relay.publish(name, release())
        with RelayExchange(relay.url, client="watching", task="digits") as exchange:
            assert wait_for_one_to_be_away(relay, partial(exchange.wait, 2, 0.3)) == {"watching"}


def test_a_refused_release_is_on_the_page_with_its_reason(open_relay):
    open_relay.publish("mallory", release(value=1e6))
    (refusal,) = page(open_relay)["refusals"]
    assert refusal["client"] == "mallory"
    assert "norm_bound" in refusal["reason"]


def test_what_was_reported_survives_a_restart(tmp_path):
    create_task(tmp_path)
    for number in (1, 2):
        with start_relay(tmp_path, "--insecure") as relay:
            relay.publish("alice", release(round=number))
            report(relay, "alice", round=number, test_accuracy=number / 4)
    with start_relay(tmp_path, "--insecure") as relay:
        assert member(relay, "alice")["test_accuracy"] == 0.5


def test_a_client_that_takes_its_release_back_leaves_nothing_on_the_page(tmp_path):
    create_task(tmp_path)
    with start_relay(tmp_path, "--insecure") as relay:
        for name in ("alice", "bob"):
            relay.publish(name, release())
            report(relay, name)
        eventually(lambda: page(relay)["traffic"]["up"] == 2 * len(release()), "it was noted down")
        relay.ask("DELETE", "/v1/tasks/digits/clients/alice/release")
        eventually(lambda: [each["name"] for each in page(relay)["shown"]] == ["bob"], "the page shows bob alone")
    noted = [key.partition("/")[2] for key in _kept(tmp_path) if key.startswith("activity:")]
    assert noted == ["report/bob"]


def test_a_deleted_task_takes_its_notes_along(tmp_path):
    create_task(tmp_path)
    with start_relay(tmp_path, "--insecure") as relay:
        relay.publish("alice", release())
        report(relay, "alice")
    database = open_database(str(tmp_path / "relay.db"))
    (entry,) = Tasks(database).entries()
    notes = database.store(f"notes:digits:{entry.identity}")  # a map with class means, of earlier versions
    notes.transact(lambda state: state.set({"frame/1": b"means"}))
    database.close()
    repshare("relay", "tasks", "delete", "digits", "--yes", cwd=tmp_path)
    assert not [key for key in _kept(tmp_path) if key.startswith(("activity:", "notes:"))]


def _kept(folder):
    """All keys in a relay's file."""
    with closing(sqlite3.connect(folder / "relay.db")) as connection:
        return [key for (key,) in connection.execute("SELECT key FROM kept")]


@pytest.mark.parametrize("name", ["<script>", "a&b", "ü ✓", "100%", "x?y#z", '"'])
def test_a_client_may_be_called_anything_printable(guarded, name):
    token = invite(guarded.folder, name, "--task", "digits", "--renew")
    path = quote(name, safe="")
    assert guarded.publish(path, release(), token).status_code == 200
    assert report(guarded, path, token).status_code == 200
    shown = [each["name"] for each in guarded.ask("GET", "/v1/tasks/digits/status", token).json()["shown"]]
    assert name in shown


@pytest.mark.parametrize("name", ["a/b", "", "x" * 65, "new\nline", "..", " ", "\u202eevil", "\ud800"])
def test_a_client_may_not_be_called_what_cannot_be_shown_or_be_a_path(name):
    with pytest.raises(ConfigError, match="cannot name a client"):
        check_client_name(name)


def is_shown(seen, wanted):
    shown = seen()
    return (shown["round"], "model" in shown) == wanted


def test_a_client_tells_nothing_of_its_training_unless_it_says_so(tmp_path):
    party = Path(__file__).parents[3] / "examples" / "party.py"
    with start_open_relay(tmp_path, "--dimension", 84) as relay:
        for rounds, *options in ((2,), (3, "--report")):
            access = ("--name", "alice", "--task", "digits", "--rounds", rounds, "--threads", 1, *options)
            repshare("join", relay.url, "--party", f"{party}:alice", *access, cwd=tmp_path)
            seen = partial(member, relay, "alice")
            wanted = (rounds, bool(options))
            eventually(partial(is_shown, seen, wanted), "the page shows the last round, and what is reported of it")
            assert ("test_accuracy" in seen()) == bool(options)
        assert seen()["model"] == "LeNet5, 30,986 parameters"


def test_a_report_that_the_relay_refuses_is_an_error_that_says_why(tmp_path):
    with start_open_relay(tmp_path) as relay, RelayExchange(relay.url, "digits", client="alice") as exchange:
        exchange.report({"round": 1, "test_accuracy": None})
        with pytest.raises(Refused, match="test_accuracy"):
            exchange.report({"round": 1, "test_accuracy": 7.0})


def test_the_page_runs_its_own_scripts_only_and_there_is_no_other(guarded):
    for path in ("/", "/static/page.js"):
        headers = guarded.ask("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    answer = guarded.ask("GET", "/")
    assert 'data-needs-token="yes"' in answer.text
    assert "https://" not in answer.text.replace("http://www.w3.org", "")
    assert guarded.ask("HEAD", "/").status_code == 200
    for other in ("/openapi.json", "/static/page.html.secret", "/static/..%2f..%2fpage.py"):
        assert guarded.ask("GET", other).status_code == 404
