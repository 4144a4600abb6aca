"""The public names of the language: users import these, so none comes or goes by accident."""

import rove.lang

PUBLIC = [
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


def test_the_public_names_are_these() -> None:
    assert rove.lang.__all__ == PUBLIC


def test_every_public_name_is_there() -> None:
    assert [name for name in PUBLIC if not hasattr(rove.lang, name)] == []
