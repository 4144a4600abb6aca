"""What would be right: the last line of a refusal.

The parser has what it expected. This module looks at what was written instead and guesses
what its writer meant: another language's sign, a typographic quote, a decimal comma, a
misspelt keyword. Only texts that are already refused come here, so it may take its time.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final

from rove.lang.functions import NAMES, TEXT_TESTS
from rove.lang.lexer import END, is_name, keyword_of

RANK_FORM: Final = "a rank is written ORDER BY score LIMIT 10 WITHIN 24 HOURS"
LITERALS: Final = "a list holds numbers, strings in single quotes, or TRUE and FALSE"
PARTS: Final = "SELECT comes first and takes * or names; WHERE comes once, before the condition"
_COMPARE: Final = "compare the value with =, <, BETWEEN, …"

_STRAIGHT_QUOTES: Final = "write strings in straight single quotes: 'text'"
_ODD_NAMES: Final = "write a name with such a character in backticks"
_NO_REGEX: Final = "there are no regular expressions; LIKE, startswith, endswith, contains exist"
_SIGNS: Final = {
    "&": "write AND",
    "|": "write OR",
    "!": "write NOT, or != between two values",
    '"': "write strings in single quotes, unusual names in backticks",
    "'": "the string is not closed; a quote inside a string is written twice",
    "`": "the name is not closed, or empty",
    "[": "write lists in parentheses; nothing reaches into an array",
    "]": "write lists in parentheses",
    "{": "write the value itself, without braces",
    "}": "write the value itself, without braces",
    "%": "there is no remainder; % belongs into a LIKE pattern",
    "^": "powers are written pow(a, 2)",
    "~": _NO_REGEX,
    "#": "comments start with --",
    ";": "one expression is one subscription; leave the semicolon out",
    "\\": "there are no escapes; a quote inside a string is written twice",
    **dict.fromkeys(":?$@", "there are no parameters; write the value itself"),
    **dict.fromkeys("‘’‚‛“”„‟«»´", _STRAIGHT_QUOTES),
    **dict.fromkeys("−–—", "write -"),
    **dict.fromkeys("×·∙", "write *"),
    "÷": "write /",
    "≤": "write <=",
    "≥": "write >=",
    "≠": "write !=",
    "∧": "write AND",
    "∨": "write OR",
    "¬": "write NOT",
}
_PAIRS: Final = {
    "==": "equality is written with one =",
    "=>": "write >=",
    "=<": "write <=",
    "=!": "write !=",
    **{a + b: f"write {a}{b} without a space" for a, b in (("<", "="), (">", "="), ("!", "="))},
    "<>": "write != or <>, without a space",
    "::": "there are no casts; a value keeps its type",
    "->": "dots reach into nested objects: a.b",
    "**": "powers are written pow(a, 2)",
    "//": "comments start with --",
    "/*": "comments start with -- and end with the line",
}
_WORDS: Final = {
    "XOR": "write (a AND NOT b) OR (b AND NOT a)",
    "MOD": "there is no remainder",
    "DIV": "write /, or floor(a / b)",
    "ILIKE": "write lower(a) LIKE 'text'",
    **dict.fromkeys(("RLIKE", "REGEXP", "MATCHES"), _NO_REGEX),
    **{name.upper(): f"write {name}(attribute, 'text')" for name in TEXT_TESTS},
    **dict.fromkeys(("EXISTS", "EXIST", "MISSING"), "write IS NOT NULL or IS NULL"),
    **dict.fromkeys(("EQ", "EQUALS", "EQUAL"), "write ="),
    "JOIN": "a subscription is matched with one publication at a time",
    "GROUP": "a subscription is matched with one publication at a time",
    "HAVING": "a subscription is matched with one publication at a time; write AND",
}
_FUNCTIONS: Final = {
    "max": "greatest",
    "min": "least",
    "power": "pow",
    "upper": "lower",
    "lcase": "lower",
    "round": "floor",
    "ceiling": "ceil",
    "haversine": "distance",
    "like": "contains",
}
_FOLLOWING: Final = ("AND", "OR", "BETWEEN", "IN", "LIKE", "IS", "NOT", "ORDER", "ESCAPE")
_COMPARATORS: Final = ("=", "!=", "<>", "<", "<=", ">", ">=")


def about_sign(before: str, token: str, after: str, *, touching: bool) -> str | None:
    """A hint about a token that is wrong wherever it stands; None if it could be right."""
    hint = _PAIRS.get(before + token) or _PAIRS.get(token + after) or _SIGNS.get(token)
    if hint:
        return hint
    if len(token) == 1 and not token.isascii():
        return _about_character(token)
    if touching and _is_number(before) and (is_name(token) or _is_number(token)):
        return (
            "a number is digits with perhaps a point and an exponent; "
            "write a name that starts with a digit in backticks"
        )
    if token == "." or (touching and token.startswith(".") and is_name(before)):
        return "dots join names, without spaces; write a name of digits in backticks"
    if token == ")" and before in ("(", ","):
        return "there is nothing between the parentheses" if before == "(" else "one comma too many"
    return None


def _about_character(character: str) -> str | None:
    category = unicodedata.category(character)
    if character.isspace():
        return "write a plain space"
    if category == "Cf":
        return "remove it; it cannot be seen"
    if character.isdecimal():
        return "digits are 0 to 9"
    return None if is_name(character) else _ODD_NAMES


def about_missing_value(before: str, token: str) -> str | None:
    """A hint for a place where a value was expected."""
    keyword = keyword_of(token)
    if keyword in ("WHERE", "SELECT") or token == ",":
        return PARTS
    if token == END:
        return f"something must follow {before}" if len(before) <= 32 else None
    if token == "me":
        return "name a variable of the subscriber, for example me.x"
    if keyword == "NULL":
        return "write IS NULL or IS NOT NULL"
    if keyword == "AND" and keyword_of(before) == "BETWEEN":
        return "write BETWEEN low AND high"
    if keyword in ("AND", "OR"):
        return f"{keyword} joins two complete conditions, such as a > 1 {keyword} b > 1"
    if token in _COMPARATORS:
        return f"each {token} needs its own two values: a > 5 AND a < 10"
    if keyword in ("BETWEEN", "IN", "LIKE", "IS"):
        return f"a value comes before {keyword}; {_in_backticks(token)}"
    if keyword in ("ORDER", "BY", "ASC", "DESC", "LIMIT", "WITHIN"):
        return f"{RANK_FORM}; {_in_backticks(token)}"
    return f"{keyword} is a keyword; {_in_backticks(token)}" if keyword else None


def _in_backticks(token: str) -> str:
    return f"an attribute of that name is written `{token}`"


def about_comparison(token: str) -> str:
    """A hint for a value that is compared with nothing."""
    if keyword_of(token):
        return PARTS if keyword_of(token) == "WHERE" else _COMPARE
    return did_you_mean(token.upper(), ("BETWEEN", "LIKE", "IN", "IS", "NOT")) or _COMPARE


def about_rest(before: str, token: str) -> str:
    """A hint for something that follows a complete condition."""
    keyword = keyword_of(token)
    if keyword in ("LIMIT", "WITHIN"):
        return RANK_FORM
    if keyword in ("WHERE", "SELECT"):
        return PARTS
    if keyword == "NOT":
        return "write NOT before a condition, or before BETWEEN, IN and LIKE"
    if token == ")":
        return "no parenthesis is open here"
    if token == "," and _is_number(before):
        return "numbers have a decimal point and no separators: 1000.5"
    if token in _COMPARATORS:
        return "compare two values at a time: 1 < a AND a < 5"
    if before.lower() in (*NAMES, *TEXT_TESTS):
        return f"write the arguments of {before.lower()} in parentheses"
    if token.upper() in _WORDS:
        return _WORDS[token.upper()]
    quote = "; a quote inside a string is written twice" if before[-1:] == "'" else ""
    close = None if keyword else did_you_mean(token.upper(), _FOLLOWING, 0.6)
    return close or f"join conditions with AND or OR{quote}"


def about_function(written: str) -> str:
    """A hint for the name of a function that does not exist."""
    name = written.lower()
    if name in _FUNCTIONS:
        return f"did you mean {_FUNCTIONS[name]}?"
    every = (*NAMES, *TEXT_TESTS)
    return did_you_mean(name, every) or f"there are {', '.join(every)}"


def did_you_mean(written: str, candidates: Sequence[str], cutoff: float = 0.7) -> str | None:
    """A hint with the candidate that `written` resembles, if there is one."""
    import difflib  # only for refusals: it would cost every start of the program 5 ms

    readable = 2 <= len(written) <= 32
    close = difflib.get_close_matches(written, candidates, 1, cutoff) if readable else []
    return f"did you mean {close[0]}?" if close else None


def _is_number(token: str) -> bool:
    return token[:1].isdigit() or (token[:1] == "." and token != ".")
