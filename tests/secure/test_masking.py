"""Secure sums: totals are exact whoever drops out, what is said looks like noise, and what does not fit is refused."""

import json
from copy import copy

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from repshare.errors import ConfigError, Malformed, Refused
from repshare.exchange.keys import Key
from repshare.secure.masking import PRIME, SHARE_BYTES, Group, Member, _stretch, add_up, join, pairwise_mask, split
from repshare.sharing import wire

KEYS = {name: Key.new() for name in "abcdefg"}


def group(count=3, length=4, threshold=0, session="digits, round 1"):
    return Group({name: KEYS[name].public for name in "abcdefg"[:count]}, session, length, threshold)


def members(among):
    return {name: Member(among, name, KEYS[name]) for name in among.keys}


def announcing(among, name):
    member = Member(among, name, KEYS[name])
    member.announce()
    return member


class Sum:
    """A whole sum, step by step; `gone` says who is missing from which step on."""

    def __init__(self, among, vectors, gone=None):
        self.group, gone = among, gone or {}
        there = members(among)

        def present(step):
            order = ["announce", "deal", "mask", "confirm", "open"]
            return {n: m for n, m in there.items() if n not in gone or order.index(gone[n]) > order.index(step)}

        self.announced = {name: member.announce() for name, member in present("announce").items()}
        self.dealt = {name: member.deal(self.announced) for name, member in present("deal").items()}
        self.masked = {name: member.mask(self.dealt, vectors[name]) for name, member in present("mask").items()}
        self.confirmed = {name: member.confirm(self.masked) for name, member in present("confirm").items()}
        self.opened = {name: member.open(self.confirmed) for name, member in present("open").items()}
        self.members = there

    def total(self, **changed):
        said = {name: changed.get(name, getattr(self, name)) for name in ("announced", "dealt", "masked", "opened")}
        return add_up(self.group, **said)


def numbers(names, length=4, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-(2**58), 2**58, length) for name in names}


@settings(max_examples=40)
@given(data=st.data())
def test_the_total_is_exact_whoever_drops_out_as_long_as_enough_stay(data):
    count = data.draw(st.integers(3, 7))
    threshold = data.draw(st.integers(count // 2 + 1, count))
    among = group(count, threshold=threshold)
    steps = st.sampled_from(["announce", "deal", "mask", "confirm", "open"])
    leaving = data.draw(st.lists(st.sampled_from(sorted(among.keys)), unique=True, max_size=count - threshold))
    gone = {name: data.draw(steps) for name in leaving}
    vectors = numbers(among.keys, seed=data.draw(st.integers(0, 2**32)))
    done = Sum(among, vectors, gone)
    counted = [name for name in among.keys if gone.get(name, "open") in ("confirm", "open")]
    assert sorted(done.masked) == counted
    assert np.array_equal(done.total(), sum(vectors[name] for name in counted))


@settings(max_examples=30)
@given(count=st.integers(3, 7), data=st.data())
def test_with_too_few_left_nothing_is_opened(count, data):
    among = group(count)
    gone = dict.fromkeys(
        sorted(among.keys)[: count - among.threshold + 1], data.draw(st.sampled_from(["deal", "mask", "confirm"]))
    )
    with pytest.raises(Refused, match=f"{among.threshold} are needed"):
        Sum(among, numbers(among.keys), gone)


@given(secret=st.binary(min_size=32, max_size=32), data=st.data())
def test_any_enough_shares_give_the_secret_back(secret, data):
    threshold = data.draw(st.integers(2, 7))
    shares = split(secret, threshold, range(1, 8))
    chosen = data.draw(st.lists(st.sampled_from(range(1, 8)), min_size=threshold, unique=True))
    assert join({place: shares[place] for place in chosen}, threshold) == secret


@given(secrets=st.tuples(*[st.integers(0, 2**256 - 1)] * 2), threshold=st.integers(2, 6))
def test_fewer_shares_fit_every_other_secret_just_as_well(secrets, threshold):
    mine, other = secrets
    shares = split(mine.to_bytes(32), threshold, range(1, threshold))
    points = {0: other, **{place: int.from_bytes(share) for place, share in shares.items()}}

    def at(x):  # of the one polynomial through the other secret and these shares
        value = 0
        for place, y in points.items():
            for known in points:
                if known != place:
                    y = y * (x - known) * pow(place - known, -1, PRIME) % PRIME
            value += y
        return value % PRIME

    last = {threshold: at(threshold).to_bytes(SHARE_BYTES)}
    assert join({**shares, **last}, threshold) == other.to_bytes(32)


def test_what_a_member_says_is_noise():
    among = group(3, length=20_000)
    zeros = {name: np.zeros(20_000, np.int64) for name in among.keys}
    done = Sum(among, zeros)
    for body in done.masked.values():
        bits = np.unpackbits(np.frombuffer(body, np.uint8))  # 1.28 million: 6 standard deviations are 0.0027
        assert abs(bits.mean() - 0.5) < 0.0027
    assert not done.total().any()
    assert Sum(among, zeros).masked != done.masked


def test_the_own_mask_covers_a_vector_whose_pairwise_masks_are_known():
    """A vector that comes late, when its sender's key has been opened already, stays unreadable."""
    among = group(4, threshold=3)
    vectors = numbers(among.keys)
    late = Sum(among, vectors, {"d": "mask"})
    body = late.members["d"].mask(late.dealt, vectors["d"])
    with pytest.raises(Malformed, match="do not fit together"):
        late.total(masked={**late.masked, "d": body})


def test_every_step_is_taken_once_and_in_order():
    among = group(3)
    done = Sum(among, numbers(among.keys))
    alice = done.members["a"]
    for again in (alice.announce, lambda: alice.deal(done.announced), lambda: alice.open(done.confirmed)):
        with pytest.raises(Refused, match="twice"):
            again()
    with pytest.raises(Refused, match="now"):
        Member(among, "a", KEYS["a"]).open(done.confirmed)


def test_nothing_is_opened_unless_enough_were_told_the_same():
    """Or else a relay could tell some that one dropped out and others that it did not, and have both its secrets."""
    among = group(4, threshold=3)
    vectors = numbers(among.keys)
    there = members(among)
    announced = {name: member.announce() for name, member in there.items()}
    dealt = {name: member.deal(announced) for name, member in there.items()}
    masked = {name: member.mask(dealt, vectors[name]) for name, member in there.items()}
    stories = {"a": masked, "b": masked, "c": {name: masked[name] for name in "abc"}, "d": masked}
    confirmed = {name: there[name].confirm(stories[name]) for name in there}
    assert there["a"].open(confirmed), "three were told the same"
    with pytest.raises(Refused, match="only 1 members were told the same"):
        there["c"].open(confirmed)
    with pytest.raises(Refused, match="only 2 members were told the same"):
        there["b"].open({**confirmed, "d": confirmed["c"]})


def read(among, name, body, seed, pairs):
    """What a member masked, for whoever has its seed and all its masks with others."""
    masked = np.frombuffer(body[: 8 * among.length], "<u8") - _stretch(seed, among.length)
    for other, mask in pairs.items():
        masked -= mask if name < other else -mask
    return masked.view(np.int64)


def twins(member):
    """One who is on the relay's side may play a sum on from here twice."""
    two = copy(member), copy(member)
    for each in two:
        each._steps = list(member._steps)
    return two


def to_the_masks(among, vectors, told=None):
    """The members, and what they said up to the masked vectors; `told` says to whom the relay shows which dealers."""
    there = members(among)
    announced = {name: member.announce() for name, member in there.items()}
    dealt = {name: member.deal(announced) for name, member in there.items()}
    shown = {name: {each: dealt[each] for each in (told or {}).get(name, dealt)} for name in there}
    masked = {name: member.mask(shown[name], vectors[name]) for name, member in there.items()}
    return there, announced, masked


BOUNDS = [(4, 3), (5, 3), (5, 4), (6, 5), (7, 4), (7, 5), (7, 6)]  # members, and how many must stay


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize(("count", "threshold"), BOUNDS)
def test_a_relay_reads_nothing_by_telling_one_member_of_fewer_dealers(count, threshold, more):
    """It then drops those on that list who are not on its side: the others would open all of the victim's masks."""
    among = group(count, threshold=threshold)
    colluders = sorted(among.keys)[count - (2 * threshold - count - 1 + more) :]
    dropped = [name for name in sorted(among.keys)[1:] if name not in colluders][: count - threshold]
    told = ["a", *dropped, *colluders][:threshold]
    there, _, masked = to_the_masks(among, numbers(among.keys), {"a": told})
    shown = {name: body for name, body in masked.items() if name not in dropped}
    reasons = {"a": "sent a vector but dealt no shares", **dict.fromkeys(dropped, "the sum continued without")}
    for name in set(among.keys) - set(colluders):
        with pytest.raises(Refused, match=reasons.get(name, "a was told of other members")):
            there[name].confirm(shown)


@pytest.mark.parametrize(("count", "threshold"), BOUNDS)
def test_two_stories_are_believed_from_the_documented_number_of_colluders_on(count, threshold):
    among = group(count, threshold=threshold)
    vectors = numbers(among.keys)

    def attack(colluding):
        names = sorted(among.keys)
        honest, colluders = names[: count - colluding], names[count - colluding :]
        there, announced, masked = to_the_masks(among, vectors)
        pairs = {name: twins(there[name]) for name in colluders}
        without = {name: body for name, body in masked.items() if name != "a"}
        half = (len(honest) + 1) // 2
        opened = []
        for side, (some, story) in enumerate(((honest[:half], masked), (honest[half:], without))):
            told = {name: there[name] for name in some} | {name: pairs[name][side] for name in colluders}
            confirmed = {name: member.confirm(story) for name, member in told.items()}
            opened.append({name: wire.decode_items(member.open(confirmed))["a"] for name, member in told.items()})
        seed, key = (
            join({among.share_index(name): share for name, share in each.items()}, threshold) for each in opened
        )
        private = X25519PrivateKey.from_private_bytes(key)
        known = {
            name: pairwise_mask(among, private, announced[name][32:64], ("a", name)) for name in names if name != "a"
        }
        return read(among, "a", masked["a"], seed, known)

    bound = 2 * threshold - count - 1
    with pytest.raises(Refused, match="were told the same"):
        attack(bound)
    assert np.array_equal(attack(bound + 1), vectors["a"])


def test_masks_do_not_cancel_for_one_who_announces_anothers_key():
    """Two of five (as many as are documented to do no harm) say d's and e's keys for theirs, to undo c's masks."""
    among = group(5, threshold=4)
    vectors = numbers(among.keys)
    there = members(among)
    announced = {name: member.announce() for name, member in there.items()}
    for name, other in (("a", "d"), ("b", "e")):
        said = announced[name][:32] + announced[other][32:64] + announced[name][64:96]
        announced[name] = there[name]._told[name] = said + KEYS[name].sign(among.context + b"announce" + said)
    dealt = {name: member.deal(announced) for name, member in there.items()}
    masked = {name: member.mask(dealt, vectors[name]) for name, member in there.items()}
    confirmed = {name: member.confirm(masked) for name, member in there.items()}
    opened = {name: wire.decode_items(member.open(confirmed))["c"] for name, member in there.items()}
    seed = join({among.share_index(name): share for name, share in opened.items()}, 4)
    assert not np.array_equal(read(among, "c", masked["c"], seed, {}), vectors["c"])


def test_a_vector_counts_only_as_its_member_sent_it():
    among = group(3)
    done = Sum(among, numbers(among.keys))
    other = Sum(among, numbers(among.keys))
    touched = bytes([done.masked["a"][0] ^ 1]) + done.masked["a"][1:]
    for wrong in (touched, done.masked["b"], other.masked["a"]):
        there, _, masked = to_the_masks(among, numbers(among.keys))
        with pytest.raises(Refused, match="a was told of other members"):
            there["b"].confirm({**masked, "a": wrong})
        with pytest.raises(Refused, match="a was told of other members"):
            done.total(masked={**done.masked, "a": wrong})


def test_what_was_signed_in_one_sum_counts_in_no_other_of_the_same_number():
    """A relay may give two sums one number: then only the announcements, which are new in each, tell them apart."""
    among = group(3)
    vectors = numbers(among.keys)
    before = Sum(among, vectors)
    there, announced, masked = to_the_masks(among, vectors)
    confirmed = {name: there[name].confirm(masked) for name in "ab"}
    with pytest.raises(Refused, match="only 2 members were told the same"):
        there["a"].open({**confirmed, "c": before.confirmed["c"]})
    with pytest.raises(Refused, match="another announcement"):
        announcing(among, "a").deal(announced)


def test_an_announcement_counts_only_with_its_members_signature_for_this_sum():
    among = group(3)
    there = members(among)
    announced = {name: member.announce() for name, member in there.items()}
    other = {name: member.announce() for name, member in members(group(3, session="round 2")).items()}
    swapped = announced["a"][:32] + other["a"][32:96] + announced["a"][96:]
    for wrong, error in ((other["a"], Refused), (announced["b"], Refused), (swapped, Refused), (b"", Malformed)):
        with pytest.raises(error, match="a's announcement"):
            there["b"].deal({**announced, "a": wrong})
        there["b"]._steps.insert(0, "deal")
    with pytest.raises(Refused, match="'eve' is not in the group"):
        there["b"].deal({**announced, "eve": announced["a"]})


def test_nobody_goes_on_in_a_sum_that_goes_on_without_it():
    among = group(4)
    announced = {name: member.announce() for name, member in members(among).items() if name != "d"}
    with pytest.raises(Refused, match="without d"):
        announcing(among, "d").deal(announced)


def test_shares_that_were_touched_or_meant_for_another_are_refused():
    among = group(3)
    there = members(among)
    announced = {name: member.announce() for name, member in there.items()}
    dealt = {name: member.deal(announced) for name, member in there.items()}
    sealed = wire.decode_items(dealt["a"])
    touched = sealed["b"][:-1] + bytes([sealed["b"][-1] ^ 1])
    vector = np.zeros(4, np.int64)
    for wrong in ({**sealed, "b": touched}, {**sealed, "b": sealed["c"]}, {"c": sealed["c"]}, {**sealed, "b": b""}):
        bob = Member(among, "b", KEYS["b"])
        bob.__dict__.update({**there["b"].__dict__, "_steps": ["mask", "confirm", "open"]})
        with pytest.raises(Malformed, match="a dealt to b"):
            bob.mask({**dealt, "a": wire.encode_items(wrong)}, vector)
    with pytest.raises(Malformed):
        there["b"].mask({**dealt, "a": b"not a message"}, vector)


@pytest.mark.parametrize("gone", [{}, {"d": "mask"}], ids=["seed", "key"])
def test_a_wrong_share_is_noticed(gone):
    among = group(4, threshold=3)
    done = Sum(among, numbers(among.keys), gone)
    shares = wire.decode_items(done.opened["a"])
    about = "d"
    wrong = {**shares, about: (int.from_bytes(shares[about]) ^ 1).to_bytes(SHARE_BYTES)}
    with pytest.raises(Malformed, match="fit together"):
        done.total(opened={**done.opened, "a": wire.encode_items(wrong)})
    for malformed in ({**shares, about: b"short"}, {"a": shares["a"]}, {**shares, "eve": shares["a"]}):
        with pytest.raises(Malformed, match="a must give one share"):
            done.total(opened={**done.opened, "a": wire.encode_items(malformed)})


def test_a_vector_of_the_wrong_length_type_or_size_is_refused():
    among = group(3)
    there = members(among)
    announced = {name: member.announce() for name, member in there.items()}
    dealt = {name: member.deal(announced) for name, member in there.items()}
    wrong = (np.zeros(3, np.int64), np.zeros(4), np.full(4, 2**61, np.int64))
    for name, vector in zip(there, wrong, strict=True):
        with pytest.raises(Refused, match="must be 4 int64"):
            there[name].mask(dealt, vector)
    done = Sum(among, numbers(among.keys))
    with pytest.raises(Malformed, match="31 bytes"):
        done.total(masked={**done.masked, "a": done.masked["a"][:-1]})


def test_who_takes_part_is_checked_at_the_door():
    for count, threshold in ((2, 2), (3, 1), (4, 2), (4, 5)):
        with pytest.raises(ConfigError):
            group(count, threshold=threshold)
    with pytest.raises(ConfigError, match="another key"):
        Member(group(3), "a", KEYS["b"])
    public = KEYS["a"].public
    with pytest.raises(ConfigError, match="the same key"):  # or one would stand for two of the three
        Group({"a": public, "b": KEYS["b"].public, "c": public}, "sum", 4)
    done = Sum(group(4, threshold=3), numbers("abcd"))
    with pytest.raises(Refused, match="without the one before"):
        done.total(dealt={name: done.dealt[name] for name in "abc"})


def test_what_is_signed_names_the_sum_to_the_last_value():
    contexts = {
        json.dumps([*map(str, each)]): group(*each).context
        for each in ((3, 4, 3, "x"), (4, 4, 3, "x"), (3, 5, 3, "x"), (3, 4, 2, "x"), (3, 4, 3, "y"))
    }
    assert len(set(contexts.values())) == len(contexts)
