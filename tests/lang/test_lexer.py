"""Texts to tokens: where each begins and ends, what counts as a name, what is never let in."""

import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import lexer
from rove.lang.errors import LimitError, TextError
from rove.lang.lexer import END, is_name, keyword_of, segments_of, span, tokens_of

SPLIT = {
    "spaces, tabs and line ends separate": ("a \t>\r\n5", ["a", ">", "5"]),
    "nothing needs to separate": ("a>=5AND b<6", ["a", ">=", "5", "AND", "b", "<", "6"]),
    "signs of two characters": ("<= >= != <>", ["<=", ">=", "!=", "<>"]),
    "signs that are not one": ("== => =< ! =", ["=", "=", "=", ">", "=", "<", "!", "="]),
    "a name with dots": ("a.b.c", ["a.b.c"]),
    "a name with spaces around its dot": ("a . b", ["a", ".", "b"]),
    "a name in backticks": ("`odd name`.b.`c`", ["`odd name`.b.`c`"]),
    "a doubled backtick": ("`a``b`", ["`a``b`"]),
    "an empty name": ("``", ["`", "`"]),
    "a name that is not closed": ("`ab", ["`", "ab"]),
    "a number and a letter": ("5abc", ["5", "abc"]),
    "half an exponent": ("1e", ["1", "e"]),
    "two points": ("1.2.3", ["1.2", ".3"]),
    "a digit after a dot": ("a.5", ["a", ".5"]),
    "numbers": ("1 1. .1 1.5e3 1E-9 1e+9", ["1", "1.", ".1", "1.5e3", "1E-9", "1e+9"]),
    "a sign is not part of a number": ("-5", ["-", "5"]),
    "a string": ("'a b'", ["'a b'"]),
    "a doubled quote": ("'it''s'", ["'it''s'"]),
    "an empty string": ("''", ["''"]),
    "a string that is not closed": ("'ab", ["'", "ab"]),
    "a string over two lines": ("'a\nb'", ["'a\nb'"]),
    "a comment": ("a -- > 5\n> 6", ["a", ">", "6"]),
    "a comment at the end": ("a -- no more", ["a"]),
    "only a comment": ("-- nothing", []),
    "a comment right after a name": ("a--b", ["a"]),
    "dashes in a string": ("'--' = a -- x", ["'--'", "=", "a"]),
    "dashes in a name": ("`--` = 1 -- x", ["`--`", "=", "1"]),
    "a quote in a comment": ("a -- it's\n> 5", ["a", ">", "5"]),
    "a backtick in a string and a quote in a name": ("'`' `'` -- x", ["'`'", "`'`"]),
    "a no-break space is no space": ("a\u00a0b", ["a", "\u00a0", "b"]),
    "letters of other scripts": ("größe Ünïcode 温度", ["größe", "Ünïcode", "温度"]),
    "emoji in a string": ("'🌡️'", ["'🌡️'"]),
    "nothing": ("", []),
    "only spaces": (" \t\r\n ", []),
}


@pytest.mark.parametrize(("text", "tokens"), SPLIT.values(), ids=SPLIT.keys())
def test_a_text_is_split(text: str, tokens: list[str]) -> None:
    assert tokens_of(text) == [*tokens, END]


@pytest.mark.parametrize("text", [text for text, _ in SPLIT.values()], ids=SPLIT.keys())
def test_every_token_is_found_again_where_it_stands(text: str) -> None:
    *tokens, _ = tokens_of(text)
    places = [span(text, index) for index in range(len(tokens))]
    assert [text[start:end] for start, end in places] == tokens
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(places))


@pytest.mark.parametrize(
    ("text", "place"),
    [("a >", 3), ("a > \n\t ", 3), ("a > -- what?", 3), ("-- x", 0), ("", 0), ("a\u00a0", 2)],
)
def test_the_end_stands_behind_the_last_token(text: str, place: int) -> None:
    assert span(text, len(tokens_of(text)) - 1) == (place, place)


NAMES = {
    "a letter": "a",
    "an underscore": "_",
    "a keyword": "AND",
    "backticks": "`a b`",
    "an ordinal indicator": "ª",
    "an ideographic zero": "〇",
    "a subscript letter": "ₐ",
    "a superscript two": "²",
    "a Roman numeral": "Ⅷ",
    "an Arabic letter": "ب",
}
NO_NAMES = {
    "nothing": END,
    "a lone backtick": "`",
    "a number": "5",
    "a fraction": ".5",
    "a string": "'a'",
    "a sign": "<=",
    "a dot": ".",
    "an Arabic digit": "٣",
    "a fullwidth digit": "５",
    "a script p, which is a sign": "℘",
    "an accent": "\u0301",
    "a zero width space": "\u200b",
}


@pytest.mark.parametrize("token", NAMES.values(), ids=NAMES.keys())
def test_this_is_a_name(token: str) -> None:
    assert tokens_of(token) == [token, END]
    assert is_name(token)


@pytest.mark.parametrize("token", NO_NAMES.values(), ids=NO_NAMES.keys())
def test_this_is_no_name(token: str) -> None:
    assert not is_name(token)


@given(st.characters(exclude_categories=["Cs", "Cc"]), st.sampled_from(["", "x", "9", ".x"]))
def test_a_name_for_the_splitter_is_a_name_for_the_parser(first: str, rest: str) -> None:
    word = first + rest
    if len(rest) and tokens_of(f"q {word}") == ["q", word, END] and rest != "9":
        assert is_name(word) or first == "."
    assert is_name(f"`{word}`") or "`" in word


KEYWORDS = ["AND", "and", "aNd", "select", "Within", "NULL"]
NO_KEYWORDS = ["ANDY", "`and`", "a.and", "'and'", "ın", "ıs", "lıke", "ſelect", "FROM", ""]


@pytest.mark.parametrize("token", KEYWORDS)
def test_a_keyword_in_any_case(token: str) -> None:
    assert keyword_of(token) == token.upper()


@pytest.mark.parametrize("token", NO_KEYWORDS)
def test_no_keyword(token: str) -> None:
    assert keyword_of(token) == ""


@pytest.mark.parametrize(
    ("name", "segments"),
    [
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ("`a.b`.c", ("a.b", "c")),
        ("`a``b`", ("a`b",)),
        ("a.`b c`.d", ("a", "b c", "d")),
        ("`'`", ("'",)),
    ],
)
def test_the_segments_of_a_name(name: str, segments: tuple[str, ...]) -> None:
    assert segments_of(name) == segments


FORBIDDEN = {
    "a null": ("\x00", "U+0000 NULL"),
    "a backspace": ("\x08", "U+0008 BACKSPACE"),
    "a vertical tab": ("\x0b", "U+000B a control character"),
    "a form feed": ("\x0c", "U+000C a control character"),
    "an escape": ("\x1b", "U+001B ESCAPE"),
    "a delete": ("\x7f", "U+007F DELETE"),
    "a next line": ("\x85", "U+0085 a control character"),
    "half a surrogate pair": ("\ud800", "U+D800 half a surrogate pair"),
    "an override to the left": ("\u202e", "U+202E RIGHT-TO-LEFT OVERRIDE"),
    "an isolate": ("\u2066", "U+2066 LEFT-TO-RIGHT ISOLATE"),
}
AROUND = {
    "between words": "a {}> 5",
    "in a string": "a = '{}'",
    "in a name": "`a{}` > 5",
    "in a comment": "a -- {}",
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND.keys())
@pytest.mark.parametrize(("character", "name"), FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_what_cannot_be_seen_is_refused(character: str, name: str, around: str) -> None:
    text = around.format(character)
    with pytest.raises(TextError, match="is not allowed in a filter expression") as caught:
        tokens_of(text)
    assert caught.value.what.startswith(name)
    assert text[caught.value.start : caught.value.end] == character
    assert lexer.forbidden_in(character)


def test_nothing_else_is_forbidden() -> None:
    every = {chr(point) for point in range(0x11000)}
    unseen = {c for c in every if unicodedata.category(c) in ("Cc", "Cs")} - set("\t\r\n")
    turning = set(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
    assert {c for c in every if lexer.forbidden_in(c)} == unseen | turning


ALLOWED = "\t\r\n é 温 🌡️ \u200d \u200b \u00a0 \ue000 \u0301 \u2028"


def test_the_rest_of_unicode_may_stand_in_a_string() -> None:
    assert tokens_of(f"'{ALLOWED}'") == [f"'{ALLOWED}'", END]
    assert not lexer.forbidden_in(ALLOWED)


@pytest.mark.parametrize(
    ("character", "name"),
    [
        ("é", "U+00E9 LATIN SMALL LETTER E WITH ACUTE"),
        ("\ue000", "U+E000 a private character"),
        ("\U0010ffff", "U+10FFFF an unassigned character"),
        ("\udfff", "U+DFFF half a surrogate pair"),
    ],
)
def test_characters_have_names(character: str, name: str) -> None:
    assert lexer.character_name(character) == name


@given(st.characters())
def test_every_character_has_a_name(character: str) -> None:
    name = lexer.character_name(character)
    assert name.startswith(f"U+{ord(character):04X} ")
    assert unicodedata.name(character, "") in name


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("a" * 10_000_000, "has 10,000,000 bytes"),
        ("é" * 10_000_000, "has more than 10,000,000 bytes"),
        ("é" * 8_000, "has 16,000 bytes"),
    ],
    ids=["plain", "accents", "accents, few"],
)
def test_a_long_text_is_refused_before_it_is_split(
    text: str, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexer, "_TOKEN", None)
    with pytest.raises(LimitError, match=size):
        tokens_of(text)
