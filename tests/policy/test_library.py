"""What the functions do, with ordinary values and at the edges."""

import base64
import io
import json
from typing import Any

import pytest
from PIL import Image

from rove.policy.compiler import compiled
from rove.policy.jobs import CompressionRequest, CompressionResult, Deferred, Stopped
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed, IncomingMessage
from rove.policy.runner import run

PAYLOAD = b'{"n": 7, "f": -2.5, "s": "Some Text", "xs": [3, 1, 2], "o": {"p": 5}, "z": null}'
NOW = 1_700_000_000.0  # a Tuesday, 22:13:20
LIMITS = PolicyLimits()


def outcome(body: str, payload: bytes = PAYLOAD, **given: Any) -> Completed | Stopped | Deferred:
    text = "def arrived(m, me):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    arrived = IncomingMessage("ward/3", payload, (("u", "property"),))
    me, memory, now = given.pop("me", {}), given.pop("memory", {}), given.pop("now", NOW)
    return run(compiled(text), arrived, me, memory, now, LIMITS, **given)


def ended(body: str, **given: Any) -> Completed:
    result = outcome(body, **given)
    assert isinstance(result, Completed), result
    return result


def value(expression: str, **given: Any) -> Any:
    return json.loads(ended(f"return message(x={expression})", **given).outputs[0].payload)["x"]


def trouble(body: str, **given: Any) -> str:
    result = outcome(body, **given)
    assert isinstance(result, Stopped), result
    assert result.kind == "error"
    return result.text


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # numbers
        ("abs(m.f)", 2.5),
        ("round(2.5)", 2),
        ("round(2.567, 2)", 2.57),
        ("round(1234, -2)", 1200),
        ("round(m.n)", 7),
        ("floor(m.f)", -3),
        ("ceil(m.f)", -2),
        ("sqrt(m.n + 2)", 3.0),
        ("clamp(m.n, 0, 5)", 5),
        ("clamp(m.f, 0, 5)", 0),
        ("clamp(3, 0, 5)", 3),
        ("distance(0, 0, 3, 4)", 5.0),
        ('int("42")', 42),
        ("int(m.f)", -2),
        ("int(True)", 1),
        ('float("1e3")', 1000.0),
        ("float(m.n)", 7.0),
        ("bool(m.z)", False),
        ("bool(m.xs)", True),
        ("2 ** 10", 1024),
        ("2 ** -1", 0.5),
        ("2 ** 63", 2**63),
        ("0 ** 0", 1),
        ("(-2) ** 3", -8),
        ("1 ** 99999999", 1),
        ("2.0 ** 0.5", 2.0**0.5),
        # lists
        ("len(m.xs)", 3),
        ("len(m.s)", 9),
        ("len(m)", 8),
        ("min(m.xs)", 1),
        ("max(m.xs)", 3),
        ("min(m.n, 3)", 3),
        ("max(m.n, m.f)", 7),
        ("max(1, 2, m.n)", 7),
        ('min("b", "a")', "a"),
        ('max(m.s, "a", "b")', "b"),
        ("sum(m.xs)", 6),
        ("sum([])", 0),
        ("sum([0.5, m.f])", -2.0),
        ("sorted(m.xs)", [1, 2, 3]),
        ('sorted(["b", "a"])', ["a", "b"]),
        ("sorted(())", []),
        ("m.xs + [4]", [3, 1, 2, 4]),
        ("[0] * 3", [0, 0, 0]),
        ("3 * [0]", [0, 0, 0]),
        ("m.xs * -1", []),
        ("m.xs[1:]", [1, 2]),
        ("m.xs[::-1]", [2, 1, 3]),
        ("m.xs[-1]", 2),
        ("2 in m.xs", True),
        ("9 not in m.xs", True),
        ("[1] in [[1], [2]]", True),
        ('"n" in m', True),
        ('"q" in m.o', False),
        ("5 in m", False),
        # texts
        ("str(m.n)", "7"),
        ("str(m.z)", "None"),
        ("str(m.xs)", "[3, 1, 2]"),
        ("lower(m.s)", "some text"),
        ("upper(m.s)", "SOME TEXT"),
        ('upper("ß")', "SS"),
        ('strip("  a ")', "a"),
        ("split(m.s)", ["Some", "Text"]),
        ('split("a,b,,c", ",")', ["a", "b", "", "c"]),
        ('split("")', []),
        ('join(["a", "b"])', "ab"),
        ('join(split(m.s), "-")', "Some-Text"),
        ('replace(m.s, "e", "3")', "Som3 T3xt"),
        ('replace("ab", "", "-")', "-a-b-"),
        ('starts_with(m.s, "Some")', True),
        ('ends_with(m.s, "some")', False),
        ('contains(m.s, "me T")', True),
        ('find(m.s, "T")', 5),
        ('find(m.s, "q")', -1),
        ('"me" in m.s', True),
        ('"ab" * 2', "abab"),
        ('m.s + "!"', "Some Text!"),
        ('f"{m.n} of {m.xs} and {m.z}{m.f}"', "7 of [3, 1, 2] and None-2.5"),
        ("m.s[5:]", "Text"),
        # members
        ("m.o.p", 5),
        ("m.o.q", None),
        ("m.o.p.q.r", None),
        ("m.nothing.at.all", None),
        ("m.s.length", None),
        ('m.get("n", 0)', 7),
        ('m.get("z", 4)', 4),
        ('m.get("q")', None),
        ('m["s"]', "Some Text"),
        ('m["q"]', None),
        ("m[5]", None),
        ("m.topic", "ward/3"),
        ("m.u", "property"),
        # conditions
        ("1 if m.n > 5 else 2", 1),
        ("m.z or 3", 3),
        ("m.n and m.s", "Some Text"),
        ("not m.z", True),
        ("m.z is None", True),
        ("m.n is not None", True),
        ("0 < m.n < 10", True),
        ("0 < m.n < 5", False),
        ('"a" < m.s', False),
        ("m.xs == [3, 1, 2]", True),
        ("m.xs != sorted(m.xs)", True),
        ("1 == True", True),
        # time
        ("now()", NOW),
        ("hour()", 22),
        ("minute()", 13),
        ("weekday()", 1),
        ("hour(0)", 0),
        ("weekday(0)", 3),
        ("weekday(-1)", 2),
        ("minute(3599.9)", 59),
        ("hour(now() + 3600 * 2)", 0),
    ],
)
def test_values(expression: str, expected: object) -> None:
    found = value(expression)
    assert found == expected
    assert type(found) is type(expected)


# --- state ---


def test_variables_are_read_set_and_removed() -> None:
    body = (
        'me.count = get("count", 0) + 1\n'
        'set("list", (1, (2,)))\n'
        'remove("old")\n'
        "del me.never\n"
        'return message(a=me.count, b=get("list"), c=me.old, d=me.get("q", 9), e=me["count"])'
    )
    result = ended(body, me={"count": 4, "old": 1})
    assert result.changes == {"count": 5, "list": [1, [2]], "old": None}
    assert json.loads(result.outputs[0].payload) == {
        "a": 5,
        "b": [1, [2]],
        "c": None,
        "d": 9,
        "e": 5,
    }


def test_none_removes_a_variable() -> None:
    assert ended("me.a = None\nme.b = None", me={"a": 1}).changes == {"a": None}


@pytest.mark.parametrize(
    ("before", "set_to", "is_change"),
    [
        (5, "5", False),
        (5, "5.0", True),
        (1, "True", True),
        ("a", '"a"', False),
        (True, "True", False),
        (0.0, "-0.0", True),
        ([1], "[1]", True),
        (5, "6\nme.a = 5", True),
    ],
)
def test_what_a_variable_is_already_is_no_change(
    before: object, set_to: str, is_change: bool
) -> None:
    assert bool(ended(f"me.a = {set_to}", me={"a": before}).changes) is is_change


def test_a_variable_that_was_set_and_removed_again_is_removed() -> None:
    assert ended("me.a = 1\ndel me.a").changes == {"a": None}


def test_names_of_variables_can_be_worked_out() -> None:
    body = 'set("last " + m.topic, m.n)\nreturn message(x=get("last " + m.topic), y=me[m.s])'
    assert ended(body).changes == {"last ward/3": 7}


def test_automatic_variables_can_only_be_read() -> None:
    result = ended('return message(x=get("rate"))', me={"rate": 5}, automatic={"rate"})
    assert json.loads(result.outputs[0].payload) == {"x": 5}
    for body in (
        "me.rate = 1",
        'set("rate", 1)',
        'remove("rate")',
        "del me.rate",
        "me.rate = None",
    ):
        text = trouble(body, me={"rate": 5}, automatic={"rate"})
        assert text == "rate is an automatic variable and can only be read"


# --- messages ---


def test_messages_are_made_kept_and_dropped() -> None:
    result = ended(
        'a = message(x=1, y="2")\n'
        'b = message({"x y": {"z": [m.n]}})\n'
        'c = keep(m, "n", "s", "q", "u")\n'
        'd = drop(m, "xs", "o", "s")\n'
        "return [a, b, c, d, message()]"
    )
    assert [sent.payload for sent in result.outputs] == [
        b'{"x":1,"y":"2"}',
        b'{"x y":{"z":[7]}}',
        b'{"n":7,"s":"Some Text"}',
        b'{"n":7,"f":-2.5,"z":null}',
        b"{}",
    ]
    assert [sent.user for sent in result.outputs][2:] == [(("u", "property"),)] * 2 + [()]


def test_messages_are_changed() -> None:
    result = ended(
        'm.new = 1\nm["n"] += 1\ndel m.s\ndel m["xs"]\ndel m.nothing\nx = m\nx.f = 0\nreturn m'
    )
    assert result.outputs[0].payload == b'{"n":8,"f":0,"o":{"p":5},"z":null,"new":1}'
    assert not result.passes


def test_data_is_the_payload_as_a_whole() -> None:
    assert value("data(m)") == json.loads(PAYLOAD)
    assert value("len(data(m))", payload=b"\x00\x01\x02") == 3
    assert ended('set_data(m, b"raw")\nreturn m').outputs[0].payload == b"raw"
    body = "set_data(m, m.o)\nreturn m"
    assert ended(body).outputs[0].payload == b'{"p":5}'
    assert ended(body).outputs[0].user == (("u", "property"),)
    swapped = "x = message()\nset_data(x, data(m))\nset_data(m, message(a=1))\nreturn [x, m]"
    assert [sent.payload for sent in ended(swapped, payload=b'{"b":2}').outputs] == [
        b'{"b":2}',
        b'{"a":1}',
    ]
    assert ended("set_data(m, m)\nreturn m", payload=b'{"b":2}').outputs[0].payload == b'{"b":2}'
    assert "bytes or a mapping" in trouble("set_data(m, 5)")


# --- what lasts ---


def sequence(body: str, *steps: tuple[float, bytes]) -> list[object]:
    """What comes of messages at their times, one after the other."""
    memory: dict[str, Any] = {}
    found: list[object] = []
    for now, payload in steps:
        result = ended(body, payload=payload, now=now, memory=memory)
        memory = memory if result.memory is None else json.loads(json.dumps(result.memory))
        found.append(json.loads(result.outputs[0].payload) if result.outputs else None)
    return found


def test_every_is_true_once_in_so_many_seconds() -> None:
    body = "if every(10):\n    return message(x=1)"
    x = {"x": 1}
    times = ((100, b""), (105, b""), (109.9, b""), (110, b""), (115, b""), (300, b""))
    assert sequence(body, *times) == [x, None, None, x, None, x]


def test_every_is_per_value() -> None:
    body = "if every(10, per=m.p):\n    return message(x=m.p)"
    steps = [(100, b'{"p": 1}'), (101, b'{"p": "1"}'), (102, b'{"p": 1}'), (103, b'{"p": null}')]
    steps += [
        (104, b'{"p": [1]}'),
        (105, b'{"p": [1]}'),
        (106, b'{"p": null}'),
        (107, b'{"p": true}'),
    ]
    assert sequence(body, *steps) == [
        {"x": 1}, {"x": "1"}, None, {"x": None}, {"x": [1]}, None, None, {"x": True},
    ]  # fmt: skip


def test_a_clock_that_was_set_back_silences_nobody() -> None:
    body = "if every(10):\n    return message(x=1)"
    assert sequence(body, (1000, b""), (5, b""), (6, b"")) == [{"x": 1}, {"x": 1}, None]


def test_every_place_counts_for_itself() -> None:
    body = "a = every(10)\nb = every(10)\nreturn message(a=a, b=b, c=every(10) or every(10))"
    assert sequence(body, (1, b""), (2, b"")) == [
        {"a": True, "b": True, "c": True},
        {"a": False, "b": False, "c": True},
    ]


def test_what_every_knows_of_the_past_is_forgotten_when_room_runs_out() -> None:
    body = 'if every(10, per=f"a long name for something that comes once: {m.p}"):\n    return m'
    memory: dict[str, Any] = {}
    for number in range(3000):
        result = ended(body, payload=b'{"p": %d}' % number, now=float(number), memory=memory)
        assert result.outputs
        assert result.memory is not None
        memory = result.memory
    assert 10 < len(memory) < 2000


def test_changed_is_true_when_it_differs() -> None:
    body = 'if changed("p"):\n    return message(x=m.p)'
    steps = [
        (t, b'{"p": %s}' % p)
        for t, p in enumerate((b"1", b"1", b"1.0", b"2", b'"2"', b"null", b"true"))
    ]
    assert sequence(body, *steps, (9, b"{}")) == [
        {"x": 1}, None, None, {"x": 2}, {"x": "2"}, {"x": None}, {"x": True}, {"x": None},
    ]  # fmt: skip


def test_changed_by_compares_with_what_it_was_when_it_was_true_last() -> None:
    body = 'if changed("p", by=5, per=m.q):\n    return message(x=m.p)'
    steps = [(t, b'{"p": %d}' % p) for t, p in enumerate((10, 12, 14, 15, 11, 10, 9))]
    assert sequence(body, *steps) == [{"x": 10}, None, None, {"x": 15}, None, {"x": 10}, None]


def test_long_values_are_remembered_by_their_digest() -> None:
    result = ended('changed("s")\nreturn m', payload=b'{"s": "%s"}' % (b"x" * 10_000))
    assert result.memory is not None
    assert len(json.dumps(result.memory)) < 100
    body = 'if changed("p"):\n    return message(x=1)'
    large = [b'{"p": [%s]}' % (b"1," * 999 + end) for end in (b"1", b"1", b"2")]
    assert sequence(body, *enumerate(large)) == [{"x": 1}, None, {"x": 1}]
    raw = [b"\x00" * 99, b"\x00" * 99, b"\x01" * 99]
    body = 'if changed("payload"):\n    return message(x=1)'
    assert sequence(body, *enumerate(raw)) == [{"x": 1}, None, {"x": 1}]


def test_summary_collects_and_tells() -> None:
    body = 'return summary(10, "p", "q")'
    steps = [
        (100, b'{"p": 5, "q": 1}'),
        (104, b'{"p": 1}'),
        (110, b'{"p": 3, "q": "no number"}'),
        (111, b'{"p": 7}'),
        (125, b"{}"),
    ]
    assert sequence(body, *steps) == [
        None,
        None,
        {
            "count": 3, "since": 100, "until": 110,
            "p": 3, "p_min": 1, "p_max": 5, "p_mean": 3.0,
            "q": 1, "q_min": 1, "q_max": 1, "q_mean": 1.0,
        },
        None,
        {"count": 2, "since": 110, "until": 125, "p": 7, "p_min": 7, "p_max": 7, "p_mean": 7.0},
    ]  # fmt: skip


def test_nothing_is_remembered_that_was_not_asked_for() -> None:
    assert ended("return m").memory is None
    memory = {"2:8": 150.0}
    body = "if every(100):\n    return m"
    result = ended(body, memory=memory, now=100.0)
    assert result.memory is None
    assert memory == {"2:8": 150.0}


# --- pictures ---


def jpeg(quality: int = 95) -> bytes:
    out = io.BytesIO()
    Image.effect_noise((64, 48), 50).convert("RGB").save(out, "JPEG", quality=quality)
    return out.getvalue()


def test_compress_gives_the_kind_that_it_was_given() -> None:
    picture = jpeg()
    result = ended("return message(payload=compress(m.payload, quality=20))", payload=picture)
    small = result.outputs[0].payload
    assert len(small) < len(picture)
    assert Image.open(io.BytesIO(small)).size == (64, 48)
    text = base64.b64encode(picture)
    found = value("compress(m.image, quality=20)", payload=b'{"image": "%s"}' % text)
    assert base64.b64decode(found) == small
    assert result.steps >= 1000 + len(picture) // 100


def test_a_picture_that_is_not_there_yet_is_wanted() -> None:
    body = "return message(payload=compress(m.payload, quality=20.0, pixels_max=32))"
    wish = CompressionRequest(b"picture", 20, None, 32)
    assert outcome(body, payload=b"picture", results={}) == Deferred((wish,))
    done = {wish: CompressionResult(1, b"smaller")}
    assert ended(body, payload=b"picture", results=done).outputs[0].payload == b"smaller"


def test_a_picture_that_cannot_be_is_an_error_of_its_kind() -> None:
    wish = CompressionRequest(b"picture", 20)
    body = "return message(payload=compress(m.payload, 20))"
    for kind in ("error", "time", "memory"):
        failed = {wish: CompressionResult(1, b"", "why not", kind=kind)}
        result = outcome(body, payload=b"picture", results=failed)
        assert isinstance(result, Stopped)
        assert (result.kind, result.text, result.line) == (kind, "why not", 2)


def test_quality_has_bounds() -> None:
    body = "return message(payload=compress(m.payload, {}))"
    wanted = outcome(body.format(400), payload=b"picture", results={})
    assert wanted == Deferred((CompressionRequest(b"picture", 95),))
    for wrong in ("0", "-1", '"a"', "1e99", "m.nothing and 5"):
        assert "compress()" in trouble(body.format(wrong), payload=b"picture", results={})
