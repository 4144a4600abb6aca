"""What can be said to a world: a closed grammar of one-line commands.

The console, scenario files and tests say what is to happen in the same words. The grammar is the
table `COMMAND_FORMS`: what stands there is what the parser reads, what the help shows, what
completion offers and what a command prints itself as. Words in small letters stand for themselves,
those in capitals for what is to be filled in, and brackets around what may be left out. A parser
generator was not considered: the table is the grammar, and reading it takes fewer lines than
calling one.

A command says what is wanted and knows nobody: whether there is an `npc7`, the world tells. `who`
may be a pattern with * for any letters and ? for one. Parsing takes some 5 µs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from rove.lang.errors import TextError, visible
from rove.world.runs.state import WorldError

Point: TypeAlias = tuple[float, float] | str
"""Metres to the right and up, or the name of a place on the map."""


class CommandError(WorldError):
    """A text that is no command; points at what is wrong and says what would be right."""

    def __init__(
        self,
        what: str,
        text: str,
        start: int,
        end: int | None = None,
        hint: str | None = None,
        expected: str | None = None,
    ) -> None:
        super().__init__(what, text, start, end, hint, expected)
        self.refusal: Final = TextError(what, text, start, end, hint)
        self.expected: Final = expected
        """Which word of a form is missing, where the text only ends too soon."""

    def __str__(self) -> str:
        return str(self.refusal)


# -- commands -----------------------------------------------------------------------------


class WorldCommand(msgspec.Struct, frozen=True):
    """A command to a world; `str` gives the text that it is parsed from."""

    def __str__(self) -> str:
        return _printed(self)

    @property
    def verb(self) -> str:
        """The word that the command begins with."""
        return _FORM_OF[type(self)].verb


class _InhabitantCommand(WorldCommand, frozen=True):
    """A command to the inhabitants that a name or a pattern stands for."""

    who: str


class GoCommand(_InhabitantCommand, frozen=True):
    point: Point


class SteerCommand(_InhabitantCommand, frozen=True):
    dx: float
    dy: float


class StopCommand(_InhabitantCommand, frozen=True): ...


class WanderCommand(_InhabitantCommand, frozen=True): ...


class TravelCommand(_InhabitantCommand, frozen=True): ...


class FollowCommand(_InhabitantCommand, frozen=True):
    whom: str


class FleeCommand(_InhabitantCommand, frozen=True):
    whom: str


class PatrolCommand(_InhabitantCommand, frozen=True):
    stops: tuple[Point, ...]


class GatherCommand(WorldCommand, frozen=True):
    who: str | int
    """A pattern, or how many: then those who are nearest."""
    point: Point
    within_m: float | None = None


class TradeCommand(_InhabitantCommand, frozen=True): ...


class BehaveCommand(_InhabitantCommand, frozen=True):
    behaviour: str


class SpeedCommand(_InhabitantCommand, frozen=True):
    speed: float


class PickCommand(_InhabitantCommand, frozen=True):
    item: str


class DropCommand(_InhabitantCommand, frozen=True):
    item: str | None = None


class UseCommand(_InhabitantCommand, frozen=True):
    item: str


class GiveCommand(_InhabitantCommand, frozen=True):
    item: str
    whom: str


class EngineCommand(WorldCommand, frozen=True):
    engine: str


class CommandForm(NamedTuple):
    """How a command is written, what it does, and an example."""

    syntax: str
    command: Callable[..., WorldCommand]
    meaning: str
    example: str

    @property
    def verb(self) -> str:
        return self.syntax.split()[0]


_FORMS: Final = (
    CommandForm("go WHO to POINT", GoCommand, "walk there and stand", "go player1 to 10 20"),
    CommandForm(
        "steer WHO DX DY", SteerCommand, "walk in a direction, as by keys", "steer player1 1 0"
    ),
    CommandForm("stop WHO", StopCommand, "stand still", "stop npc*"),
    CommandForm("wander WHO", WanderCommand, "walk about", "wander npc*"),
    CommandForm("travel WHO", TravelCommand, "go to far places, again and again", "travel npc*"),
    CommandForm("follow WHO NAME", FollowCommand, "walk after somebody", "follow npc7 player1"),
    CommandForm("flee WHO NAME", FleeCommand, "keep away from somebody", "flee npc* player1"),
    CommandForm(
        "patrol WHO via POINTS",
        PatrolCommand,
        "walk a round",
        "patrol npc1 via market, 10 20, gate",
    ),
    CommandForm(
        "gather CROWD at POINT [within METRES]",
        GatherCommand,
        "crowd together; a number means the nearest ones",
        "gather 50 at 120 80",
    ),
    CommandForm("trade WHO", TradeCommand, "fetch items and give them to others", "trade npc*"),
    CommandForm(
        "behave WHO BEHAVIOUR",
        BehaveCommand,
        "take any registered behaviour",
        "behave npc* stand",
    ),
    CommandForm("speed WHO METRES", SpeedCommand, "go so many metres a second", "speed npc* 2"),
    CommandForm("pick NAME ITEM", PickCommand, "pick up an item in reach", "pick player1 apple3"),
    CommandForm(
        "drop NAME [ITEM]", DropCommand, "put down one item, or all", "drop player1 apple3"
    ),
    CommandForm(
        "use NAME ITEM", UseCommand, "use an item that is carried or in reach", "use player1 apple3"
    ),
    CommandForm(
        "give NAME ITEM NAME", GiveCommand, "hand an item over", "give player1 apple3 npc2"
    ),
    CommandForm("engine ENGINE", EngineCommand, "make another engine live", "engine area"),
)
COMMAND_FORMS: Final = {form.verb: form for form in _FORMS}
_FORM_OF: Final = {form.command: form for form in _FORMS}


# -- reading ------------------------------------------------------------------------------

_TOKEN: Final = re.compile(r",|[^\s,]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NAME: Final = re.compile(r"[^\W\d][\w-]*")
_PATTERN: Final = re.compile(r"(?:[^\W\d]|[*?])[\w*?-]*")
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_PARTS: Final = {
    form.verb: tuple(re.findall(r"\[|\]|\w+", form.syntax))[1:] for form in _FORMS
}  # fmt: skip


_SHOWN_MAX: Final = 40


class _Token(NamedTuple):
    text: str
    start: int
    end: int


class _TokenReader:
    """Reads the tokens of one command, from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.form: CommandForm | None = None
        self._tokens = [_Token(m[0], m.start(), m.end()) for m in _TOKEN.finditer(text)]
        self._at = 0

    def peek(self) -> str | None:
        """The next token; None at the end."""
        return self._tokens[self._at].text if self._at < len(self._tokens) else None

    def take(self, expected: str) -> str:
        """The next token, which there must be."""
        if self._at == len(self._tokens):
            what = f"here {_what_is(expected)} is missing"
            end = len(self.text)
            raise CommandError(what, self.text, end, end, self._right(), expected)
        self._at += 1
        return self._tokens[self._at - 1].text

    def matching(self, pattern: re.Pattern[str], expected: str) -> str:
        """The next token, which must look like this."""
        token = self.take(expected)
        if pattern.fullmatch(token) is None:
            raise self.refusal(f"{_quoted_token(token)} is not {_what_is(expected)}")
        return token

    def refusal(self, what: str, hint: str | None = None) -> CommandError:
        """What is wrong with the token that was taken last."""
        token = self._tokens[self._at - 1]
        return CommandError(what, self.text, token.start, token.end, hint or self._right())

    def _right(self) -> str:
        if self.form is None:
            return f"a command begins with one of {', '.join(COMMAND_FORMS)}"
        return f"write {self.form.syntax}, for example {self.form.example}"


def parse_command(text: str) -> WorldCommand:
    """The command of a text; CommandError if it is none."""
    reader = _TokenReader(text)
    verb = reader.take("VERB")
    if verb not in COMMAND_FORMS:
        near = _nearest(verb)
        hint = f"did you mean {near}, as in {COMMAND_FORMS[near].example}?" if near else None
        raise reader.refusal(f"there is no command {_quoted_token(verb)}", hint)
    reader.form = COMMAND_FORMS[verb]
    values = list(_values(reader, _PARTS[verb]))
    if reader.peek() is not None:
        raise reader.refusal(f"the command ends before {_quoted_token(reader.take('END'))}")
    return reader.form.command(*values)


def _values(reader: _TokenReader, parts: Sequence[str]) -> Iterator[Any]:
    for part in parts:
        if part == "[":
            if reader.peek() is None:
                return
        elif part in _READERS:
            yield _READERS[part](reader, part)
        elif part != "]" and (found := reader.take(part)) != part:
            raise reader.refusal(f"{_quoted_token(found)} is not the word {part}")


def _read_name(reader: _TokenReader, slot: str) -> str:
    return reader.matching(_NAME, slot)


def _read_who(reader: _TokenReader, slot: str) -> str:
    return reader.matching(_PATTERN, slot)


def _read_crowd(reader: _TokenReader, slot: str) -> str | int:
    if (reader.peek() or "")[:1] not in tuple("0123456789"):
        return _read_who(reader, slot)
    count = int(reader.matching(_COUNT, slot))
    if count == 0:
        raise reader.refusal("a crowd of nobody cannot gather")
    return count


def _read_number(reader: _TokenReader, slot: str) -> float:
    number = float(reader.matching(_NUMBER, slot))
    if not math.isfinite(number):
        raise reader.refusal("this number is too large")
    return number


def _read_metres(reader: _TokenReader, slot: str) -> float:
    number = _read_number(reader, slot)
    if number <= 0:
        raise reader.refusal(f"{number:g} is not {_what_is(slot)}")
    return number


def _read_point(reader: _TokenReader, slot: str) -> Point:
    if (found := reader.peek()) is not None and _NUMBER.fullmatch(found):
        return _read_number(reader, "X"), _read_number(reader, "Y")
    return _read_name(reader, slot)


def _read_points(reader: _TokenReader, slot: str) -> tuple[Point, ...]:
    points = [_read_point(reader, slot)]
    while reader.peek() == ",":
        reader.take(",")
        points.append(_read_point(reader, slot))
    if len(points) == 1:
        reader.take(",")
        raise reader.refusal("a round has at least two points, with commas between")
    return tuple(points)


_READERS: Final[dict[str, Callable[[_TokenReader, str], Any]]] = {
    "WHO": _read_who,
    "NAME": _read_name,
    "ITEM": _read_name,
    "BEHAVIOUR": _read_name,
    "ENGINE": _read_name,
    "CROWD": _read_crowd,
    "DX": _read_number,
    "DY": _read_number,
    "METRES": _read_metres,
    "POINT": _read_point,
    "POINTS": _read_points,
}
_MEANINGS: Final = {
    "VERB": "a command",
    "WHO": "a name, or a pattern such as npc*",
    "NAME": "a name",
    "ITEM": "the name of an item",
    "BEHAVIOUR": "the name of a behaviour",
    "ENGINE": "the name of an engine",
    "CROWD": "a number of inhabitants, or a pattern such as npc*",
    "METRES": "a number above 0",
    "POINT": "a point such as 10 20, or the name of a place",
    "POINTS": "a point such as 10 20, or the name of a place",
    **dict.fromkeys(("DX", "DY", "X", "Y"), "a number"),
    ",": "a comma and a further point",
}


def _quoted_token(token: str) -> str:
    return visible(token if len(token) <= _SHOWN_MAX else f"{token[:_SHOWN_MAX]}…")


def _what_is(expected: str) -> str:
    return _MEANINGS.get(expected, f"the word {expected}")


def _nearest(word: str, among: Sequence[str] = tuple(COMMAND_FORMS)) -> str | None:
    import difflib  # only for refusals

    return next(iter(difflib.get_close_matches(word, among, n=1)), None)


# -- printing -----------------------------------------------------------------------------


def _printed(command: WorldCommand) -> str:
    form = _FORM_OF[type(command)]
    values = iter(msgspec.structs.astuple(command))
    words = [form.verb]
    for part in _PARTS[form.verb]:
        if part == "[":
            if _is_shortened(command):
                break
        elif part in _READERS:
            words.append(_printed_value(next(values)))
        elif part != "]":
            words.append(part)
    return " ".join(words)


def _is_shortened(command: WorldCommand) -> bool:
    """What may be left out is the last field of a command, and None where it was."""
    return getattr(command, command.__struct_fields__[-1]) is None


def _printed_value(value: Any) -> str:
    match value:
        case float():
            # 12 rather than 12.0; beyond 2**53 the integer would pretend to be exact.
            return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
        case (float() | int(), float() | int()):
            return f"{_printed_value(float(value[0]))} {_printed_value(float(value[1]))}"
        case tuple():
            return ", ".join(map(_printed_value, value))
    return str(value)


# -- help and completion ------------------------------------------------------------------


class Vocabulary(Protocol):
    """Somebody who knows names, as the world does."""

    def words(self, slot: str) -> Sequence[str]:
        """All that can stand for a word in capitals of a form."""


def complete(text: str, known: Vocabulary) -> list[str]:
    """The words that can stand for the last, unfinished one, or follow after a space."""
    begun = re.sub(r"[^\s,]+\Z", "", text)
    unfinished = text[len(begun) :]
    try:
        command = parse_command(begun)
    except CommandError as refusal:
        possible = _possible(refusal.expected, known)
    else:
        parts = _PARTS[_FORM_OF[type(command)].verb]
        next_part = parts[parts.index("[") + 1] if _is_shortened(command) else None
        possible = _possible(next_part, known)
    return sorted({word for word in possible if word.startswith(unfinished)})


def _possible(expected: str | None, known: Vocabulary) -> Sequence[str]:
    match expected:
        case None | "X" | "Y" | "DX" | "DY" | "METRES" | ",":
            return ()
        case "VERB":
            return tuple(COMMAND_FORMS)
        case _ if expected in _READERS:
            return known.words(expected)
    return (expected,)


def help_text(verb: str | None = None) -> str:
    """All commands, one in a line; or one of them, with an example."""
    if verb is None:
        width = max(len(form.syntax) for form in _FORMS)
        return "\n".join(f"{form.syntax:{width}}  {form.meaning}" for form in _FORMS)
    if verb not in COMMAND_FORMS:
        near = _nearest(verb)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(COMMAND_FORMS)}"
        raise WorldError(f"there is no command {verb}; {hint}")
    form = COMMAND_FORMS[verb]
    return f"{form.syntax}: {form.meaning}; for example {form.example}"
