"""What `emit_json` writes can be read back by anybody, and terminals are told from pipes."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.cli.common.output import emit_json, is_terminal

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Half a surrogate pair too: JSON can spell it, no encoding can write it.
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON_VALUES)
def test_what_goes_out_as_one_line_comes_back(value: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
        patch.setattr("sys.stdout", stream)
        emit_json(value)
        stream.seek(0)
        out = stream.read()
    assert out.count("\n") == 1
    assert json.loads(out) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_lacks_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        emit_json([value])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_told_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_terminal(Terminal())
    assert not is_terminal(io.StringIO())
    monkeypatch.setattr("sys.stdout", Terminal())
    assert is_terminal()
