"""Keys, whom to trust, and signed releases: what is not the peer's own, or older than what was seen, stays out."""

import json
import os
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repshare.errors import ConfigError, ExchangeError, Malformed, Refused
from repshare.exchange.keys import Key, Trust, parse_public, seal, unseal
from repshare.sharing import wire
from repshare.sharing.representations import Release, stack

ALICE, EVE = Key.new(), Key.new()
ASKED = bytes(range(32))  # the challenge of the question that is answered


def release(round=1, value=1.0):
    rows = stack([(np.full(2, value), 0, 4)], 2)
    return wire.encode_release(Release(round, rows, rows))


def trusting(**keys):
    trust = Trust()
    for name, key in keys.items():
        trust.add(name, key.public)
    return trust


def test_a_key_is_read_back_as_it_was_written_and_only_its_owner_may_read_it(tmp_path):
    ALICE.write(tmp_path / "key")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert Key.read(tmp_path / "key").public == ALICE.public


def test_a_key_is_never_replaced(tmp_path):
    ALICE.write(tmp_path / "key")
    with pytest.raises(ConfigError, match="File exists"):
        EVE.write(tmp_path / "key")
    assert Key.read(tmp_path / "key").public == ALICE.public


def test_a_key_that_others_may_read_is_not_used(tmp_path):
    ALICE.write(tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        Key.read(tmp_path / "key")


def test_a_key_behind_a_link_is_judged_as_the_file_that_is_read(tmp_path):
    ALICE.write(tmp_path / "key")
    (tmp_path / "link").symlink_to("key")
    assert Key.read(tmp_path / "link").public == ALICE.public
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Key.read(tmp_path / "link")


def test_a_key_is_not_written_through_a_link_laid_in_its_place(tmp_path):
    (tmp_path / "key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="File exists"):
        ALICE.write(tmp_path / "key")
    assert not (tmp_path / "elsewhere").exists()


def test_a_pipe_or_a_folder_in_the_place_of_a_key_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(0o700)
    for name in ("pipe", "folder"):
        with pytest.raises(ConfigError, match=name):
            Key.read(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"not a key", b"\xff\xfe"])
def test_a_file_that_is_no_key_is_refused_by_name(tmp_path, content):
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=str(path)):
        Key.read(path)


def test_a_signed_release_comes_out_as_it_went_in():
    body = seal(ALICE, "digits", "alice", release(3), ASKED)
    signed = unseal(body, "digits", "alice", trusting(alice=ALICE), ASKED)
    assert signed.release == release(3)


def test_that_nothing_is_shared_is_signed_too():
    signed = unseal(seal(ALICE, "digits", "alice", b"", ASKED), "digits", "alice", trusting(alice=ALICE), ASKED)
    assert signed.release == b""
    for forged in (seal(EVE, "digits", "alice", b"", ASKED), b""):
        with pytest.raises(ExchangeError):
            unseal(forged, "digits", "alice", trusting(alice=ALICE), ASKED)


def test_an_answer_to_one_question_is_none_to_another():
    body = seal(ALICE, "digits", "alice", release(), ASKED)
    for challenge in (bytes(32), ASKED[::-1], ASKED[:-1], b""):
        with pytest.raises(Refused, match="for this question"):
            unseal(body, "digits", "alice", trusting(alice=ALICE), challenge)


def test_an_answer_in_the_former_format_is_refused_by_its_version():
    signed = wire.decode_signed(seal(ALICE, "digits", "alice", release(), ASKED))
    arrays = {name: np.frombuffer(bytearray(getattr(signed, name)), np.uint8) for name in wire._SIGNED}
    meta = {"version": 1, "kind": "signed", "task": "digits", "client": "alice"}
    with pytest.raises(Malformed, match=r"expected a signed of version 3, not {'version': 1"):
        unseal(wire._pack(arrays, meta), "digits", "alice", trusting(alice=ALICE), ASKED)


def test_an_unsigned_release_is_refused():
    with pytest.raises(Malformed):
        unseal(release(), "digits", "alice", trusting(alice=ALICE), ASKED)


@pytest.mark.parametrize(
    "change",
    [
        {"release": release(value=2.0)},
        {"signature": bytes(64)},
        {"signature": b""},
        {"key": EVE.public},
        {"key": b"short"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_was_changed_after_signing_is_refused(change):
    signed = wire.decode_signed(seal(ALICE, "digits", "alice", release(), ASKED))
    with pytest.raises(Refused):
        unseal(wire.encode_signed(signed._replace(**change)), "digits", "alice", trusting(alice=ALICE), ASKED)


def test_a_release_is_good_only_for_the_name_and_task_it_was_signed_for():
    body, trust = seal(ALICE, "digits", "alice", release(), ASKED), trusting(alice=ALICE, bob=EVE)
    with pytest.raises(Refused, match="by 'alice', not by 'bob'"):
        unseal(body, "digits", "bob", trust, ASKED)
    with pytest.raises(Refused, match="for the task 'digits'"):
        unseal(body, "faces", "alice", trust, ASKED)
    signed = wire.decode_signed(body)
    for change in ({"task": "faces"}, {"client": "bob"}):
        other = signed._replace(**change)
        with pytest.raises(Refused, match="signature"):
            unseal(wire.encode_signed(other), other.task, other.client, trust, ASKED)


def test_a_stranger_is_refused_however_well_it_signs():
    with pytest.raises(Refused, match=EVE.public.hex()):
        unseal(seal(EVE, "digits", "alice", release(), ASKED), "digits", "alice", trusting(alice=ALICE), ASKED)
    with pytest.raises(Refused, match="not trusted"):
        unseal(seal(EVE, "digits", "eve", release(), ASKED), "digits", "eve", trusting(alice=ALICE), ASKED)


def test_on_first_use_a_key_is_believed_and_then_no_other(tmp_path):
    path = tmp_path / "trust.jsonl"
    unseal(seal(ALICE, "digits", "alice", release(), ASKED), "digits", "alice", Trust(path, first_use=True), ASKED)
    again = Trust(path, first_use=True)
    assert again.get("alice") == ALICE.public
    with pytest.raises(Refused, match=ALICE.public.hex()):
        unseal(seal(EVE, "digits", "alice", release(), ASKED), "digits", "alice", again, ASKED)


def test_on_first_use_nobody_is_believed_whose_signature_is_wrong(tmp_path):
    signed = wire.decode_signed(seal(EVE, "digits", "alice", release(), ASKED))._replace(key=ALICE.public)
    trust = Trust(tmp_path / "trust.jsonl", first_use=True)
    with pytest.raises(Refused):
        unseal(wire.encode_signed(signed), "digits", "alice", trust, ASKED)
    assert trust.get("alice") is None


def test_a_trust_file_written_by_hand_needs_no_end_of_its_last_line(tmp_path):
    path = tmp_path / "trust.jsonl"
    path.write_text(json.dumps({"name": "alice", "key": ALICE.public.hex()}))
    Trust(path).add("bob", EVE.public)
    assert [name for name, _ in Trust(path)] == ["alice", "bob"]


def test_a_trust_file_is_not_written_through_a_link_laid_beside_it(tmp_path):
    path, victim = tmp_path / "trust.jsonl", tmp_path / "victim"
    victim.write_text("precious")
    Trust(path).add("alice", ALICE.public)
    for name in ("trust.jsonl.new", f".trust.jsonl.{os.getpid()}.part"):
        (tmp_path / name).symlink_to(victim)
    Trust(path).add("eve", EVE.public)
    assert victim.read_text() == "precious"
    assert [name for name, _ in Trust(path)] == ["alice", "eve"]


def test_a_trust_file_keeps_its_mode_and_begins_as_its_owners_alone(tmp_path):
    path = tmp_path / "trust.jsonl"
    Trust(path).add("alice", ALICE.public)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    Trust(path).add("eve", EVE.public)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_trust_file_that_anyone_may_change_is_not_believed(tmp_path):
    path = tmp_path / "trust.jsonl"
    Trust(path).add("alice", ALICE.public)
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="chmod o-w"):
        Trust(path)


def test_a_key_belongs_to_one_name(tmp_path):
    path = tmp_path / "trust.jsonl"
    Trust(path).add("alice", ALICE.public)
    with pytest.raises(Refused, match="alice's"):
        Trust(path).add("bob", ALICE.public)
    with pytest.raises(Refused, match="alice's"):  # nor on first use
        body = seal(ALICE, "digits", "bob", release(), ASKED)
        unseal(body, "digits", "bob", Trust(path, first_use=True), ASKED)
    path.write_text(path.read_text() + json.dumps({"name": "bob", "key": ALICE.public.hex()}) + "\n")
    with pytest.raises(ConfigError, match="line 2"):
        Trust(path)


@pytest.mark.parametrize(
    "line", ["[]", '{"name": "a"}', '{"name": 1, "key": "%s"}' % ("0" * 64), '{"name": "a", "key": "0"}']
)
def test_a_damaged_trust_file_is_refused_with_its_line(tmp_path, line):
    path = tmp_path / "trust.jsonl"
    path.write_text(json.dumps({"name": "alice", "key": ALICE.public.hex()}) + f"\n\n{line}\n")
    with pytest.raises(ConfigError, match="line 3"):
        Trust(path)


def test_a_public_key_must_look_like_one():
    assert parse_public(ALICE.public.hex()) == ALICE.public
    for text in ("", "zz", "00", ALICE.public.hex() + "00"):
        with pytest.raises(ConfigError):
            parse_public(text)


@given(st.binary(max_size=2000))
def test_no_bytes_whatever_do_more_than_be_refused(body):
    with pytest.raises(ExchangeError):
        unseal(body, "digits", "alice", trusting(alice=ALICE), ASKED)


@given(st.data())
def test_a_signed_release_with_any_byte_changed_is_refused_or_the_same(data):
    body = bytearray(seal(ALICE, "digits", "alice", release(), ASKED))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        signed = unseal(bytes(body), "digits", "alice", trusting(alice=ALICE), ASKED)
    except ExchangeError:
        return
    assert signed.release == release()
