"""The relay's page in a real browser, with a real relay and real clients."""

import json
import re
import signal
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from repshare.sharing.representations import Release, Representations
from repshare.sharing.wire import encode_release
from support.browsers import Visit, start_browser
from support.processes import Process
from support.relays import create_task, invite, release, start_relay

PARTY = Path(__file__).parents[3] / "examples" / "party.py"
TASK = ("--classes", 10, "--dimension", 84, "--norm-bound", 20)
HOSTILE = '<img src=x onerror="alert(1)"><b>bold'
CURVE = "document.getElementById('curves').data?.at(-1).x.length ?? 0"
MARKS = "[...document.querySelectorAll('#map .points path')].map((mark) => mark.getAttribute('transform')).join()"
WATCH = f"""() => {{
    window.pictures = new Set();
    const look = () => {{ window.pictures.add({MARKS}); requestAnimationFrame(look); }};
    look();
}}"""
BOX = "(one) => { const box = one.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]; }"
LABELS = f"[...document.querySelectorAll('#map .annotation-text')].map({BOX})"
STATE = "document.getElementById('state').dataset.state"


@pytest.fixture(scope="module")
def browser():
    with start_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    """A relay where alice and bob train, and one with a hostile name has published."""
    folder = tmp_path_factory.mktemp("page")
    create_task(folder, "digits", *TASK)
    clients = ["alice", "bob", HOSTILE]
    tokens = {name: invite(folder, name, "--task", "digits") for name in clients}
    with start_relay(folder, "--rate", 0, "--away-seconds", 3) as relay:
        relay.tokens = {**tokens, "viewer": invite(folder, "eve", "--role", "viewer")}
        _tell(relay, HOSTILE, model="<i>model</i>")
        relay.parties = {name: _join(relay, name) for name in ("alice", "bob")}
        yield relay
        for party in relay.parties.values():
            party.stop()


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """A relay where twenty classes lie close together in one task, and nobody reports anything in another."""
    folder, rng = tmp_path_factory.mktemp("crowd"), np.random.default_rng(0)
    for name in ("crowd", "quiet"):
        create_task(folder, name, "--classes", 20, "--dimension", 8)
    with start_relay(folder, "--insecure", "--rate", 0) as relay:
        for task in ("crowd", "quiet"):
            rows = Representations(rng.normal(size=(20, 8)).astype(np.float32) / 9, np.arange(20), np.full(20, 300))
            body = encode_release(Release(1, rows, rows))
            assert relay.publish("St. Mary's Hospital", body, task=task).status_code == 200
        report = {"round": 1, "test_accuracy": 0.5, "ce": 2.0}
        path = "/v1/tasks/crowd/clients/St. Mary's Hospital/report"
        assert relay.ask("PUT", path, json=report).status_code == 200
        yield relay


@pytest.fixture
def visit(browser, relay):
    """A viewer's look at it. At the end: no errors, and nobody was asked but the relay."""
    visit = _look(browser, relay)
    yield visit
    visit.close()
    assert visit.errors == []
    assert visit.hosts == {relay.url.split("/")[2]}


def _look(browser, relay, **window):
    visit = Visit(browser, **window)
    visit.page.goto(f"{relay.url}/#token={relay.tokens['viewer']}")
    visit.page.wait_for_selector("#board:not([hidden])", timeout=60_000)
    return visit


def _join(relay, name):
    (relay.folder / f"{name}.token").write_text(relay.tokens[name])
    options = ("--token-file", f"{name}.token", "--state", f"state-{name}", "--pace", 0.3, "--threads", 1, "--report")
    return Process("join", relay.url, "--party", f"{PARTY}:{name}", *options, cwd=relay.folder, name=name)


def _tell(relay, name, **told):
    path, token = quote(name, safe=""), relay.tokens[name]
    body = release(round=1, value=0.1, classes=range(10), dimension=84)
    assert relay.publish(path, body, token).status_code == 200
    answer = relay.ask("PUT", f"/v1/tasks/digits/clients/{path}/report", token, json={"round": 1, "ce": 2.0, **told})
    assert answer.status_code == 200


def _row(name):
    return f'#members tr[data-name="{name}"]'


def test_clients_appear_and_their_curves_grow(visit):
    for name in ("alice", "bob"):
        visit.wait_text(_row(name), "online")
    visit.wait(f"{CURVE} >= 3")
    before = visit.page.evaluate(CURVE)
    visit.wait(f"{CURVE} > {before}")
    visit.wait("document.getElementById('sum-accuracy').textContent.endsWith('%')")
    visit.wait_text(_row("alice"), "LeNet5")
    visit.wait_text("#traffic", r"FedAvg would have moved [\d.,]+ times")


def test_the_curves_show_what_is_chosen_with_the_keyboard(visit):
    visit.wait(f"{CURVE} >= 2")
    visit.page.focus("#measure input:checked")
    accuracy = visit.text("#curves-words")
    visit.page.keyboard.press("ArrowRight")
    visit.page.keyboard.press("ArrowRight")
    visit.wait("document.querySelector('#measure input:checked').value === 'ce'")
    assert accuracy.startswith("Test accuracy")
    visit.wait_text("#curves-words", "^Cross-entropy")


def test_the_map_moves_with_the_slider(visit):
    visit.wait(f"document.getElementById('slider').max >= 2 && {MARKS}.split('translate').length > 40")
    last = visit.page.evaluate(MARKS)  # ten classes of three clients, and of all
    visit.page.focus("#slider")
    visit.page.keyboard.press("Home")
    visit.wait("document.getElementById('slider-round').textContent === 'round 1'")
    visit.wait(f"{MARKS} !== {json.dumps(last)}")
    first = visit.page.evaluate(MARKS)
    visit.page.keyboard.press("ArrowRight")
    visit.wait("document.getElementById('slider-round').textContent !== 'round 1'")
    visit.wait(f"![{json.dumps(first)}, {json.dumps(last)}].includes({MARKS})")
    assert visit.page.get_attribute("#slider", "aria-valuetext") == visit.text("#slider-round")


def test_the_rounds_can_be_played(visit):
    visit.wait("document.getElementById('slider').max >= 3")
    visit.page.get_by_role("button", name="Play the rounds").press("Enter")
    visit.page.get_by_role("button", name="Stop").wait_for()
    visit.wait("document.getElementById('slider').value >= 2")
    visit.page.get_by_role("button", name="Play the rounds").wait_for(timeout=60_000)  # at the end it stops


def test_a_hostile_name_is_only_text(visit):
    visit.wait("document.getElementById('map').data")
    assert (
        visit.page.evaluate("[...document.querySelectorAll('.client')].map((one) => one.textContent)").count(HOSTILE)
        == 1
    )
    visit.wait_text("#members", "<i>model</i>")
    assert visit.page.evaluate("document.querySelectorAll('main img, main b:not(#traffic b), main i').length") == 0
    visit.wait_text("#map-legend", re.escape(HOSTILE))
    trace = visit.page.evaluate(
        "document.getElementById('map').data.findIndex((trace) => trace.hovertext[0].includes('img'))"
    )
    visit.page.evaluate(f"Plotly.Fx.hover('map', [{{curveNumber: {trace}, pointNumber: 0}}])")
    label = visit.page.locator("#map .hoverlayer .hovertext")
    label.wait_for(timeout=60_000)
    assert label.first.text_content().replace("\u00a0", " ") == f"{HOSTILE}, class 0"
    assert label.locator("tspan[style*=bold], a").count() == 0


def test_a_poisoned_release_is_listed_as_refused(visit, relay):
    poisoned = release(round=2, value=50.0, classes=(0,), dimension=84)
    assert relay.publish(quote(HOSTILE, safe=""), poisoned, relay.tokens[HOSTILE]).status_code == 422
    visit.page.wait_for_selector("#refused tr", timeout=60_000)
    visit.wait_text("#refused tr", re.escape(HOSTILE))
    visit.wait_text("#refused tr", "norm_bound is 20")


def test_a_client_is_picked_out_in_the_figures_by_its_name(visit):
    visit.page.wait_for_selector(_row("alice"), timeout=60_000)
    visit.page.get_by_role("button", name="alice").press("Enter")
    chosen = visit.page.get_by_role("button", name="alice", pressed=True)
    chosen.wait_for(timeout=60_000)
    assert chosen.evaluate("(button) => button === document.activeElement")  # the keyboard stays where it was
    visit.wait("document.getElementById('map').data?.some((trace) => trace.marker.opacity === 0.15)")


def test_a_client_whose_process_is_killed_goes_away(visit, relay):
    visit.page.wait_for_selector(f"{_row('bob')} .here", timeout=60_000)
    relay.parties["bob"].stop(signal.SIGKILL)
    visit.page.wait_for_selector(f"{_row('bob')} .gone", timeout=60_000)
    assert "away" in visit.text(_row("bob"))
    visit.wait_text(_row("alice"), "online")
    visit.wait("document.getElementById('announce').textContent.includes('went offline')")


def test_the_token_leaves_the_address_and_stays_in_the_tab(visit):
    assert "token" not in visit.page.url
    assert "#" not in visit.page.url
    visit.page.reload()
    visit.page.wait_for_selector("#board:not([hidden])", timeout=60_000)


def test_it_fits_a_phone_at_night(browser, relay):
    visit = _look(browser, relay, viewport={"width": 390, "height": 844}, color_scheme="dark")
    visit.wait("document.getElementById('map').data && document.getElementById('curves').data")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    red, green, blue = map(
        int, re.findall(r"\d+", visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))[:3]
    )
    assert max(red, green, blue) < 60
    assert visit.page.locator("#clients thead").evaluate("(head) => head.getBoundingClientRect().width") <= 1
    assert visit.page.get_by_role("columnheader", name="Samples per class").count() == 1  # still there to be heard
    visit.close()
    assert visit.errors == []


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_nothing_sticks_out_and_labels_do_not_overlap_at_any_width(browser, crowd, width):
    visit = Visit(browser, viewport={"width": width, "height": 800})
    visit.page.goto(crowd.url)
    visit.wait(f"{LABELS}.length >= 5 && document.getElementById('curves').data")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    boxes, figure = visit.page.evaluate(LABELS), visit.page.evaluate(f"({BOX})(document.getElementById('map'))")
    for n, one in enumerate(boxes):
        assert not [other for other in boxes[:n] if _overlap(one, other)], (one, boxes)
        assert figure[0] <= one[0] <= one[2] <= figure[2]
        assert figure[1] <= one[1] <= one[3] <= figure[3]
    visit.close()
    assert visit.errors == []


def _overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_what_is_not_there_yet_takes_one_line_that_says_what_will_be(browser, crowd):
    visit = Visit(browser)
    visit.page.goto(f"{crowd.url}/#task=quiet")
    visit.wait_text("#curves-words", "appear here once a client reports them: repshare join")
    assert not visit.page.is_visible("#curves")
    assert visit.page.locator("section[aria-labelledby=learning-title]").bounding_box()["height"] < 100
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
    visit.page.wait_for_selector(_row("alice"), timeout=60_000)
    assert visit.page.locator("#members tr").count() == 1
    assert "only your own row is shown" in visit.text("#summary")
    assert not visit.page.is_visible("#map-section")
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


def test_while_the_relay_is_away_the_last_picture_stays_and_then_goes_on(browser, tmp_path):
    create_task(tmp_path)
    visit = Visit(browser)
    with start_relay(tmp_path, "--insecure") as relay:
        relay.publish("alice", release(round=1))
        visit.page.goto(relay.url)
        visit.page.wait_for_selector(_row("alice"), timeout=60_000)
        port = relay.port
    visit.wait(f"{STATE} === 'away'")
    assert re.search(r"not answered since \d\d:\d\d:\d\d", visit.text("#away"))
    assert visit.page.is_visible(_row("alice"))
    with start_relay(tmp_path, "--insecure", port=port) as relay:
        visit.wait(f"{STATE} === 'live'")
        assert not visit.page.is_visible("#away")
        relay.publish("bob", release(round=2))
        visit.page.wait_for_selector(_row("bob"), timeout=60_000)
        visit.close()


def test_figures_hold_still_for_those_who_asked_for_it(browser, relay):
    visit = _look(browser, relay, reduced_motion="reduce")
    visit.wait("document.getElementById('slider').max >= 3")
    visit.page.evaluate(WATCH)
    visit.page.get_by_role("button", name="Play the rounds").press("Enter")
    visit.page.get_by_role("button", name="Stop").wait_for()
    visit.wait("document.getElementById('slider').value >= 2")
    assert visit.page.evaluate("window.pictures.size") <= 6  # one for each round, not those in between
    visit.close()
