"""What would be right: guesses that help, and silence where a guess would mislead.

That each guess reaches the reader is tested with the mistakes in test_parser.py.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import advice
from rove.lang.advice import (
    about_comparison,
    about_function,
    about_missing_value,
    about_rest,
    about_sign,
    did_you_mean,
)
from rove.lang.lexer import END, RESERVED

tokens = st.text(max_size=12) | st.sampled_from([END, ".", "=", "me", ")", *sorted(RESERVED)])


@pytest.mark.parametrize(
    ("before", "token", "after"),
    [("a", ">", "5"), ("(", "a", ")"), ("a", "b", "c"), (END, "-", "5"), ("a", END, END)],
)
def test_nothing_is_said_about_a_sign_that_could_be_right(
    before: str, token: str, after: str
) -> None:
    assert about_sign(before, token, after, touching=False) is None


def test_a_number_is_only_to_blame_for_what_touches_it() -> None:
    assert "a number is digits" in (about_sign("5", "abc", END, touching=True) or "")
    assert about_sign("5", "abc", END, touching=False) is None
    assert about_sign("5", ")", END, touching=True) is None


@pytest.mark.parametrize("keyword", sorted(RESERVED - {"TRUE", "FALSE"}))
def test_every_keyword_in_the_place_of_a_value_is_explained(keyword: str) -> None:
    assert about_missing_value(">", keyword)
    assert about_missing_value(">", keyword.lower())


def test_nothing_is_said_about_an_end_that_nothing_sensible_precedes() -> None:
    assert about_missing_value("x" * 33, END) is None
    assert about_missing_value("+", END) == "something must follow +"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("maxx", None), ("MAX", "greatest"), ("dist", None), ("squrt", "sqrt"), ("lowr", "lower")],
)
def test_a_function_is_guessed_or_all_are_named(written: str, meant: str | None) -> None:
    every = "there are abs, least, greatest, sqrt, pow, sin, cos, floor, ceil, distance, lower"
    assert about_function(written).startswith(f"did you mean {meant}?" if meant else every)


@pytest.mark.parametrize(
    ("written", "candidates", "hint"),
    [
        ("latt", ["lat", "long"], "did you mean lat?"),
        ("humidity", ["lat", "long"], None),
        ("x", ["xy"], None),
        ("", ["lat"], None),
        ("lat" * 11, ["lat" * 11], None),
        ("lat", [], None),
    ],
)
def test_a_resembling_word(written: str, candidates: list[str], hint: str | None) -> None:
    assert did_you_mean(written, candidates) == hint


@given(tokens, tokens, tokens, st.booleans())
def test_advice_is_given_on_anything(before: str, token: str, after: str, touching: bool) -> None:
    for hint in (
        about_sign(before, token, after, touching=touching),
        about_missing_value(before, token),
        about_rest(before, token),
        about_comparison(token),
        about_function(token),
    ):
        assert hint is None or hint.strip()


def test_what_is_advised_can_be_read() -> None:
    from rove.lang.parser import parse

    written = advice.RANK_FORM.removeprefix("a rank is written ")
    assert parse(written).rank is not None
