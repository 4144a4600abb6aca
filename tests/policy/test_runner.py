"""A call changes nothing, is stopped where it must be, and says where."""

import io
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from PIL import Image

from rove.policy.compiler import compiled
from rove.policy.guards import LOOK_STEPS
from rove.policy.jobs import Deferred, Stopped
from rove.policy.limits import REASON_CHARS_MAX, PolicyLimits
from rove.policy.messages import Completed, IncomingMessage, OutputMessage
from rove.policy.runner import explained, run, shortened

LIMITS = PolicyLimits()
MISSING = '; what is missing is None, so give a default, as in get("x", 0)'
PAYLOAD = b'{"n": 7,  "s": "text"}'


def outcome(
    body: str, limits: PolicyLimits = LIMITS, payload: bytes = PAYLOAD, **given: Any
) -> Completed | Stopped | Deferred:
    text = "def arrived(m, me):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    me, memory = given.pop("me", {}), given.pop("memory", {})
    arrived = IncomingMessage("ward/3", payload, (("u", "v"),))
    return run(compiled(text), arrived, me, memory, 1000.0, limits, **given)


def stopped(body: str, limits: PolicyLimits = LIMITS, **given: Any) -> Stopped:
    result = outcome(body, limits, **given)
    assert isinstance(result, Stopped), result
    return result


def ended(body: str, limits: PolicyLimits = LIMITS, **given: Any) -> Completed:
    result = outcome(body, limits, **given)
    assert isinstance(result, Completed), result
    return result


# --- what comes out ---


@pytest.mark.parametrize(
    "body", ["return m", "return [m]", "x = m\nreturn x", "m.get('n')\nme.x = 1\nreturn m"]
)
def test_an_unchanged_message_passes_unchanged(body: str) -> None:
    result = ended(body)
    assert result.outputs == (OutputMessage(PAYLOAD, (("u", "v"),)),)
    assert result.outputs[0].payload is PAYLOAD
    assert result.passes


def test_what_was_written_to_does_not_pass() -> None:
    result = ended("m.n = 7\nreturn m")
    assert result == Completed((OutputMessage(b'{"n":7,"s":"text"}', (("u", "v"),)),), {}, None, 8)
    assert not ended("return keep(m)").passes
    assert not ended("return [m, m]").passes
    assert ended("return [m, m]").outputs == (OutputMessage(PAYLOAD, (("u", "v"),)),) * 2
    assert ended("if m.n > 9:\n    m.n = 9\nreturn m").passes
    assert ended("x = keep(m)\nx.n = 1\nreturn m").passes


@pytest.mark.parametrize(
    "body", ["return None", "return", "pass", "x = 1", "return []", "return ()"]
)
def test_nothing_is_sent(body: str) -> None:
    assert ended(body).outputs == ()


def test_as_many_are_sent_as_allowed() -> None:
    limits = PolicyLimits(outputs_max=3)
    assert len(ended("return [m, message(), keep(m)]", limits).outputs) == 3
    assert stopped("return [m] * 4", limits) == Stopped("output", "4 messages; allowed are 3", 0, 0)


def test_as_much_is_sent_as_allowed() -> None:
    limits = PolicyLimits(output_bytes_max=20)
    assert len(ended('return message(x="123456789012")', limits).outputs[0].payload) == 20
    assert stopped('return message(x="1234567890123")', limits).kind == "output"
    assert stopped('return [message(x="123"), message(x="12")]', limits).kind == "output"


def test_what_passes_is_as_large_as_it_came() -> None:
    assert ended("return m", PolicyLimits(output_bytes_max=1)).passes


# --- steps ---


def test_rounds_of_loops_are_steps() -> None:
    for count in (0, 1, 100, 1000):
        assert ended(f"for i in range({count}):\n    x = i").steps == count
        assert ended(f"i = 0\nwhile i < {count}:\n    i += 1").steps == count
        body = f"for i in range({count}):\n    if i < 0:\n        break"
        assert ended(body).steps == count
    assert ended("for i in range(1000):\n    if i == 9:\n        return m").steps == 10
    # To begin a loop is dearer than to go round.
    assert ended("for a in range(10):\n    for b in range(20):\n        x = 1").steps == 240


def test_long_rounds_cost_more() -> None:
    assert ended("for i in range(10):\n" + "    x = i + 1\n" * 100).steps > 100
    assert ended("for i in range(10):\n    x = str(i)").steps == 120
    assert ended("for i in range(10):\n    x = abs(i)").steps == 10


def test_just_as_many_steps_as_allowed() -> None:
    for body in ("for i in range(100):\n    x = 1", "i = 0\nwhile i < 100:\n    i += 1"):
        assert ended(body, steps_max=100).steps == 100
        result = stopped(body, steps_max=99)
        assert (result.kind, result.text) == ("steps", "it takes more than 99 steps")
        assert result.steps <= 99


def test_a_loop_and_a_library_share_their_steps() -> None:
    body = 's = "x" * 6400\ni = 0\nwhile i < 100:\n    i += 1\n    x = upper(s)'
    took = ended(body).steps
    assert took > 20_000
    assert ended(body, steps_max=took + took // 8).steps == took
    assert stopped(body, steps_max=took - 1).kind == "steps"


def test_limits_of_their_own_give_way_to_what_is_asked_for() -> None:
    body = "for i in range(1000):\n    x = 1"
    assert stopped(body, PolicyLimits(steps_max=999)).kind == "steps"
    assert ended(body, PolicyLimits(steps_max=999), steps_max=1000).steps == 1000


# --- time ---


class Clock:
    """Goes on by so much whenever somebody looks."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self.step_s, self.looks = 5.0, step_s, 0

    def __call__(self) -> float:
        self.now_s += self.step_s
        self.looks += 1
        return self.now_s


@pytest.mark.parametrize(
    "body",
    [
        "while True:\n    pass",
        "for i in range(90000):\n    x = 1",
        "for i in range(90000):\n    if i < 0:\n        break",
        's = "x" * 64000\nwhile True:\n    x = upper(s)',
    ],
)
def test_the_clock_is_looked_at(body: str) -> None:
    limits = PolicyLimits(time_ms=100)
    result = stopped(body, limits, clock=Clock(0.03))
    assert (result.kind, result.text) == ("time", "it takes too long")
    assert result.steps < 10 * LOOK_STEPS
    assert result.line


def test_a_picture_takes_its_time() -> None:
    image = io.BytesIO()
    Image.new("RGB", (8, 8)).save(image, "PNG")
    body = "x = compress(m.payload, quality=50)\nreturn m"
    assert ended(body, payload=image.getvalue(), clock=Clock(0.01)).passes
    assert stopped(body, payload=image.getvalue(), clock=Clock(0.6)).kind == "time"


def test_a_short_call_asks_the_clock_once() -> None:
    clock = Clock(1.0)
    assert ended("for i in range(200):\n    x = 1\nreturn m", clock=clock).passes
    assert clock.looks == 1


# --- nothing is changed ---


def test_nothing_that_was_given_is_changed() -> None:
    me, memory = {"a": [1], "b": 2}, {"9:9": 5.0}
    body = "me.a = [2]\nme.c = 3\ndel me.b\nx = every(5)\nm.n = 1\nreturn m"
    result = ended(body, me=me, memory=memory)
    assert (me, memory) == ({"a": [1], "b": 2}, {"9:9": 5.0})
    assert result.changes == {"a": [2], "c": 3, "b": None}
    assert result.memory == {"9:9": 5.0, "5:9": 1005.0}


def test_a_stopped_call_leaves_no_trace() -> None:
    me = {"a": 1}
    assert stopped("me.a = 2\nm.n = 5\nx = 1 / 0", me=me).kind == "error"
    assert me == {"a": 1}


def test_any_mapping_will_do() -> None:
    given = MappingProxyType({"a": 1})
    for body in ("return message(x=me.a)", "me.b = me.a\nreturn message(x=me.b)"):
        assert ended(body, me=given, memory=given).outputs[0].payload == b'{"x":1}'


def test_attributes_are_shared_where_nobody_can_write() -> None:
    arrived = IncomingMessage("t", PAYLOAD)
    for text in (
        "def arrived(m, me):\n    m.n = 1\n    return m",
        "def arrived(m, me):\n    return m",
    ):
        run(compiled(text), arrived, {}, {}, 0.0, LIMITS)
        assert arrived.attributes == {"n": 7, "s": "text", "topic": "t"}


# --- size of what stays ---


def test_variables_have_room_for_so_much() -> None:
    limits = PolicyLimits(variables_bytes_max=30)
    assert ended('me.a = "12345678901234567890"', limits).changes
    assert stopped('me.a = "12345678901234567890123"', limits).kind == "state"
    assert stopped("me.a = 5", limits, me={"b": "x" * 30}).kind == "state"
    # What the system keeps is not the policy's.
    assert ended("me.a = 5", limits, me={"b": "x" * 30}, automatic={"b"}).changes == {"a": 5}


def test_memory_has_room_for_so_much() -> None:
    limits = PolicyLimits(variables_bytes_max=30)
    assert ended("x = every(5)", limits).memory
    result = stopped('x = changed("s", per="a name that is long enough")', limits)
    assert (result.kind, "remember" in result.text) == ("state", True)


# --- trouble in words ---


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("x = m.q < 5", f"None and a number cannot be compared by <{MISSING}"),
        ("x = m.s > 5", "a text and a number cannot be compared by >"),
        ("x = m.q + 1", f"None + a number cannot be worked out{MISSING}"),
        ("x = m.s + 1", "a text + a number cannot be worked out"),
        ("x = 1 + m.s", "a number + a text cannot be worked out"),
        ("x = -m.s", "- of a text cannot be worked out"),
        ("x = m.s * 1.5", "nothing can be repeated by a number"),
        ("x = m.q[0]", f"None has no members and no elements{MISSING}"),
        ("x = 1 / 0", "a division by zero"),
        ("x = 5 % 0", "a division by zero"),
        ("x = [1][5]", "the list or text is not that long"),
        ("if m.n > 9:\n    x = 1\ny = x", "x has no value yet"),
        ("x = len(m.n)", "a number has no length"),
        ("a, b = m.n", "a number cannot be taken apart"),
        ("a, b = m.s", "too many values to unpack (expected 2)"),
        ("for x in m.n:\n    pass", "`for` cannot go through a number"),
        ("x = round(1e308 * 10)", "a number is too large"),
        ("return 5", "arrived returns a number; return a message or None"),
        ("m.n = 1\nreturn [None]", "arrived returns None in a list; return a message or None"),
        ("return [m, None]", "arrived returns None in a list; return a message or None"),
        ("m.s = m", "a message cannot be kept inside of something else"),
        ("x = 10 ** 5000", "10 ** 5000 has more than 256 bits"),
    ],
)  # fmt: skip
def test_trouble_is_told_in_words(body: str, text: str) -> None:
    result = stopped(body)
    assert (result.kind, result.text) == ("error", text)


def test_trouble_has_its_line() -> None:
    assert stopped("x = 1\n\ny = x / 0").line == 4
    assert stopped("x = 1\nfor i in range(3):\n    y = i\n    z = 1 / (i - 1)").line == 5
    assert stopped("x = (1 +\n    m.q)").line in (2, 3)
    assert stopped("while True:\n    pass").line == 2
    assert stopped("x = 1\nif m.n:\n    x = upper(5)").line == 4


def test_outputs_are_metered_and_stop_before_they_are_written() -> None:
    arrived = IncomingMessage("t", b'{"x": [%s]}' % b",".join([b"0"] * 200_000))
    keeps = ", ".join(["keep(m, 'x')"] * 16)
    policy = compiled(f"def arrived(m, me):\n    return [{keeps}]")
    result = run(policy, arrived, {}, {}, 1.0, PolicyLimits())
    assert isinstance(result, Stopped)
    assert result.kind == "steps"
    assert not arrived._encodings


def test_variables_and_what_is_remembered_are_metered_whenever_they_are_written() -> None:
    many = {f"v{number}": number for number in range(3_000)}
    policy = compiled("def arrived(m, me):\n    me.x = 1\n    return None")
    result = run(policy, IncomingMessage("t", b""), many, {}, 1.0, PolicyLimits())
    assert isinstance(result, Completed)
    assert result.steps > 1_000
    policy = compiled("def arrived(m, me):\n    x = every(5)\n    return None")
    memory = {f"1:{number}": 5.0 for number in range(3_000)}
    result = run(policy, IncomingMessage("t", b""), {}, memory, 1.0, PolicyLimits())
    assert isinstance(result, Completed)
    assert result.steps > 1_000


@pytest.mark.parametrize(
    "body", ["x = m.xs[m.name]", "set_data(m, m.name)", "m[m.name] = 1\nm.payload = data(m.b)"]
)
def test_what_people_are_told_is_short(body: str) -> None:
    payload = msgspec.json.encode({"name": "n" * 600_000, "xs": [1], "b": 1})
    policy = compiled("def arrived(m, me):\n    " + body.replace("\n", "\n    "))
    result = run(policy, IncomingMessage("t", payload), {}, {}, 1.0, PolicyLimits())
    assert isinstance(result, Stopped)
    assert len(result.text) <= REASON_CHARS_MAX


def test_a_long_reason_is_cut() -> None:
    assert shortened("x" * REASON_CHARS_MAX) == "x" * REASON_CHARS_MAX
    assert shortened("x" * 1_000_000) == "x" * (REASON_CHARS_MAX - 1) + "…"
    assert len(explained(KeyError("k" * 600_000))) < 2 * REASON_CHARS_MAX


@pytest.mark.parametrize("name", ["'nope'", "m.name", "'a'"])
def test_a_name_that_a_mapping_has_not_is_none(name: str) -> None:
    payload = b'{"d": {"a": 5}, "name": "missing"}'
    for owner in ("m.d", "m.nothing", "m", "data(m).d"):
        text = f"def arrived(m, me):\n    return message(x={owner}[{name}])"
        result = run(compiled(text), IncomingMessage("t", payload), {}, {}, 1.0, PolicyLimits())
        assert isinstance(result, Completed), result
        found = 5 if name == "'a'" and owner.endswith(".d") else None
        assert msgspec.json.decode(result.outputs[0].payload) == {"x": found}
