"""Every limit on a text: one that stands on it is read, one a step further is refused."""

from collections.abc import Callable

import pytest

from rove.lang import limits
from rove.lang.errors import LimitError
from rove.lang.normal_form import accepted_form, normalise
from rove.lang.parser import parse
from rove.lang.tree import Literal, depth

Make = Callable[[int], str]


def nested(opening: str, inside: str, closing: str, times: int) -> str:
    return opening * times + inside + closing * times


def dotted(segments: int, segment: str = "a") -> str:
    return ".".join([segment] * segments)


def one_of_every_kind(count: int) -> str:
    """`count` predicates, of all the kinds there are in turn."""
    kinds = [
        *("a>1", "a BETWEEN 1 AND 2", "a IN (1,2)", "a LIKE 'x'", "a IS NULL", "a", "(TRUE)"),
        *("me.x", "contains(a,'x')", "NOT a"),
    ]
    return " OR ".join(kinds[i % len(kinds)] for i in range(count))


def ors_in_ands(levels: int) -> str:
    """Two nodes for every parenthesis: the tree is deeper than the text looks."""
    pairs, odd = divmod(levels - 1, 2)
    return nested("b OR c AND (", "NOT " * odd + "a", ")", pairs)


# Each text has the given size in the given way; nothing else about it is near a limit.
BYTES: dict[str, Make] = {
    "a long string": lambda size: f"a = '{'x' * (size - 6)}'",
    "bytes, not characters": lambda size: f"a = '{'é' * (size // 2 - 3)}{'x' * (size % 2)}'",
    "four bytes each": lambda size: f"a = '{'🚲' * 500}{'x' * (size - 2006)}'",
    "a long name": lambda size: "x" * size,
    "many spaces": lambda size: "a" + " " * (size - 1),
    "a long comment": lambda size: "a --" + "x" * (size - 4),
}
DEPTH: dict[str, Make] = {
    "parentheses": lambda levels: nested("(", "a > 5", ")", levels),
    "parentheses around a value": lambda levels: nested("(", "a", ")", levels) + " > 5",
    "NOT": lambda levels: "NOT " * (levels - 1) + "a",
    "NOT before a comparison": lambda levels: "NOT " * (levels - 2) + "a > 5",
    "minus": lambda levels: "- " * (levels - 2) + "a > 5",
    "functions": lambda levels: nested("abs(", "a", ")", levels - 2) + " > 5",
    "lower": lambda levels: f"contains({nested('lower(', 'a', ')', levels - 2)}, 'x')",
    "a sum": lambda levels: "a" + " + 1" * (levels - 2) + " > 5",
    "a product": lambda levels: "5 > a" + " * 2" * (levels - 2),
    "products, then sums": lambda levels: f"a{' * 2' * 10}{' + 1' * (levels - 12)} > 5",
    "a sum to the right": lambda levels: nested("1 + (", "a", ")", levels - 2) + " > 5",
    "OR within AND": ors_in_ands,
    "functions in NOTs": lambda levels: "NOT " * 10 + nested("abs(", "a", ")", levels - 12) + "> 5",
    "a score": lambda levels: f"ORDER BY a{' + 1' * (levels - 1)} LIMIT 1 WITHIN 1 DAY",
}
COUNTS: dict[str, tuple[Make, int]] = {
    "comparisons": (lambda n: " AND ".join(["a>1"] * n), limits.PREDICATES_MAX),
    "bare booleans": (lambda n: " OR ".join(["a"] * n), limits.PREDICATES_MAX),
    "constants": (lambda n: " OR ".join(["TRUE"] * n), limits.PREDICATES_MAX),
    "predicates of every kind": (one_of_every_kind, limits.PREDICATES_MAX),
    "literals of IN": (lambda n: f"a IN ({','.join(['1'] * n)})", limits.IN_LITERALS_MAX),
    "literals of NOT IN": (
        lambda n: f"a NOT IN ({','.join(['-1'] * n)})",
        limits.IN_LITERALS_MAX,
    ),
    "k": (lambda n: f"ORDER BY a LIMIT {n} WITHIN 1 DAY", limits.RANK_K_MAX),
    "the largest integer": (lambda n: f"a > {n}", limits.INTEGER_MAX),
    "the smallest integer": (lambda n: f"a > -{n}", -limits.INTEGER_MIN),
    "the smallest integer in a list": (lambda n: f"a IN (-{n})", -limits.INTEGER_MIN),
    "publications of a window": (
        lambda n: f"ORDER BY a LIMIT 1 WITHIN {n} PUBLICATIONS",
        limits.INTEGER_MAX,
    ),
    "segments of a name": (lambda n: f"{dotted(n)} > 5", limits.NAME_SEGMENTS_MAX),
    "segments in backticks": (lambda n: dotted(n, "`a.b`"), limits.NAME_SEGMENTS_MAX),
    "segments of a variable": (lambda n: f"me.{dotted(n)} > 5", limits.NAME_SEGMENTS_MAX),
    "segments of a selected name": (
        lambda n: f"SELECT b, {dotted(n)}",
        limits.NAME_SEGMENTS_MAX,
    ),
}
EDGES: dict[str, tuple[Make, int]] = {
    **{f"bytes: {what}": (make, limits.TEXT_BYTES_MAX) for what, make in BYTES.items()},
    **{f"depth: {what}": (make, limits.DEPTH_MAX) for what, make in DEPTH.items()},
    **COUNTS,
}


@pytest.mark.parametrize(("make", "limit"), EDGES.values(), ids=EDGES)
def test_a_text_that_stands_on_the_limit_is_read(make: Make, limit: int) -> None:
    parse(make(limit))


@pytest.mark.parametrize(("make", "limit"), EDGES.values(), ids=EDGES)
def test_one_step_over_is_refused(make: Make, limit: int) -> None:
    text = make(limit + 1)
    with pytest.raises(LimitError) as caught:
        parse(text)
    assert caught.value.hint
    assert 0 <= caught.value.start < caught.value.end <= len(text)


@pytest.mark.parametrize("make", BYTES.values(), ids=BYTES)
def test_the_texts_above_are_as_long_as_they_say(make: Make) -> None:
    for size in (limits.TEXT_BYTES_MAX, limits.TEXT_BYTES_MAX + 1):
        assert len(make(size).encode()) == size


@pytest.mark.parametrize("what", [what for what in DEPTH if "parentheses" not in what])
def test_the_trees_above_are_as_deep_as_they_say(what: str) -> None:
    tree = parse(DEPTH[what](limits.DEPTH_MAX))
    score = Literal(0) if tree.rank is None else tree.rank.score
    assert max(depth(tree.condition), depth(score)) == limits.DEPTH_MAX


def test_the_smallest_integer_is_read_though_its_digits_alone_are_not() -> None:
    digits = str(-limits.INTEGER_MIN)
    assert parse(f"a > -{digits}") == parse(f"a > - {digits}")
    for text in (f"a > {digits}", f"a > -({digits})"):
        with pytest.raises(LimitError, match="64-bit integer"):
            parse(text)


def test_a_long_sum_is_blamed_where_it_gets_too_long() -> None:
    text = "a" + "+1" * 4_000 + " > 5"
    with pytest.raises(LimitError, match="nests deeper than 32 levels") as caught:
        parse(text)
    assert text[: caught.value.end].count("+") == limits.DEPTH_MAX


def test_many_nots_are_no_deep_text() -> None:
    text = " AND ".join(["NOT (a > -5)"] * limits.PREDICATES_MAX)
    assert depth(parse(text).condition) == 4


# --- the normal form --------------------------------------------------------------------------


def pairs(count: int) -> str:
    """As many conjunctions, none of which can be merged with another."""
    return " OR ".join(f"a={i} AND b={i}" for i in range(count))


def normal_size(text: str) -> int:
    return len(normalise(parse(text)).conjunctions)


def test_conjunctions_of_the_normal_form() -> None:
    assert normal_size(pairs(limits.CONJUNCTIONS_MAX)) == limits.CONJUNCTIONS_MAX
    with pytest.raises(LimitError, match="conjunctions"):
        normal_size(pairs(limits.CONJUNCTIONS_MAX + 1))


def test_conjunctions_on_the_way_to_the_normal_form() -> None:
    left, right = 16, 8
    assert left * right == limits.CONJUNCTIONS_WHILE_NORMALISING_MAX
    assert normal_size(f"({pairs(left)}) AND ({pairs(right)})") == right
    with pytest.raises(LimitError, match="conjunctions"):
        normal_size(f"({pairs(left)}) AND ({pairs(right + 1)})")


def sums(operations: int) -> str:
    """`operations` additions, twenty to a predicate."""
    full, rest = divmod(operations, 20)
    predicates = [f"a{'+a' * 20} > {i}" for i in range(full)]
    return " AND ".join([*predicates, *([f"a{'+a' * rest} > 0"] if rest else [])])


OPERATIONS: dict[str, Make] = {
    "sums": sums,
    "functions": lambda count: f"sin(cos(abs(a))) > 0 AND {sums(count - 3)}",
    "signs": lambda count: f"-(-(-a)) > 0 AND {sums(count - 3)}",
}


@pytest.mark.parametrize("make", [*OPERATIONS.values()], ids=[*OPERATIONS])
def test_operations(make: Make) -> None:
    parse(make(limits.OPERATIONS_MAX))
    with pytest.raises(LimitError, match=r"512 operations"):
        parse(make(limits.OPERATIONS_MAX + 1))
    parse(make(limits.OPERATIONS_MAX + 1), accepted=True)


def test_parts_of_the_normal_form() -> None:
    ors = " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(6))
    values = limits.PARTS_MAX // 64 - 6

    def text(count: int) -> str:
        return f"{ors} AND x IN ({','.join(str(2 * i) for i in range(count))})"

    assert len(accepted_form(parse(text(values))).conjunctions) == 64
    with pytest.raises(LimitError, match=r"4,160 parts in 64 conjunctions; 4,096 are kept"):
        accepted_form(parse(text(values + 1)))
    assert len(normalise(parse(text(values + 1))).conjunctions) == 64
