"""Commands of the console: those of the world, and a few that start and stop worlds.

The grammar is closed: input is never run as code, and a scenario is a shipped one or the one that
the monitor was started with, never a path from a visitor. `rove.world.people.commands` has the
commands of the world; here are those that begin, pause and end one.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import msgspec

from rove.world.people.commands import COMMAND_FORMS, Vocabulary, complete, help_text
from rove.world.runs.state import WorldError

_FORMS: Final = {
    "help": ("help [COMMAND]", "lists the commands", "help gather"),
    "scenario": (
        "scenario NAME [players N] [seed N]",
        "end this world and begin another",
        "scenario dense players 300",
    ),
    "pause": ("pause", "stop the world's time", "pause"),
    "resume": ("resume", "continue", "resume"),
    "restart": ("restart", "begin the same scenario again", "restart"),
    "end": ("end", "end the world", "end"),
}
COUNT_MAX: Final = 100_000


class Help(msgspec.Struct, frozen=True):
    """Show the help."""

    verb: str | None = None


class Begin(msgspec.Struct, frozen=True):
    """Another scenario."""

    name: str
    players: int | None = None
    seed: int | None = None


class Halt(msgspec.Struct, frozen=True):
    """pause, resume, restart or end."""

    verb: str


WorldControl: TypeAlias = Help | Begin | Halt
"""A command for the process that plays worlds, not for the world."""


def world_control(text: str) -> WorldControl | None:
    """The control command in a text; None if it is one of the world's."""
    words = text.split()
    match words:
        case ["help"]:
            return Help()
        case ["help", verb]:
            return Help(verb)
        case ["scenario", name, *options]:
            return _begin(name, options)
        case ["pause" | "resume" | "restart" | "end" as verb]:
            return Halt(verb)
        case [verb, *_] if verb in _FORMS:
            syntax, _, example = _FORMS[verb]
            raise WorldError(f"write {syntax}, for example {example}")
    return None


def _begin(name: str, options: list[str]) -> Begin:
    given: dict[str, int] = {}
    syntax, _, example = _FORMS["scenario"]
    right = f"write {syntax}, for example {example}"
    for word, number in zip(options[::2], options[1::2], strict=False):
        is_number = number.isascii() and number.isdecimal() and int(number) <= COUNT_MAX
        if word not in ("players", "seed") or word in given or not is_number:
            raise WorldError(f"{word} {number} is nothing that a scenario takes; {right}")
        given[word] = int(number)
    if len(options) % 2:
        raise WorldError(f"after {options[-1]} a number is missing; {right}")
    return Begin(name, **given)


def console_help(verb: str | None, scenarios: list[str]) -> str:
    """The help, of everything or of one command."""
    if verb is None:
        width = max(len(syntax) for syntax, _, _ in _FORMS.values())
        lines = [f"{syntax:{width}}  {meaning}" for syntax, meaning, _ in _FORMS.values()]
        return "\n".join([help_text(), *lines, f"scenarios: {', '.join(scenarios)}"])
    if verb in _FORMS:
        syntax, meaning, example = _FORMS[verb]
        return f"{syntax}: {meaning}; for example {example}"
    return help_text(verb)


class Words(NamedTuple):
    """What can be typed next."""

    words: list[str]
    is_more: bool
    """Whether some were left off."""


def completions(text: str, known: Vocabulary, scenarios: list[str], most: int = 50) -> Words:
    """The words that can stand for the last, unfinished one, or follow after a space."""
    words = text.split()
    is_begun = bool(words) and not text[-1:].isspace()
    before, last = (words[:-1], words[-1]) if is_begun else (words, "")
    match before:
        case []:
            possible = sorted([*complete(text, known), *_beginning(last, list(_FORMS))])
        case ["help"]:
            possible = _beginning(last, sorted([*_FORMS, *COMMAND_FORMS]))
        case ["scenario"]:
            possible = _beginning(last, scenarios)
        case ["scenario", _, *options] if len(options) % 2 == 0:
            left = [word for word in ("players", "seed") if word not in options]
            possible = _beginning(last, left)
        case [verb, *_] if verb in _FORMS:
            possible = []
        case _:
            possible = complete(text, known)
    return Words(possible[:most], len(possible) > most)


def _beginning(with_: str, among: list[str]) -> list[str]:
    return [word for word in among if word.startswith(with_)]
