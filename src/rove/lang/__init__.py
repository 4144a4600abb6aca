"""The subscription language: filter expressions for fixed, evolving, following and ranked interest.

    expression ──parse──▶ tree ──normalise──▶ normal form ──▶ indexes, covers, intersects
                           │ │                     └──canonical──▶ canonical expression
                           │ └──to_text──▶ expression
                           └──matches, explain──▶ the oracle, against which the rest is tested

This room imports nothing of Rove's, does no I/O, reads no clock and needs no NumPy. The
specification is `docs/language.md`; the limits are in `rove.lang.limits`.
"""

from __future__ import annotations

from rove.lang.algebra import Answer, ProofResult, covers, intersects
from rove.lang.attributes import selected
from rove.lang.canonical_form import canonical, canonical_text
from rove.lang.cases import Witness
from rove.lang.description import Description, Schema, check_schema, describe
from rove.lang.errors import LanguageError, LimitError, PublicationError, TextError
from rove.lang.explanation import Explanation, explain
from rove.lang.normal_form import Conjunction, NormalForm, normalise
from rove.lang.oracle import matches, score_of, truth
from rove.lang.parser import parse
from rove.lang.printer import to_text
from rove.lang.replay import RankedWindow, WindowDelivery
from rove.lang.tree import Subscription
from rove.lang.values import admit

__all__ = [
    "Answer",
    "Conjunction",
    "Description",
    "Explanation",
    "LanguageError",
    "LimitError",
    "NormalForm",
    "ProofResult",
    "PublicationError",
    "RankedWindow",
    "Schema",
    "Subscription",
    "TextError",
    "WindowDelivery",
    "Witness",
    "admit",
    "canonical",
    "canonical_text",
    "check_schema",
    "covers",
    "describe",
    "explain",
    "intersects",
    "matches",
    "normalise",
    "parse",
    "score_of",
    "selected",
    "to_text",
    "truth",
]
