"""The `rove` command: finds the subcommand, runs it, and turns every end into an exit code.

A command is a module of this room with two functions,

    configure(parser: argparse.ArgumentParser) -> None    adds its arguments
    run(arguments: argparse.Namespace) -> int             does the work, returns the exit code

and one line in `COMMANDS`. Its module is imported only when the command is run, so `rove
--help` never pays for what a command needs.

Built on argparse, because it is in the standard library and imports in about 10 ms (click in
30, typer in 50, measured where all of `rove --help` takes 45). Its own subparsers are not used:
they want every command's arguments before they parse the first word, and that would mean
importing all commands. Splitting the line at the first word that is not an option does the same
in three lines, as long as no option before the command takes a value.

Exit codes: what the command returns; 2 for an error; 130 after Ctrl-C; 141 when the reader of
our output has gone away. (Commands that answer a question use 1 for "no".)
"""

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from rove import __version__
from rove.errors import RoveError, UsageError

EXIT_ERROR = 2
EXIT_INTERRUPTED = 128 + 2
EXIT_PIPE_CLOSED = 128 + 13


class Command(NamedTuple):
    """Where a command lives, and what the help says of it."""

    module: str
    summary: str


COMMANDS: dict[str, Command] = {
    "check": Command("rove.cli.check", "say what a subscription means, or what is wrong with it"),
    "explain": Command("rove.cli.explain", "say why a publication matches, or why it does not"),
    "covers": Command("rove.cli.covers", "does everything that matches B match A?"),
    "intersects": Command("rove.cli.intersects", "can a publication match both?"),
    "match": Command("rove.cli.match", "run subscriptions over publications from files"),
    "up": Command("rove.cli.up", "run a broker"),
    "pub": Command("rove.cli.pub", "publish"),
    "sub": Command("rove.cli.sub", "subscribe, and print what comes"),
    "policy": Command(
        "rove.cli.policy.command", "check, try, set and remove subscribers' policies"
    ),
    "ls": Command("rove.cli.ls", "list a broker's clients, subscriptions and queues"),
    "top": Command("rove.cli.top", "watch a broker's rates"),
    "mesh": Command("rove.cli.mesh", "show a broker's network, join other brokers and leave them"),
    "passwd": Command("rove.cli.passwd", "let a user in by password"),
    "config": Command("rove.cli.config", "show every setting of a broker, and what it means"),
    "doctor": Command("rove.cli.doctor", "find out what keeps a broker from running well"),
    "demo": Command("rove.cli.demo", "watch the language at work on a small city"),
    "lake": Command("rove.cli.lake", "make a table of a lake that an earlier Rove wrote"),
    "pipeline": Command("rove.cli.pipeline.command", "run jobs on Spark over the broker's lake"),
    "bridge": Command("rove.cli.bridge", "connect topics of a broker with topics of Kafka"),
    "backtest": Command("rove.cli.pipeline.backtest", "say what a subscription would have brought"),
    "world": Command("rove.cli.world.command", "run a virtual world, and compare what tells of it"),
    "monitor": Command("rove.cli.monitor", "show a world, its engines and a broker on a page"),
    "bench": Command("rove.cli.bench", "measure this machine"),
    "version": Command("rove.cli.version", "print the versions of rove, Python and the system"),
}

# Errors that draw a caret below a line, and of rooms that import nothing of ours and so cannot
# inherit from RoveError. They are looked up among the modules already loaded: an error of a module
# that was never imported cannot be on its way, so there is no need to import one to recognise it.
DRAWN_ERRORS = (
    ("rove.lang.errors", "LanguageError"),
    ("rove.policy.errors", "PolicyError"),
    ("rove.client.errors", "PolicyRefused"),
)


def main(argv: list[str] | None = None) -> int:
    """Run one command line (without the program's name) and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _abandon_stdout()
        return EXIT_PIPE_CLOSED
    except Exception as error:
        _report(error, words)
        return EXIT_ERROR
    return code


def _report(error: Exception, words: Sequence[str]) -> None:
    """Say what went wrong: to a person on stderr, to a program that asked for JSON on stdout."""
    if "--debug" in words:
        traceback.print_exc()
    if "--json" in words:
        import json  # not for `rove --help`

        as_dict = getattr(error, "as_dict", None)
        said = {"error": _describe(error, words)}
        print(json.dumps(as_dict() if as_dict is not None else said))
    else:
        print(f"rove: error: {_describe(error, words)}", file=sys.stderr)


def _dispatch(words: Sequence[str]) -> int:
    """Find the command, let it read its arguments, run it."""
    before, name, after = _split(words)
    overview = _overview()
    try:
        overview.parse_args(before)
        if name is None:
            overview.print_help()
            return 0
        command = _load(name)
        parser = _ArgumentParser(prog=f"rove {name}", description=_sentence(COMMANDS[name].summary))
        command.configure(parser)
        _add_debug(parser)
        arguments = parser.parse_args(after)
    except SystemExit as done:  # argparse has printed help or the version
        return int(done.code or 0)
    return int(command.run(arguments))


def _split(words: Sequence[str]) -> tuple[Sequence[str], str | None, Sequence[str]]:
    """Cut a command line into the options before the command, the command and the rest."""
    for position, word in enumerate(words):
        if not word.startswith("-"):
            return words[:position], word, words[position + 1 :]
    return words, None, ()


def _load(name: str) -> ModuleType:
    """Import the module of a command; an unknown name gets the nearest known one as advice."""
    if name in COMMANDS:
        return importlib.import_module(COMMANDS[name].module)
    import difflib  # 7 ms that only a typing mistake has to pay

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    advice = f"did you mean `{near[0]}`?" if near else "`rove --help` lists the commands"
    raise UsageError(f"there is no command {name!r}; {advice}")


class _ArgumentParser(argparse.ArgumentParser):
    """argparse that raises its complaints, and takes no shortened options.

    A script that gets away with `--js` today breaks when a second option begins like that.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see `{self.prog} --help`)")


def _overview() -> _ArgumentParser:
    """The parser of everything before the command, whose help lists the commands."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    parser = _ArgumentParser(
        prog="rove",
        usage="rove [--help] [--version] [--debug] COMMAND ...",
        description="A publish/subscribe broker for things that move.",
        epilog="\n".join(["commands:", *lines, "", "`rove COMMAND --help` says more of each."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rove {__version__}")
    _add_debug(parser)
    return parser


def _add_debug(parser: argparse.ArgumentParser) -> None:
    """Accept --debug, before the command as after it (`main` looks for the word itself)."""
    parser.add_argument(
        "--debug", action="store_true", help="show where in the code an error came from"
    )


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


def _describe(error: Exception, words: Sequence[str]) -> str:
    """What to tell the user: one line, or what the language drew with a caret below it."""
    if isinstance(error, _drawn_errors()):
        return str(error)
    if isinstance(error, RoveError):
        return _one_line(str(error))
    if isinstance(error, OSError):
        where = f": {error.filename!r}" if error.filename is not None else ""
        return _one_line(f"{error.strerror or error}{where}")
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        from rove.cli.common.extras import advice  # only when something is missing

        if told := advice(error.name, _split(words)[1] or ""):
            return told
    kind = type(error).__name__
    return _one_line(f"a bug in rove, {kind}: {error} (run it again with --debug to see where)")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _drawn_errors() -> tuple[type, ...]:
    loaded = ((sys.modules.get(module), name) for module, name in DRAWN_ERRORS)
    return tuple(getattr(module, name) for module, name in loaded if module is not None)


def _abandon_stdout() -> None:
    """Point stdout nowhere, or the interpreter complains when it flushes it on the way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
