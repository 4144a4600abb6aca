"""Topic trees: the filters that match a name, and the names that match a filter.

Both trees are nested dictionaries, one for each level of the topic. Finding the filters of a
name visits at most two branches per level (the level itself and `+`); finding the names of a
filter visits all branches that its wildcards match.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

Value = TypeVar("Value")


class _TopicNode(Generic[Value]):
    __slots__ = ("below", "values")

    def __init__(self) -> None:
        self.below: dict[str, _TopicNode[Value]] = {}
        self.values: dict[object, Value] = {}
        """What was put at exactly this place, by a key of its owner."""


class _TopicTree(Generic[Value]):
    def __init__(self) -> None:
        self._root: _TopicNode[Value] = _TopicNode()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, path: str, key: object, value: Value) -> None:
        """Put a value at a place, instead of what has that key there."""
        node = self._root
        for level in path.split("/"):
            found = node.below.get(level)
            if found is None:
                found = node.below[level] = _TopicNode()
            node = found
        self._size += key not in node.values
        node.values[key] = value

    def remove(self, path: str, key: object) -> Value | None:
        """Take it away again; None if it is not there. Branches that bear nothing go too."""
        trail: list[tuple[_TopicNode[Value], str]] = []
        node = self._root
        for level in path.split("/"):
            found = node.below.get(level)
            if found is None:
                return None
            trail.append((node, level))
            node = found
        removed = node.values.pop(key, None)
        self._size -= removed is not None
        for parent, level in reversed(trail):
            child = parent.below[level]
            if child.values or child.below:
                break
            del parent.below[level]
        return removed

    def at(self, path: str) -> list[Value]:
        """What was put at exactly this place."""
        node = self._root
        for level in path.split("/"):
            found = node.below.get(level)
            if found is None:
                return []
            node = found
        return list(node.values.values())


class FilterTree(_TopicTree[Value]):
    """Values put at topic filters, found by the topic names that these fit."""

    def find(self, name: str) -> list[Value]:
        """The values of all filters that fit the name."""
        levels = name.split("/")
        found: list[Value] = []
        nodes = [self._root]
        for depth, level in enumerate(levels):
            # Wildcards at the first level do not fit names such as $SYS/uptime.
            wild = depth > 0 or not level.startswith("$")
            below: list[_TopicNode[Value]] = []
            for node in nodes:
                if wild and (rest := node.below.get("#")) is not None:
                    found += rest.values.values()
                if (same := node.below.get(level)) is not None:
                    below.append(same)
                if wild and (any_level := node.below.get("+")) is not None:
                    below.append(any_level)
            nodes = below
            if not nodes:
                return found
        for node in nodes:
            found += node.values.values()
            if (rest := node.below.get("#")) is not None:
                found += rest.values.values()
        return found


class NameTree(_TopicTree[Value]):
    """Values put at topic names, found by the filters that fit these."""

    def find(self, topic_filter: str) -> Iterator[Value]:
        """The values at all names that the filter fits."""
        levels = topic_filter.split("/")
        waiting: list[tuple[_TopicNode[Value], int]] = [(self._root, 0)]
        while waiting:
            node, depth = waiting.pop()
            if depth == len(levels):
                yield from list(node.values.values())
                continue
            level = levels[depth]
            if level == "#":
                yield from self._everything(node, depth)
            elif level == "+":
                waiting += [
                    (child, depth + 1)
                    for name, child in node.below.items()
                    if depth > 0 or not name.startswith("$")
                ]
            elif (child := node.below.get(level)) is not None:
                waiting.append((child, depth + 1))

    def _everything(self, node: _TopicNode[Value], depth: int) -> Iterator[Value]:
        # `a/#` fits `a` too; `#` alone fits nothing that begins with $.
        waiting = [node] if depth > 0 else []
        if depth == 0:
            waiting += [child for name, child in node.below.items() if not name.startswith("$")]
        while waiting:
            current = waiting.pop()
            yield from list(current.values.values())
            waiting += current.below.values()
