"""Every line of the relay's API, and every refusal with its status, asked of a real process."""

import asyncio
import threading
import time
from types import SimpleNamespace

import httpx2
import numpy as np
import pytest

from repshare.relay import limits
from repshare.relay.app import make_app
from repshare.relay.options import RelayOptions
from repshare.relay.service import RECENT_SECONDS
from repshare.sharing.task import Task
from repshare.sharing.wire import decode_teacher
from repshare.stores import open_database
from support.relays import create_task, invite, release, repshare, start_open_relay, start_relay

VALUES = {
    "classes": 10, "dimension": 8, "norm_bound": 4 * 8**0.5, "minimum_count": 2, "weighted": True,
    "max_age": None, "space": None, "format": "features",
    "description": None, "group_members": 0, "class_members": 3, "compared": False, "most_share": 0.5,
}  # fmt: skip


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    """A relay with the tasks `digits` and `other`, and tokens for some."""
    folder = tmp_path_factory.mktemp("relay")
    for task in ("digits", "other"):
        create_task(folder, task)
    tokens = {name: invite(folder, name, "--task", "digits") for name in ("alice", "bob", "carol", "client 1")}
    tokens["stranger"] = invite(folder, "stranger", "--task", "other")
    tokens["viewer"] = invite(folder, "eve", "--role", "viewer")
    tokens["viewer of other"] = invite(folder, "eve", "--role", "viewer", "--task", "other")
    with start_relay(folder, "--rate", 0, "--max-bytes", 100_000) as relay:
        relay.tokens = tokens
        yield relay


@pytest.fixture(scope="module")
def open_relay(tmp_path_factory):
    with start_open_relay(tmp_path_factory.mktemp("open"), "--rate", 0) as relay:
        yield relay


def check_problem(answer, status, words=""):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert set(problem) == {"type", "title", "status", "detail"}
    assert problem["status"] == status
    assert words in problem["detail"]
    return SimpleNamespace(**problem)


def version(relay, task="digits"):
    return relay.ask("GET", f"/v1/tasks/{task}/news", relay.tokens["viewer"], params={"wait": 0}).json()["version"]


def test_what_one_publishes_another_learns(relay):
    before = version(relay)
    answer = relay.publish("alice", release(value=0.75), relay.tokens["alice"])
    assert (answer.status_code, answer.json()) == (200, {"version": before + 1})
    teacher = relay.teacher(relay.tokens["bob"], observations=1, seed=3)
    assert (teacher.status_code, teacher.headers["content-type"]) == (200, "application/octet-stream")
    means = decode_teacher(teacher.content).means
    assert means.labels.tolist() == [0, 1]
    assert means.vectors == pytest.approx(np.full((2, 8), 0.75))


def test_the_same_release_again_changes_nothing(relay):
    first = relay.publish("alice", release(round=2), relay.tokens["alice"]).json()
    assert relay.publish("alice", release(round=2), relay.tokens["alice"]).json() == first
    assert version(relay) == first["version"]


def test_a_client_can_publish_only_as_itself(relay):
    before = version(relay)
    for token in ("bob", "stranger", "viewer"):
        check_problem(relay.publish("alice", release(round=9), relay.tokens[token]), 403)
    check_problem(relay.publish("alice", release(round=9), relay.tokens["bob"]), 403, "bob publishes as itself")
    assert version(relay) == before


def test_a_token_of_one_task_opens_no_other(relay):
    for method, path in (
        ("PUT", "/v1/tasks/digits/clients/stranger/release"),
        ("GET", "/v1/tasks/digits/teacher"),
        ("GET", "/v1/tasks/digits/news"),
        ("GET", "/v1/tasks/digits/status"),
        ("GET", "/v1/tasks/digits"),
        ("GET", "/v1/tasks/nowhere"),
    ):
        answer = relay.ask(method, path, relay.tokens["stranger"], content=release() if method == "PUT" else None)
        check_problem(answer, 403, "the token is for the task other")


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer rs_00_x", "Basic YTpi", "bearer  x", "Bearer é"])
def test_without_a_valid_token_nothing_is_open(relay, header):
    headers = {"Authorization": header.encode()} if header else {}
    for method, path in (
        ("GET", "/v1/tasks"),
        ("GET", "/v1/tasks/digits"),
        ("PUT", "/v1/tasks/digits/clients/alice/release"),
        ("DELETE", "/v1/tasks/digits/clients/alice/release"),
        ("GET", "/v1/tasks/digits/teacher"),
        ("GET", "/v1/tasks/digits/news"),
        ("GET", "/v1/tasks/digits/status"),
        ("GET", "/v1/me"),
    ):
        answer = relay.ask(method, path, headers=headers)
        check_problem(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"


def test_a_revoked_token_ends_within_two_seconds(relay):
    token = invite(relay.folder, "mallory", "--task", "digits")
    assert relay.publish("mallory", release(), token).status_code == 200
    repshare("relay", "revoke", "mallory", "--task", "digits", cwd=relay.folder)
    time.sleep(1.5)
    check_problem(relay.publish("mallory", release(round=2), token), 401, "unknown, revoked or expired")
    repshare("relay", "withdraw", "mallory", "--task", "digits", cwd=relay.folder)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "not a message"),
        (b"x" * 1000, 400, "a header of"),
        (release()[:-3], 400, "not a message"),
        (release(dimension=9), 422, "representations of 9 numbers; the task's have 8"),
        (release(classes=(0, 10)), 422, "class 10 is unknown"),
        (release(value=float("nan")), 422, "not finite"),
        (release(value=1e4), 422, "norm_bound"),
        (release(count=0), 422, "an average of 0 samples"),
        (release(round=1), 409, "round"),
        (b"x" * 100_001, 413, "at most 100,000"),
        (release(round=9, classes=range(3), dimension=8) + b"x" * 200_000, 413, "at most 100,000"),
    ],
)
def test_what_is_refused_changes_nothing_and_says_why(relay, body, status, words):
    relay.publish("carol", release(round=5), relay.tokens["carol"])
    before = version(relay)
    teacher = relay.teacher(relay.tokens["bob"], observations=5).content
    check_problem(relay.publish("carol", body, relay.tokens["carol"]), status, words)
    assert version(relay) == before
    assert relay.teacher(relay.tokens["bob"], observations=5).content == teacher


def test_every_refusal_is_logged_counted_and_shown_to_those_who_watch(relay):
    check_problem(relay.publish("carol", release(classes=(0, 77)), relay.tokens["carol"]), 422)
    line = relay.logged(
        event="refused", client="carol", task="digits", status=422, reason="class 77 is unknown; the task's are 0 to 9"
    )
    assert line["kind"] == "refused"
    status = relay.ask("GET", "/v1/tasks/digits/status", relay.tokens["viewer"]).json()
    assert next((each["client"], each["kind"]) for each in status["refusals"]) == ("carol", "refused")
    own = relay.ask("GET", "/v1/tasks/digits/status", relay.tokens["carol"]).json()["refusals"]
    assert {each["client"] for each in own} == {"carol"}
    assert 'repshare_refusals_total{kind="refused"}' in relay.ask("GET", "/metrics", relay.tokens["viewer"]).text
    for token in relay.tokens.values():
        assert token not in relay.err.read_text()


def test_who_knocks_at_the_wrong_task_is_not_noted_there(relay):
    for task, query, status in (("digits", {}, 403), ("other", {"seed": "x"}, 422)):
        version(relay, task)  # which makes the relay look at it
        check_problem(relay.teacher(relay.tokens["stranger"], task=task, **query), status)
    for task, noted in (("digits", False), ("other", True)):
        refusals = relay.ask("GET", f"/v1/tasks/{task}/status", relay.tokens["viewer"]).json()["refusals"]
        assert any(each["client"] == "stranger" for each in refusals) is noted


def test_a_release_is_taken_back_by_its_client_and_by_nobody_else_over_http(relay):
    path = "/v1/tasks/digits/clients/client 1/release"
    published = relay.publish("client 1", release(round=3, classes=(7,)), relay.tokens["client 1"])
    assert published.status_code == 200
    for token in ("bob", "viewer"):
        check_problem(relay.ask("DELETE", path, relay.tokens[token]), 403)
    assert 7 in decode_teacher(relay.teacher(relay.tokens["bob"]).content).means.labels
    gone = relay.ask("DELETE", path, relay.tokens["client 1"])
    assert gone.json()["version"] > published.json()["version"]
    assert 7 not in decode_teacher(relay.teacher(relay.tokens["bob"]).content).means.labels
    assert relay.ask("DELETE", path, relay.tokens["client 1"]).json() == gone.json()  # nothing to take back


def test_a_teacher_is_drawn_as_asked(relay):
    relay.publish("alice", release(round=20, value=0.5), relay.tokens["alice"])
    relay.publish("carol", release(round=20, value=0.25, classes=(1, 2)), relay.tokens["carol"])

    def ask(**query):
        return decode_teacher(relay.teacher(relay.tokens["bob"], **query).content)

    assert {0, 1, 2} <= set(ask().means.labels.tolist())
    assert ask(observations=0).observations.labels.tolist() == []
    assert relay.teacher(relay.tokens["bob"], seed=4).content == relay.teacher(relay.tokens["bob"], seed=4).content
    own = relay.teacher(relay.tokens["bob"], client="bob")
    assert own.status_code == 200
    check_problem(relay.teacher(relay.tokens["bob"], client="alice"), 403)
    check_problem(relay.teacher(relay.tokens["viewer"]), 403)


@pytest.mark.parametrize(
    "query",
    [
        {"observations": -1}, {"observations": 1001}, {"observations": "x"}, {"seed": -1}, {"seed": 2**64},
        {"seed": "1.5"}, {"seed": "٣"}, {"seed": ""},
    ],
)  # fmt: skip
def test_a_question_that_makes_no_sense_is_422(relay, query):
    check_problem(relay.teacher(relay.tokens["bob"], **query), 422)


def test_news_come_at_once_when_something_changes(relay):
    now, answers = version(relay), []

    def wait():
        begun = time.monotonic()
        answer = relay.ask("GET", "/v1/tasks/digits/news", relay.tokens["bob"], params={"since": now, "wait": 20})
        answers.append((answer.json()["version"], time.monotonic() - begun))

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.7)
    assert not answers
    published = relay.publish("alice", release(round=30), relay.tokens["alice"]).json()["version"]
    waiting.join(30)
    assert answers[0][0] == published
    assert answers[0][1] < 10


def test_no_news_are_said_after_the_time_asked_for(relay):
    begun = time.monotonic()
    now = version(relay)
    answer = relay.ask("GET", "/v1/tasks/digits/news", relay.tokens["bob"], params={"since": now, "wait": 0.4})
    assert (answer.status_code, answer.json()) == (200, {"version": now})
    assert 0.4 <= time.monotonic() - begun < 10
    for query in ({"wait": 61}, {"wait": "nan"}, {"wait": -1}, {"since": "x"}):
        check_problem(relay.ask("GET", "/v1/tasks/digits/news", relay.tokens["bob"], params=query), 422)


def test_tasks_are_listed_and_described_to_those_who_may_look(relay):
    def listed(token):
        return [task["name"] for task in relay.ask("GET", "/v1/tasks", relay.tokens[token]).json()["tasks"]]

    assert listed("viewer") == ["digits", "other"]
    assert listed("viewer of other") == ["other"]
    assert listed("alice") == ["digits"]
    for token in ("viewer", "alice"):
        assert relay.ask("GET", "/v1/tasks/digits", relay.tokens[token]).json() == {"name": "digits", **VALUES}
    check_problem(relay.ask("GET", "/v1/tasks/new", relay.tokens["viewer"]), 404, "there is no task 'new'")
    for method in ("PUT", "DELETE"):  # a task is created and deleted on the relay's machine only
        check_problem(relay.ask(method, "/v1/tasks/digits", relay.tokens["viewer"]), 405)


def test_status_tells_who_is_there(relay):
    relay.publish("alice", release(round=40, count=7), relay.tokens["alice"])
    time.sleep(1)  # it may be half a second old
    status = relay.ask("GET", "/v1/tasks/digits/status", relay.tokens["viewer"]).json()
    alice = next(member for member in status["shown"] if member["name"] == "alice")
    assert (alice["round"], alice["samples"][:3], alice["samples_total"]) == (40, [7, 7, 0], 14)
    assert status["clients"] == len(status["shown"])
    assert (status["name"], status["classes"], status["version"]) == ("digits", 10, version(relay))
    own = relay.ask("GET", "/v1/tasks/digits/status", relay.tokens["alice"]).json()
    assert [(row["name"], row["round"]) for row in own["shown"]] == [("alice", 40)]
    assert own["clients"] == status["clients"]


def test_a_token_knows_who_it_is(relay):
    def me(name):
        return relay.ask("GET", "/v1/me", relay.tokens[name]).json()

    assert me("client 1") == {"role": "client", "client": "client 1", "task": "digits", **VALUES}
    assert me("viewer") == {"role": "viewer", "client": "eve", "task": None}


def test_what_is_not_there_and_what_cannot_be_done_are_problems_too(relay):
    check_problem(relay.ask("GET", "/nowhere"), 404)
    check_problem(relay.ask("GET", "/v1/tasks/digits/clients/a%2Fb/release"), 404)
    check_problem(relay.ask("GET", "/v1/tasks/digits/clients/alice/../../teacher/"), 404)
    answer = relay.ask("PATCH", "/v1/tasks/digits/clients/alice/release")
    check_problem(answer, 405)
    assert {*answer.headers["allow"].split(", ")} == {"DELETE", "PUT"}
    check_problem(relay.ask("GET", "/v1/tasks/nothing/status", relay.tokens["viewer"]), 404)


def test_metrics_count_by_route_and_invent_no_labels(relay):
    for path in ("/a", "/b", "/v1/tasks/q1", "/v1/tasks/q2"):
        relay.ask("GET", path)
    text = relay.ask("GET", "/metrics", relay.tokens["viewer"]).text
    assert (
        'repshare_request_seconds_count{method="PUT",route="/v1/tasks/{task}/clients/{client}/release",status="200"}'
        in text
    )
    assert 'route="none",status="404"' in text
    for word in ("q1", "/a", "alice", "digits"):
        assert word not in text
    assert 'repshare_bytes_total{way="in"}' in text
    assert "process_resident_memory_bytes" in text


def test_an_open_relay_asks_for_no_token_but_must_be_told_who_asks(open_relay):
    assert open_relay.publish("alice", release()).status_code == 200
    assert open_relay.publish("bob", release(value=0.25)).status_code == 200
    means = decode_teacher(open_relay.teacher(client="bob").content).means
    assert means.vectors[0].tolist() != []
    check_problem(open_relay.teacher(), 422, "which client asks")
    check_problem(open_relay.publish("a%0Ab", release()), 422, "cannot name a client")
    assert open_relay.ask("GET", "/v1/me").json() == {"role": "viewer", "client": None, "task": None}
    assert open_relay.ask("GET", "/v1/tasks/digits/status").json()["clients"] == 2


def test_releases_that_are_too_old_go_and_are_news(tmp_path):
    with start_open_relay(tmp_path, "--max-age", 2) as relay:
        relay.publish("alice", release())
        version = relay.publish("bob", release()).json()["version"]
        waiting = relay.ask("GET", "/v1/tasks/digits/news", params={"since": version, "wait": 20})
        assert waiting.json()["version"] > version
        relay.logged(event="expired", task="digits")
        time.sleep(1.5)
        assert relay.ask("GET", "/v1/tasks/digits/status").json()["clients"] == 0
        assert "repshare_expired_releases_total 2.0" in relay.ask("GET", "/metrics").text


def test_each_token_may_ask_only_so_often(tmp_path):
    create_task(tmp_path)
    alice, bob = (invite(tmp_path, name, "--task", "digits") for name in ("alice", "bob"))
    with start_relay(tmp_path, "--rate", 5) as relay:
        answers = [relay.ask("GET", "/v1/me", alice) for _ in range(30)]
        codes = [answer.status_code for answer in answers]
        assert codes[:10] == [200] * 10
        refused = answers[codes.index(429)]
        check_problem(refused, 429, "try again in 1 s")
        assert refused.headers["retry-after"] == "1"
        assert relay.ask("GET", "/v1/me", bob).status_code == 200
        time.sleep(1)
        assert relay.ask("GET", "/v1/me", alice).status_code == 200


def test_a_fault_nobody_foresaw_is_answered_and_the_log_says_where(caplog):
    app = make_app(open_database("memory"), RelayOptions(insecure=True))
    app.state.service.tasks.create("digits", Task(10, 8))
    app.state.service.presence = None  # a fault in the relay itself

    async def ask():
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get("/v1/tasks/digits/teacher?client=alice")

    check_problem(asyncio.run(ask()), 500)
    assert "AttributeError" in caplog.text


BODIES = {
    "/v1/tasks/digits/clients/alice/release": release(),
    "/v1/tasks/digits/clients/alice/report": b'{"round": 1}',
}


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_what_was_on_its_way_while_its_task_was_deleted_is_kept_nowhere(path, again):
    app = make_app(open_database("memory"), RelayOptions(insecure=True))
    tasks = app.state.service.tasks
    tasks.create("digits", Task(10, 8))
    there = tasks.get("digits")

    async def body():
        yield BODIES[path][:5]
        tasks.delete("digits")
        if again:
            tasks.create("digits", Task(10, 8))
        await asyncio.sleep(RECENT_SECONDS)  # its clients' tokens ended that long before it was deleted
        yield BODIES[path][5:]

    async def send():
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
            return await client.put(path, content=body())

    check_problem(asyncio.run(send()), 404, "deleted in the meantime" if again else "there is no task")
    for store in (there.board.store, there.meetings.store, there.activity):
        assert store.items() == {}


def test_who_sends_too_much_at_once_is_asked_to_come_again(monkeypatch):
    monkeypatch.setattr(limits, "MEMORY_BYTES", 0)
    app = make_app(open_database("memory"), RelayOptions(insecure=True, max_bytes=1000))
    app.state.service.tasks.create("digits", Task(10, 8))
    whole, dawdling, going_on = release(), 0, asyncio.Event()
    room = 8 * 1000

    async def dawdle():
        nonlocal dawdling
        yield whole[:-1]
        dawdling += 1
        await going_on.wait()
        yield whole[-1:]

    async def send():
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as http:

            def publish(client, content):
                return http.put(f"/v1/tasks/digits/clients/{client}/release", content=content)

            few, many = room // 4 // len(whole), room // len(whole)
            slow = [asyncio.create_task(publish(f"client {n // few}", dawdle())) for n in range(many)]
            while dawdling < many:
                await asyncio.sleep(0)
            one, other = await publish("client 0", whole), await publish("another", whole)
            going_on.set()
            return one, other, [await each for each in slow], await publish("client 0", whole)

    one, other, slow, last = asyncio.run(send())
    check_problem(one, 429, "with one token")
    check_problem(other, 503, "under way")
    assert one.headers["retry-after"] == other.headers["retry-after"] == "1"
    assert {each.status_code for each in (*slow, last)} == {200}


def test_a_body_is_no_longer_than_a_release_of_its_task_can_be(open_relay):
    longest = Task(10, 8).longest_release
    check_problem(open_relay.publish("alice", bytes(longest + 1)), 413, f"at most {longest:,}")
    check_problem(open_relay.publish("alice", bytes(longest)), 400)


def test_how_many_stand_is_worked_out_once_for_all_who_ask():
    app = make_app(open_database("memory"), RelayOptions(insecure=True, rate=0))
    app.state.service.tasks.create("digits", Task(10, 8))
    board = app.state.service.tasks.get("digits").board
    for number in range(500):
        board.accept(f"client {number}", release(classes=range(10)))

    async def ask():
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:

            async def status():
                answer = (await client.get("/v1/tasks/digits/status")).json()
                return answer["version"], answer["clients"], len(answer["shown"])

            first = await status()
            board.accept("one more", release())
            assert await asyncio.gather(*(status() for _ in range(5))) == [first] * 5
            while (last := await status()) == first:
                await asyncio.sleep(0.05)
            return first, last

    (version, *counts), last = asyncio.run(ask())
    assert counts == [500, 100]
    assert last == (version + 1, 501, 100)
