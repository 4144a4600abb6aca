"""How a refusal is shown: the caret stands under the word to blame, whatever stands before it."""

import copy
import inspect
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import errors
from rove.lang.errors import LanguageError, LimitError, PublicationError, TextError, visible


def shown(text: str, blamed: str, hint: str | None = None) -> list[str]:
    """The lines of a refusal that blames a piece of the text."""
    start = text.index(blamed)
    return str(TextError("wrong", text, start, start + len(blamed), hint)).split("\n")


# --- the tree ---------------------------------------------------------------------------------


def test_the_tree_is_drawn_in_the_docstring() -> None:
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    assert classes == {"LanguageError", "TextError", "LimitError", "PublicationError"}
    assert all(name in (errors.__doc__ or "") for name in classes)


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (LanguageError, ValueError),
        (TextError, LanguageError),
        (LimitError, TextError),
        (PublicationError, LanguageError),
    ],
)
def test_catching_the_base_catches_all(kind: type[Exception], base: type[Exception]) -> None:
    assert kind.__bases__ == (base,)


def test_a_publication_is_refused_in_one_line() -> None:
    assert str(PublicationError("a is nan")) == "a is nan"
    assert str(PublicationError("a is nan", "leave it out")) == "a is nan (leave it out)"
    assert PublicationError("a is nan").as_dict() == {"error": "a is nan", "hint": None}


# --- the caret --------------------------------------------------------------------------------

POINTED = {
    "a word": ("a > bad", "bad", "  a > bad", "      ^^^"),
    "the first word": ("bad > 5", "bad", "  bad > 5", "  ^^^"),
    "after a tab": ("a\t> bad", "bad", "  a > bad", "      ^^^"),
    "after an umlaut": ("ä > bad", "bad", "  ä > bad", "      ^^^"),
    "after wide characters": ("温度 > bad", "bad", "  温度 > bad", "         ^^^"),
    "after fullwidth letters": ("ａ > bad", "bad", "  ａ > bad", "       ^^^"),
    "after an emoji": ("'🌡' = bad", "bad", "  '🌡' = bad", "  " + " " * 6 + "^^^"),
    "after a wide emoji": ("'🚲' = bad", "bad", "  '🚲' = bad", "  " + " " * 7 + "^^^"),
    "after an accent": ("cafe\u0301 > bad", "bad", "  cafe\u0301 > bad", "         ^^^"),
    "after a Hindi vowel sign": ("'कु' = bad", "bad", "  'कु' = bad", "        ^^^"),
    "wide characters themselves": ("a > 温度", "温度", "  a > 温度", "      ^^^^"),
    "an accent itself": ("e\u0301", "\u0301", "  e\u0301", "   ^"),
    "after a control": ("a\x07 > bad", "bad", "  a⟨U+0007⟩ > bad", "              ^^^"),
    "a control itself": ("a \x1b b", "\x1b", "  a ⟨U+001B⟩ b", "    ^^^^^^^^"),
    "half a surrogate pair": ("a \udc00", "\udc00", "  a ⟨U+DC00⟩", "    ^^^^^^^^"),
    "a zero width space": ("a\u200b> 5", "\u200b", "  a⟨U+200B⟩> 5", "   ^^^^^^^^"),
    "a no-break space": ("a\u00a0> 5", "\u00a0", "  a⟨U+00A0⟩> 5", "   ^^^^^^^^"),
    "an override of direction": ("a \u202e b", "\u202e", "  a ⟨U+202E⟩ b", "    ^^^^^^^^"),
    "the second of three lines": ("a > 1\nAND bad\nAND b", "bad", "  AND bad", "      ^^^"),
    "a line that ends as on Windows": ("a > bad\r\nAND b", "bad", "  a > bad ", "      ^^^"),
    "a string over two lines": ("a = 'x\ny'", "'x\ny'", "  a = 'x", "      ^^"),
}


@pytest.mark.parametrize(("text", "blamed", "line", "carets"), POINTED.values(), ids=POINTED.keys())
def test_the_caret_stands_under(text: str, blamed: str, line: str, carets: str) -> None:
    assert shown(text, blamed)[1:] == [line, carets]


@pytest.mark.parametrize(
    ("text", "line", "carets"),
    [("a >", "  a >", "     ^"), ("", "  ", "  ^"), ("a\nb >", "  b >", "     ^")],
    ids=["one line", "no text", "two lines"],
)
def test_the_end_of_the_text_has_a_caret_too(text: str, line: str, carets: str) -> None:
    error = TextError("wrong", text, len(text), len(text))
    assert str(error).split("\n")[1:] == [line, carets]


def test_the_place_comes_first_and_the_hint_last() -> None:
    assert shown("a > bad", "bad", "try 5") == [
        "column 5: wrong",
        "  a > bad",
        "      ^^^",
        "  try 5",
    ]
    assert shown("a\nbad", "bad")[0] == "line 2, column 1: wrong"


@pytest.mark.parametrize(
    ("before", "after", "starts", "ends"),
    [(0, 200, "bad", "x…"), (200, 0, "…x", "bad"), (200, 200, "…x", "x…"), (30, 30, "x", "x")],
    ids=["at the front", "at the end", "in the middle", "short"],
)
def test_a_long_line_is_shown_through_a_window(
    before: int, after: int, starts: str, ends: str
) -> None:
    _, line, carets = shown("x" * before + "bad" + "x" * after, "bad")
    assert line.strip().startswith(starts)
    assert line.strip().endswith(ends)
    assert len(line) <= 80
    assert line[carets.index("^") : len(carets)] == "bad"


def test_a_long_blame_does_not_burst_the_window() -> None:
    _, line, carets = shown("a = " + "x" * 500, "x" * 500)
    assert len(line) == len(carets) + 1 <= 80
    assert line.endswith("x…")


# --- places -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "start", "line", "column"),
    [
        ("abc", 0, 1, 1),
        ("abc", 3, 1, 4),
        ("a\nbc", 1, 1, 2),
        ("a\nbc", 2, 2, 1),
        ("a\n\n\nbc", 5, 4, 2),
        ("a\r\nbc", 3, 2, 1),
        ("温度\n温", 4, 2, 2),
    ],
)
def test_line_and_column_are_counted_from_one(
    text: str, start: int, line: int, column: int
) -> None:
    error = TextError("wrong", text, start)
    assert (error.line, error.column) == (line, column)


@pytest.mark.parametrize(
    ("start", "end", "kept"),
    [(1, None, (1, 2)), (3, None, (3, 3)), (9, 12, (3, 3)), (1, 9, (1, 3)), (2, 1, (2, 2))],
)
def test_a_span_never_leaves_its_text(start: int, end: int | None, kept: tuple[int, int]) -> None:
    error = TextError("wrong", "abc", start, end)
    assert (error.start, error.end) == kept


def test_programs_get_the_place_as_numbers() -> None:
    error = LimitError("wrong", "a\nbad", 2, 5, "try 5")
    assert error.as_dict() == {
        "error": "wrong",
        "hint": "try 5",
        "line": 2,
        "column": 1,
        "start": 2,
        "end": 5,
    }


@given(st.text(st.characters(codec=None)), st.integers(0, 40), st.integers(0, 40))
def test_any_text_can_be_shown_anywhere(text: str, start: int, end: int) -> None:
    error = TextError("wrong", text, start, end)
    head, line, carets = str(error).split("\n")
    assert head.endswith(": wrong")
    assert line.isprintable()
    assert set(carets) <= {" ", "^"}
    str(error).encode()
    json.dumps(error.as_dict()).encode("ascii")


@pytest.mark.parametrize(
    "error",
    [
        LanguageError("wrong", "hint"),
        PublicationError("wrong"),
        TextError("wrong", "a > bad", 4, 7, "hint"),
        LimitError("wrong", "a > bad", 4, None),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_refusal_survives_the_way_between_processes(error: LanguageError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.as_dict() == error.as_dict()


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain", "plain"),
        ("a\tb\r\nc", "a b  c"),
        ("\x00", "⟨U+0000⟩"),
        ("\u2028", "⟨U+2028⟩"),
        ("\U000e0001", "⟨U+E0001⟩"),
        ("é温🌡", "é温🌡"),
    ],
)
def test_what_would_not_show_is_written_out(text: str, seen: str) -> None:
    assert visible(text) == seen
