"""A client's part of a common classifier: averages that a board adds up to those of all samples pooled."""

import numpy as np
import pytest

from repshare import Board
from repshare.board import Wants
from repshare.errors import Malformed, Refused
from repshare.sharing import wire
from repshare.sharing.parts import BESIDE, MOST_WEIGHT, SHRINKAGES, as_release, read_total
from repshare.sharing.representations import Teacher, nothing
from repshare.sharing.task import Task, make_space_task
from repshare.space import Patches
from support.parts import make_part

CLASSES = 10
SPACE = "patches-0123456789abcdef-squared"
MAP = Patches((1, 8, 8), sizes=(3,), filters=2)  # d = 36
DIMENSION = MAP.dimension
EVERYTHING = Wants(0, 0)
SIZES = [("a", 50), ("b", 1), ("c", 120), ("d", 9)]


@pytest.fixture(scope="module")
def samples(digits):
    """Vectors, weights, labels and hits of 180 digits."""
    (images, labels), _ = digits
    rng = np.random.default_rng(0)
    weights = rng.uniform(-1, 1, (180, CLASSES))
    hits = rng.random((180, len(SHRINKAGES))) < 0.7
    return MAP(images[:180]).numpy(), weights, labels[:180].numpy(), hits


def cut(samples, start, stop):
    return make_part(*(array[start:stop] for array in samples))


def publish(board, samples, sizes=SIZES, round=1, space=SPACE):
    start = 0
    for client, size in sizes:
        part = cut(samples, start, start + size)
        board.accept(client, wire.encode_release(as_release(part, round, space)))
        start += size


def total_of(board, client="reader"):
    return read_total(wire.decode_teacher(board.teach(client, EVERYTHING)), CLASSES, DIMENSION, SPACE)


@pytest.fixture
def board():
    return Board(make_space_task(CLASSES, DIMENSION, SPACE))


@pytest.fixture
def teacher(board, samples):
    """A teacher that fits, for tests to spoil."""
    publish(board, samples)
    return wire.decode_teacher(board.teach("reader", EVERYTHING))


def test_a_part_holds_the_averages_of_a_plain_loop(samples):
    vectors, weights, labels, hits = samples
    n = len(labels)
    sums, sum_of_weights, shares = np.zeros((CLASSES, DIMENSION)), np.zeros(CLASSES), np.zeros(CLASSES)
    right, centre = np.zeros((CLASSES, len(SHRINKAGES))), np.zeros(DIMENSION)
    for i in range(n):
        for c in range(CLASSES):
            sums[c] += weights[i, c] * vectors[i].astype(float) / n
            sum_of_weights[c] += weights[i, c] / n
        shares[labels[i]] += 1 / n
        right[labels[i]] += hits[i] / n
        centre += vectors[i].astype(float) / n
    part = make_part(*samples)
    assert part.samples == n
    for own, expected in zip(part, (sums, sum_of_weights, shares, right, centre), strict=False):
        assert own.dtype == np.float32
        assert own == pytest.approx(expected, abs=1e-5)


def test_a_sample_that_weighs_too_much_may_not_leave(samples):
    vectors, weights, labels, hits = samples
    heavy = weights.copy()
    heavy[7, 3] = -MOST_WEIGHT
    make_part(vectors, heavy, labels, hits)
    heavy[7, 3] = -MOST_WEIGHT - 0.01
    with pytest.raises(ValueError, match=r"a sample's weight is 4.01; at most 4 may leave"):
        make_part(vectors, heavy, labels, hits)


def test_a_release_has_a_row_for_each_class_and_one_for_the_centre_and_no_observations(samples):
    part = cut(samples, 0, 50)
    release = wire.decode_release(wire.encode_release(as_release(part, 3, SPACE)))
    assert (release.round, release.space, release.noise) == (3, SPACE, None)
    assert release.means.vectors.shape == (CLASSES + 1, DIMENSION + BESIDE)
    assert release.means.labels.tolist() == list(range(CLASSES + 1))
    assert release.means.counts.tolist() == [50] * (CLASSES + 1)
    assert len(release.observations.labels) == 0
    assert np.array_equal(release.means.vectors[:CLASSES, :DIMENSION], part.vectors)
    assert np.array_equal(release.means.vectors[CLASSES, :DIMENSION], part.centre)
    assert release.means.vectors[CLASSES, DIMENSION:].tolist() == [0, 1] + [0] * (BESIDE - 2)  # before any vote


@pytest.mark.parametrize("reader", ["a", "reader"])
def test_the_boards_total_of_clients_parts_is_the_part_of_all_samples_pooled(board, samples, reader):
    publish(board, samples)
    total, pooled = total_of(board, reader), make_part(*samples)
    assert total.samples == pooled.samples == 180
    for own, expected in zip(total[:5], pooled[:5], strict=True):
        assert own == pytest.approx(expected, abs=1e-5)


def test_the_total_knows_how_many_samples_voted_themselves(board, samples):
    for client, start, stop, voters in (("a", 0, 100, 40), ("b", 100, 180, None)):
        own = (array[start:stop] for array in samples)
        board.accept(client, wire.encode_release(as_release(make_part(*own, voters=voters), 1, SPACE)))
    total = total_of(board)
    assert total.samples * (1 - total.repeated) == pytest.approx(40 + 80, abs=1e-4)


def test_the_order_of_rows_does_not_matter(teacher):
    order = np.random.default_rng(0).permutation(CLASSES + 1)
    mixed = teacher._replace(means=type(teacher.means)(*(array[order] for array in teacher.means)))
    first, second = (read_total(each, CLASSES, DIMENSION, SPACE) for each in (teacher, mixed))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_total_of_fp16_releases_is_close_and_still_fits(board, samples):
    start = 0
    for client, size in SIZES:
        release = as_release(cut(samples, start, start + size), 1, SPACE)
        board.accept(client, wire.encode_release(release, "fp16"))
        start += size
    body = board.teach("reader", EVERYTHING._replace(precision="fp16"))
    total, pooled = read_total(wire.decode_teacher(body), CLASSES, DIMENSION, SPACE), make_part(*samples)
    for own, expected in zip(total[:5], pooled[:5], strict=True):
        assert own == pytest.approx(expected, abs=2e-3)


def test_where_nobody_else_has_shared_anything_there_is_no_total(board, samples):
    assert total_of(board) is None
    publish(board, samples, SIZES[:1])
    assert total_of(board, "a") is None
    assert total_of(board, "b") is not None


def test_a_client_that_leaves_takes_its_part_out_of_the_total(board, samples):
    publish(board, samples, SIZES[:3])
    before = board.teach("reader", EVERYTHING)
    board.accept("d", wire.encode_release(as_release(cut(samples, 171, 180), 1, SPACE)))
    assert board.teach("reader", EVERYTHING) != before
    board.withdraw("d")
    assert board.teach("reader", EVERYTHING) == before


def test_a_newer_part_replaces_the_older_one(board, samples):
    publish(board, samples)
    expected = board.teach("reader", EVERYTHING)
    other = Board(board.task)
    publish(other, tuple(array[::-1] for array in samples))
    publish(other, samples, round=2)
    assert other.teach("reader", EVERYTHING) == expected


def spoil(change):
    """A teacher or a release whose means were changed."""

    def spoilt(teacher):
        means = type(teacher.means)(*(array.copy() for array in teacher.means))
        changed = change(means) or means
        return teacher._replace(means=changed, observations=nothing(changed.vectors.shape[1]))

    return spoilt


def put(rows, columns, value):
    def change(means):
        means.vectors[rows, columns] = value

    return spoil(change)


def count(row, value):
    def change(means):
        means.counts[row] = value

    return spoil(change)


LONG = "a vector of length {}; the space's are at most 6.06 long"  # 1.01 · √36
SHARES = "shares of classes that add up to {}, not to 1"
DIFFERENT = "numbers that are not finite, or rows that count different samples"
FAULTS = [
    (spoil(lambda m: m._replace(vectors=m.vectors[:, 1:])), "vectors of 35 numbers; the space's have 36"),
    (spoil(lambda m: m.part(slice(0, CLASSES))), r"rows \[0, 1, .* 9\], not one for each of 10 classes"),
    (spoil(lambda m: m.part(slice(1, None))), r"rows \[1, 2, .* 10\], not one for each of 10 classes"),
    (spoil(lambda m: m._replace(labels=m.labels.clip(1))), r"rows \[1, 1, 2"),
    (put(3, 5, np.nan), DIFFERENT),
    (put(CLASSES, 5, np.inf), DIFFERENT),
    (count(2, 179), DIFFERENT),
    (count(slice(None), 0), DIFFERENT),
    (put(CLASSES, slice(0, DIMENSION), 1.02), LONG.format("6.12")),
    (put(3, slice(0, DIMENSION), -1.02 * MOST_WEIGHT), LONG.format("24.48")),
    (put(6, DIMENSION, -4.1), "a weight of 4.1; at most 4 is allowed"),
    (put(slice(0, CLASSES), DIMENSION + 1, 0.2), SHARES.format(2)),
    (put(slice(0, CLASSES), DIMENSION + 1, 0.05), SHARES.format("0.5")),
    (put([0, 1], DIMENSION + 1, [1.5, -0.5]), "shares of classes that add up to"),
    (put(CLASSES, DIMENSION + 2, 1.1), "a share of 1.1 repeated votes, not from 0 to 1"),
    (put(CLASSES, DIMENSION + 2, -0.1), "a share of -0.1 repeated votes, not from 0 to 1"),
    (put(4, DIMENSION + 2, 0.9), "more hits than samples"),
    (put(4, DIMENSION + 2, -0.1), "more hits than samples"),
]


@pytest.mark.parametrize(("spoil", "words"), FAULTS)
def test_a_teacher_that_is_no_total_is_malformed(teacher, spoil, words):
    read_total(teacher, CLASSES, DIMENSION, SPACE)
    with pytest.raises(Malformed, match=f"the teacher has {words}"):
        read_total(spoil(teacher), CLASSES, DIMENSION, SPACE)


@pytest.mark.parametrize(("spoil", "words"), FAULTS)
def test_a_release_that_is_no_part_is_refused_and_changes_nothing(board, samples, spoil, words):
    publish(board, samples)
    before = board.save()
    release = as_release(cut(samples, 0, 50), 2, SPACE)
    with pytest.raises(Refused, match=f"the release has {words}"):
        board.accept("a", wire.encode_release(spoil(release)))
    assert board.save() == before
    board.accept("a", wire.encode_release(release))
    assert board.save() != before


def test_a_teacher_of_another_space_is_malformed(teacher):
    words = f"the teacher is of the space fourier-77, this client's is {SPACE}"
    with pytest.raises(Malformed, match=words):
        read_total(teacher._replace(space="fourier-77"), CLASSES, DIMENSION, SPACE)


def test_a_weighted_vector_may_be_longer_than_a_samples(teacher):
    spoilt = put(3, slice(0, DIMENSION), 1.0 * MOST_WEIGHT)(teacher)
    assert read_total(spoilt, CLASSES, DIMENSION, SPACE).vectors[3].tolist() == [MOST_WEIGHT] * DIMENSION


def test_an_empty_teacher_of_another_space_or_dimension_is_malformed_too():
    with pytest.raises(Malformed, match="the teacher has vectors of 20 numbers; the space's have 36"):
        read_total(Teacher(nothing(20 + BESIDE), nothing(20 + BESIDE), SPACE), CLASSES, DIMENSION, SPACE)
    rows = nothing(DIMENSION + BESIDE)
    with pytest.raises(Malformed, match="of the space other-1, this client's is"):
        read_total(Teacher(rows, rows, "other-1"), CLASSES, DIMENSION, SPACE)
    assert read_total(Teacher(rows, rows, SPACE), CLASSES, DIMENSION, SPACE) is None


@pytest.mark.parametrize(
    ("space", "there"), [("fourier-77-squared", "fourier-77-squared"), (None, "each client's own space")]
)
def test_a_release_in_another_space_is_refused_and_changes_nothing(board, samples, space, there):
    publish(board, samples)
    before, version = board.save(), board.version()
    with pytest.raises(Refused, match=f"the task's vectors are in {SPACE}, this release's in {there}"):
        publish(board, samples, SIZES[:1], round=2, space=space)
    assert board.save() == before
    assert board.version() == version


def test_a_release_in_a_common_space_is_refused_where_each_client_has_its_own(samples):
    board = Board(Task(CLASSES, DIMENSION))
    with pytest.raises(Refused, match=f"the task's vectors are in each client's own space, this release's in {SPACE}"):
        publish(board, samples, SIZES[:1])


def test_the_longest_part_that_may_leave_is_accepted_and_a_longer_one_refused(board):
    vectors = np.ones((3, DIMENSION), np.float32)  # √d long
    labels, hits = np.array([2, 2, 2]), np.ones((3, len(SHRINKAGES)), bool)
    part = make_part(vectors, np.full((3, CLASSES), MOST_WEIGHT), labels, hits)
    for precision in ("fp32", "fp16"):
        board.accept(precision, wire.encode_release(as_release(part, 1, SPACE), precision))
    longer = part._replace(vectors=part.vectors * 2)
    with pytest.raises(Refused, match=r"the release has a vector of length 48; the space's are at most 6.06 long"):
        board.accept("liar", wire.encode_release(as_release(longer, 1, SPACE)))
