"""The harness of all benchmarks: a suite declares its parts, and this module runs them.

A suite is one value of `Suite`: its parts by name, its default options, those of `--quick` and of
`--full`, and which options of the command line it accepts. `rove bench` needs nothing else, so a
new benchmark is a function that yields measures, a `Suite` and one row in `rove.cli.bench`.

A part is a function of a `Bench`, the state that the parts of one run share: the options, a folder,
and resources that are opened when a part first needs them and closed at the end of the run.
Measures are yielded as soon as they are known, because some suites run for hours. The harness
itself costs nothing while a part measures.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Self, TypeAlias, TypeVar

import msgspec

from rove.bench.measure import Measure
from rove.errors import UsageError

Tell: TypeAlias = Callable[[str], None]
"""Is given a short description of each thing that is measured, when it begins."""


class SuiteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of every suite; a suite with more of them derives from this class."""

    parts: Sequence[str] = ()
    """The names of the parts to run; all parts if empty."""
    plots: Path | None = None
    """The folder for plots; None draws none."""


Options = TypeVar("Options", bound=SuiteOptions)
Resource = TypeVar("Resource")


class Bench(Generic[Options]):
    """One run of a suite, as its parts see it."""

    def __init__(self, options: Options, tell: Tell = lambda text: None) -> None:
        self.options = options
        self.tell = tell
        self.plots: list[Path] = []
        """The plots that were drawn so far."""
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._resources.close()

    def open(self, resource: AbstractContextManager[Resource]) -> Resource:
        """Enter a context that stays open until the end of the run."""
        return self._resources.enter_context(resource)

    @cached_property
    def folder(self) -> Path:
        """A folder that is deleted at the end of the run."""
        return Path(self.open(tempfile.TemporaryDirectory(prefix="rove-bench-")))

    def plot(self, name: str) -> Path | None:
        """The file for a plot, in a folder that exists; None if no plots are wanted."""
        if self.options.plots is None:
            return None
        self.options.plots.mkdir(parents=True, exist_ok=True)
        path = self.options.plots / f"{name}.png"
        self.plots.append(path)
        return path


Part: TypeAlias = Callable[[Any], Iterator[Measure]]
"""Measures one thing; the argument is the `Bench` of its suite."""


class Setting(msgspec.Struct, frozen=True):
    """An option of the command line that a suite accepts."""

    field: str
    """The field of the suite's options that it sets."""
    parts: Sequence[str] = ()
    """The parts that it has an effect on; all parts if empty."""
    also: Sequence[str] = ()
    """Values that are accepted and have no effect."""


class Suite(msgspec.Struct, Generic[Options], frozen=True, kw_only=True):
    """A benchmark: what `rove bench NAME` can measure."""

    name: str
    parts: Mapping[str, Part]
    """In the order in which they are measured."""
    options: Options
    quick: Options | None = None
    """Enough to show that every part works; the values of the measures mean nothing."""
    full: Options | None = None
    accepts: Mapping[str, Setting] = {}
    """By option of the command line, besides `--part`, `--quick` and `--full`."""
    needs_linux_to: str = ""
    """What the suite does that only Linux can do; empty if it runs everywhere."""
    prepare: Callable[[], object] = lambda: None
    """Called before the first part, for example to compile kernels."""
    bench: Callable[[Any, Tell], Bench[Any]] = Bench

    def run(self, options: Options | None = None, tell: Tell = lambda t: None) -> Iterator[Measure]:
        """Yield all measures, each as soon as it is known."""
        with self.bench(options or self.options, tell) as bench:
            yield from self.measures(bench)

    def measures(self, bench: Bench[Options]) -> Iterator[Measure]:
        """Run the parts of an open `Bench`, in the order of the suite."""
        self.prepare()
        for part in bench.options.parts or self.parts:
            bench.tell(part)
            yield from self.parts[part](bench)

    @property
    def extra_options(self) -> Sequence[str]:
        """The options of the command line that this suite accepts."""
        return [
            *(["part"] if len(self.parts) > 1 else []),
            *self.accepts,
            *(name for name in ("quick", "full") if getattr(self, name) is not None),
        ]

    def options_of(self, given: Mapping[str, Any]) -> Options:
        """The options for what the command line says; UsageError if it does not fit this suite.

        `given` has the options by name, without those that were left out.
        """
        if self.needs_linux_to and sys.platform != "linux":
            raise UsageError(f"`rove bench {self.name}` {self.needs_linux_to}; it needs Linux")
        for option in given:
            if option not in self.extra_options:
                accepted = ", ".join(f"--{name}" for name in self.extra_options)
                raise UsageError(
                    f"--{option} is not for `rove bench {self.name}`, which accepts "
                    f"{accepted or 'no options but --json'}"
                )
        options = self._extent(given)
        changes: dict[str, Any] = {}
        if "part" in given:
            changes["parts"] = _chosen("part", given["part"], tuple(self.parts))
        parts = changes.get("parts", options.parts) or tuple(self.parts)
        for option, setting in self.accepts.items():
            if option in given:
                _check_parts(option, setting, parts)
                changes[setting.field] = self._value(option, setting, given[option])
        return msgspec.structs.replace(options, **changes)

    def _extent(self, given: Mapping[str, Any]) -> Options:
        if "quick" in given and "full" in given:
            raise UsageError("--quick and --full cannot both be given; choose one")
        chosen = self.quick if "quick" in given else self.full if "full" in given else None
        return self.options if chosen is None else chosen

    def _value(self, option: str, setting: Setting, value: Any) -> Any:
        """Names are chosen from those of the default options, numbers are sorted."""
        if not isinstance(value, list):
            return value
        if not isinstance(value[0], str):
            return sorted(set(value))
        known = tuple(getattr(self.options, setting.field))
        names = _chosen(option, value, (*setting.also, *known))
        return [name for name in names if name not in setting.also]


def _chosen(what: str, names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Each name once, in the order of those that are known; UsageError for any other."""
    for name in names:
        if name not in known:
            raise UsageError(f"there is no {what} {name!r}; choose from {', '.join(known)}")
    return [name for name in known if name in names]


def _check_parts(option: str, setting: Setting, parts: Sequence[str]) -> None:
    """UsageError before minutes are spent on parts for which an option has no effect."""
    if setting.parts and not set(setting.parts) & set(parts):
        names = " or ".join(f"`{name}`" for name in setting.parts)
        which = "part" if len(setting.parts) == 1 else "parts"
        add = "add it" if len(setting.parts) == 1 else "add one of them"
        raise UsageError(f"--{option} is for the {which} {names}; {add} to --part")
