"""Secure sums: totals are exact, what is said looks like noise, and what does not fit is refused."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repshare.errors import ConfigError, Malformed, Refused
from repshare.exchange.keys import Key
from repshare.secure.masking import Group, Member, add_up

KEYS = {name: Key.new() for name in "abcdefg"}


def group(count=3, session="digits, round 1"):
    return Group({name: KEYS[name].public for name in "abcdefg"[:count]}, session)


def announce(among):
    """The members, and what they announced."""
    there = {name: Member(among, name, KEYS[name]) for name in among.keys}
    return there, {name: member.announce() for name, member in there.items()}


def masks(there, announced, vectors):
    return {name: member.mask(announced, "sum", vectors[name]) for name, member in there.items()}


def total_of(among, announced, masked, length=4):
    return add_up(among, announced, masked, "sum", length)


def complete(among, vectors):
    """A whole sum: what was announced, and the masked vectors."""
    there, announced = announce(among)
    return announced, masks(there, announced, vectors)


def numbers(names, length=4, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-(2**58), 2**58, length) for name in names}


def add_blindly(masked):
    """What anybody can add up of these messages, whatever was signed."""
    return sum(np.frombuffer(body[:-64], "<u8") for body in masked).view(np.int64)


@settings(max_examples=40)
@given(data=st.data())
def test_the_total_is_exact(data):
    among = group(data.draw(st.integers(3, 7)))
    vectors = numbers(among.keys, seed=data.draw(st.integers(0, 2**32)))
    assert np.array_equal(total_of(among, *complete(among, vectors)), sum(vectors.values()))


def test_where_one_is_missing_nothing_is_masked():
    there, announced = announce(group(5))
    del announced["e"]
    with pytest.raises(Refused, match="'e' is not in the group, or announced no key"):
        there["a"].mask(announced, "sum", np.zeros(4, np.int64))


def test_one_who_announces_and_sends_no_vector_is_named_and_hides_all():
    among = group(5)
    vectors = numbers(among.keys)
    announced, masked = complete(among, vectors)
    del masked["d"]
    with pytest.raises(Refused, match="d did not both announce a key and send a vector"):
        total_of(among, announced, masked)
    for size in range(1, 5):
        for names in combinations(masked, size):
            total = sum(vectors[name] for name in names)
            assert not np.array_equal(add_blindly(masked[name] for name in names), total)


def test_one_key_masks_vectors_of_different_names_differently():
    among, zeros = group(3), np.zeros(4, np.int64)
    there, announced = announce(among)
    first, second = (there["a"].mask(announced, what, zeros)[:-64] for what in ("counts", "sum"))
    assert first != second
    with pytest.raises(Refused, match="was told of other members"):
        add_up(among, announced, masks({name: there[name] for name in "bc"}, announced, {"b": zeros, "c": zeros})
               | {"a": there["a"].mask(announced, "another sum", zeros)}, "sum", 4)  # fmt: skip


def test_what_a_member_says_is_noise():
    among = group(3)
    zeros = {name: np.zeros(20_000, np.int64) for name in among.keys}
    announced, masked = complete(among, zeros)
    for body in masked.values():
        bits = np.unpackbits(np.frombuffer(body, np.uint8))  # 1.28 million: 6 standard deviations are 0.0027
        assert abs(bits.mean() - 0.5) < 0.0027
    assert not total_of(among, announced, masked, 20_000).any()
    assert complete(among, zeros)[1] != masked


def test_every_step_is_taken_once_and_in_order():
    among, vector = group(3), np.zeros(4, np.int64)
    there, announced = announce(among)
    there["a"].mask(announced, "sum", vector)
    for again in (there["a"].announce, there["b"].announce, lambda: there["a"].mask(announced, "sum", vector)):
        with pytest.raises(Refused, match="twice"):
            again()
    with pytest.raises(Refused, match="without a"):
        Member(among, "a", KEYS["a"]).mask(announced, "sum", vector)


@pytest.mark.parametrize("count", [4, 5, 7])
def test_a_relay_reads_nothing_by_telling_one_member_of_other_keys(count):
    """Of any members, it gets the total only if all that each of them was told of are the same, and there."""
    among = group(count)
    vectors, (there, announced) = numbers(among.keys), announce(among)
    other = {**announced, "b": Member(among, "b", KEYS["b"]).announce()}
    masked = {
        name: there[name].mask(other if name == "a" else announced, "sum", vectors[name])
        for name in "acdefg"[: count - 1]
    }
    masked["b"] = there["b"].mask(announced, "sum", vectors["b"])
    for story in (other, announced):
        with pytest.raises(Refused, match="was told of other members"):
            total_of(among, story, masked)
    for size in range(1, count + 1):
        for names in combinations(masked, size):
            total = sum(vectors[name] for name in names)
            assert not np.array_equal(add_blindly(masked[name] for name in names), total)


@pytest.mark.parametrize("count", [4, 5, 7])
def test_a_vector_is_read_only_by_all_others_together(count):
    among = group(count)
    names, vectors = sorted(among.keys), numbers(among.keys)
    total = total_of(among, *complete(among, vectors))
    for colluding in (count - 2, count - 1):
        rest = total - sum(vectors[name] for name in names[1 : 1 + colluding])
        assert np.array_equal(rest, vectors["a"]) == (colluding == count - 1)


def test_masks_do_not_cancel_for_one_who_announces_anothers_key():
    """Two of five say d's and e's keys for theirs, to undo c's masks with these."""
    among = group(5)
    vectors, (there, announced) = numbers(among.keys), announce(among)
    for name, other in (("a", "d"), ("b", "e")):
        said = announced[other][:32]
        announced[name] = said + KEYS[name].sign(among.context + b"announce" + said)
    masked = there["c"].mask(announced, "sum", vectors["c"])
    assert not np.array_equal(add_blindly([masked]), vectors["c"])


def test_a_vector_counts_only_as_its_member_sent_it():
    among, vectors = group(3), numbers("abc")
    announced, masked = complete(among, vectors)
    touched = bytes([masked["a"][0] ^ 1]) + masked["a"][1:]
    for wrong in (touched, masked["b"], complete(among, vectors)[1]["a"]):
        with pytest.raises(Refused, match="a was told of other members"):
            total_of(among, announced, {**masked, "a": wrong})
    with pytest.raises(Malformed, match="95 bytes"):
        total_of(among, announced, {**masked, "a": masked["a"][:-1]})
    with pytest.raises(Refused, match="eve did not both"):
        total_of(among, announced, {**masked, "eve": masked["a"]})


def test_what_was_signed_in_one_sum_counts_in_no_other_of_the_same_number():
    """A relay may give two sums one number: then only the announcements, which are new in each, tell them apart."""
    among, vectors = group(3), numbers("abc")
    old, before = complete(among, vectors)
    there, announced = announce(among)
    with pytest.raises(Refused, match="another announcement"):
        there["a"].mask({**announced, "a": old["a"]}, "sum", vectors["a"])
    mixed = {**announced, "c": old["c"]}  # c's key of then is gone
    masked = {**masks({"b": there["b"]}, mixed, vectors), "a": before["a"], "c": before["c"]}
    with pytest.raises(Refused, match="was told of other members"):
        total_of(among, mixed, masked)


def test_an_announcement_counts_only_with_its_members_signature_for_this_sum():
    among, vector = group(3), np.zeros(4, np.int64)
    other = announce(group(3, session="round 2"))[1]
    for wrong, error in ((other["a"], Refused), ("b", Refused), (other["a"][:32], Malformed), (b"", Malformed)):
        there, announced = announce(among)
        with pytest.raises(error, match="a's announcement"):
            there["b"].mask({**announced, "a": announced.get(wrong, wrong)}, "sum", vector)
    there, announced = announce(among)
    with pytest.raises(Refused, match="'eve' is not in the group"):
        there["b"].mask({**announced, "eve": announced["a"]}, "sum", vector)


def test_a_key_that_gives_everybody_the_same_mask_is_refused():
    there, announced = announce(group(3))
    announced["c"] = bytes(32) + KEYS["c"].sign(there["c"].group.context + b"announce" + bytes(32))
    with pytest.raises(Refused, match="the public key that c announced is invalid"):
        there["a"].mask(announced, "sum", np.zeros(4, np.int64))


@pytest.mark.parametrize("vector", [np.zeros((2, 2), np.int64), np.zeros(4), np.full(4, 2**61, np.int64)])
def test_a_vector_of_the_wrong_shape_type_or_size_is_refused(vector):
    there, announced = announce(group(3))
    with pytest.raises(Refused, match="must be int64"):
        there["a"].mask(announced, "sum", vector)


def test_who_takes_part_is_checked_at_the_door():
    with pytest.raises(ConfigError, match="3 members or more"):
        group(2)
    with pytest.raises(ConfigError, match="another key"):
        Member(group(3), "a", KEYS["b"])
    public = KEYS["a"].public
    with pytest.raises(ConfigError, match="the same key"):  # or one would stand for two of the three
        Group({"a": public, "b": KEYS["b"].public, "c": public}, "sum")


def test_what_is_signed_names_the_meeting_and_its_members():
    meetings = [group(3, "x"), group(4, "x"), group(3, "y")]
    assert len({each.context for each in meetings}) == len(meetings)
