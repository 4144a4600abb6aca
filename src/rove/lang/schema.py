"""Schemas: what is known of a channel's attributes, and texts that do not fit it.

A schema is optional. Where there is one, a misspelt attribute is refused with the name that
was meant, instead of being a subscription that stays silent for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from rove.lang.advice import did_you_mean
from rove.lang.description import types_of
from rove.lang.errors import LanguageError, TextError
from rove.lang.lexer import END, segments_of, span, tokens_of
from rove.lang.printer import name_text
from rove.lang.tree import Attribute, Subscription
from rove.lang.values import Path

Schema: TypeAlias = Mapping[str, str]
"""Attribute (dots reach into objects) to "number", "string", "boolean" or "any"."""

KINDS = ("number", "string", "boolean", "any")


def check_schema(subscription: Subscription, schema: Schema, text: str) -> None:
    """Refuse `text`, whose tree is `subscription`, if it asks for what `schema` has not."""
    _check_kinds(schema)
    chosen = {attribute: {"any"} for attribute in subscription.select or ()}
    for attribute, kinds in {**chosen, **types_of(subscription)}.items():
        name = ".".join(attribute.path)
        if name not in schema:
            hint = did_you_mean(name, tuple(schema)) or (
                f"there are {', '.join(schema)}" if schema else "the schema has no attributes"
            )
            raise _refusal(
                f"there is no attribute {name_text(attribute.path)}", text, attribute, hint
            )
        wrong = kinds - {"any", schema[name]}
        if wrong and schema[name] != "any":
            raise _refusal(
                f"{name_text(attribute.path)} is a {schema[name]}, and used as a {min(wrong)}",
                text,
                attribute,
                f"compare it with a {schema[name]}",
            )


def _check_kinds(schema: Schema) -> None:
    for name, kind in schema.items():
        if kind not in KINDS:
            raise LanguageError(
                f"the schema says {kind!r} of attribute {name}", f"kinds are {', '.join(KINDS)}"
            )


def _refusal(what: str, text: str, attribute: Attribute, hint: str) -> TextError:
    start, end = _place_of(text, attribute.path)
    return TextError(what, text, start, end, hint)


def _place_of(text: str, path: Path) -> tuple[int, int]:
    """Where an attribute is first named in `text`."""
    for index, token in enumerate(tokens_of(text)):
        if token != END and segments_of(token) == path:
            return span(text, index)
    return 0, len(text)
