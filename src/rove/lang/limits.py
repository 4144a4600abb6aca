"""Every limit of the subscription language, in one place.

Subscriptions come from untrusted clients, so their cost is limited before anything is
allocated. Each limit is checked while an expression is parsed, and tested at the limit and
just above it (`tests/lang/test_limits.py`).
"""

from __future__ import annotations

from typing import Final

TEXT_BYTES_MAX: Final = 8 * 1024
"""Length of an expression in UTF-8. Long enough for a polygon written as ORs, short enough to
travel in one MQTT user property and to be read in about a millisecond."""

DEPTH_MAX: Final = 32
"""Open parentheses at one place, and nodes on the longest path through the tree. Every
later pass may recurse without fear of the interpreter's stack."""

PREDICATES_MAX: Final = 256
"""Comparisons, BETWEENs, INs, LIKEs, text tests, IS NULLs and bare booleans in one text."""

COMPILED_NODES_MAX: Final = 64
"""Names, values and operations in a predicate that is compiled; what has more is walked."""

OPERATIONS_MAX: Final = 512
"""Arithmetic operations, signs and function calls in one text."""

IN_LITERALS_MAX: Final = 1024
"""Literals in one IN list."""

CONJUNCTIONS_MAX: Final = 64
"""Conjunctions in the normal form; what a matcher stores for one subscription."""

CONJUNCTIONS_WHILE_NORMALISING_MAX: Final = 2 * CONJUNCTIONS_MAX
"""How far an intermediate product may grow before merging brings it down again."""

PARTS_MAX: Final = 4096
"""Spans, facts, patterns and comparisons in the normal form, of all conjunctions together. What is
common to 64 conjunctions counts 64 times, since a matcher stores it so."""

RANK_K_MAX: Final = 10_000
"""The k of a top-k/w subscription: how many publications its window must keep ranked."""

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1
"""Integers are 64 bits wide, in texts, in publications and in arithmetic."""

NAME_SEGMENTS_MAX: Final = DEPTH_MAX
"""Segments of a name, between its dots: how deep it may reach into nested objects."""

PROOF_STEPS_MAX: Final = 1_000
"""Cases examined and publications tried before `covers` or `intersects` is "don't know"."""

PROOF_WORK_MAX: Final = 6_000
"""Parts of cases, and steps on patterns, that may be looked at for that; each takes 2 to 4 µs."""

NORMALISING_STEPS_MAX: Final = 5_000
"""Steps (one pattern, one character) that comparing patterns may take for one normal form. Past
them a conjunction that another one includes may stay: a longer form of the same meaning."""

PATTERN_STEPS_MAX: Final = 20_000_000
PATTERN_STEPS_PER_CHARACTER_MAX: Final = 64
"""Steps that a matcher takes to try patterns on one publication: so many, and so many more for
every character of a string that patterns are tried on. A step is about a nanosecond. What is not
decided then does not match, and the subscribers are notified."""

AUTOMATON_STATES_MAX: Final = 5_000
"""States that the search for a string between several patterns may visit."""

AUTOMATON_STEPS_MAX: Final = 20 * AUTOMATON_STATES_MAX
"""Steps (one pattern, one character) of such a search. Few states may have many steps between
them: a single LIKE over 1,500 different characters has 1,500 states and millions of steps."""
