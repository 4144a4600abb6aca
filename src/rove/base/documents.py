"""Strict reading of TOML files that people write.

An unknown key is a mistake, not a wish. A mistake is reported with the file, the key, its value and
what is allowed; if the text is not TOML, with the line. msgspec checks and converts. Its messages
have the place (`$.people.players`) and the rule, but not the value, which is looked up here, nor
the key in a table with arbitrary keys (`$[...]`), which is found by converting one key at a time.
Considered: msgspec's own TOML reader. It needs the same library, and with the tables at hand the
value can be shown.
"""

from __future__ import annotations

import copy
import difflib
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from rove.errors import RoveError

Document = TypeVar("Document")

_PLACE: Final = re.compile(r"(?P<rule>.*?) - at `(?:key in )?\$(?P<place>[^`]*)`", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")
_STEP: Final = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<number>\d+)\]|\[\.\.\.\]")
_VALUE_CHARACTERS_MAX: Final = 60

Step = str | int | None
"""Into a table by its key, into a list by a number, into a table by an unknown key."""


def read_document(path: Path, kind: type[Document], error: type[RoveError]) -> Document:
    """The contents of a file; the error if it cannot be read or is invalid."""
    return converted(read_tables(path, error), kind, str(path), error)


def decode_document(
    text: str, kind: type[Document], where: str, error: type[RoveError]
) -> Document:
    """The contents of a text; `where` is the name of the file in messages."""
    return converted(tables_of(text, where, error), kind, where, error)


def read_tables(path: Path, error: type[RoveError]) -> dict[str, Any]:
    """The tables of a file, unchecked."""
    return tables_of(read_text(path, error), str(path), error)


def read_text(path: Path, error: type[RoveError]) -> str:
    """The text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as fault:
        raise error(f"cannot read {path}: {fault.strerror}") from None
    except UnicodeDecodeError as fault:
        raise error(f"{path} is not text in UTF-8: {fault.reason} at byte {fault.start}") from None


def tables_of(text: str, where: str, error: type[RoveError]) -> dict[str, Any]:
    """The tables of a text, unchecked."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise error(f"{where} is not TOML: {fault}") from None


def converted(tables: Any, kind: type[Document], where: str, error: type[RoveError]) -> Document:
    """Convert tables; errors that `kind` itself raises are reported in the same way."""
    try:
        return msgspec.convert(tables, kind)
    except msgspec.ValidationError as fault:
        raise error(f"{where}: {_explained(str(fault), tables, kind)}") from None
    except error as fault:
        raise error(f"{where}: {fault}") from None


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Advice about an unknown name."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean `{near[0]}`?" if near else otherwise


def _explained(message: str, tables: Any, kind: Any) -> str:
    found = _PLACE.fullmatch(message)
    rule, place = (found["rule"], found["place"]) if found else (message, "")
    steps = _with_keys(_steps(place), tables, kind)
    key = _shown(steps)
    if unknown := _UNKNOWN.fullmatch(rule):
        name, known = unknown["name"], _names_at(kind, steps)
        advice = nearest(name, known, f"known are {', '.join(known)}")
        return f"there is no key `{key + '.' if key else ''}{name}`; {advice}"
    rule = f"{rule[:1].lower()}{rule[1:]}"
    if not key:
        return rule
    value = repr(_value_at(tables, steps))
    if len(value) > _VALUE_CHARACTERS_MAX:
        value = f"{value[:_VALUE_CHARACTERS_MAX]}…"
    return f"`{key}` is {value}: {rule}"


def _steps(place: str) -> list[Step]:
    return [
        int(step["number"]) if step["number"] else step["key"] for step in _STEP.finditer(place)
    ]


def _with_keys(steps: list[Step], tables: Any, kind: Any) -> list[Step]:
    """The same with keys that msgspec does not report: the first that is at fault alone."""
    for at, step in enumerate(steps):
        if step is not None:
            continue
        for key in _value_at(tables, steps[:at]):
            alone = copy.deepcopy(tables)
            table = _value_at(alone, steps[:at])
            for other in table.keys() - {key}:
                del table[other]
            if not _fits(alone, kind):
                return _with_keys([*steps[:at], key, *steps[at + 1 :]], alone, kind)
        break
    return steps


def _fits(tables: Any, kind: Any) -> bool:
    try:
        msgspec.convert(tables, kind)
    except msgspec.ValidationError:
        return False
    return True


def _shown(steps: Sequence[Step]) -> str:
    """A place as people write it: `rooms[1].books`."""
    named = ("[…]" if each is None else f"[{each}]" if isinstance(each, int) else f".{each}"
             for each in steps)  # fmt: skip
    return "".join(named).removeprefix(".")


def _value_at(tables: Any, steps: Sequence[Step]) -> Any:
    """The value at a place, or the innermost existing table around it."""
    value = tables
    for step in steps:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return value
    return value


def _names_at(kind: Any, steps: Sequence[Step]) -> list[str]:
    """The keys that the table at a place may have."""
    info: msgspec.inspect.Type | None = msgspec.inspect.type_info(kind)
    for step in steps:
        info = _inside(_table(info), step)
    match _table(info):
        case msgspec.inspect.StructType(fields=fields):
            return [field.encode_name for field in fields]
    return []


def _table(info: msgspec.inspect.Type | None) -> msgspec.inspect.Type | None:
    """The table among several types that a value may have."""
    if not isinstance(info, msgspec.inspect.UnionType):
        return info
    return next((each for each in info.types if isinstance(each, msgspec.inspect.StructType)), None)


def _inside(info: msgspec.inspect.Type | None, step: Step) -> msgspec.inspect.Type | None:
    match info:
        case (
            msgspec.inspect.ListType(item_type=item) | msgspec.inspect.VarTupleType(item_type=item)
        ):
            return item
        case msgspec.inspect.StructType(fields=fields):
            return next((field.type for field in fields if field.encode_name == step), None)
        case msgspec.inspect.DictType(value_type=value):
            return value
    return None
