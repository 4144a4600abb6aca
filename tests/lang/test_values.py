"""Numbers have direct neighbours in one exact order, names lead to values, and the door is shut."""

import math
import sys
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rove.lang.errors import PublicationError
from rove.lang.limits import INTEGER_MAX, INTEGER_MIN
from rove.lang.values import (
    OPAQUE,
    Number,
    admit,
    change_state,
    comparable,
    is_number,
    look_up,
    next_number,
    plain_number,
    previous_number,
)
from tests.effort import examples

FLOAT_MAX = sys.float_info.max
TINY = 5e-324

integers = st.integers(INTEGER_MIN, INTEGER_MAX)
floats = st.floats(allow_nan=False, allow_infinity=False)
near_powers_of_two = st.builds(
    lambda sign, exponent, offset: min(max(sign * 2**exponent + offset, INTEGER_MIN), INTEGER_MAX),
    st.sampled_from([-1, 1]),
    st.integers(50, 63),
    st.integers(-3000, 3000),
)
floats_near_powers_of_two = near_powers_of_two.map(float)
numbers: st.SearchStrategy[Number] = (
    integers | floats | near_powers_of_two | floats_near_powers_of_two
)


# --- neighbours -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "following"),
    [
        pytest.param(0, TINY, id="zero: the smallest float"),
        pytest.param(-0.0, TINY, id="minus zero is zero"),
        pytest.param(-TINY, 0, id="the largest negative float: zero"),
        pytest.param(1, math.nextafter(1, 2), id="one: a float, not two"),
        pytest.param(2**53 - 1, 2**53, id="last place where floats have spacing one"),
        pytest.param(2**53, 2**53 + 1, id="2^53: an integer that no float is"),
        pytest.param(2.0**53, 2**53 + 1, id="2^53 as a float, likewise"),
        pytest.param(2**53 + 1, 2**53 + 2, id="back to one that is both"),
        pytest.param(-(2**53) - 1, -(2**53), id="-2^53 from below"),
        pytest.param(-(2**53), -(2**53) + 1, id="-2^53 upwards"),
        pytest.param(INTEGER_MAX - 1, INTEGER_MAX, id="to the largest integer"),
        pytest.param(INTEGER_MAX, 2.0**63, id="the largest integer: a float"),
        pytest.param(2.0**63, 2.0**63 + 2048, id="beyond the integers: floats again"),
        pytest.param(-(2.0**63) - 2048, INTEGER_MIN, id="to the smallest integer"),
        pytest.param(INTEGER_MIN, INTEGER_MIN + 1, id="the smallest integer: the next one"),
        pytest.param(-(2.0**63), INTEGER_MIN + 1, id="the same as a float"),
        pytest.param(math.nextafter(FLOAT_MAX, 0), FLOAT_MAX, id="to the largest float"),
        pytest.param(FLOAT_MAX, math.inf, id="after the largest float: infinity"),
        pytest.param(-math.inf, -FLOAT_MAX, id="after minus infinity: the smallest float"),
    ],
)
def test_the_neighbours_at_every_seam(number: Number, following: Number) -> None:
    assert next_number(number) == following
    assert previous_number(following) == number
    assert previous_number(-number) == -following


@examples(350)
@given(numbers)
@example(INTEGER_MAX)
@example(INTEGER_MIN)
@example(-(2.0**63))
@example(2.0**53)
def test_next_and_previous_are_inverse(number: Number) -> None:
    assert previous_number(next_number(number)) == number
    assert next_number(previous_number(number)) == number
    assert previous_number(number) < number < next_number(number)


def candidates(number: Number) -> set[Number]:
    """Every integer and float that might lie just above `number`."""
    above = math.nextafter(number, math.inf)
    whole = math.floor(number) + 1
    found: set[Number] = {above, math.nextafter(above, math.inf), float(number)}
    if INTEGER_MIN <= whole <= INTEGER_MAX:
        found |= {whole, float(whole), math.nextafter(float(whole), -math.inf)}
    return {c for c in found if c > number}


@examples(350)
@given(numbers)
def test_nothing_lies_between_a_number_and_the_next(number: Number) -> None:
    following = next_number(number)
    assert all(following <= candidate for candidate in candidates(number))
    assert following in candidates(number)


@examples(350)
@given(numbers, numbers)
def test_a_greater_number_is_not_below_the_next(one: Number, other: Number) -> None:
    low, high = sorted((one, other))
    if low < high:
        assert next_number(low) <= high
        assert low <= previous_number(high)


@pytest.mark.parametrize("start", [-(2**53), 2**53 - 8, INTEGER_MAX - 4, INTEGER_MIN, 0, -1])
def test_many_steps_up_and_down_come_back(start: int) -> None:
    way: list[Number] = [start]
    for _ in range(20):
        way.append(next_number(way[-1]))
    assert all(low < high for low, high in pairwise(way))
    for expected in reversed(way[:-1]):
        assert previous_number(next_number(expected)) == expected


# --- plain numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "plain"),
    [
        (1.0, 1),
        (-0.0, 0),
        (2.5, 2.5),
        (7, 7),
        (-(2.0**63), INTEGER_MIN),
        (2.0**63, 2.0**63),
        (math.nextafter(2.0**63, 0), 2**63 - 1024),
        (1e300, 1e300),
        (-1e300, -1e300),
    ],
)
def test_a_whole_float_is_plainest_as_an_integer(number: Number, plain: Number) -> None:
    assert plain_number(number) == plain == number
    assert type(plain_number(number)) is type(plain)


# --- what a name leads to ---------------------------------------------------------------------


class Text(str):
    """A string that is not quite one."""

    __slots__ = ()


NESTED: Mapping[str, object] = {
    "a": 1,
    "n": {"m": "deep", "o": {"p": True}, "null": None, "": 0},
    "list": [{"m": 1}],
    "text": "m",
    "null": None,
    "a.b": 2.5,
    "bytes": b"m",
    "big": 2**63,
    "small": -(2**63) - 1,
    "edge": 2**63 - 1,
    "set": {1},
    "odd": Text("odd"),
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (("a",), 1),
        (("n", "m"), "deep"),
        (("n", "o", "p"), True),
        (("n", ""), 0),
        (("n", "null"), None),
        (("n", "missing"), None),
        (("n", "m", "further"), None),
        (("a", "b"), None),
        (("a.b",), 2.5),
        (("list", "0"), None),
        (("list", "m"), None),
        (("text", "m"), None),
        (("null", "m"), None),
        (("missing", "m"), None),
        (("edge",), 2**63 - 1),
        (("n",), OPAQUE),
        (("n", "o"), OPAQUE),
        (("list",), OPAQUE),
        (("bytes",), OPAQUE),
        (("big",), OPAQUE),
        (("small",), OPAQUE),
        (("set",), OPAQUE),
        (("odd",), OPAQUE),
    ],
    ids=lambda path: ".".join(path) if isinstance(path, tuple) else repr(path),
)
def test_a_path_leads_to(path: tuple[str, ...], found: object) -> None:
    value = look_up(NESTED, path)
    assert value == found
    assert type(value) is type(found)


@pytest.mark.parametrize("value", [True, False, None, "", "x", [], {}, b"", 1j])
def test_no_number(value: object) -> None:
    assert not is_number(value)


@pytest.mark.parametrize("value", [0, -1, 2**63, 0.0, 1e308])
def test_a_number(value: object) -> None:
    assert is_number(value)


def test_opaque_has_a_readable_repr() -> None:
    assert repr(comparable([])) == "OPAQUE"


# --- the door ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, "\ud800", "fine\udfffnot"])
@pytest.mark.parametrize(
    ("build", "name"),
    [
        pytest.param(lambda bad: {"x": bad}, "x", id="at the top"),
        pytest.param(lambda bad: {"o": {"p": {"q": bad}}}, "o.p.q", id="in objects"),
        pytest.param(lambda bad: {"l": [1, [2, bad]]}, "l.1.1", id="in arrays"),
        pytest.param(lambda bad: {"l": ({"m": bad},)}, "l.0.m", id="in an object in an array"),
        pytest.param(lambda bad: {"a": 1, "b": "x", "z": bad, "c": None}, "z", id="among others"),
    ],
)
def test_a_value_that_no_runtime_may_see_is_refused(build: object, name: str, bad: object) -> None:
    with pytest.raises(PublicationError) as refusal:
        admit(build(bad))  # type: ignore[operator]
    assert f"attribute {name} " in refusal.value.what
    assert refusal.value.hint


@pytest.mark.parametrize(
    "publication",
    [
        pytest.param({"\ud800": 1}, id="at the top"),
        pytest.param({"a": {"b\udc00": None}}, id="in an object"),
        pytest.param({"a": [{"\udfff": []}]}, id="before something empty"),
    ],
)
def test_a_name_that_is_no_unicode_is_refused(publication: dict[str, object]) -> None:
    with pytest.raises(PublicationError, match="surrogate") as refusal:
        admit(publication)
    str(refusal.value).encode()


@pytest.mark.parametrize(
    "publication",
    [
        {},
        {"a": FLOAT_MAX, "b": -FLOAT_MAX, "c": TINY, "d": -0.0},
        {"a": 2**80, "b": [], "c": {}, "d": b"\xff", "e": None, "f": True},
        {"𝄞": "𝄞", "": "\0\uffff\U0010ffff"},
    ],
)
def test_anything_else_is_admitted(publication: dict[str, object]) -> None:
    admit(publication)


def test_a_payload_of_any_depth_is_looked_through() -> None:
    payload: object = math.nan
    for _ in range(50_000):
        payload = [payload]
    with pytest.raises(PublicationError, match="nan"):
        admit({"deep": payload})


names = st.sampled_from(["", "a", "b", "𝄞", "\ud7ff\ue000", "\ud800", "c\udfff"])
leaves = names | st.sampled_from([None, True, 2**70, 0.5, math.nan, math.inf, -math.inf])
payloads = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


def is_sound(value: object) -> bool:
    if isinstance(value, dict):
        return all(is_sound(name) and is_sound(inner) for name, inner in value.items())
    if isinstance(value, list):
        return all(map(is_sound, value))
    if isinstance(value, str):
        return not any(0xD800 <= ord(character) <= 0xDFFF for character in value)
    return not isinstance(value, float) or value - value == 0


@examples(150)
@given(st.dictionaries(names, payloads, max_size=3))
def test_exactly_the_sound_payloads_are_admitted(publication: dict[str, object]) -> None:
    if is_sound(publication):
        admit(publication)
    else:
        with pytest.raises(PublicationError):
            admit(publication)


def test_a_list_of_numbers_costs_one_pass_of_pythons_own() -> None:
    """Whoever sets 64 KB of variables with every message must not hold others up."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    changes = {"x": [1.5] * 3_000, "y": {"z": tuple(range(3_000))}}
    sys.setprofile(count)
    try:
        admit(changes)
    finally:
        sys.setprofile(None)
    assert calls < 100


@pytest.mark.parametrize("bad", [math.nan, math.inf, "\ud800"])
@pytest.mark.parametrize("where", [0, 1, 50, -1])
def test_one_bad_value_among_many_numbers_is_found(bad: object, where: int) -> None:
    many: list[object] = [1.7e308, 2, *range(100)]
    many[where] = bad
    with pytest.raises(PublicationError, match=rf"x\.{where % len(many)} "):
        admit({"x": many})


def test_numbers_whose_sum_is_too_large_are_admitted() -> None:
    admit({"x": [1.7e308, 1.7e308], "y": [2**1030, 0.5]})


def test_a_change_of_state_sets_replaces_and_removes() -> None:
    me: dict[str, object] = {"x": 1, "y": 2}
    change_state(me, {"x": 3, "y": None, "z": 4, "w": None})
    assert me == {"x": 3, "z": 4}


def test_an_unfit_change_changes_nothing() -> None:
    me: dict[str, object] = {"x": 1}
    with pytest.raises(PublicationError):
        change_state(me, {"x": 2, "y": float("nan")})
    assert me == {"x": 1}
