"""Everything that the language can refuse, and how a refusal is shown.

    LanguageError(ValueError)
    ├── TextError            an expression that is not in the language
    │   └── LimitError       an expression that is too long, too deep or too large
    └── PublicationError     a publication with a value that no runtime can process

An error has the mistake, its position and a correction. `str(error)` is for people (with a
caret under the expression), `error.as_dict()` for programs. Errors are formatted only when
they are shown, so that refusing is cheap.
"""

from __future__ import annotations

import unicodedata

_SHOWN_WIDTH = 76
_NEWLINES = "\n"


class LanguageError(ValueError):
    """The common base: catch this to catch every refusal of the language."""

    what: str
    hint: str | None

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what, hint)
        self.what = what
        self.hint = hint

    def as_dict(self) -> dict[str, object]:
        """The refusal for programs; `hint` is None where there is nothing to suggest."""
        return {"error": self.what, "hint": self.hint}

    def __str__(self) -> str:
        return f"{self.what} ({self.hint})" if self.hint else self.what


class TextError(LanguageError):
    """An expression that is not in the language, with the span of the mistake."""

    def __init__(
        self, what: str, text: str, start: int, end: int | None = None, hint: str | None = None
    ) -> None:
        super().__init__(what, hint)
        self.text = text
        self.start = min(start, len(text))
        self.end = max(self.start, min(len(text), end if end is not None else start + 1))
        self.args = (what, text, self.start, self.end, hint)  # what a pickle is made again from

    @property
    def line(self) -> int:
        """Line of the error, counted from 1."""
        return self.text.count(_NEWLINES, 0, self.start) + 1

    @property
    def column(self) -> int:
        """Column of the error in its line, counted from 1."""
        return self.start - (self.text.rfind(_NEWLINES, 0, self.start) + 1) + 1

    def as_dict(self) -> dict[str, object]:
        return {
            **super().as_dict(),
            "line": self.line,
            "column": self.column,
            "start": self.start,
            "end": self.end,
        }

    def __str__(self) -> str:
        line = f"line {self.line}, " if self.line > 1 else ""
        lines = [f"{line}column {self.column}: {self.what}", *self._pointed_text()]
        if self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines)

    def _pointed_text(self) -> list[str]:
        """The line with the error, cut to a readable width, and a caret line under it."""
        line_start = self.text.rfind(_NEWLINES, 0, self.start) + 1
        line_end = self.text.find(_NEWLINES, self.start)
        line_end = len(self.text) if line_end < 0 else line_end
        window_start = max(line_start, self.start - _SHOWN_WIDTH // 2)
        window_end = min(line_end, window_start + _SHOWN_WIDTH)
        before = ("…" if window_start > line_start else "") + visible(
            self.text[window_start : self.start]
        )
        blamed = visible(self.text[self.start : min(self.end, window_end)])
        after = visible(self.text[min(self.end, window_end) : window_end])
        after += "…" if window_end < line_end else ""
        carets = "^" * max(1, _columns(blamed))
        return [f"  {before}{blamed}{after}", f"  {' ' * _columns(before)}{carets}"]


class LimitError(TextError):
    """An expression that is in the language but exceeds a limit."""


class PublicationError(LanguageError):
    """A publication that is refused: NaN, an infinity, broken Unicode."""


def visible(text: str) -> str:
    """`text` with every character that would not show, or would disturb, written as U+XXXX."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else " " if c in "\t\r\n" else f"⟨U+{ord(c):04X}⟩" for c in text
    )


def _columns(text: str) -> int:
    """How many terminal columns `text` takes; wide characters take two, accents none."""
    wide = sum(unicodedata.east_asian_width(c) in ("W", "F") for c in text)
    accents = sum(unicodedata.category(c) in ("Mn", "Me") for c in text)
    return len(text) + wide - accents
