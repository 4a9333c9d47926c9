"""The page of a task with a common classifier: what it says of the space, the classes, the clients and the total."""

import json
import re
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from repshare import Board, Client, RelayExchange
from repshare.config import Policy
from repshare.party.state import make_report, reported
from repshare.relay.page import snapshots
from repshare.relay.page.common import describe_common
from repshare.relay.page.document import make_map, make_view
from repshare.sharing.parts import as_release, count_classes, make_part
from repshare.sharing.representations import Representations
from repshare.sharing.task import Task, make_space_task
from repshare.sharing.wire import encode_release
from repshare.space import Patches
from repshare.space.agreement import Agreement
from repshare.stores import MemoryStore
from repshare_lab import load
from support.browsers import Visit, start_browser
from support.relays import create_task, invite, start_relay

HOSTILE = '<img src=x onerror="alert(1)">'
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", HOSTILE)
COMMON = Agreement(Patches((1, 8, 8), sizes=(3, 4), filters=8), class_names=NAMES, inputs=(0.0, 16.0))
VALUES = ("--input-shape", 1, 8, 8, "--input-range", 0, 16, "--space", "patches", "filters=8", "--class-names", *NAMES)
OWN = {"alice": (0, 1, 2, 3), "bob": (3, 4, 5, 6), "carol": (6, 7, 8, 9)}
TASK = make_space_task(3, 4, "here")
ROUNDS = 3


def part_of(*labels, dimension=4, seed=0):
    """The part of samples with these labels, with vectors and weights at random."""
    rng, shape = np.random.default_rng(seed), (len(labels), dimension)
    vectors, weights = rng.normal(size=shape).astype(np.float32) / 2, rng.uniform(-1, 1, (len(labels), 3))
    hits = np.zeros((len(labels), 8), bool)
    return make_part(vectors, weights, np.array(labels), hits, shrinkage=1.0)


def publish(board, client, part, round=1, precision="fp32"):
    board.accept(client, encode_release(as_release(part, round, "here"), precision))


def samples_of(name):
    train, _, _ = load("digits")
    rows = np.flatnonzero(np.isin(train.labels, OWN[name]))[:200]
    return train.images[rows].astype(np.float32), train.labels[rows]


def make_client(name, exchange=None, **policy):
    given = Policy(minimum_count=2, held_out=0.2, accept_exposure=True, **policy)
    return Client(None, samples_of(name), exchange, name=name, space=COMMON, classes=10, policy=given)


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    """A relay where three clients have learned a common classifier, and reported it."""
    folder = tmp_path_factory.mktemp("common")
    create_task(folder, "digits", *VALUES)
    tokens = {name: invite(folder, name, "--task", "digits") for name in OWN}
    with ExitStack() as stack:
        relay = stack.enter_context(start_relay(folder, "--public-page", "--rate", 0))
        exchanges = {name: stack.enter_context(RelayExchange(relay.url, token=token)) for name, token in tokens.items()}
        clients = [make_client(name, exchange) for name, exchange in exchanges.items()]
        for _ in range(ROUNDS):
            relay.last = {client.name: client.round() for client in clients}
            for client in clients:
                exchanges[client.name].report(make_report(client, relay.last[client.name]))
        yield relay


@pytest.fixture(scope="module")
def visit(relay):
    """A look at its page."""
    with start_browser() as browser:
        visit = Visit(browser)
        visit.page.goto(relay.url)
        visit.page.wait_for_selector("#board:not([hidden])", timeout=60_000)
        visit.wait("document.getElementById('map').data && document.getElementById('curves').data")
        yield visit
        visit.close()
        assert visit.errors == []
        assert visit.hosts == {relay.url.split("/")[2]}


def percent(share):
    return f"{100 * share:.1f}\u00a0%"


def test_the_page_tells_the_space_the_classes_and_the_inputs(visit):
    visit.wait_text("#about", r"^10 classes: zero, one, .*, eight, <img src=x")
    visit.wait_text("#about", r"Inputs from 0 to 16\.$")
    visit.wait_text("#space", r"^Common space patches, 288 dimensions, seed 0, squared loss \(patches-")
    assert visit.page.evaluate("document.querySelectorAll('main img').length") == 0
    assert "The total is a linear classifier" in visit.text("#shared")


def test_each_client_has_its_held_out_accuracy_and_gap_and_the_samples_it_shares(visit, relay):
    for name, record in relay.last.items():
        row = f'#members tr[data-name="{name}"]'
        visit.wait_text(row, re.escape(f"{percent(record.held_out_alone)} → {percent(record.held_out)}"))
        visit.wait_text(row, "160 samples")
        assert visit.page.inner_text(f'{row} td[data-label="Duality gap"]') == _short(record.gap)
        told = visit.page.get_attribute(f"{row} .samples svg", "aria-label")
        labels = samples_of(name)[1]
        assert [each.rsplit(": ", 1)[0] for each in told.split(", ")] == [NAMES[label] for label in np.unique(labels)]
        assert sum(int(each.rsplit(": ", 1)[1]) for each in told.split(", ")) == 160
    mean = np.mean([record.held_out for record in relay.last.values()])
    visit.wait_text("#sum-accuracy", re.escape(percent(mean)))
    visit.wait_text("#sum-accuracy-note", "alone")


def _short(value):
    """A number as the page writes it: with three digits."""
    number = float(f"{float(f'{value:.4g}'):.3g}")
    return f"{number:g}" if number >= 0.001 else f"{number:.1e}".replace("e-0", "e-")


def test_the_curves_are_of_held_out_samples_together_and_alone_and_of_the_gap_by_powers_of_ten(visit):
    visit.wait_text("#curves-words", r"^Held-out accuracy: mean .* alone .* \(dashed\)")
    dashes = visit.page.evaluate(
        "document.getElementById('curves').data.filter((line) => line.line.dash === 'dash').length"
    )
    assert dashes == 1
    visit.page.locator("#measure input[value=gap]").evaluate("(choice) => choice.click()")
    visit.wait_text("#curves-words", "^Duality gap")
    assert visit.page.evaluate("document.getElementById('curves').layout.yaxis.type") == "log"


def test_the_table_of_the_total_has_each_clients_share_and_counts_by_class(visit):
    visit.wait_text("#total-note", "^480 samples$")
    head = visit.page.locator("#parts thead th").all_inner_texts()
    assert head == ["Client", "Share of the samples", *NAMES]
    rows = {
        row.locator("th").inner_text(): row.locator("td").all_inner_texts()
        for row in visit.page.locator("#parts tbody tr").all()
    }
    counts = {name: [int(text.replace("–", "0")) for text in cells[1:]] for name, cells in rows.items()}
    for name, own in OWN.items():
        assert rows[name][0].strip() == percent(1 / 3)
        assert {label for label, count in enumerate(counts[name]) if count} == set(own)
        assert sum(counts[name]) == 160
    assert counts["The total"] == [sum(each) for each in zip(*(counts[name] for name in OWN), strict=True)]


def test_the_map_has_the_classes_by_name_and_no_mark_for_the_centre(visit):
    visit.wait_text("#map-title", "class vectors")
    labels = [text.replace("\u00a0", " ") for text in visit.page.locator("#map .annotation-text").all_text_contents()]
    assert len(labels) >= 5
    assert set(labels) <= {*NAMES[:9], f"{HOSTILE[:13]}…"}
    assert visit.page.evaluate("document.getElementById('map').data[0].x.length") == 10, "the centre is no class"
    assert visit.page.locator("#map-classes li").all_inner_texts() == list(NAMES)
    visit.page.evaluate("Plotly.Fx.hover('map', [{curveNumber: 1, pointNumber: 9}])")
    label = visit.page.locator("#map .hoverlayer .hovertext")
    label.wait_for(timeout=60_000)
    assert label.first.text_content().replace("\u00a0", " ") == f"alice, {HOSTILE}"


def test_a_part_tells_how_many_samples_of_each_class_it_is_made_of():
    for precision in ("fp32", "fp16"):
        board = Board(TASK)
        publish(board, "a", part_of(*[0] * 7, *[2] * 4), precision=precision)
        publish(board, "b", part_of(*[1] * 100, *[2] * 3, seed=1), precision=precision)
        view = json.loads(make_view("t", board, MemoryStore(), [], 30))
        assert {each["name"]: each["samples"] for each in view["members"]} == {"a": [7, 0, 4], "b": [0, 100, 3]}
        assert [each["samples_total"] for each in view["members"]] == [11, 103]
        assert view["total"] == {"samples": 114, "classes": [7, 100, 7]}
        assert view["classes"] == 3


def test_counts_from_rounded_shares_add_up_and_a_release_of_nothing_has_none():
    thirds = as_release(part_of(0, 1, 2)._replace(samples=100), 1, "here").means
    assert count_classes(thirds, 3, 4) == [34, 33, 33]
    noisy = as_release(part_of(0, 1)._replace(shares=np.array([-0.004, 0.5, 0.5], np.float32)), 1, "here").means
    assert count_classes(noisy, 3, 4) == [0, 1, 1]
    nothing = Representations(np.zeros((0, 14), np.float32), np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert count_classes(nothing, 3, 4) == [0, 0, 0]


def test_a_map_shows_directions_about_the_common_centre_of_classes_only():
    board, notes = Board(TASK), MemoryStore()
    one, other = part_of(0, 0, 1, 2), part_of(1, 2, 2, 2, seed=1)
    publish(board, "a", one)
    publish(board, "b", other)
    assert snapshots.snap(board, notes)
    _, frames = snapshots.read_frames(notes, TASK)
    assert frames.shape == (1, 3, 3, 4)
    centre = (one.centre + other.centre) / 2
    for row, part in zip(frames[0, 1:], (one, other), strict=True):
        vectors = part.vectors - part.weights[:, None] * centre
        assert np.allclose(row, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), atol=2e-3)
    drawn = json.loads(make_map(TASK, notes, None)[0])
    assert drawn["classes"] == 3
    assert np.shape(drawn["points"]) == (1, 3, 3, 2)


def cosines(vectors):
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return units @ units.T


def test_long_vectors_are_folded_for_the_map_and_keep_their_angles():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(6, 1)) + rng.normal(size=(6, 16_384))
    folded = snapshots.fold(vectors.astype(np.float32), 397)
    assert folded.shape == (6, 397)
    assert np.abs(cosines(folded) - cosines(vectors)).max() < 0.15
    task = make_space_task(10, 16_384, "large")
    assert snapshots.places(task) == 10, "as many clients as may be read for a frame"
    assert snapshots.places(make_space_task(10, 2592, "usual")) == snapshots.CLIENTS


@pytest.mark.parametrize(
    "description",
    [
        None,
        "",
        "no JSON",
        "[]",
        "[" * 60_000,
        '{"class_names": ["a"], "seed": true, "inputs": [NaN, 1]}',
        '{"inputs": 7}',
    ],
)
def test_a_description_that_is_none_costs_the_page_only_the_words(description):
    told = describe_common(replace(TASK, description=description))
    assert (told["fingerprint"], told["dimension"]) == ("here", 4)
    assert (told["class_names"], told["seed"], told["inputs"]) == ([], None, None)
    assert describe_common(Task(3, 4)) is None


def test_a_backbone_is_told_by_its_hash_and_a_table_by_the_range_of_its_columns():
    told = describe_common(replace(TASK, description=json.dumps({"space": "backbone", "sha256": "3f" * 32})))
    assert (told["space"], told["sha256"], told["seed"]) == ("backbone", "3f" * 32, None)
    table = {"space": "fourier", "seed": 2**60, "low": [0, -1], "high": [5, 3], "inputs": None}
    told = describe_common(replace(TASK, description=json.dumps(table)))
    assert (told["inputs"], told["seed"]) == ([-1, 5], str(2**60))


def test_a_report_has_what_held_out_samples_tell():
    told = {"held_out", "held_out_alone", "gap"}
    alice = make_client("alice")
    first = make_report(alice, alice.round())
    assert set(first) & told == {"gap"}, "alone, there is nothing to compare with"
    assert told <= set(reported(alice))
