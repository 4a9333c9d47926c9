"""Messages that are no releases and not right: reports, tasks, what groups say for secure sums, and questions."""

import json
from urllib.parse import quote, urlencode

from hypothesis import strategies as st

from repshare.relay.routes.page import MOST_REPORT_BYTES
from repshare.relay.routes.schemas import MOST_NUMBER
from repshare.relay.routes.secure import MEMBER_BYTES
from soak.bodies import Body, real
from soak.load import CLASSES, DIMENSION

HERE = "/v1/tasks/digits"
TASK = {"classes": CLASSES, "dimension": DIMENSION, "minimum_count": 1}
TOLD = {"round": 5, "test_accuracy": 0.5, "bytes_up": 7, "model": "LeNet5", "privacy": {"epsilon": 1.0}}
STRANGE = [None, True, -1, 0.5, 2**31, 2**64, 10**400, 1e308, "", "7", "x" * 3000, [], [1], {}, {"epsilon": -1}]
NOT_WHOLE = [
    "-1",
    "1.5",
    "1e3",
    "٣",
    "²",
    "nan",
    "inf",
    "0x1",
    " 1",
    "1 ",
    "",
    "9" * 21,
    "9" * 3000,
    "None",
    "%00",
    "1;2",
]


def junk(draw):
    """Some JSON of any kind, or nearly."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    some = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
    )
    return draw(some)


def no_json(draw, rng, whole):
    """Bytes that are no JSON, or none that means anything."""
    kind = draw(st.integers(0, 4))
    text = json.dumps(whole).encode()
    if kind == 0:
        return text[: draw(st.integers(0, len(text) - 1))]
    if kind == 1:
        return draw(st.binary(max_size=64)) + rng.randbytes(draw(st.integers(1, 500)))
    if kind == 2:
        depth = draw(st.integers(1, 1900))
        return draw(st.sampled_from([b"[" * depth, b"[" * depth + b"]" * depth, b'{"round":' * (depth // 5 + 1)]))
    if kind == 3:
        return text.decode().encode(draw(st.sampled_from(["utf-16", "utf-32", "utf-8-sig"])))
    return text + draw(st.sampled_from([b"}", b"\0", b",", text, b"\xff", b"//"]))


def changed(draw, whole, required):
    """The same with one field that is not right: missing, unknown, or of a value that none of them may have."""
    what = draw(st.sampled_from(["missing", "unknown", "value"]))
    if what == "missing":
        missing = draw(st.sampled_from(required))
        return {key: value for key, value in whole.items() if key != missing}
    if what == "unknown":
        name = draw(st.text(max_size=30).map(lambda text: f"x{text}"))
        return whole | {name: junk(draw)}
    return whole | {
        draw(st.sampled_from(required)): draw(st.sampled_from([None, True, "1", 0, -1, 2**80, 0.5, [], {}]))
    }


def report(content, *statuses, client="alice"):
    return Body(content, statuses, path=f"{HERE}/clients/{client}/report")


def report_no_json(draw, rng):
    return report(no_json(draw, rng, TOLD), 400, 422)


def report_no_object(draw, _):
    return report(json.dumps(junk(draw)).encode(), 400, 413, 422)


def report_wrong_field(draw, _):
    return report(json.dumps(changed(draw, TOLD, ["round"])).encode(), 400, 413, 422)


def report_wrong_number(draw, _):
    field = draw(st.sampled_from(["train_accuracy", "test_accuracy", "ce", "kd", "disc", "bound", "held_out", "gap"]))
    value = draw(st.sampled_from(["NaN", "Infinity", "-Infinity", "1e400", "-2e9", '"0.5"', "[]", "true", "9" * 400]))
    return report(f'{{"round": 7, "{field}": {value}}}'.encode(), 400, 422)


def report_too_long(draw, _):
    told = TOLD | {"model": "x" * draw(st.integers(MOST_REPORT_BYTES, 50_000))}
    return report(json.dumps(told).encode(), 413)


def report_as_another(_, rng):
    return report(json.dumps(TOLD | {"round": rng.randint(6, 99)}).encode(), 403, client="bob")


def release_as_report(_, rng):
    return report(real(rng), 400)


def task(content, *statuses, name="digits", token="admin"):
    return Body(content, statuses, path=f"/v1/tasks/{quote(name, safe='')}", token=token)


def task_no_json(draw, rng):
    return task(no_json(draw, rng, TASK), 400, 422)


def task_no_object(draw, _):
    return task(json.dumps(junk(draw)).encode(), 400, 413, 422)


def task_wrong_field(draw, _):
    return task(json.dumps(changed(draw, TASK, ["classes", "dimension"])).encode(), 400, 413, 422)


def task_wrong_number(draw, _):
    field = draw(st.sampled_from(["norm_bound", "max_age", "named_peers", "space", "aggregation"]))
    value = draw(st.sampled_from(["NaN", "Infinity", "1e400", "-1", "[]", "{}", '"no such"', "9" * 400, "true", "0.5"]))
    text = json.dumps(TASK)[:-1] + f', "{field}": {value}}}'
    return task(text.encode(), 400, 409, 422)


def task_of_other_values(draw, _):
    other = {"classes": draw(st.integers(2, 1000)), "dimension": draw(st.integers(1, 1000)), "minimum_count": 2}
    return task(json.dumps(other).encode(), 409)


def task_too_large(draw, _):
    vast = {"classes": draw(st.integers(10**6, 10**18)), "dimension": draw(st.integers(10**6, 10**18))}
    return task(json.dumps(vast).encode(), 422)


def task_too_long(draw, _):
    return task(json.dumps(TASK | {"description": "x" * draw(st.integers(200_000, 250_000))}).encode(), 413)


def task_described_at_length(draw, _):
    name, most = draw(st.sampled_from([("space", 200), ("description", 1 << 16)]))
    return task(json.dumps(TASK | {name: "x" * draw(st.integers(most + 1, 150_000))}).encode(), 422)


def task_of_a_strange_name(draw, _):
    names = st.sampled_from(["..", ".", " ", "a/b", "a\0", "\n", "é" * 65, "x" * 65, "x" * 3000, "%", "\u202e", "a:b"])
    return task(json.dumps(TASK).encode(), 404, 405, 422, name=draw(names))


def task_by_a_client(draw, _):
    return task(json.dumps(TASK).encode(), 403, name=draw(st.sampled_from(["digits", "another"])), token="alice")


def said(content, *statuses, number=1, step=0, client="alice", **query):
    asked = urlencode({"members": ["alice", "bob"], "patience": 60} | query, doseq=True)
    place = f"{quote(str(number), safe='')}/{quote(str(step), safe='')}"
    return Body(content, statuses, path=f"{HERE}/meetings/{place}/clients/{client}?{asked}")


def message_of_no_meeting(draw, rng):
    numbers = st.integers(2, MOST_NUMBER) | st.just(0)
    return said(rng.randbytes(draw(st.integers(0, 900))), 422, number=draw(numbers))


def message_of_no_number(draw, rng):
    wrong = {draw(st.sampled_from(["number", "step"])): draw(st.sampled_from(NOT_WHOLE))}
    return said(rng.randbytes(99), 404, 422, **wrong)


def message_before_its_step(draw, rng):
    return said(rng.randbytes(draw(st.integers(0, 900))), 422, step=draw(st.integers(1, 4)))


def message_beyond_the_steps(draw, rng):
    return said(rng.randbytes(99), 422, step=draw(st.integers(5, 10**19)))


def message_that_is_too_long(draw, rng):
    step, rest = draw(st.integers(0, 4)), draw(st.integers(1, 20_000))
    longest = 2 * MEMBER_BYTES + (8 * CLASSES * (DIMENSION + 3) if step == 2 else 0)
    return said(rng.randbytes(longest + rest), 413, step=step)


def message_of_no_group(draw, rng):
    groups = [[], ["alice"], ["alice", "alice"], ["alice", "a/b"], ["alice", "\n"], ["alice", ""], ["alice", "x" * 65],
              ["alice", *map(str, range(100))], ["alice", *map(str, range(1400))]]  # fmt: skip
    return said(rng.randbytes(99), 422, members=draw(st.sampled_from(groups)))


def message_of_others(_, rng):
    return said(rng.randbytes(99), 403, members=["bob", f"carol {rng.randint(0, 9)}"])


def message_as_another(_, rng):
    return said(rng.randbytes(99), 403, client="bob")


def message_without_patience(draw, rng):
    waits = st.sampled_from(["-1", "nan", "inf", "-inf", "601", "1e9", "", "soon", "0x1", "1" * 3000])
    return said(rng.randbytes(99), 422, patience=draw(waits))


def question(*statuses, path="teacher", tag=None, **query):
    headers = {} if tag is None else {"If-None-Match": tag}
    return Body(None, statuses, method="GET", path=f"{HERE}/{path}?{urlencode(query, doseq=True)}", headers=headers)


def question_of_no_number(draw, _):
    field = draw(st.sampled_from(["observations", "seed", "classes"]))
    wrong = st.sampled_from(NOT_WHOLE) | st.integers(2**64, 2**80).map(str) | st.integers(max_value=-1).map(str)
    return question(422, **{field: draw(wrong)})


def question_for_too_much(draw, _):
    wrong = [{"observations": "1001"}, {"classes": [str(CLASSES)]}, {"classes": ["0"] * 1001}, {"peers": ["bob"] * 201}]
    return question(422, **draw(st.sampled_from(wrong)))


def question_by_name(draw, _):
    return question(403, **draw(st.sampled_from([{"peers": ["bob"]}, {"client": "bob"}, {"client": "no one"}])))


def question_with_a_strange_tag(draw, _):
    letters = st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f")
    tags = st.text(letters, max_size=200) | st.sampled_from(['W/"0"', "*", '"', '","' * 500, "0" * 8000])
    return question(200, 400, tag=draw(tags))


def question_for_no_news(draw, _):
    wrong = [{"since": "-1"}, {"since": str(2**63)}, {"since": "x"}, {"wait": "-1"}, {"wait": "nan"}, {"wait": "61"},
             {"wait": "1e400"}, {"wait": ""}]  # fmt: skip
    return question(422, path="news", **draw(st.sampled_from(wrong)))


def question_of_a_strange_task(draw, _):
    names = st.text(max_size=80).map(lambda name: f"x{name}")
    path = f"/v1/tasks/{quote(draw(names), safe='')}/{draw(st.sampled_from(['teacher', 'news', 'meetings', 'status']))}"
    return Body(None, (403, 404, 422), method="GET", path=path)


KINDS = [
    report_no_json, report_no_object, report_wrong_field, report_wrong_number, report_too_long, report_as_another,
    release_as_report, task_no_json, task_no_object, task_wrong_field, task_wrong_number, task_of_other_values,
    task_too_large, task_too_long, task_described_at_length, task_of_a_strange_name, task_by_a_client,
    message_of_no_meeting, message_of_no_number, message_before_its_step, message_beyond_the_steps,
    message_that_is_too_long, message_of_no_group, message_of_others, message_as_another, message_without_patience,
    question_of_no_number, question_for_too_much, question_by_name, question_with_a_strange_tag, question_for_no_news,
    question_of_a_strange_task,
]  # fmt: skip
