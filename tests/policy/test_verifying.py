"""Bytecode that is not ours is seen."""

import pytest

from rove.policy.verifying import verify


@pytest.mark.parametrize(
    "text",
    ["m.__dict__", "m.changes", "open", "lambda: m", "[x for x in m]", "__import__('os')"],
)
def test_code_that_is_not_ours_is_seen(text: str) -> None:
    names: dict[str, object] = {}
    exec(f"def arrived(m, me, _call):\n    return {text}", names)
    with pytest.raises(AssertionError):
        verify(names["arrived"].__code__, frozenset({"m"}))  # type: ignore[attr-defined]
