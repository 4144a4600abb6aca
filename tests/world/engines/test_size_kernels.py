"""How long numbers are, against writing them out."""

import numpy as np

from rove.world.engines.size_kernels import add_length_bytes, add_whole_number_bytes, tally


def edges() -> list[int]:
    powers = [10**exponent for exponent in range(18)]
    return sorted(
        {sign * (power + by) for power in powers for by in (-1, 0, 1) for sign in (1, -1)}
    )


def test_whole_numbers_are_as_long_as_their_text() -> None:
    values = np.array(edges())
    sizes = np.full(len(values), 3)
    add_whole_number_bytes(values, sizes)
    assert sizes.tolist() == [3 + len(str(value)) for value in values.tolist()]


def test_lengths_are_as_long_as_their_millimetres() -> None:
    metres = np.array([edge / 1000 for edge in edges() if abs(edge) < 10**12] + [-0.0, -0.0004])
    sizes = np.zeros(len(metres), np.int64)
    add_length_bytes(metres, sizes)
    in_millimetres = [round(value * 1000) for value in metres.tolist()]
    texts = [("-" if mm < 0 else "") + f"{abs(mm) // 1000}.000" for mm in in_millimetres]
    assert sizes.tolist() == [len(text) for text in texts]


def test_no_length_is_null() -> None:
    sizes = np.zeros(1, np.int64)
    add_length_bytes(np.array([np.nan]), sizes)
    assert sizes.tolist() == [len("null")]


def test_messages_are_tallied_by_kind() -> None:
    totals, total_bytes = np.array([1, 0, 0]), np.zeros(3, np.int64)
    whats = np.array([2, 0, 2], np.int8)
    tally(whats, np.array([4, 1, 0]), np.array([10, 7, 1000]), totals, total_bytes)
    assert totals.tolist() == [2, 0, 4]
    assert total_bytes.tolist() == [7, 0, 40]
