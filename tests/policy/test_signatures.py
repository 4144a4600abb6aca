"""The list of functions is whole, and says how each is called."""

import re

from rove.policy.signatures import FUNCTIONS, closest


def test_every_usage_names_its_function() -> None:
    for name, function in FUNCTIONS.items():
        assert function.usage.startswith("write ")
        assert re.search(rf"\b{name}\(", function.usage), name
        assert 0 <= function.least <= function.most


def test_what_may_have_been_meant() -> None:
    assert closest("lenn", FUNCTIONS) == "did you mean len?"
    assert closest("zzzzzzzz", FUNCTIONS) == "see docs/policies.md for what there is"
    assert closest("x" * 100_000, FUNCTIONS)
