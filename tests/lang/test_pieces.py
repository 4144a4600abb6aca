"""Patterns piece by piece say what the automaton says, however hostile pattern and string are."""

from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import pieces
from rove.lang.patterns import Pattern, contains, like_pattern
from rove.lang.pieces import Piece, fits, pieces_of, steps_per_character
from tests.effort import examples

ODD = "aé𝄞\0\ud800.*\n"
"""What is special elsewhere: beyond 16 bits, NUL, half a surrogate pair, regular expressions."""


def like(written: str) -> Pattern:
    return like_pattern(written, None)


@pytest.mark.parametrize("length", range(6))
def test_every_small_pattern_on_every_small_string(length: int) -> None:
    strings = ["".join(word) for n in range(6) for word in product("ab", repeat=n)]
    for written in map("".join, product("ab%_", repeat=length)):
        pattern = like(written)
        assert [fits(pattern, s) for s in strings] == [pattern.matches(s) for s in strings], written


@examples(300)
@given(st.text(ODD + "%_", max_size=12), st.text(ODD, max_size=16))
def test_odd_characters_mean_themselves(written: str, text: str) -> None:
    pattern = like(written)
    assert fits(pattern, text) == pattern.matches(text)


@examples(100)
@given(
    st.lists(st.sampled_from(["a", "b", None]), max_size=6),
    st.integers(0, 127),
    st.text("ab", max_size=10),
)
def test_patterns_that_no_text_leads_to(items: list[str | None], gaps: int, text: str) -> None:
    pattern = Pattern(tuple(items), gaps & (2 << len(items)) - 1)
    assert fits(pattern, text) == pattern.matches(text)


@examples(200)
@given(st.text("ab_", min_size=1, max_size=90), st.text("ab", max_size=60), st.randoms())
def test_long_pieces_with_open_characters(written: str, text: str, random: Random) -> None:
    """The string is made of the piece itself, so that it nearly fits at many places."""
    nearly = "".join(random.choice("ab") if c == "_" else c for c in written)
    for candidate in (text, nearly, nearly[1:] + nearly + text, nearly[:-1] + text + nearly[:-1]):
        pattern = like(f"%{written}%")
        assert fits(pattern, candidate) == pattern.matches(candidate)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 500, 2000])
def test_many_pieces(count: int) -> None:
    random = Random(count)
    drawn = ["".join(random.choices("ab_", k=random.randint(1, 3))) for _ in range(count)]
    for written in ("%".join(drawn), "%" + "%".join(drawn) + "%", "%a" * count + "%b"):
        pattern = like(written)
        random_text = "".join(random.choices("ab", k=6 * count))
        for text in (written.replace("%", "").replace("_", "a"), random_text, "a" * 6 * count):
            for candidate in (text, text + "b", text[:-1]):
                assert fits(pattern, candidate) == pattern.matches(candidate)


# --- cost -------------------------------------------------------------------------------------


def test_a_string_that_is_too_short_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> bool:
        raise AssertionError("the length tells")

    pattern = like("%a%a%a%")
    pieces_of(pattern)
    monkeypatch.setattr(Piece, "is_at", read)
    monkeypatch.setattr(Piece, "find", read)
    assert not fits(pattern, "aa")


def test_no_place_is_gone_back_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the string is chosen, each piece is looked for once, behind the one before it."""
    looked_for: list[int] = []
    find = Piece.find

    def counted(self: Piece, text: str, start: int, end: int) -> int:
        looked_for.append(start)
        return find(self, text, start, end)

    monkeypatch.setattr(Piece, "find", counted)
    assert not fits(like("%a" * 500 + "%ba%"), "a" * 100_000)
    assert looked_for == list(range(501))


@pytest.mark.parametrize("written", ["a" + "_" * 100 + "b", "a_" * 50 + "b", "_".join("abcd" * 20)])
def test_a_long_open_piece_is_tried_at_few_places(
    written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trying it at each place would take a step for each of its characters and each place."""
    tried: list[int] = []
    is_at = Piece.is_at

    def counted(self: Piece, text: str, start: int) -> bool:
        tried.append(start)
        return is_at(self, text, start)

    monkeypatch.setattr(Piece, "is_at", counted)
    monkeypatch.setattr(pieces, "_CHUNK", 1000)
    assert not fits(like(f"%{written}%"), "ab"[: len(written) % 2 + 1] * 3000)
    assert len(tried) <= 64 + 6000 // 64 + 2


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        (contains("abc"), 4),
        (like("a_b%c_d"), 4),
        (like("%a__%b_%"), 4),
        (like("%a_b%"), 16),
        (like("%a" + "_" * 640 + "b%"), 26),
    ],
)
def test_what_a_pattern_costs_depends_on_its_longest_open_piece(
    pattern: Pattern, steps: int
) -> None:
    assert steps_per_character(pattern) == steps
