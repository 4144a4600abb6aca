"""Which extra brings a package that is missing.

Rove itself brings what the broker and the client need; Spark, the monitor, plots and the like are
extras. What brings what is read from the package's own metadata, so that there is one list of it,
in pyproject.toml. Nothing of this is loaded before a package is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import metadata
from typing import Final

PACKAGES: Final = {
    "PIL": "pillow",
    "confluent_kafka": "confluent-kafka",
    "google": "protobuf",
    "paho": "paho-mqtt",
}
"""Of modules whose package has another name."""
OF_COMMANDS: Final = {
    "backtest": "spark",
    "bridge": "kafka",
    "pipeline": "spark",
    "up": "databases",
}
"""Commands whose extra has another name than theirs."""

_WANTED: Final = re.compile(r"(?P<package>[\w.-]+)(?:\[(?P<extras>[^]]*)\])?")
_EXTRA: Final = re.compile(r"extra == ['\"]([^'\"]+)['\"]")


def advice(module: str, command: str) -> str | None:
    """How to get a module that a command needs; None if no part of Rove asks for it.

    Of several extras that bring it, the command's own comes first, then the one with the least.
    """
    name = module.partition(".")[0]
    package = PACKAGES.get(name, name)
    brought = packages_by_extra(metadata.requires("rove") or ())
    if package in brought.pop("", set()):
        return f"rove needs {package}, which is not installed; `pip install rove` brings it"
    extras = [extra for extra, packages in brought.items() if package in packages]
    if not extras:
        return None
    own = OF_COMMANDS.get(command, command)
    best = min(extras, key=lambda extra: (extra != own, len(brought[extra]), extra))
    return (
        f"`rove {command}` needs {package}, which is not installed;"
        f" `pip install 'rove[{best}]'` brings it"
    )


def packages_by_extra(requirements: Iterable[str]) -> dict[str, set[str]]:
    """What each extra brings, and by the empty name what comes in any case."""
    direct: dict[str, set[str]] = {"": set()}
    included: dict[str, set[str]] = {}
    for requirement in requirements:
        wanted, _, marker = requirement.partition(";")
        found, only_for = _WANTED.match(wanted), _EXTRA.search(marker)
        assert found is not None, requirement
        extra = only_for[1] if only_for else ""
        if found["package"] == "rove":
            included.setdefault(extra, set()).update(re.split(r"\s*,\s*", found["extras"]))
        else:
            direct.setdefault(extra, set()).add(found["package"])
    for extra in _inner_first(included):
        own = direct.setdefault(extra, set())
        own.update(*(direct.get(other, set()) for other in included[extra]))
    return direct


def _inner_first(included: dict[str, set[str]]) -> list[str]:
    """Extras that include others, after those."""
    order: list[str] = []

    def visit(extra: str) -> None:
        if extra in included and extra not in order:
            for other in included[extra]:
                visit(other)
            order.append(extra)

    for extra in included:
        visit(extra)
    return order
