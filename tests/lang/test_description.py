"""What `rove check` says of a text: kinds, attributes and types, parts, and how they are found."""

import os
import subprocess
import sys

import pytest
from hypothesis import given

from rove.lang import (
    LanguageError,
    LimitError,
    Schema,
    TextError,
    canonical_text,
    check_schema,
    describe,
    matches,
    normalise,
    parse,
)
from rove.lang.description import is_linear, is_piecewise_linear, types_of
from rove.lang.tree import Attribute, Comparison, Subscription, parts
from rove.testing.strategies import publications, subscriptions
from tests.effort import PATIENCE_S, examples


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("x > 3", ("Boolean",)),
        ("SELECT x", ("Boolean",)),
        ("x > t", ("evolving",)),
        ("`t` > 3", ("Boolean",)),
        ("x > me.x", ("following",)),
        ("me.vip", ("following",)),
        ("ORDER BY x LIMIT 1 WITHIN 1 HOUR", ("ranked",)),
        ("ORDER BY x + t LIMIT 1 WITHIN 1 HOUR", ("evolving", "ranked")),
        ("x > t AND me.vip ORDER BY x LIMIT 1 WITHIN 1 HOUR", ("evolving", "following", "ranked")),
    ],
)
def test_kinds(text: str, kinds: tuple[str, ...]) -> None:
    assert describe(parse(text)).kinds == kinds


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("x > 3", {"x": ["number"]}),
        ("3 < x", {"x": ["number"]}),
        ("x = 'a'", {"x": ["string"]}),
        ("x = TRUE", {"x": ["boolean"]}),
        ("x", {"x": ["boolean"]}),
        ("NOT (x OR y = 1)", {"x": ["boolean"], "y": ["number"]}),
        ("x = y", {"x": ["any"], "y": ["any"]}),
        ("x IS NULL", {"x": ["any"]}),
        ("x IS NULL OR x > 3", {"x": ["number"]}),
        ("x > 3 OR x = 'a'", {"x": ["number", "string"]}),
        ("x < t", {"x": ["number"]}),
        ("x < y + 1", {"x": ["number"], "y": ["number"]}),
        ("x BETWEEN 1 AND y", {"x": ["number"], "y": ["number"]}),
        ("x BETWEEN 'a' AND y", {"x": ["string"], "y": ["string"]}),
        ("x BETWEEN y AND z", {"x": ["any"], "y": ["any"], "z": ["any"]}),
        ("x IN ('a', 'b')", {"x": ["string"]}),
        ("x LIKE 'a'", {"x": ["string"]}),
        ("endswith(x, 'a')", {"x": ["string"]}),
        ("lower(x) = y", {"x": ["string"], "y": ["string"]}),
        ("-x > abs(y)", {"x": ["number"], "y": ["number"]}),
        ("n.m > 3", {"n.m": ["number"]}),
        ("me.x > 3", {}),
        ("ORDER BY x LIMIT 1 WITHIN 1 HOUR", {"x": ["number"]}),
        ("ORDER BY sqrt(x) + y LIMIT 1 WITHIN 1 HOUR", {"x": ["number"], "y": ["number"]}),
    ],
)
def test_attributes_and_their_types(text: str, types: dict[str, list[str]]) -> None:
    assert describe(parse(text)).attributes == types


@examples(150)
@given(subscriptions)
def test_no_attribute_is_forgotten(subscription: Subscription) -> None:
    asked_for = {node for node in parts(subscription) if isinstance(node, Attribute)}
    assert types_of(subscription).keys() == asked_for


@pytest.mark.parametrize(
    ("text", "how", "indexed"),
    [
        ("x > 3", "range of numbers", True),
        ("x > 'a'", "range of strings", True),
        ("startswith(x, 'a')", "range of strings", True),
        ("x = 3", "one value", True),
        ("x IN (1, 2, 4)", "3 values", True),
        ("x NOT BETWEEN 1 AND 2", "2 ranges", True),
        ("x != 3", "2 ranges", True),
        ("contains(x, 'a')", "string automaton", True),
        ("x LIKE 'a%b_'", "string automaton", True),
        ("x IS NULL", "presence or truth", True),
        ("NOT x", "presence or truth", True),
        ("x > t + 1", "bound moves linearly with t", True),
        ("x > least(t, 8)", "bound moves piecewise linearly with t", True),
        ("x > t * t", "bound moves with t, indexed by its hull", True),
        ("x > sin(t)", "bound moves with t, indexed by its hull", True),
        ("x > me.x", "bound follows the subscriber's state", True),
        ("x > me.x + t", "bound follows the subscriber's state", True),
        ("x > y", "computed for each candidate", False),
        ("x > y + t", "computed for each candidate", False),
        ("x + y > 3", "computed for each candidate", False),
        ("lower(x) = 'a'", "computed for each candidate", False),
        ("me.x > 3", "computed for each candidate", False),
        ("t > 3", "computed for each candidate", False),
    ],
)
def test_how_an_index_finds_a_part(text: str, how: str, indexed: bool) -> None:
    description = describe(parse(text))
    ((part,),) = description.index
    assert (part.part, part.how, part.indexed) == (canonical_text(parse(text)), how, indexed)
    assert description.indexed is indexed


@pytest.mark.parametrize(
    ("text", "matching", "conjunctions", "part_count"),
    [
        ("x > 3 AND y > 3", "something", 1, 2),
        ("x > 3 OR y > 3", "something", 2, 2),
        ("x > 3 OR x < 1", "something", 1, 1),
        ("x > 3 AND x < 1", "nothing", 0, 0),
        ("TRUE OR x > 3", "everything", 1, 0),
        ("x IS NULL OR x IS NOT NULL", "everything", 1, 0),
        ("ORDER BY x LIMIT 1 WITHIN 1 HOUR", "everything", 1, 0),
    ],
)
def test_how_large_it_is(text: str, matching: str, conjunctions: int, part_count: int) -> None:
    found = describe(parse(text))
    size = (found.matches, found.conjunctions, found.parts)
    assert size == (matching, conjunctions, part_count)


def test_one_part_that_no_index_finds_is_enough_in_a_conjunction_of_its_own() -> None:
    assert describe(parse("x > 3 AND x > y")).indexed
    assert not describe(parse("x > 3 OR z > y")).indexed


def test_variables_are_listed_once() -> None:
    text = "x > me.x AND y > me.x + me.`odd name` ORDER BY me.a.b LIMIT 1 WITHIN 1 HOUR"
    assert describe(parse(text)).variables == ["me.`odd name`", "me.a.b", "me.x"]


@examples(150)
@given(subscriptions, publications)
def test_what_is_said_of_the_condition_is_so(
    subscription: Subscription, publication: dict[str, object]
) -> None:
    found = describe(subscription)
    assert found.conjunctions == len(found.index) == len(normalise(subscription).conjunctions)
    assert found.parts == sum(len(one) for one in found.index)
    assert found.canonical == canonical_text(subscription)
    if found.matches != "something":
        assert matches(subscription, publication) is (found.matches == "everything")


def test_a_form_that_is_too_large_is_refused() -> None:
    many = " AND ".join(f"(x{i} = 1 OR y{i} = 1)" for i in range(8))
    with pytest.raises(LimitError):
        describe(parse(many))


@pytest.mark.parametrize(
    ("bound", "linear", "piecewise"),
    [
        ("t", True, True),
        ("-t", True, True),
        ("3 + 2 * t - t / 4", True, True),
        ("2 * (t + 1)", True, True),
        ("(t + 1) * 2", True, True),
        ("least(t, 8)", False, True),
        ("3 - 2 * greatest(t, 8)", False, True),
        ("abs(t - 5) / 2", False, True),
        ("-least(t, 3)", False, True),
        ("t * t", False, False),
        ("2 / t", False, False),
        ("least(t, t * t)", False, False),
        ("floor(t)", False, False),
        ("1 + sin(t)", False, False),
    ],
)
def test_bounds_that_are_linear_and_in_pieces(bound: str, linear: bool, piecewise: bool) -> None:
    condition = parse(f"x < {bound}").condition
    assert isinstance(condition, Comparison)
    assert is_linear(condition.right) is linear
    assert is_piecewise_linear(condition.right) is piecewise


def test_the_same_is_said_in_every_process() -> None:
    """Atoms are kept in a set, and the order of a set changes with every process."""
    code = (
        "from rove.lang import describe, parse;"
        "print(describe(parse('x > t AND y > t AND z > t AND a < b AND c < d AND e != f')))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1


AIR: Schema = {
    "lat": "number",
    "long": "number",
    "kind": "string",
    "indoor": "boolean",
    "extra": "any",
    "station.name": "string",
    "station.height": "number",
}


def refusal(text: str, schema: Schema = AIR) -> TextError:
    with pytest.raises(TextError) as caught:
        check_schema(parse(text), schema, text)
    return caught.value


@pytest.mark.parametrize(
    "text",
    [
        "lat > 45 AND kind = 'air'",
        "lat BETWEEN t AND long",
        "indoor",
        "NOT indoor OR indoor = TRUE",
        "extra = 3 OR extra = 'x' OR extra",
        "kind IN ('a', 'b') AND kind LIKE 'a%' AND startswith(lower(kind), 'a')",
        "kind IS NULL AND lat IS NOT NULL",
        "station.name = 'roof' AND station.height > me.height",
        "lat = long",
        "lat = kind",  # never TRUE, but neither is used as anything in particular
        "SELECT lat, kind WHERE lat > 3",
        "ORDER BY distance(lat, long, 45.8, 15.9) LIMIT 1 WITHIN 1 HOUR",
        "TRUE",
    ],
)
def test_a_text_that_fits_is_let_through(text: str) -> None:
    check_schema(parse(text), AIR, text)


@pytest.mark.parametrize(
    ("text", "what", "blamed", "hint"),
    [
        ("lat > 3 AND lng > 3", "there is no attribute lng", "lng", "long"),
        ("latt > 3", "there is no attribute latt", "latt", "lat"),
        ("station.nam = 'a'", "there is no attribute station.nam", "station.nam", "station.name"),
        ("SELECT kid WHERE lat > 3", "there is no attribute kid", "kid", "kind"),
        ("ORDER BY latt LIMIT 1 WITHIN 1 HOUR", "there is no attribute latt", "latt", "lat"),
        ("`odd name` > 3", "there is no attribute `odd name`", "`odd name`", "there are lat, long"),
        ("lat = 'a'", "lat is a number, and used as a string", "lat", "compare it with a number"),
        ("lower(lat) = 'a'", "lat is a number, and used as a string", "lat", "with a number"),
        ("kind > 3", "kind is a string, and used as a number", "kind", "with a string"),
        ("kind + 1 > t", "kind is a string, and used as a number", "kind", "with a string"),
        ("indoor BETWEEN 1 AND 2", "indoor is a boolean, and used as a", "indoor", "boolean"),
        ("kind", "kind is a string, and used as a boolean", "kind", "compare it with a string"),
        ("NOT (lat > 3 OR kind)", "kind is a string, and used as a boolean", "kind", "string"),
        ("lat IN ('a')", "lat is a number, and used as a string", "lat", "with a number"),
        ("ORDER BY kind LIMIT 1 WITHIN 1 HOUR", "used as a number", "kind", "with a string"),
        ("'lat' < kind AND lat LIKE 'a'", "lat is a number, and used as a string", "lat", "number"),
    ],
)  # fmt: skip
def test_a_text_that_does_not_fit_is_refused(text: str, what: str, blamed: str, hint: str) -> None:
    error = refusal(text)
    assert what in error.what
    assert error.text[error.start : error.end] == blamed
    assert hint in (error.hint or "")


def test_a_schema_without_attributes_says_so() -> None:
    assert refusal("lat > 3", {}).hint == "the schema has no attributes"


@pytest.mark.parametrize("kind", ["int", "Number", ""])
def test_a_schema_with_an_unknown_kind_is_refused(kind: str) -> None:
    with pytest.raises(LanguageError, match="of attribute lat") as caught:
        check_schema(parse("TRUE"), {"lat": kind}, "TRUE")
    assert caught.value.hint == "kinds are number, string, boolean, any"
