"""SELECT: what of a publication a notification carries."""

from __future__ import annotations

from collections.abc import Mapping

from rove.lang.tree import Subscription


def selected(subscription: Subscription, publication: Mapping[str, object]) -> Mapping[str, object]:
    """The chosen attributes that are there, as chosen and nested; all without a SELECT."""
    if subscription.select is None:
        return publication
    chosen: dict[str, object] = {}
    for attribute in subscription.select:
        _copy(publication, chosen, attribute.path)
    return chosen


def _copy(source: Mapping[str, object], target: dict[str, object], path: tuple[str, ...]) -> None:
    name, *rest = path
    if name not in source:
        return
    found = source[name]
    if not rest:
        target[name] = found
    elif isinstance(found, Mapping):
        inner = target.setdefault(name, {})
        # What is no copy of ours was chosen as a whole before, by a shorter name.
        if isinstance(inner, dict) and inner is not found:
            _copy(found, inner, tuple(rest))
            if not inner:
                del target[name]
