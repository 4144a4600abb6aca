"""Files are read strictly, and what is wrong is told with its place and its value."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from rove.base.documents import decode_document, read_document
from rove.errors import RoveError


class HouseError(RoveError):
    pass


class Shelf(msgspec.Struct, forbid_unknown_fields=True):
    books: Annotated[int, msgspec.Meta(ge=0)] = 0
    colour: str = "red"


class House(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    hall: Shelf = msgspec.field(default_factory=Shelf)
    rooms: list[Shelf] = msgspec.field(default_factory=list)
    attic: Shelf | None = None
    sheds: dict[str, dict[str, Shelf]] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name == "?":
            raise HouseError("a house has a name")


def test_a_good_one() -> None:
    house = decode_document(
        'name = "a"\n[hall]\nbooks = 2\n[[rooms]]\n[[rooms]]\nbooks = 3', House, "x", HouseError
    )
    assert house == House("a", Shelf(2), [Shelf(), Shelf(3)])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name = ", "x.toml is not TOML: "),
        ("", "x.toml: object missing required field `name`"),
        ("name = 3", "x.toml: `name` is 3: expected `str`, got `int`"),
        ('name = "a"\nhal = 1', "x.toml: there is no key `hal`; did you mean `hall`?"),
        (
            'name = "a"\nzz = 1',
            "no key `zz`; known are name, hall, rooms, attic, sheds",
        ),
        ('name = "a"\n[hall]\nbooks = -1', "x.toml: `hall.books` is -1: expected `int` >= 0"),
        ('name = "a"\n[hall]\nbook = 1', "there is no key `hall.book`; did you mean `books`?"),
        ('name = "a"\n[attic]\nbook = 1', "there is no key `attic.book`; did you mean `books`?"),
        (
            'name = "a"\n[[rooms]]\n[[rooms]]\nbooks = "many"',
            "x.toml: `rooms[1].books` is 'many': expected `int`, got `str`",
        ),
        (
            'name = "a"\n[[rooms]]\nbok = 1',
            "there is no key `rooms[0].bok`; did you mean `books`?",
        ),
        (
            'name = "a"\n[sheds.left.b]\n[sheds.right]\na = {}\nb = { bok = 1 }',
            "there is no key `sheds.right.b.bok`; did you mean `books`?",
        ),
        (
            'name = "a"\n[sheds]\nleft = {}\nright = { a = 5 }',
            "`sheds.right.a` is 5: expected `object`, got `int`",
        ),
        ('name = "?"', "x.toml: a house has a name"),
        (f'name = "a"\n[hall]\nbooks = "{"z" * 500}"', f"is '{'z' * 59}…: expected `int`"),
    ],
)
def test_what_is_wrong_is_told(text: str, told: str) -> None:
    with pytest.raises(HouseError) as caught:
        decode_document(text, House, "x.toml", HouseError)
    assert told in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(HouseError, match=r"cannot read .*nothing\.toml: No such file"):
        read_document(tmp_path / "nothing.toml", House, HouseError)
    strange = tmp_path / "strange.toml"
    strange.write_bytes(b"name = '\xff'")
    with pytest.raises(HouseError, match="is not text in UTF-8"):
        read_document(strange, House, HouseError)
    strange.write_text('name = "good"')
    assert read_document(strange, House, HouseError).name == "good"
