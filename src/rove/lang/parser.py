"""Tokens to a typed tree: a recursive-descent parser, written by hand.

Measured on W1 texts, one core, in one run (`rove bench language` repeats it): sqlglot's Spark
dialect read 0.05 times as many texts a second as this parser, lark's LALR parser 0.19 times, and
neither had built our tree. sqlglot also accepts far more than the language has (and more with every
release), recurses without a limit of ours, and points at tokens of its own dialect; lark says
"unexpected token" where a person needs "did you mean BETWEEN?" (see `rove.lang.advice`).

Limits are checked while parsing, so a hostile text costs no more than a long honest one.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, NoReturn, cast

from rove.lang.advice import (
    LITERALS,
    RANK_FORM,
    about_comparison,
    about_function,
    about_missing_value,
    about_rest,
    about_sign,
)
from rove.lang.errors import LimitError, TextError, visible
from rove.lang.functions import NAMES, NUMERIC, TEXT_TESTS
from rove.lang.lexer import (
    END,
    character_name,
    is_name,
    keyword_of,
    segments_of,
    span,
    tokens_of,
)
from rove.lang.limits import (
    DEPTH_MAX,
    IN_LITERALS_MAX,
    INTEGER_MAX,
    NAME_SEGMENTS_MAX,
    OPERATIONS_MAX,
    PREDICATES_MAX,
    RANK_K_MAX,
    TEXT_BYTES_MAX,
)
from rove.lang.patterns import pattern_fault
from rove.lang.tree import (
    FALSE,
    TRUE,
    And,
    Arithmetic,
    Attribute,
    Between,
    Call,
    Comparator,
    Comparison,
    Condition,
    In,
    IsNull,
    Like,
    Literal,
    Me,
    Negation,
    Node,
    Not,
    Operator,
    Or,
    Rank,
    Subscription,
    TextTest,
    TextTestName,
    Time,
    Unit,
    ValueNode,
    ValueType,
    Window,
    depth,
    is_value,
    type_of,
)
from rove.lang.values import Number

_COMPARATORS: Final[dict[str, Comparator]] = {
    "=": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_BINDING: Final = {"+": 1, "-": 1, "*": 2, "/": 2}
_NUMBER_STARTS: Final = frozenset("0123456789.")
_UNITS: Final[dict[str, Unit]] = {
    spelling: unit
    for unit in ("MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS", "PUBLICATIONS")
    for spelling in (unit, unit[:-1])
}
_UNIT_HINT: Final = "units are MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS, or PUBLICATIONS"
_SPLIT: Final = "split it into several subscriptions"
_JOIN: Final = "join conditions with AND, OR and NOT"
_LARGEST: Final = "at most 1.79e308"
_DEPTH_CERTAINLY_FINE: Final = DEPTH_MAX - 6
"""Nesting that cannot exceed the depth, whatever stands around it: an OR, an AND, a
predicate and a value, and two to spare."""


def parse(text: str, *, accepted: bool = False) -> Subscription:
    """The tree of `text`; a TextError that a person can act on if there is none.

    `accepted` is for texts that were accepted before, perhaps with more operations than now.
    """
    return _Parser(text, TEXT_BYTES_MAX if accepted else OPERATIONS_MAX).subscription()


@lru_cache(maxsize=1024)
def _name_node(token: str) -> Attribute | Me | Time | Literal | None:
    """What a name stands for; None for keywords, signs and a bare `me`.

    Cached, since the same few attributes come in every subscription of a channel; the bound
    keeps thousands of hostile names from staying.
    """
    if not is_name(token):
        return None
    keyword = keyword_of(token)
    if keyword:
        return TRUE if keyword == "TRUE" else FALSE if keyword == "FALSE" else None
    if token == "t":
        return Time()
    path = segments_of(token)
    if token.startswith("me.") or token == "me":
        return Me(path[1:]) if len(path) > 1 else None
    return Attribute(path)


class _Parser:
    """One pass over the tokens of one text."""

    __slots__ = ("at", "depth", "nesting", "operations_left", "predicates", "text", "tokens")

    def __init__(self, text: str, operations_max: int) -> None:
        self.text = text
        self.tokens = tokens_of(text)
        self.at = 0
        self.depth = 0
        self.nesting = 0
        self.predicates = 0
        self.operations_left = operations_max

    # -- the whole subscription --------------------------------------------------------

    def subscription(self) -> Subscription:
        select = self._select() if keyword_of(self.tokens[self.at]) == "SELECT" else None
        where = self._skip("WHERE")
        start = self.at
        if not where and self._condition_is_left_out():
            condition: Condition = TRUE
        else:
            condition = self._condition(self._or(), start)
        rank = self._rank() if keyword_of(self.tokens[self.at]) == "ORDER" else None
        if self.tokens[self.at] != END:
            self._refuse_rest(rank is not None)
        if self.nesting > _DEPTH_CERTAINLY_FINE:
            self._check_depth(condition, rank)
        return Subscription(condition, select, rank)

    def _condition_is_left_out(self) -> bool:
        token = self.tokens[self.at]
        if token == END and self.at == 0:
            self._refuse("the filter is empty", hint="write a condition; TRUE matches everything")
        return token == END or keyword_of(token) == "ORDER"

    def _select(self) -> tuple[Attribute, ...] | None:
        self.at += 1
        if self.tokens[self.at] == "*":
            self.at += 1
            return None
        chosen = [self._selected()]
        while self.tokens[self.at] == ",":
            self.at += 1
            chosen.append(self._selected())
        return tuple(chosen)

    def _selected(self) -> Attribute:
        node = _name_node(self.tokens[self.at])
        if not isinstance(node, Attribute):
            self._refuse_expected(
                "an attribute to select",
                "names of the publication's attributes, separated by commas; odd ones in backticks",
            )
        if len(node.path) > NAME_SEGMENTS_MAX:
            self._refuse_segments()
        self.at += 1
        return node

    def _rank(self) -> Rank:
        self.at += 1
        self._expect("BY", "BY after ORDER", f"{RANK_FORM}; an attribute of that name is `order`")
        start = self.at
        score = self._number_operand(self._value(), start, "a score")
        descending = self._skip("DESC")
        if not descending:
            self._skip("ASC")
        self._expect("LIMIT", "LIMIT, then how many of the best to keep", RANK_FORM)
        k = self._limit()
        self._expect("WITHIN", "WITHIN, then a window", RANK_FORM)
        return Rank(score, descending, k, self._window())

    def _limit(self) -> int:
        start = self.at
        k = self._number_token("a whole number after LIMIT", negative=False)
        if not isinstance(k, int) or k < 1:
            self._refuse(f"LIMIT takes a whole number from 1 to {RANK_K_MAX:,}", start, RANK_FORM)
        if k > RANK_K_MAX:
            what = f"LIMIT is {k:,}; at most {RANK_K_MAX:,} are kept"
            self._refuse_limit(what, start, "ask for fewer")
        return k

    def _window(self) -> Window:
        start = self.at
        amount = self._number_token("a number, then a unit, after WITHIN", negative=False)
        token = self.tokens[self.at]
        unit = _UNITS.get(token.upper()) if token.isascii() else None
        if unit is None:
            self._refuse_expected("a unit", hint=_UNIT_HINT)
        self.at += 1
        if unit == "PUBLICATIONS" and not isinstance(amount, int):
            self._refuse(
                "a window counts whole publications", start, "for example 500 PUBLICATIONS"
            )
        window = Window(amount, unit)
        if amount <= 0 or not (window.publications or 0 < window.seconds < math.inf):
            what = "a window must be longer than nothing and shorter than for ever"
            self._refuse(what, start, "for example 24 HOURS or 500 PUBLICATIONS")
        return window

    # -- conditions --------------------------------------------------------------------

    def _or(self) -> Node:
        start = self.at
        first = self._and()
        if keyword_of(self.tokens[self.at]) != "OR":
            return first
        operands = [self._condition(first, start)]
        while self._skip("OR"):
            start = self.at
            operands.append(self._condition(self._and(), start))
        return Or(tuple(operands))

    def _and(self) -> Node:
        start = self.at
        first = self._not()
        if keyword_of(self.tokens[self.at]) != "AND":
            return first
        operands = [self._condition(first, start)]
        while keyword_of(self.tokens[self.at]) == "AND":
            self.at += 1
            start = self.at
            operands.append(self._condition(self._not(), start))
        return And(tuple(operands))

    def _not(self) -> Node:
        if keyword_of(self.tokens[self.at]) != "NOT":
            return self._predicate()
        self._deeper()
        self.at += 1
        start = self.at
        operand = self._condition(self._not(), start)
        self.depth -= 1
        return Not(operand)

    def _condition(self, node: Node, start: int) -> Condition:
        """`node` where a condition must stand; a value alone is only one if it is boolean."""
        if is_value(node):
            if not (isinstance(node, Attribute | Me) or node is TRUE or node is FALSE):
                token = self.tokens[self.at]
                self._refuse_expected("a comparison", about_comparison(token))
            self._count_predicate(start)
        return cast(Condition, node)

    def _predicate(self) -> Node:
        start = self.at
        left = self._value()
        token = self.tokens[self.at]
        comparator = _COMPARATORS.get(token)
        if comparator is not None:
            return self._comparison(comparator, left, start)
        keyword = keyword_of(token)
        if keyword in ("BETWEEN", "IN", "LIKE"):
            return self._worded(keyword, left, start, negated=False)
        if keyword == "IS":
            return self._is_null(left, start)
        if keyword == "NOT":
            after = keyword_of(self.tokens[self.at + 1])
            if after in ("BETWEEN", "IN", "LIKE"):
                self.at += 1
                return self._worded(after, left, start, negated=True)
        return left

    def _worded(self, keyword: str, left: Node, start: int, *, negated: bool) -> Condition:
        self.at += 1
        self._count_predicate(start)
        if keyword == "BETWEEN":
            return self._between(left, start, negated)
        return (
            self._in(left, start, negated) if keyword == "IN" else self._like(left, start, negated)
        )

    def _comparison(self, comparator: Comparator, left: Node, start: int) -> Comparison:
        self.at += 1
        right_start = self.at
        right = self._value()
        self._count_predicate(start)
        if (
            type(left) is not Attribute
            or type(right) is not Literal
            or right.value.__class__ is bool
        ):
            self._check_comparable(left, start, right, right_start)
            if comparator not in ("=", "!="):
                self._check_ordered(left, start)
                self._check_ordered(right, right_start)
        return Comparison(comparator, cast(ValueNode, left), cast(ValueNode, right))

    def _between(self, left: Node, start: int, negated: bool) -> Between:
        low_start = self.at
        low = self._value()
        self._expect("AND", "AND, then the upper bound of BETWEEN", "write BETWEEN low AND high")
        high_start = self.at
        high = self._value()
        kind = type_of(low)
        plain = type(left) is Attribute and kind is type_of(high) and kind is not ValueType.BOOLEAN
        if not plain:
            self._check_between(((left, start), (low, low_start), (high, high_start)))
        return Between(cast(ValueNode, left), cast(ValueNode, low), cast(ValueNode, high), negated)

    def _in(self, left: Node, start: int, negated: bool) -> In:
        self._expect("(", "a list in parentheses after IN", "for example IN (1, 2)")
        items: list[Literal] = []
        while True:
            if len(items) == IN_LITERALS_MAX:
                self._refuse_limit(
                    f"an IN list may hold {IN_LITERALS_MAX:,} literals", self.at, _SPLIT
                )
            place = self.at
            item = self._literal("a literal in the list after IN")
            if not items:
                self._check_comparable(left, start, item, place)
                kind = type_of(item)
            elif type_of(item) is not kind:
                self._refuse(
                    f"the list holds a {kind.value} and a {type_of(item).value}",
                    place,
                    hint="write one IN for each type, joined by OR",
                )
            items.append(item)
            if self.tokens[self.at] != ",":
                break
            self.at += 1
        self._expect(")", "a comma or a closing parenthesis in the list after IN", LITERALS)
        return In(cast(ValueNode, left), tuple(items), negated)

    def _like(self, left: Node, start: int, negated: bool) -> Like:
        subject = self._text_operand(left, start)
        place = self.at
        pattern = self._string("a pattern in single quotes after LIKE", "for example LIKE 'air%'")
        escape = self._escape() if self._skip("ESCAPE") else None
        fault = pattern_fault(pattern, escape)
        if fault:
            self._refuse(fault, place, f"write {escape}{escape} where {escape} itself is meant")
        return Like(subject, pattern, escape, negated)

    def _escape(self) -> str:
        place = self.at
        example = "for example LIKE '50!%' ESCAPE '!'"
        escape = self._string("one character in single quotes after ESCAPE", example)
        if len(escape) != 1 or escape in "%_":
            self._refuse("ESCAPE takes one character that is neither % nor _", place, example)
        return escape

    def _is_null(self, left: Node, start: int) -> IsNull:
        self.at += 1
        negated = self._skip("NOT")
        self._expect("NULL", "NULL after IS", "IS is for IS [NOT] NULL; compare values with =")
        self._count_predicate(start)
        if not isinstance(left, Attribute | Me):
            self._refuse(
                "only an attribute or a me. variable can be tested with IS NULL",
                start,
                "what is computed is UNKNOWN when one of its attributes is; test those",
            )
        return IsNull(left, negated)

    # -- values ------------------------------------------------------------------------

    def _value(self, floor: int = 0) -> Node:
        """A value whose operators bind tighter than `floor`; perhaps a condition in parentheses."""
        start = self.at
        left = self._primary()
        chain = 0
        while (binding := _BINDING.get(self.tokens[self.at], 0)) > floor:
            operator_at = self.at
            operator = cast(Operator, self.tokens[operator_at])
            self.at += 1
            right_start = self.at
            right = self._value(binding)
            self._count_operation(operator_at)
            self.nesting += 1
            chain += 1
            if chain >= DEPTH_MAX:
                self._refuse_deep(operator_at)
            left = Arithmetic(
                operator,
                self._number_operand(left, start, "arithmetic"),
                self._number_operand(right, right_start, "arithmetic"),
            )
        return left

    def _primary(self) -> Node:
        token = self.tokens[self.at]
        first = token[:1]
        if first in _NUMBER_STARTS and token != ".":
            return Literal(self._number_token("a number", negative=False))
        if first == "'" != token:
            self.at += 1
            return Literal(token[1:-1].replace("''", "'"))
        if first == "(":
            return self._parenthesised()
        if first in ("-", "+") and token != END:
            return self._signed(first)
        node = _name_node(token)
        if node is None:
            before = self.tokens[self.at - 1] if self.at else END
            self._refuse_expected("a value", about_missing_value(before, token))
        if self.tokens[self.at + 1] == "(" and type(node) is not Literal:
            return self._call(token)
        if (type(node) is Attribute or type(node) is Me) and len(node.path) > NAME_SEGMENTS_MAX:
            self._refuse_segments()
        self.at += 1
        return node

    def _parenthesised(self) -> Node:
        self._deeper()
        self.nesting += 1  # inside may stand an OR of ANDs: two nodes for one parenthesis
        self.at += 1
        inner = self._or()
        self._expect(")", "a closing parenthesis", "every ( needs its )")
        self.depth -= 1
        return inner

    def _signed(self, sign: str) -> Node:
        self._deeper()
        self.at += 1
        start = self.at
        following = self.tokens[start][:1]
        if sign == "-" and following in _NUMBER_STARTS and following:
            self.depth -= 1
            return Literal(self._number_token("a number", negative=True))
        self._count_operation(start)
        operand = self._number_operand(self._primary(), start, f"a {sign} sign")
        self.depth -= 1
        if sign == "-":
            return Negation(operand)
        if type_of(operand) is not ValueType.ANY:
            return operand
        # The attribute may be a string at run time; then 0 + a is UNKNOWN, as it must be.
        return Arithmetic("+", Literal(0), operand)

    def _call(self, written: str) -> Node:
        start = self.at
        name = written.lower()
        if name not in NAMES and name not in TEXT_TESTS:
            self._refuse(
                f"there is no function {_described(written)}", hint=about_function(written)
            )
        self._deeper()
        self.at += 2
        if name in TEXT_TESTS:
            node: Node = self._text_test(cast(TextTestName, name), start)
        elif name == "lower":
            place = self.at
            node = Call(name, (self._text_operand(self._value(), place),))
        else:
            node = Call(name, self._arguments(name, start))
        self._count_operation(start)
        self._expect(")", f"a comma or a closing parenthesis in {name}", f"write {_form(name)}")
        self.depth -= 1
        return node

    def _text_test(self, name: TextTestName, start: int) -> TextTest:
        place = self.at
        subject = self._text_operand(self._value(), place)
        self._expect(",", "a comma", f"write {_form(name)}")
        self._count_predicate(start)
        text = self._string(f"a string as second argument of {name}", f"write {_form(name)}")
        return TextTest(name, subject, text)

    def _arguments(self, name: str, start: int) -> tuple[ValueNode, ...]:
        _, fewest, most = NUMERIC[name]
        found: list[ValueNode] = []
        while found or self.tokens[self.at] != ")":
            place = self.at
            found.append(self._number_operand(self._value(), place, name))
            if self.tokens[self.at] != ",":
                break
            self.at += 1
        if len(found) < fewest or (most is not None and len(found) > most):
            wanted = f"{fewest}" if most == fewest else f"at least {fewest}"
            plural = "" if wanted == "1" else "s"
            self._refuse(
                f"{name} takes {wanted} argument{plural}, not {len(found)}",
                start,
                f"write {_form(name)}",
            )
        return tuple(found)

    def _literal(self, what: str) -> Literal:
        sign = self.tokens[self.at] == "-"
        token = self.tokens[self.at + sign]
        if token[:1] in _NUMBER_STARTS and token != ".":
            self.at += sign
            return Literal(self._number_token(what, negative=sign))
        node = None if sign else _name_node(token)
        if isinstance(node, Literal):
            self.at += 1
            return node
        return Literal(self._string(what, LITERALS))

    def _string(self, what: str, hint: str) -> str:
        token = self.tokens[self.at]
        if token[:1] != "'" or token == "'":
            self._refuse_expected(what, "write IS NULL" if keyword_of(token) == "NULL" else hint)
        self.at += 1
        return token[1:-1].replace("''", "'")

    def _number_token(self, what: str, *, negative: bool) -> Number:
        token = self.tokens[self.at]
        if token[:1] not in _NUMBER_STARTS or token == ".":
            self._refuse_expected(what, RANK_FORM)
        if token.isdigit():
            number: Number = self._integer(token, negative)
        else:
            number = -float(token) if negative else float(token)
            if math.isinf(number):
                self._refuse_limit("the number is too large for a 64-bit float", self.at, _LARGEST)
        self.at += 1
        return number

    def _integer(self, digits: str, negative: bool) -> int:
        digits = digits.lstrip("0") or "0"
        number = int(digits) if len(digits) <= 19 else INTEGER_MAX + 2
        if number > INTEGER_MAX + negative:
            self._refuse_limit(
                "the number does not fit into a 64-bit integer",
                self.at,
                "write it as a float, with a point or an exponent, if that is meant",
            )
        return -number if negative else number

    # -- checks ------------------------------------------------------------------------

    def _number_operand(self, node: Node, start: int, where: str) -> ValueNode:
        if not is_value(node):
            self._refuse(f"{where} needs a number, and this is a condition", start, _JOIN)
        if type_of(node) in (ValueType.STRING, ValueType.BOOLEAN):
            self._refuse(
                f"{where} needs a number, and this is a {type_of(node).value}",
                start,
                "write numbers without quotes; TRUE, FALSE and strings are no numbers",
            )
        return cast(ValueNode, node)

    def _text_operand(self, node: Node, start: int) -> ValueNode:
        if not isinstance(node, Attribute | Me | Call) or type_of(node) is ValueType.NUMBER:
            self._refuse(
                "only an attribute, or lower(attribute), can be tested as a string",
                start,
                "write name LIKE 'text%', contains(name, 'text') or lower(name)",
            )
        return node

    def _check_comparable(self, left: Node, start: int, right: Node, right_start: int) -> None:
        for node, place in ((left, start), (right, right_start)):
            if not is_value(node):
                self._refuse("a condition cannot be compared", place, _JOIN)
        kinds = {type_of(left), type_of(right)} - {ValueType.ANY}
        if len(kinds) > 1:
            self._refuse(
                f"a {type_of(left).value} is never equal to or ordered with a "
                f"{type_of(right).value}",
                right_start,
                hint="numbers compare with numbers, strings with strings, TRUE with FALSE",
            )

    def _check_between(self, places: tuple[tuple[Node, int], ...]) -> None:
        """Say which of the three parts of a BETWEEN does not fit the others."""
        for i, (right, right_start) in enumerate(places):
            for left, start in places[:i]:
                self._check_comparable(left, start, right, right_start)
        for node, start in places:
            self._check_ordered(node, start)

    def _check_ordered(self, node: Node, start: int) -> None:
        if type_of(node) is ValueType.BOOLEAN:
            self._refuse("booleans have no order", start, hint="use = or !=")

    def _check_depth(self, condition: Condition, rank: Rank | None) -> None:
        if depth(condition) > DEPTH_MAX or (rank is not None and depth(rank.score) > DEPTH_MAX):
            self._refuse_deep(0)

    def _deeper(self) -> None:
        self.depth += 1
        self.nesting += 1
        if self.depth > DEPTH_MAX:
            self._refuse_deep(self.at)

    def _count_predicate(self, start: int) -> None:
        self.predicates += 1
        if self.predicates > PREDICATES_MAX:
            self._refuse_limit(f"a filter may have {PREDICATES_MAX} predicates", start, _SPLIT)

    def _count_operation(self, start: int) -> None:
        self.operations_left -= 1
        if self.operations_left < 0:
            self._refuse_limit(f"a filter may have {OPERATIONS_MAX:,} operations", start, _SPLIT)

    # -- tokens ------------------------------------------------------------------------

    def _skip(self, keyword: str) -> bool:
        found = keyword_of(self.tokens[self.at]) == keyword
        self.at += found
        return found

    def _expect(self, token: str, what: str, hint: str) -> None:
        found = self.tokens[self.at]
        if found != token and keyword_of(found) != token:
            self._refuse_expected(what, hint)
        self.at += 1

    # -- refusals ----------------------------------------------------------------------

    def _refuse(self, what: str, index: int | None = None, hint: str | None = None) -> NoReturn:
        start, end = span(self.text, self.at if index is None else index)
        raise TextError(what, self.text, start, end, hint)

    def _refuse_limit(self, what: str, index: int, hint: str) -> NoReturn:
        start, end = span(self.text, index)
        raise LimitError(what, self.text, start, end, hint)

    def _refuse_deep(self, index: int) -> NoReturn:
        self._refuse_limit(f"the filter nests deeper than {DEPTH_MAX} levels", index, "flatten it")

    def _refuse_segments(self) -> NoReturn:
        what = f"a name may have {NAME_SEGMENTS_MAX} segments"
        self._refuse_limit(what, self.at, "reach less deep; write a dot within a name in backticks")

    def _refuse_expected(self, what: str, hint: str | None) -> NoReturn:
        found = _described(self.tokens[self.at])
        self._refuse(f"expected {what}, found {found}", hint=self._about_sign() or hint)

    def _refuse_rest(self, ranked: bool) -> NoReturn:
        """Refuse what follows a complete condition, or a complete rank."""
        token = self.tokens[self.at]
        before = self.tokens[self.at - 1]
        if before.upper() == "FROM":
            self._refuse(
                "there is no FROM", self.at - 1, "leave it out; the topic is given separately"
            )
        expected = "the end" if ranked else "AND, OR or the end"
        hint = f"{RANK_FORM}, and nothing after it" if ranked else about_rest(before, token)
        self._refuse_expected(expected, hint)

    def _about_sign(self) -> str | None:
        """What is odd about the next token itself, whatever was expected."""
        at = self.at
        before = self.tokens[at - 1] if at else END
        after = "" if at + 1 >= len(self.tokens) else self.tokens[at + 1]
        touching = at > 0 and span(self.text, at - 1)[1] == span(self.text, at)[0]
        return about_sign(before, self.tokens[at], after, touching=touching)


def _described(token: str) -> str:
    """A token as a diagnostic names it."""
    if token == END:
        return "the end of the text"
    if len(token) == 1 and not token.isascii() and not token.isalnum():
        return character_name(token)
    return visible(token if len(token) <= 32 else f"{token[:31]}…")


def _form(name: str) -> str:
    """How a function is called, for hints."""
    if name in TEXT_TESTS:
        return f"{name}(attribute, 'text')"
    if name == "distance":
        return "distance(lat, long, lat, long)"
    fewest = 1 if name == "lower" else NUMERIC[name][1]
    return f"{name}({', '.join('ab'[:fewest])})"
