"""Validates topic names and topic filters, and matches them.

Errors are returned as a line for people instead of being raised: a broker answers an invalid
filter with a reason code, a client raises an exception, and both use the same words. `fits` is
the simple reference for faster indexes, level by level; it costs a microsecond or two. For a
shared subscription, pass only the filter from `split_shared`.
"""

from __future__ import annotations

from typing import Final

TEXT_BYTES_MAX: Final = 65_535
"""What the two bytes before a text can count."""
SHARED: Final = "$share/"


def text_fault(text: str) -> str | None:
    """Why MQTT cannot carry this text, or None."""
    if "\0" in text:
        return "contains U+0000, which MQTT does not carry"
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return f"contains a lone surrogate at position {error.start}, which is no character"
    if size > TEXT_BYTES_MAX:
        return f"is {size} bytes long in UTF-8, at most {TEXT_BYTES_MAX} are allowed"
    return None


def name_fault(name: str) -> str | None:
    """Why this is no topic name, or None."""
    if not name:
        return "a topic name needs at least one character"
    if has_wildcards(name):
        return f"a topic name has no wildcards, + and # are for filters: {_shown(name)}"
    fault = text_fault(name)
    return fault and f"a topic name {fault}"


def filter_fault(topic_filter: str) -> str | None:
    """Why this is no topic filter, shared ones included, or None."""
    fault = text_fault(topic_filter)
    if fault:
        return f"a topic filter {fault}"
    fault = shared_fault(topic_filter)
    if fault:
        return fault
    shared = split_shared(topic_filter)
    return _plain_filter_fault(topic_filter if shared is None else shared[1])


def _plain_filter_fault(topic_filter: str) -> str | None:
    if not topic_filter:
        return "a topic filter needs at least one character"
    if not has_wildcards(topic_filter):
        return None
    levels = topic_filter.split("/")
    for level in levels:
        if len(level) > 1 and has_wildcards(level):
            return f"a wildcard fills its level, {_shown(level)} does not: {_shown(topic_filter)}"
    if "#" in levels[:-1]:
        return f"# is the last level or none: {_shown(topic_filter)}"
    return None


def split_shared(topic_filter: str) -> tuple[str, str] | None:
    """The group and the filter of `$share/group/filter`; None if it is not shared.

    Either may be empty or wrong: `shared_fault` says so.
    """
    if not topic_filter.startswith(SHARED):
        return None
    group, _, inner = topic_filter[len(SHARED) :].partition("/")
    return group, inner


def shared_fault(topic_filter: str) -> str | None:
    """Why a filter that begins with `$share/` is no shared one; None for all others."""
    shared = split_shared(topic_filter)
    if shared is None:
        return None
    group, inner = shared
    if not group:
        return f"a shared subscription names its group, $share/GROUP/filter: {_shown(topic_filter)}"
    if has_wildcards(group):
        return f"the group of a shared subscription has no wildcards: {_shown(topic_filter)}"
    if not inner:
        return (
            "a shared subscription needs a filter after its group, "
            f"$share/group/FILTER: {_shown(topic_filter)}"
        )
    return None


def has_wildcards(topic_filter: str) -> bool:
    """Whether it can fit more than one name."""
    return "+" in topic_filter or "#" in topic_filter


def fits(topic_filter: str, name: str) -> bool:
    """Whether a good filter (not shared) fits a good name."""
    wanted = topic_filter.split("/")
    levels = name.split("/")
    if name.startswith("$") and wanted[0] in ("+", "#"):
        return False
    if wanted[-1] == "#":
        # `a/#` fits `a` itself, so only what stands before the # has to be there.
        wanted.pop()
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(
        want in ("+", level) for want, level in zip(wanted, levels, strict=True)
    )


def _shown(text: str) -> str:
    """Short enough for a line, and printable."""
    return repr(text) if len(text) <= 80 else f"{text[:77]!r}..."
