"""Files in TOML that people write, read strictly: maps and scenarios.

A key that nobody knows is a mistake and not a wish, and a mistake is told with the file, the key,
the value that stands there and what could. msgspec checks and converts; its messages have the place
(`$.people.players`) and the rule, but not the value, which is looked up here. Considered: its own
TOML reader. It wants the same library, and with the tables in hand the value can be shown.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rove.world.state import WorldError

Document = TypeVar("Document", bound=msgspec.Struct)

_PLACE = re.compile(r"(?P<rule>.*?) - at `(?:key in )?\$(?P<place>[^`]*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")
_STEP = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<number>\d+)\]|\[\.\.\.\]")
_VALUE_CHARACTERS_MAX = 60


def read_document(path: Path, kind: type[Document], error: type[WorldError]) -> Document:
    """What a file says; the error if it cannot be read or says something else."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as fault:
        raise error(f"cannot read {path}: {fault.strerror}") from None
    except UnicodeDecodeError as fault:
        raise error(f"{path} is not a text in UTF-8: {fault.reason}") from None
    return decode_document(text, kind, str(path), error)


def decode_document(
    text: str, kind: type[Document], where: str, error: type[WorldError]
) -> Document:
    """What a text says; `where` is the name of the file in messages."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise error(f"{where} is not TOML: {fault}") from None
    try:
        return msgspec.convert(tables, kind)
    except msgspec.ValidationError as fault:
        raise error(f"{where}: {_explained(str(fault), tables, kind)}") from None


def _explained(message: str, tables: dict[str, Any], kind: type[msgspec.Struct]) -> str:
    found = _PLACE.fullmatch(message)
    rule, place = (found["rule"], found["place"]) if found else (message, "")
    key = place.removeprefix(".")
    if unknown := _UNKNOWN.fullmatch(rule):
        return _unknown(unknown["name"], key, _names_at(kind, place))
    rule = f"{rule[:1].lower()}{rule[1:]}"
    if not key:
        return rule
    value = repr(_value_at(tables, place))
    if len(value) > _VALUE_CHARACTERS_MAX:
        value = f"{value[:_VALUE_CHARACTERS_MAX]}…"
    return f"`{key}` is {value}: {rule}"


def _unknown(name: str, table: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    advice = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
    return f"there is no key `{table + '.' if table else ''}{name}`; {advice}"


def _value_at(tables: Any, place: str) -> Any:
    """The value at a place, or the innermost table around it that there is."""
    value = tables
    for step in _STEP.finditer(place):
        try:
            value = value[step["key"] if step["key"] else int(step["number"])]
        except (KeyError, IndexError, TypeError):
            return value
    return value


def _names_at(kind: Any, place: str) -> list[str]:
    """The keys that the table at a place may have."""
    info: msgspec.inspect.Type | None = msgspec.inspect.type_info(kind)
    for step in _STEP.finditer(place):
        info = _inside(info, step["key"])
    match _inside(info, None):
        case msgspec.inspect.StructType(fields=fields):
            return [field.encode_name for field in fields]
    return []


def _inside(info: msgspec.inspect.Type | None, key: str | None) -> msgspec.inspect.Type | None:
    match info:
        case msgspec.inspect.UnionType(types=types):
            tables = [each for each in types if isinstance(each, msgspec.inspect.StructType)]
            return _inside(tables[0], key) if tables else None
        case (
            msgspec.inspect.ListType(item_type=item) | msgspec.inspect.VarTupleType(item_type=item)
        ):
            return _inside(item, key)
        case msgspec.inspect.StructType(fields=fields) if key is not None:
            return next((field.type for field in fields if field.encode_name == key), None)
        case msgspec.inspect.DictType(value_type=value) if key is not None:
            return value
    return info
