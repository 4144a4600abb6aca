"""Why a policy is refused, in words and with a caret under the place."""

from __future__ import annotations

from rove.errors import RoveError


class PolicyError(RoveError):
    """A text that is no policy: what is wrong, where, and what would be right."""

    def __init__(
        self, what: str, hint: str = "", *, text: str = "", line: int = 0, column: int = 0
    ) -> None:
        """Lines and columns count from 1; 0 is nowhere in particular."""
        self.what, self.hint, self.line, self.column = what, hint, line, column
        message = f"line {line}: {what}" if line else what
        if hint:
            message += f"; {hint}"
        lines = text.splitlines()
        if 1 <= line <= len(lines):
            message += f"\n  {lines[line - 1].expandtabs(1)}\n  {' ' * max(0, column - 1)}^"
        super().__init__(message)
