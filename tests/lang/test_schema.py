"""Schemas: a text that asks for what a channel has not is refused, with what was meant."""

import pytest

from rove.lang import LanguageError, Schema, TextError, check_schema, parse

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
