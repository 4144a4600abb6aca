"""`make soak`: all tests with new random examples, in parts, for hours.

A part is a folder of `tests/`; `rest` is what lies beside them, and `spark-versions` is a module
that downloads much. A file remembers which parts have passed since the last commit or
`make clean`, so a run that was ended goes on where it was: parts that passed are skipped, one that
failed or was interrupted is done again. At the end there is one line for each part.

    make soak                          all parts
    make soak PART="match policy"      some of them
    make soak AGAIN=1                  those too that have passed
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
STATE: Final = ROOT / ".pytest_cache" / "soak.json"
REST: Final = "rest"
ALONE: Final = {"spark-versions": "interop/test_spark_versions.py"}
"""Modules that are parts of their own, not of their folders'."""
_NO_TESTS: Final = 5
"""pytest's exit code where there are none."""


class Outcome(NamedTuple):
    """How a part ended."""

    has_passed: bool
    took_s: float
    counts: str
    """For example: 1250 passed, 3 skipped."""


class State:
    """The outcomes since the last commit, in a file."""

    def __init__(self, path: Path, commit: str) -> None:
        self._path, self._commit = path, commit
        self.outcomes: dict[str, Outcome] = {}
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        if kept["commit"] == commit:
            self.outcomes = {part: Outcome(*outcome) for part, outcome in kept["parts"].items()}

    def has_passed(self, part: str) -> bool:
        return part in self.outcomes and self.outcomes[part].has_passed

    def keep(self, part: str, outcome: Outcome) -> None:
        self.outcomes[part] = outcome
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"commit": self._commit, "parts": self.outcomes}, indent=1)
        self._path.write_text(text, encoding="utf-8")


def parts(tests: Path) -> dict[str, list[Path]]:
    """The files or folders of each part, by its name."""
    alone = {part: tests / name for part, name in ALONE.items() if (tests / name).exists()}
    found: dict[str, list[Path]] = {}
    for folder in sorted(
        {tests / file.relative_to(tests).parts[0] for file in tests.glob("*/**/test_*.py")}
    ):
        others = sorted(set(folder.rglob("test_*.py")) - set(alone.values()))
        is_whole = not any(folder in path.parents for path in alone.values())
        found[folder.name] = [folder] if is_whole else others
    found |= {part: [path] for part, path in alone.items()}
    return found | {REST: sorted(tests.glob("test_*.py"))}


def run_all(wanted: Iterable[str], state: State, run: Callable[[str], Outcome]) -> list[str]:
    """Run what has not passed yet; one line for each part."""
    for part in wanted:
        if not state.has_passed(part):
            state.keep(part, run(part))
    return [line(part, state.outcomes[part]) for part in wanted]


def line(part: str, outcome: Outcome) -> str:
    said = "passed" if outcome.has_passed else "FAILED"
    hours, rest_s = divmod(round(outcome.took_s), 3600)
    took = f"{hours}:{rest_s // 60:02}:{rest_s % 60:02}"
    return f"{said}  {part:14} {took:>9}  {outcome.counts}"


def run_part(paths: list[Path], options: list[str]) -> Outcome:
    """The tests of one part; their output is shown as it comes."""
    command = [sys.executable, "-m", "pytest", *options, *map(str, paths)]
    begun = time.monotonic()
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as tests:
        assert tests.stdout is not None
        for said in tests.stdout:
            sys.stdout.write(said)
            sys.stdout.flush()
            last = said.strip() or last
    found = re.findall(r"\d+ (?:passed|failed|skipped|errors?|xfailed)", last)
    has_passed = tests.returncode in (0, _NO_TESTS)
    return Outcome(has_passed, time.monotonic() - begun, ", ".join(found) or last)


def last_commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--part", default="", help="the names of parts; all, if there are none")
    parser.add_argument("--again", action="store_true", help="also what has passed already")
    arguments, options = parser.parse_known_args()
    known = parts(ROOT / "tests")
    wanted = arguments.part.split() or list(known)
    if strange := [part for part in wanted if part not in known]:
        print(f"rove: error: no part is called {strange[0]!r}: {' '.join(known)}", file=sys.stderr)
        return 2
    commit = last_commit()
    if arguments.again:
        STATE.unlink(missing_ok=True)
    state = State(STATE, commit)
    try:
        lines = run_all(wanted, state, lambda part: run_part(known[part], options))
    except KeyboardInterrupt:
        print("\nInterrupted: the same command goes on with the part that ran.", file=sys.stderr)
        return 130
    print("\n" + "\n".join(lines))
    return 0 if all(map(state.has_passed, wanted)) else 1


if __name__ == "__main__":
    sys.exit(main())
