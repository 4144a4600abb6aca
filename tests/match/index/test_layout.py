"""What is packed into one buffer is found there again."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.match.index import layout
from rove.match.index.layout import FRAME, SECTIONS, packed, section
from tests.effort import examples

WIDE = {layout.ALIVE, layout.ENTRY_FIRSTS, layout.ENTRY_LASTS, layout.CUTS}
"""Sections of keys and masks, which need all of their 64 bits."""

contents = st.dictionaries(
    st.integers(0, SECTIONS - 1), st.lists(st.integers(0, 255), max_size=19), max_size=SECTIONS
)


@examples(100)
@given(contents)
def test_every_section_is_found_again(drawn: dict[int, list[int]]) -> None:
    buffer = packed({number: np.array(values) for number, values in drawn.items()})
    for number in range(SECTIONS):
        assert section(buffer, number).tolist() == drawn.get(number, [])


@examples(50)
@given(contents)
def test_a_buffer_means_the_same_after_a_journey_as_bytes(drawn: dict[int, list[int]]) -> None:
    arrays: dict[int, npt.NDArray[Any]] = {n: np.array(values) for n, values in drawn.items()}
    arrived = np.frombuffer(packed(arrays).tobytes(), np.int64)
    for number, values in drawn.items():
        assert section(arrived, number).tolist() == values


def test_sections_keep_all_bits_of_what_they_hold() -> None:
    keys = np.array([0, 1, 2**63, 2**64 - 1], np.uint64)
    reals = np.array([-0.0, 5e-324, np.inf, -1.5])
    codes = np.array([0, 65_535, 7], np.uint16)
    buffer = packed({**dict.fromkeys(WIDE, keys), layout.TIMES: reals, layout.COLUMNS: codes})
    for number in WIDE:
        assert section(buffer, number).tolist() == keys.tolist()
    assert section(buffer, layout.TIMES).tobytes() == reals.tobytes()
    assert section(buffer, layout.COLUMNS).tolist() == codes.tolist()


def test_sections_are_views() -> None:
    buffer = packed({layout.ALIVE: np.array([5], np.uint64)})
    section(buffer, layout.ALIVE)[0] = 6
    assert section(buffer, layout.ALIVE).tolist() == [6]


def test_every_section_begins_at_a_whole_word() -> None:
    odd = {number: np.ones(3) for number in range(SECTIONS)}
    buffer = packed(odd)
    for number in range(SECTIONS):
        address = section(buffer, number).__array_interface__["data"][0]
        assert address % 8 == buffer.__array_interface__["data"][0] % 8


@pytest.mark.parametrize("strided", [np.arange(12)[::3], np.arange(24).reshape(4, 6)[:, 2]])
def test_what_does_not_lie_in_one_piece_is_packed_too(strided: npt.NDArray[np.int64]) -> None:
    buffer = packed({layout.SORTED_IDS: strided})
    assert section(buffer, layout.SORTED_IDS).tolist() == strided.tolist()


def test_names_are_distinct() -> None:
    frame = (layout.STARTS, layout.SLOT_SUBJECTS, layout.RAWS, layout.PUBLICATION)
    assert len(set(frame)) == len(frame)
    assert max(frame) < FRAME
    assert layout.TIMES == SECTIONS - 1
