"""`rove policy PART`: check policies, try them on messages, set and remove them.

`check` and `test` need no broker: they use the compiler and the runner that the broker has. `test`
is one subscriber with its variables, shown message after message (`rove.policy.trial`); the exit
code is 1 if a call was stopped, and 2 if a line of the messages could not be read.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator

import msgspec

from rove.cli.common.arguments import CommandPart, add_parts, run_part, whole_number
from rove.cli.common.input import STDIN, moment_of, opened, read_object, read_policy
from rove.cli.common.output import EXIT_NO, emit_json, is_terminal
from rove.cli.policy import setting as policy_setting
from rove.cli.policy.view import (
    as_object,
    heading_line,
    message_lines,
    summary_text,
    terminal_style,
)
from rove.errors import UsageError
from rove.policy.compiler import compiled
from rove.policy.errors import PolicyError
from rove.policy.limits import PolicyLimits
from rove.policy.trial import (
    MessageLine,
    PolicyTrial,
    StateLine,
    TrialError,
    TrialResult,
    read_line,
)

_EXIT_LINES_LEFT_OUT = 2
_COMPLAINTS_SHOWN_MAX = 20
_LIMITS = (
    "steps_max",
    "time_ms",
    "memory_bytes_max",
    "outputs_max",
    "output_bytes_max",
    "text_bytes_max",
    "variables_bytes_max",
    "offences_max",
)
"""That a trial knows; the others are about machines."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the parts."""
    add_parts(parser, PARTS)


def run(arguments: argparse.Namespace) -> int:
    """Run the part that was named."""
    return run_part(arguments)


# --- check ----------------------------------------------------------------------------------------


def _configure_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a policy; - is standard input")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def _run_check(arguments: argparse.Namespace) -> int:
    is_good = True
    for file in arguments.files:
        text = read_policy(file)
        try:
            policy = compiled(text, bytes_max=PolicyLimits().text_bytes_max)
        except PolicyError as error:
            is_good = False
            _show_refusal(file, error, as_json=arguments.json)
            continue
        facts = {
            "lines": len(text.splitlines()),
            "bytes": len(text.encode()),
            "uses": sorted(policy.uses),
            "changes_state": policy.changes_state,
            "is_heavy": policy.is_heavy,
        }
        if arguments.json:
            emit_json({"file": file, "ok": True, **facts})
        else:
            print(f"{file}: {_about(facts)}")
    return 0 if is_good else EXIT_NO


def _show_refusal(file: str, error: PolicyError, *, as_json: bool) -> None:
    if as_json:
        place = {"line": error.line, "column": error.column}
        emit_json({"file": file, "ok": False, "error": error.what, "hint": error.hint, **place})
    else:
        print(f"{file}: {error}", file=sys.stderr)


def _about(facts: dict[str, object]) -> str:
    uses = facts["uses"]
    assert isinstance(uses, list)
    parts = [f"a policy of {facts['lines']} lines", f"uses {', '.join(uses) or 'no functions'}"]
    if facts["changes_state"]:
        parts.append("changes the subscriber's variables")
    if facts["is_heavy"]:
        parts.append("makes pictures smaller, in a worker")
    return "; ".join(parts)


# --- test -----------------------------------------------------------------------------------------


def _configure_test(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a policy; - is standard input")
    parser.add_argument(
        "--messages",
        metavar="FILE",
        required=True,
        help='JSON lines: attributes, or {"topic", "payload", "at", "user"}, or what `rove sub '
        '--json` writes; {"$me": {…}} changes variables; - is standard input',
    )
    parser.add_argument(
        "--state",
        metavar="JSON|@FILE",
        default="{}",
        help='the variables of the subscriber, as {"battery": 0.4, "patients": [1, 2]}',
    )
    parser.add_argument(
        "--automatic",
        metavar="A,B",
        default="",
        help="variables that the policy may only read, besides battery, display, network …",
    )
    parser.add_argument(
        "--start",
        metavar="TIME",
        type=_moment,
        default=0.0,
        help="of the first message, if it has none: seconds since 1970 or 2026-11-17T08:00 (0)",
    )
    parser.add_argument(
        "--every-s",
        metavar="S",
        type=float,
        default=1.0,
        help="how long after the one before a message comes that has no time (1)",
    )
    parser.add_argument("--brief", action="store_true", help="only a line for each message")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    limits = parser.add_argument_group("limits, as in [policies] of a broker's configuration")
    usual = PolicyLimits()
    for name in _LIMITS:
        option, default = f"--{name.replace('_', '-')}", getattr(usual, name)
        limits.add_argument(option, metavar="N", type=whole_number(1), help=f"({default:,})")


def _moment(written: str) -> float:
    try:
        return float(written)
    except ValueError:
        return moment_of(written, "--start", time.time())


def _run_test(arguments: argparse.Namespace) -> int:
    if arguments.file == arguments.messages == STDIN:
        raise UsageError("only one of the two files can be standard input")
    trial = PolicyTrial(
        read_policy(arguments.file),
        read_object(arguments.state, "--state"),
        automatic=[name.strip() for name in arguments.automatic.split(",") if name.strip()],
        limits=_limits(arguments),
        at=arguments.start,
        clock=time.perf_counter,
    )
    testing = _Testing(arguments, trial)
    with opened(arguments.messages) as lines:
        testing.take(lines)
    return testing.end()


def _limits(arguments: argparse.Namespace) -> PolicyLimits:
    given = {name: getattr(arguments, name) for name in _LIMITS}
    chosen = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(PolicyLimits(), **chosen)


class _Testing:
    """One run: shows each message, and counts."""

    def __init__(self, arguments: argparse.Namespace, trial: PolicyTrial) -> None:
        self._arguments = arguments
        self._trial = trial
        self._style = terminal_style(is_terminal=is_terminal(), is_brief=arguments.brief)
        self._steps: list[int] = []
        self._took_s = 0.0
        self._began: float | None = None
        self._complaints = 0

    def take(self, lines: Iterable[bytes]) -> None:
        for number, line in _numbered(lines):
            try:
                found = read_line(line)
            except TrialError as error:
                self._complain(number, str(error))
                continue
            if isinstance(found, StateLine):
                self._trial.change(found.changes)
                self._pass(found.at, 0.0)
            else:
                self._show(found)

    def _show(self, found: MessageLine) -> None:
        trial = self._trial
        self._pass(found.at, self._arguments.every_s if self._steps else 0.0)
        self._began = trial.at if self._began is None else self._began
        tried = trial.show(found.payload, found.topic, user=found.user)
        self._steps.append(tried.steps)
        self._took_s += tried.took_s
        self._write(tried)

    def _pass(self, at: float | None, every_s: float) -> None:
        """Let time pass; never back, as in a broker."""
        later = self._trial.at + every_s if at is None else at
        self._trial.at = max(self._trial.at, later) if self._steps else later

    def _write(self, tried: TrialResult) -> None:
        number, began = len(self._steps), self._began or 0.0
        if self._arguments.json:
            emit_json(as_object(number, tried, self._trial.me))
            return
        if number == 1:
            print(heading_line(self._style))
        lines = message_lines(number, began, tried, self._style)
        sys.stdout.writelines(f"{line}\n" for line in lines)

    def _complain(self, number: int, what: str) -> None:
        self._complaints += 1
        if self._complaints <= _COMPLAINTS_SHOWN_MAX:
            file = self._arguments.messages
            print(f"rove: {file}, line {number}, left out: {what}", file=sys.stderr)

    def end(self) -> int:
        """Sum up; the exit code."""
        tally = self._trial.tally
        more = self._complaints - _COMPLAINTS_SHOWN_MAX
        if more > 0:
            print(f"rove: {more} more lines left out", file=sys.stderr)
        if self._arguments.json:
            total = msgspec.to_builtins(tally)
            emit_json({"summary": total, "took_ms": self._took_s * 1e3, "me": self._trial.me})
        else:
            space = "" if self._arguments.brief or not self._steps else "\n"
            print(space + summary_text(tally, self._steps, self._took_s, self._trial.limits))
        if self._complaints:
            return _EXIT_LINES_LEFT_OUT
        return EXIT_NO if tally.stopped else 0


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


PARTS: dict[str, CommandPart] = {
    "check": CommandPart(
        "say whether a file is a policy, or what is wrong", _configure_check, _run_check
    ),
    "test": CommandPart(
        "show a policy messages, and what would be sent instead of them",
        _configure_test,
        _run_test,
    ),
    "set": CommandPart(
        "give a session, or one of its subscriptions, a policy",
        policy_setting.configure_set,
        policy_setting.run_set,
    ),
    "remove": CommandPart(
        "take it away; everything is sent again",
        policy_setting.configure_remove,
        policy_setting.run_remove,
    ),
    "show": CommandPart(
        "print policies at work, and what they did",
        policy_setting.configure_show,
        policy_setting.run_show,
    ),
}
