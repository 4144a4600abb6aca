"""Which topic filter covers which, and how a filter is widened.

One filter covers another if every topic name that fits the second also fits the first. A yes is
certain; a no may be wrong in odd cases (`+/#` beside `#`), which costs an entry and no message.

`FilterIndex` finds the filters of a set that cover a given one, or that it covers, by walking a
tree of levels: a few dictionary look-ups for each level, however many filters there are.
"""

from __future__ import annotations


def filter_covers(wide: str, narrow: str) -> bool:
    """Whether every topic name that fits `narrow` certainly fits `wide`."""
    if wide == narrow:
        return True
    outer, inner = wide.split("/"), narrow.split("/")
    if inner[0].startswith("$") and outer[0] in ("+", "#"):
        return False
    for number, level in enumerate(outer):
        if level == "#":
            return True
        if number == len(inner) or inner[number] == "#":
            return False
        if level not in ("+", inner[number]):
            return False
    return len(outer) == len(inner)


def widened_filter(topic_filter: str) -> str | None:
    """The next wider filter, `a/b/#` for `a/b/c`; None if there is none.

    A filter below `$SYS` or the like never becomes `#`, which does not fit such topics.
    """
    levels = topic_filter.split("/")
    if levels[-1] == "#":
        levels.pop()
    if not levels or (len(levels) == 1 and levels[0].startswith("$")):
        return None
    return "/".join([*levels[:-1], "#"])


_ANSWERS_MAX = 10_000


class _Level:
    __slots__ = ("below", "filter")

    def __init__(self) -> None:
        self.below: dict[str, _Level] = {}
        self.filter: str | None = None
        """The filter that ends here, if it is in the set."""

    def children(self, *, dollar: bool) -> list[_Level]:
        """The levels below; only with `dollar` those that wildcards do not fit in the first."""
        return [level for name, level in self.below.items() if dollar or not name.startswith("$")]


class FilterIndex:
    """A set of topic filters, searched by covering."""

    def __init__(self) -> None:
        self._root = _Level()
        self._covering: dict[str, list[str]] = {}
        """Recent answers, until the set changes."""

    def add(self, topic_filter: str) -> None:
        """Add a filter; adding it twice changes nothing."""
        node = self._root
        for name in topic_filter.split("/"):
            found = node.below.get(name)
            if found is None:
                found = node.below[name] = _Level()
            node = found
        node.filter = topic_filter
        self._covering.clear()

    def remove(self, topic_filter: str) -> None:
        """Remove a filter, with the branches that lead to nothing else."""
        trail: list[tuple[_Level, str]] = []
        node = self._root
        for name in topic_filter.split("/"):
            if name not in node.below:
                return
            trail.append((node, name))
            node = node.below[name]
        node.filter = None
        self._covering.clear()
        for parent, name in reversed(trail):
            child = parent.below[name]
            if child.below or child.filter is not None:
                return
            del parent.below[name]

    def covering(self, topic_filter: str) -> list[str]:
        """The filters that cover this one, itself included."""
        known = self._covering.get(topic_filter)
        if known is None:
            if len(self._covering) >= _ANSWERS_MAX:
                self._covering.clear()
            known = self._covering[topic_filter] = self._find_covering(topic_filter)
        return known

    def _find_covering(self, topic_filter: str) -> list[str]:
        found: list[_Level] = []
        nodes = [self._root]
        for number, name in enumerate(topic_filter.split("/")):
            is_dollar = number == 0 and name.startswith("$")
            if not is_dollar:
                found += _at(nodes, "#")
            if name == "#":
                nodes = []
                break
            same = _at(nodes, name)
            nodes = same if is_dollar or name == "+" else same + _at(nodes, "+")
        else:
            found += _at(nodes, "#")
        return [level.filter for level in found + nodes if level.filter is not None]

    def covered(self, topic_filter: str) -> list[str]:
        """The filters that this one covers, itself included."""
        nodes = [self._root]
        for number, name in enumerate(topic_filter.split("/")):
            if name == "#":
                found = _all_below(nodes, dollar=number > 0)
                return [level.filter for level in found if level.filter is not None]
            if name == "+":
                wild = {id(level) for level in _at(nodes, "#")}
                below = [c for node in nodes for c in node.children(dollar=number > 0)]
                nodes = [level for level in below if id(level) not in wild]
            else:
                nodes = _at(nodes, name)
        return [level.filter for level in nodes if level.filter is not None]


def _at(nodes: list[_Level], name: str) -> list[_Level]:
    return [node.below[name] for node in nodes if name in node.below]


def _all_below(nodes: list[_Level], *, dollar: bool) -> list[_Level]:
    """The levels themselves, and everything below them."""
    found = list(nodes)
    waiting = [child for node in nodes for child in node.children(dollar=dollar)]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting += node.below.values()
    return found
