"""Paged files: what is written is what is read, where it lies, and nothing else is."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.base.paged import PagedFileError, packed, unpacked
from tests.effort import examples


def file_of(contents: str, head: object, *blocks: list[bytes]) -> bytes:
    return b"".join(packed(contents, head, blocks))


@given(st.lists(st.lists(st.binary(max_size=5_000), max_size=3), max_size=4), st.integers())
@examples(40)
def test_what_is_packed_is_unpacked(blocks: list[list[bytes]], number: int) -> None:
    head = {"number": number % 2**32, "name": "é"}
    whole = bytearray(file_of("things", head, *blocks))
    found, views = unpacked(memoryview(whole), "things", dict[str, Any])
    assert found == head
    assert [bytes(view) for view in views] == [b"".join(block) for block in blocks]
    assert len(whole) % 4096 == 0
    for view in views:
        view[:] = bytes(len(view))
    assert not any(whole[4096:]), "blocks are views of the file, not copies"


def test_a_block_begins_at_a_page() -> None:
    whole = file_of("things", None, [b"a" * 5_000, b"b"], [b"c"])
    assert whole[4096:9097] == b"a" * 5_000 + b"b"
    assert whole[12_288:] == b"c" + bytes(4095)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a file of this version of Rove"),
        (b"something else, and longer than that", "not a file of this version of Rove"),
        (file_of("other", 1), "it holds other, not things"),
        (file_of("things", "text"), "its head is damaged: Expected `int`, got `str`"),
        (file_of("things", 1)[:30], "cut short after 30 bytes"),
        (file_of("things", 1, [b"x" * 5_000])[:9_000], "should have 9,096 bytes, and has 9,000"),
    ],
)
def test_anything_else_is_refused(content: bytes, complaint: str) -> None:
    with pytest.raises(PagedFileError, match=complaint):
        unpacked(content, "things", int)


@given(st.integers(0, 200), st.integers(0, 255))
@examples(60)
def test_a_changed_byte_does_no_harm(at: int, byte: int) -> None:
    whole = bytearray(file_of("things", {"a": [1, 2.5, "x"]}, [b"x" * 20]))
    whole[at] = byte
    with suppress(PagedFileError):  # and no other error
        unpacked(bytes(whole), "things", dict[str, Any])
