"""Bytecode that is not ours is seen."""

import dis

import pytest

from rove.bench.policy.cases import icu
from rove.policy.compiler import compiled
from rove.policy.verifier import named_instructions, verify


@pytest.mark.parametrize(
    "text",
    ["m.__dict__", "m.changes", "open", "lambda: m", "[x for x in m]", "__import__('os')"],
)
def test_code_that_is_not_ours_is_seen(text: str) -> None:
    names: dict[str, object] = {}
    exec(f"def arrived(m, me, _call):\n    return {text}", names)
    with pytest.raises(AssertionError):
        verify(names["arrived"].__code__, frozenset({"m"}))  # type: ignore[attr-defined]


def test_instructions_are_read_as_dis_reads_them() -> None:
    code = compiled(icu()).function.__code__
    told = {
        (one.opname, one.argval) for one in dis.get_instructions(code) if one.opcode in dis.hasname
    }
    assert set(named_instructions(code)) == told
    assert len(told) > 10


def test_names_beyond_the_256th_are_read_too() -> None:
    names: dict[str, object] = {}
    exec(f"def f():\n    return [{', '.join(f'n{n}, n{n}.a{n}' for n in range(600))}]", names)
    code = names["f"].__code__  # type: ignore[attr-defined]
    found = {name for _, name in named_instructions(code)}
    assert found == {f"{letter}{n}" for letter in "na" for n in range(600)}
