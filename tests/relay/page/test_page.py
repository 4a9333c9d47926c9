"""The relay's page in a real browser, with a real relay."""

import json
import re
from contextlib import ExitStack
from urllib.parse import quote

import numpy as np
import pytest

from repshare import Client, RelayExchange
from repshare.config import Policy
from repshare.party.state import make_report, reported
from repshare.space import Patches
from repshare.space.agreement import Agreement
from repshare_lab.data import load
from support.browsers import Visit, start_browser
from support.relays import create_task, invite, release, start_relay

HOSTILE = '<img src=x onerror="alert(1)"><b>bold'
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", HOSTILE)
SPACE = Agreement(Patches((1, 8, 8), sizes=(3, 4), filters=8), class_names=NAMES, inputs=(0.0, 16.0))
VALUES = ("--input-shape", 1, 8, 8, "--input-range", 0, 16, "--space", "patches", "filters=8", "--class-names", *NAMES)
OWN = {"alice": (0, 1, 2, 3), "bob": (3, 4, 5, 6), "carol": (6, 7, 8, 9)}
ROUNDS = 3
STATE = "document.getElementById('state').dataset.state"


@pytest.fixture(scope="module")
def browser():
    with start_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    """A relay where one with a hostile name has published features, and three learned a classifier in a space."""
    folder = tmp_path_factory.mktemp("page")
    create_task(folder, "digits")
    create_task(folder, "space", *VALUES)
    tokens = {name: invite(folder, name, "--task", "space") for name in OWN}
    with ExitStack() as stack:
        relay = stack.enter_context(start_relay(folder, "--rate", 0))
        relay.tokens = {"viewer": invite(folder, "eve", "--role", "viewer"), **tokens}
        relay.tokens[HOSTILE] = invite(folder, HOSTILE, "--task", "digits")
        tell(relay, 1)
        exchanges = {name: stack.enter_context(RelayExchange(relay.url, token=token)) for name, token in tokens.items()}
        clients = [make_client(name, exchange) for name, exchange in exchanges.items()]
        for _ in range(ROUNDS):
            relay.last = {client.name: client.round() for client in clients}
            for client in clients:
                exchanges[client.name].report(make_report(client, relay.last[client.name]))
        yield relay


def tell(relay, round):
    path, token = quote(HOSTILE, safe=""), relay.tokens[HOSTILE]
    assert relay.publish(path, release(round), token).status_code == 200
    told = {"round": round, "test_accuracy": 0.5, "model": "<i>model</i>"}
    assert relay.ask("PUT", f"/v1/tasks/digits/clients/{path}/report", token, json=told).status_code == 200


def samples_of(name):
    train, _, _ = load("digits")
    rows = np.flatnonzero(np.isin(train.labels, OWN[name]))[:200]
    return train.images[rows].astype(np.float32), train.labels[rows]


def make_client(name, exchange=None, **policy):
    given = Policy(minimum_count=2, held_out=0.2, accept_exposure=True, **policy)
    return Client(None, samples_of(name), exchange, name=name, space=SPACE, classes=10, policy=given)


def look(browser, relay, task, token=None, **window):
    visit = Visit(browser, **window)
    visit.page.goto(f"{relay.url}/#token={token or relay.tokens['viewer']}&task={task}")
    visit.page.wait_for_selector("#board:not([hidden])", timeout=60_000)
    return visit


@pytest.fixture
def visit(browser, relay):
    """A viewer's look at the features. At the end: no errors, and nobody was asked but the relay."""
    visit = look(browser, relay, "digits")
    yield visit
    visit.close()
    assert visit.errors == []
    assert visit.hosts == {relay.url.split("/")[2]}


def row(name):
    return f"#members tr[data-name={json.dumps(name)}]"


def percent(share):
    return f"{100 * share:.1f}\u00a0%"


def test_what_a_client_publishes_and_reports_appears_at_once(visit, relay):
    visit.wait_text("#sum-accuracy", "50.0\u00a0%")
    tell(relay, 2)
    visit.wait("document.getElementById('sum-round').textContent === '2'")
    visit.wait_text("#members", "online")
    visit.wait_text("#members", "20 samples")


def test_a_hostile_name_is_only_text(visit):
    visit.wait("document.querySelector('#members b')")
    assert visit.page.evaluate("document.querySelector('#members b').textContent") == HOSTILE
    visit.wait_text("#members", "<i>model</i>")
    assert visit.page.evaluate("document.querySelectorAll('main img, main b b, main i').length") == 0


def test_a_poisoned_release_is_listed_as_refused(visit, relay):
    poisoned = release(round=3, value=1e6)
    assert relay.publish(quote(HOSTILE, safe=""), poisoned, relay.tokens[HOSTILE]).status_code == 422
    visit.wait_text("#refused tr", re.escape(HOSTILE))
    visit.wait_text("#refused tr", "norm_bound is")


def test_the_token_leaves_the_address_and_stays_in_the_tab(visit):
    assert "token" not in visit.page.url
    visit.page.reload()
    visit.page.wait_for_selector("#board:not([hidden])", timeout=60_000)


def test_a_task_in_a_space_has_its_classes_accuracies_and_total(browser, relay):
    visit = look(browser, relay, "space")
    visit.wait_text("#about", r"^10 classes: zero, one, .*, eight, <img src=x")
    visit.wait_text("#about", r"Common space of 288 dimensions \(patches-")
    assert "The total is a linear classifier" in visit.text("#shared")
    for name, record in relay.last.items():
        visit.wait_text(row(name), re.escape(f"{percent(record.held_out_alone)} → {percent(record.held_out)}"))
        visit.wait_text(row(name), "160 samples")
        assert visit.page.inner_text(f'{row(name)} td[data-label="Duality gap"]') == f"{record.gap:.3g}"
        told = visit.page.get_attribute(f"{row(name)} .samples svg", "aria-label").split(", ")
        assert [each.rsplit(": ", 1)[0] for each in told] == [NAMES[label] for label in np.unique(samples_of(name)[1])]
        assert sum(int(each.rsplit(": ", 1)[1]) for each in told) == 160
    mean = np.mean([record.held_out for record in relay.last.values()])
    visit.wait_text("#sum-accuracy", re.escape(percent(mean)))
    visit.wait_text("#total-note", "^480 samples$")
    assert visit.page.locator("#total-classes dt").all_text_contents() == list(NAMES)
    assert sum(map(int, visit.page.locator("#total-classes dd").all_inner_texts())) == 480
    assert visit.page.evaluate("document.querySelectorAll('main img').length") == 0
    visit.close()
    assert visit.errors == []


def test_on_a_small_phone_the_form_for_a_token_is_whole(browser, relay):
    visit = Visit(browser, viewport={"width": 320, "height": 640})
    visit.page.goto(relay.url)
    visit.page.wait_for_selector("#token-form:not([hidden])", timeout=60_000)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 320
    for part in ("button", "input", "p", "pre"):
        box = visit.page.locator(f"#token-form {part}").first.bounding_box()
        assert 0 <= box["x"] < box["x"] + box["width"] <= 320, part
    visit.close()
    assert visit.errors == []


@pytest.mark.parametrize("task", ["digits", "space"])
@pytest.mark.parametrize("width", [320, 768, 1280])
def test_nothing_sticks_out_at_any_width_and_a_phone_at_night_is_dark(browser, relay, task, width):
    visit = look(browser, relay, task, viewport={"width": width, "height": 800}, color_scheme="dark")
    visit.wait("document.querySelector('#members tr')")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    colour = visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert max(map(int, re.findall(r"\d+", colour)[:3])) < 60
    assert visit.page.get_by_role("columnheader", name="Samples per class").count() == 1, "also where it is not shown"
    visit.close()
    assert visit.errors == []


def test_without_a_token_it_asks_for_one_and_shows_a_client_only_itself(browser, relay):
    visit = Visit(browser)
    visit.page.goto(relay.url)
    visit.page.wait_for_selector("#token-form:not([hidden])", timeout=60_000)
    assert visit.errors == []
    assert visit.page.evaluate("document.activeElement.id") == "token"
    visit.page.get_by_label("Token").fill("rs_00_wrong")
    visit.page.keyboard.press("Enter")
    visit.wait("document.getElementById('token-problem').textContent.includes('unknown')")
    visit.page.get_by_label("Token").fill(relay.tokens["alice"])
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector(row("alice"), timeout=60_000)
    assert visit.page.locator("#members tr").count() == 1
    assert "only your own row is shown" in visit.text("#summary")
    visit.close()


def test_a_public_page_lets_everyone_choose_a_task_and_says_how_to_begin(browser, tmp_path):
    for name in ("digits", "wards"):
        create_task(tmp_path, name)
    with start_relay(tmp_path, "--public-page") as relay:
        visit = Visit(browser)
        visit.page.goto(relay.url)
        visit.wait("document.getElementById('empty-title').textContent.includes('digits')")
        assert "repshare relay invite" in visit.text("#empty")
        visit.page.get_by_label("Task").focus()
        visit.page.keyboard.press("ArrowDown")
        visit.wait("document.getElementById('empty-title').textContent.includes('wards')")
        assert visit.page.url.endswith("#task=wards")
        visit.close()
        assert visit.errors == []


def test_a_silent_client_is_away_and_while_the_relay_is_what_was_shown_stays(browser, tmp_path):
    create_task(tmp_path)
    visit = Visit(browser)
    with start_relay(tmp_path, "--insecure", "--away-seconds", 3) as relay:
        relay.publish("alice", release(round=1))
        visit.page.goto(relay.url)
        visit.page.wait_for_selector(f"{row('alice')} .here", timeout=60_000)
        visit.page.wait_for_selector(f"{row('alice')} .gone", timeout=60_000)
        visit.wait("document.getElementById('announce').textContent.includes('went offline')")
        port = relay.port
    visit.wait(f"{STATE} === 'away'")
    assert re.search(r"not answered since .*\d\d:\d\d:\d\d", visit.text("#away"))
    assert visit.page.is_visible(row("alice"))
    with start_relay(tmp_path, "--insecure", port=port) as relay:
        visit.wait(f"{STATE} === 'live'")
        assert not visit.page.is_visible("#away")
        relay.publish("bob", release(round=2))
        visit.page.wait_for_selector(row("bob"), timeout=60_000)
        visit.close()


def test_a_report_has_what_held_out_samples_tell():
    told = {"held_out", "held_out_alone", "gap"}
    alice = make_client("alice")
    first = make_report(alice, alice.round())
    assert set(first) & told == {"gap"}, "alone, there is nothing to compare with"
    assert told <= set(reported(alice))
