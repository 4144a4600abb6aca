"""The whole grammar as a table from texts to trees, and every mistake we could think of.

A refusal must say what is wrong, blame the right word, and say what would be right: each row of
the second half holds a text that a person might write and those three.
"""

import pytest

from rove.lang.errors import TextError
from rove.lang.parser import parse
from rove.lang.tree import (
    FALSE,
    TRUE,
    And,
    Arithmetic,
    Attribute,
    Between,
    Call,
    Comparison,
    Condition,
    In,
    IsNull,
    Like,
    Literal,
    Me,
    Negation,
    Not,
    Or,
    Rank,
    Subscription,
    TextTest,
    Time,
    Unit,
    ValueNode,
    Window,
)

A, B, C, D = (Attribute((name,)) for name in "abcd")
ONE, TWO, THREE, FIVE = (Literal(number) for number in (1, 2, 3, 5))
T = Time()


def lit(value: float | str | bool) -> Literal:
    return Literal(value)


def above(value: ValueNode, than: ValueNode = FIVE) -> Comparison:
    return Comparison(">", value, than)


def attr(*path: str) -> Attribute:
    return Attribute(path)


# --- conditions -------------------------------------------------------------------------------

PREDICATES: dict[str, Condition] = {
    "a = 5": Comparison("=", A, FIVE),
    "a != 5": Comparison("!=", A, FIVE),
    "a <> 5": Comparison("!=", A, FIVE),
    "a < 5": Comparison("<", A, FIVE),
    "a <= 5": Comparison("<=", A, FIVE),
    "a > 5": above(A),
    "a >= 5": Comparison(">=", A, FIVE),
    "a>5": above(A),
    "5 > a": above(FIVE, A),
    "a = 'x'": Comparison("=", A, lit("x")),
    "a = TRUE": Comparison("=", A, TRUE),
    "FALSE != a": Comparison("!=", FALSE, A),
    "a > b": above(A, B),
    "1 > 2": above(ONE, TWO),
    "'x' < 'y'": Comparison("<", lit("x"), lit("y")),
    "a BETWEEN 1 AND 2": Between(A, ONE, TWO),
    "a NOT BETWEEN 1 AND 2": Between(A, ONE, TWO, negated=True),
    "a BETWEEN 'x' AND 'y'": Between(A, lit("x"), lit("y")),
    "a + 1 BETWEEN b AND t": Between(Arithmetic("+", A, ONE), B, T),
    "a BETWEEN 2 AND 1": Between(A, TWO, ONE),
    "a IN (1)": In(A, (ONE,)),
    "a IN (1, -2, 1.5)": In(A, (ONE, lit(-2), lit(1.5))),
    "a IN ('x', '')": In(A, (lit("x"), lit(""))),
    "a NOT IN (TRUE, false)": In(A, (TRUE, FALSE), negated=True),
    "a IN (1, 1)": In(A, (ONE, ONE)),
    "a + 1 IN (1)": In(Arithmetic("+", A, ONE), (ONE,)),
    "a LIKE 'x%'": Like(A, "x%"),
    "a NOT LIKE 'x_'": Like(A, "x_", negated=True),
    "a LIKE '50!%' ESCAPE '!'": Like(A, "50!%", "!"),
    "a LIKE '!!' ESCAPE '!'": Like(A, "!!", "!"),
    "a LIKE '''''' ESCAPE ''''": Like(A, "''", "'"),
    "a LIKE '\\'": Like(A, "\\"),
    "lower(a) LIKE 'x'": Like(Call("lower", (A,)), "x"),
    "me.x LIKE 'x'": Like(Me(("x",)), "x"),
    "startswith(a, 'x')": TextTest("startswith", A, "x"),
    "endsWith(a, 'x')": TextTest("endswith", A, "x"),
    "CONTAINS(lower(a), '')": TextTest("contains", Call("lower", (A,)), ""),
    "a IS NULL": IsNull(A),
    "a IS NOT NULL": IsNull(A, negated=True),
    "me.x IS NULL": IsNull(Me(("x",))),
    "(a) IS NULL": IsNull(A),
    "TRUE": TRUE,
    "false": FALSE,
    "a": A,
    "me.x": Me(("x",)),
    "((a))": A,
}

JOINED: dict[str, Condition] = {
    "a AND b": And((A, B)),
    "a OR b": Or((A, B)),
    "NOT a": Not(A),
    "NOT NOT a": Not(Not(A)),
    "NOT (a)": Not(A),
    "a AND b AND c": And((A, B, C)),
    "a OR b OR c": Or((A, B, C)),
    "a OR b AND c": Or((A, And((B, C)))),
    "a AND b OR c": Or((And((A, B)), C)),
    "(a OR b) AND c": And((Or((A, B)), C)),
    "a AND (b AND c)": And((A, And((B, C)))),
    "(a AND b) AND c": And((And((A, B)), C)),
    "NOT a AND b": And((Not(A), B)),
    "NOT (a AND b)": Not(And((A, B))),
    "NOT a = 5": Not(Comparison("=", A, FIVE)),
    "NOT a NOT IN (1)": Not(In(A, (ONE,), negated=True)),
    "a BETWEEN 1 AND 2 AND b": And((Between(A, ONE, TWO), B)),
    "a > 5 AND (b OR NOT c) OR d": Or((And((above(A), Or((B, Not(C))))), D)),
    "a AND TRUE": And((A, TRUE)),
}

VALUES: dict[str, ValueNode] = {
    "a + b": Arithmetic("+", A, B),
    "a + b - c": Arithmetic("-", Arithmetic("+", A, B), C),
    "a - b - c": Arithmetic("-", Arithmetic("-", A, B), C),
    "a - (b - c)": Arithmetic("-", A, Arithmetic("-", B, C)),
    "a + b * c": Arithmetic("+", A, Arithmetic("*", B, C)),
    "(a + b) * c": Arithmetic("*", Arithmetic("+", A, B), C),
    "a / b / c": Arithmetic("/", Arithmetic("/", A, B), C),
    "a * b + c / d": Arithmetic("+", Arithmetic("*", A, B), Arithmetic("/", C, D)),
    "a-b": Arithmetic("-", A, B),
    "a -1": Arithmetic("-", A, ONE),
    "a - -1": Arithmetic("-", A, lit(-1)),
    "a * -1": Arithmetic("*", A, lit(-1)),
    "-a": Negation(A),
    "-a * b": Arithmetic("*", Negation(A), B),
    "-(a * b)": Negation(Arithmetic("*", A, B)),
    "- -a": Negation(Negation(A)),
    "-t": Negation(T),
    "-me.x": Negation(Me(("x",))),
    "+a": Arithmetic("+", Literal(0), A),
    "+ + a": Arithmetic("+", Literal(0), A),
    "+me.x": Arithmetic("+", Literal(0), Me(("x",))),
    "+abs(a)": Call("abs", (A,)),
    "-(5)": Negation(FIVE),
    "- -5": Negation(lit(-5)),
    "+5": FIVE,
    "(((5)))": FIVE,
    "abs(a)": Call("abs", (A,)),
    "sqrt(a)": Call("sqrt", (A,)),
    "SIN(a)": Call("sin", (A,)),
    "Cos(a)": Call("cos", (A,)),
    "floor (a)": Call("floor", (A,)),
    "ceil(a + 1)": Call("ceil", (Arithmetic("+", A, ONE),)),
    "pow(a, 2)": Call("pow", (A, TWO)),
    "least(a, b)": Call("least", (A, B)),
    "greatest(a, b, c, d)": Call("greatest", (A, B, C, D)),
    "distance(a, b, 1, -2)": Call("distance", (A, B, ONE, lit(-2))),
    "abs(abs(a))": Call("abs", (Call("abs", (A,)),)),
    "-abs(a)": Negation(Call("abs", (A,))),
}

LITERALS: dict[str, float | str | bool] = {
    "5": 5,
    "-5": -5,
    "- 5": -5,
    "007": 7,
    "5.": 5.0,
    ".5": 0.5,
    "-.5": -0.5,
    "1e3": 1000.0,
    "1E-3": 0.001,
    "1.5e+3": 1500.0,
    "0": 0,
    "-0": 0,
    "-0.0": -0.0,
    "9223372036854775807": 2**63 - 1,
    "-9223372036854775808": -(2**63),
    "00009223372036854775807": 2**63 - 1,
    "9223372036854775808.0": 2.0**63,
    "1.7976931348623157e308": 1.7976931348623157e308,
    "5e-324": 5e-324,
    "1e-999": 0.0,
    "''": "",
    "'it''s'": "it's",
    "''''": "'",
    "'--'": "--",
    "'a\nb'": "a\nb",
    "'🌡️ 温度'": "🌡️ 温度",
    "TRUE": True,
    "fAlSe": False,
}

NAMES: dict[str, ValueNode] = {
    "NO2": attr("NO2"),
    "_a1": attr("_a1"),
    "größe": attr("größe"),
    "²": attr("²"),
    "a.b.c": attr("a", "b", "c"),
    "`odd name`": attr("odd name"),
    "`a``b`": attr("a`b"),
    "`a.b`.c": attr("a.b", "c"),
    "a.`5`": attr("a", "5"),
    "`a`": A,
    "`5`": attr("5"),
    "`'`": attr("'"),
    "`--`": attr("--"),
    "`order`": attr("order"),
    "`NULL`": attr("NULL"),
    "a.order": attr("a", "order"),
    "select.a": attr("select", "a"),
    "t": T,
    "T": attr("T"),
    "`t`": attr("t"),
    "t.x": attr("t", "x"),
    "a.t": attr("a", "t"),
    "me.x": Me(("x",)),
    "me.battery.level": Me(("battery", "level")),
    "me.`odd name`": Me(("odd name",)),
    "me.t": Me(("t",)),
    "me.order": Me(("order",)),
    "`me`.x": attr("me", "x"),
    "`me`": attr("me"),
    "ME": attr("ME"),
    "Me.x": attr("Me", "x"),
    "a.me": attr("a", "me"),
    "distance": attr("distance"),
    "abs": attr("abs"),
    "contains": attr("contains"),
    "seconds": attr("seconds"),
    "publications": attr("publications"),
    "from": attr("from"),
    "ın": attr("ın"),
}


@pytest.mark.parametrize(("text", "tree"), (PREDICATES | JOINED).items(), ids=PREDICATES | JOINED)
def test_a_condition(text: str, tree: Condition) -> None:
    assert parse(text) == Subscription(tree)


@pytest.mark.parametrize(("text", "tree"), (VALUES | NAMES).items(), ids=VALUES | NAMES)
def test_a_value(text: str, tree: ValueNode) -> None:
    assert parse(f"{text} > 5").condition == above(tree)
    assert parse(f"5 > {text}").condition == above(FIVE, tree)


@pytest.mark.parametrize(("text", "value"), LITERALS.items(), ids=LITERALS)
def test_a_literal(text: str, value: float | str | bool) -> None:
    assert parse(f"a = {text}").condition == Comparison("=", A, Literal(value))
    assert parse(f"a IN ({text})").condition == In(A, (Literal(value),))


@pytest.mark.parametrize(
    "text",
    [
        "not a is not null and b not between 1 and 2 or c not in (true) or d not like 'x'",
        "NOT A IS NOT NULL AND B NOT BETWEEN 1 AND 2 OR C NOT IN (TRUE) OR D NOT LIKE 'x'",
        "Not a Is Not Null And b Not Between 1 And 2 Or c Not In (True) Or d Not Like 'x'",
    ],
    ids=["small", "capital", "mixed"],
)
def test_keywords_in_any_case(text: str) -> None:
    letters = "ABCD" if "IS NOT NULL" in text else "abcd"
    a, b, c, d = (Attribute((letter,)) for letter in letters)
    first = And((Not(IsNull(a, negated=True)), Between(b, ONE, TWO, negated=True)))
    last = (In(c, (TRUE,), negated=True), Like(d, "x", None, negated=True))
    assert parse(text).condition == Or((first, *last))


@pytest.mark.parametrize(
    "text",
    [
        "a > 5 -- and nothing else",
        "-- first\na > 5",
        "a -- it's > 6\n > -- `\n 5",
        "  a\t>\r\n5\n",
        "WHERE a > 5",
        "where a > 5",
        "SELECT * WHERE a > 5",
        "select * a > 5",
    ],
)
def test_the_same_condition_in_other_clothes(text: str) -> None:
    assert parse(text) == Subscription(above(A))


# --- SELECT and rank --------------------------------------------------------------------------

SELECTS: dict[str, Subscription] = {
    "SELECT a WHERE b": Subscription(B, (A,)),
    "SELECT a b": Subscription(B, (A,)),
    "SELECT a, b, a.c, `odd name`": Subscription(TRUE, (A, B, attr("a", "c"), attr("odd name"))),
    "SELECT a": Subscription(TRUE, (A,)),
    "SELECT a WHERE TRUE": Subscription(TRUE, (A,)),
    "SELECT `t`, `me`.x": Subscription(TRUE, (attr("t"), attr("me", "x"))),
    "SELECT *": Subscription(TRUE),
    "SELECT * WHERE a": Subscription(A),
    "SELECT a, a": Subscription(TRUE, (A, A)),
    "SELECT abs, seconds": Subscription(TRUE, (attr("abs"), attr("seconds"))),
}
HOUR = Window(1, "HOURS")
RANKS: dict[str, Subscription] = {
    "ORDER BY a LIMIT 3 WITHIN 1 HOUR": Subscription(TRUE, None, Rank(A, False, 3, HOUR)),
    "order by a asc limit 3 within 1 hour": Subscription(TRUE, None, Rank(A, False, 3, HOUR)),
    "ORDER BY a DESC LIMIT 3 WITHIN 1 HOUR": Subscription(TRUE, None, Rank(A, True, 3, HOUR)),
    "b ORDER BY a + 1 LIMIT 3 WITHIN 1 HOUR": Subscription(
        B, None, Rank(Arithmetic("+", A, ONE), False, 3, HOUR)
    ),
    "WHERE b ORDER BY 5 LIMIT 1 WITHIN 1 HOUR": Subscription(B, None, Rank(FIVE, False, 1, HOUR)),
    "SELECT c WHERE b ORDER BY -a LIMIT 3 WITHIN 1 HOUR": Subscription(
        B, (C,), Rank(Negation(A), False, 3, HOUR)
    ),
    "SELECT c ORDER BY me.x LIMIT 3 WITHIN 1 HOUR": Subscription(
        TRUE, (C,), Rank(Me(("x",)), False, 3, HOUR)
    ),
    "SELECT * ORDER BY (a) LIMIT 3 WITHIN 1 HOUR": Subscription(
        TRUE, None, Rank(A, False, 3, HOUR)
    ),
    "ORDER BY distance(a, b, 1, 2) LIMIT 3 WITHIN 1 HOUR": Subscription(
        TRUE, None, Rank(Call("distance", (A, B, ONE, TWO)), False, 3, HOUR)
    ),
}
UNITS: list[Unit] = ["MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS", "PUBLICATIONS"]


@pytest.mark.parametrize(("text", "tree"), (SELECTS | RANKS).items(), ids=SELECTS | RANKS)
def test_a_whole_subscription(text: str, tree: Subscription) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_in_any_number_and_case(unit: Unit) -> None:
    for written in (unit, unit[:-1], unit.lower(), unit[:-1].title()):
        rank = parse(f"ORDER BY a LIMIT 3 WITHIN 24 {written}").rank
        assert rank == Rank(A, False, 3, Window(24, unit))


@pytest.mark.parametrize(("text", "amount"), [("0.5", 0.5), ("1e3", 1000.0), (".25", 0.25)])
def test_a_window_may_be_a_fraction_of_time(text: str, amount: float) -> None:
    rank = parse(f"ORDER BY a LIMIT 3 WITHIN {text} DAYS").rank
    assert rank == Rank(A, False, 3, Window(amount, "DAYS"))


# --- mistakes ---------------------------------------------------------------------------------
# text: (what is wrong, which word is to blame, what would be right)

Mistakes = dict[str, tuple[str, str, str]]

FROM_OTHER_LANGUAGES: Mistakes = {
    "a == 5": ("expected a value, found =", "=", "one ="),
    "a = 5 && b = 6": ("found &", "&", "write AND"),
    "a || b": ("found |", "|", "write OR"),
    "!a": ("found !", "!", "write NOT"),
    "a ! = 5": ("found !", "!", "write != without a space"),
    "a => 5": ("found >", ">", "write >="),
    "a =< 5": ("found <", "<", "write <="),
    "a > = 5": ("found =", "=", "write >= without a space"),
    "a < > 5": ("found >", ">", "write != or <>"),
    "a =! 5": ("found !", "!", "write !="),
    'a = "x"': ('found "', '"', "single quotes"),
    '"a" = 5': ('found "', '"', "unusual names in backticks"),
    "a % 2 = 0": ("found %", "%", "no remainder"),
    "a mod 2 = 0": ("found mod", "mod", "no remainder"),
    "a ^ 2 > 4": ("found ^", "^", "pow(a, 2)"),
    "a ** 2 > 4": ("found *", "*", "pow(a, 2)"),
    "a > 5;": ("found ;", ";", "leave the semicolon out"),
    "a > :limit": ("found :", ":", "no parameters"),
    "a > ?": ("found ?", "?", "no parameters"),
    "a > $1": ("found $", "$", "no parameters"),
    "a > ${x}": ("found $", "$", "no parameters"),
    "a > {x}": ("found {", "{", "without braces"),
    "a::int > 5": ("found :", ":", "no casts"),
    "a[0] > 5": ("found [", "[", "nothing reaches into an array"),
    "a IN [1, 2]": ("found [", "[", "write lists in parentheses"),
    "a->b > 5": ("found >", ">", "a.b"),
    "a > 5 // high": ("found /", "/", "comments start with --"),
    "# high\na > 5": ("found #", "#", "comments start with --"),
    "/* high */ a > 5": ("found /", "/", "comments start with --"),
    "a ~ 'x.*'": ("found ~", "~", "no regular expressions"),
    "a REGEXP 'x.*'": ("found REGEXP", "REGEXP", "no regular expressions"),
    "a ILIKE 'x'": ("found ILIKE", "ILIKE", "lower(a) LIKE"),
    "a CONTAINS 'x'": ("found CONTAINS", "CONTAINS", "contains(attribute, 'text')"),
    "a EXISTS": ("found EXISTS", "EXISTS", "IS NOT NULL"),
    "a XOR b": ("found XOR", "XOR", "(a AND NOT b)"),
    "a EQUALS 5": ("found EQUALS", "EQUALS", "write ="),
    "SELECT a FROM b WHERE c > 1": ("there is no FROM", "FROM", "the topic is given separately"),
    "SELECT * FROM sensors": ("there is no FROM", "FROM", "leave it out"),
    "a > 5 GROUP BY b": ("found GROUP", "GROUP", "one publication at a time"),
}

SLIPS: Mistakes = {
    "": ("the filter is empty", "", "TRUE matches everything"),
    "  \n": ("the filter is empty", "", "TRUE matches everything"),
    "-- only a comment": ("the filter is empty", "", "TRUE matches everything"),
    "a > 5 b < 3": ("expected AND, OR or the end, found b", "b", "with AND or OR"),
    "a > 5 ADN b < 3": ("found ADN", "ADN", "did you mean AND?"),
    "a BETWEN 1 AND 2": ("found BETWEN", "BETWEN", "did you mean BETWEEN?"),
    "a + 1 BETWEN 1 AND 2": ("expected a comparison", "BETWEN", "did you mean BETWEEN?"),
    "a > 5 ODER BY b": ("found ODER", "ODER", "did you mean ORDER?"),
    "a LKE 'x'": ("found LKE", "LKE", "did you mean LIKE?"),
    "a > 5 AND": ("expected a value, found the end", "", "must follow AND"),
    "a >": ("expected a value, found the end", "", "must follow >"),
    "a > -- what?": ("expected a value, found the end", "", "must follow >"),
    "NOT": ("expected a value, found the end", "", "must follow NOT"),
    "AND a": ("found AND", "AND", "two complete conditions"),
    "a AND OR b": ("found OR", "OR", "two complete conditions"),
    "a > AND b": ("found AND", "AND", "two complete conditions"),
    "a > 5 AND < 10": ("found <", "<", "a > 5 AND a < 10"),
    "> 5": ("found >", ">", "its own two values"),
    "1 < a < 5": ("found <", "<", "1 < a AND a < 5"),
    "a = b = c": ("found =", "=", "two values at a time"),
    "a NOT = 5": ("found NOT", "NOT", "before BETWEEN, IN and LIKE"),
    "a NOT b": ("found NOT", "NOT", "write NOT before a condition"),
    "(a > 5": ("expected a closing parenthesis, found the end", "", "every ( needs its )"),
    "a > 5)": ("found )", ")", "no parenthesis is open"),
    "()": ("found )", ")", "nothing between the parentheses"),
    "5": ("expected a comparison, found the end", "", "compare the value"),
    "t AND a": ("expected a comparison, found AND", "AND", "compare the value"),
    "'x'": ("expected a comparison", "", "compare the value"),
    "a + 1": ("expected a comparison", "", "compare the value"),
    "a = NULL": ("found NULL", "NULL", "write IS NULL or IS NOT NULL"),
    "null = a": ("found null", "null", "write IS NULL or IS NOT NULL"),
    "a IS 5": ("expected NULL after IS", "5", "compare values with ="),
    "a IS NOT TRUE": ("expected NULL after IS", "TRUE", "compare values with ="),
    "a IS NUL": ("expected NULL after IS", "NUL", "IS [NOT] NULL"),
    "t IS NULL": ("only an attribute", "t", "test those"),
    "a + 1 IS NULL": ("only an attribute", "a", "test those"),
    "limit > 5": ("found limit", "limit", "`limit`"),
    "order > 5": ("expected BY after ORDER", ">", "`order`"),
    "in = 5": ("found in", "in", "`in`"),
    "a > select": ("found select", "select", "SELECT comes first"),
    "a LIKE 'x' AND LIKE 'y'": ("found LIKE", "LIKE", "a value comes before LIKE"),
    "me > 5": ("found me", "me", "me.x"),
    "me.5 > 5": ("found me", "me", "me.x"),
}

NUMBERS_STRINGS_NAMES: Mistakes = {
    "a > 5abc": ("found abc", "abc", "starts with a digit in backticks"),
    "5abc > 1": ("expected a comparison, found abc", "abc", "starts with a digit"),
    "a > 1e": ("found e", "e", "an exponent"),
    "a > 0x1F": ("found x1F", "x1F", "a number is digits"),
    "a > 1_000": ("found _000", "_000", "a number is digits"),
    "a > 1.2.3": ("found .3", ".3", "a number is digits"),
    "a > 40,5": ("found ,", ",", "decimal point"),
    "a > 50%": ("found %", "%", "LIKE pattern"),
    "a.5 > 1": ("found .5", ".5", "write a name of digits in backticks"),
    "a. > 1": ("found .", ".", "dots join names"),
    "a . b > 1": ("found .", ".", "without spaces"),
    "a..b > 1": ("found .", ".", "dots join names"),
    ".a > 1": ("found .", ".", "dots join names"),
    "a > .": ("found .", ".", "dots join names"),
    "a > -.": ("found .", ".", "dots join names"),
    "a = 'it's'": ("found s", "s", "written twice"),
    "a = 'open": ("found '", "'", "not closed"),
    "a IN ('open)": ("found '", "'", "not closed"),
    "a = 'x\\'y'": ("found y", "y", "written twice"),
    "`open > 5": ("found `", "`", "not closed, or empty"),
    "`` > 5": ("found `", "`", "not closed, or empty"),
    "a = ‘x’": ("U+2018 LEFT SINGLE", "‘", "straight single quotes"),
    "a = “x”": ("U+201C LEFT DOUBLE", "“", "straight single quotes"),
    "a ≥ 5": ("U+2265", "≥", "write >="),
    "a ≠ 5": ("U+2260", "≠", "write !="),
    "a > −5": ("U+2212 MINUS SIGN", "−", "write -"),
    "a × 2 > 5": ("U+00D7", "×", "write *"),
    "a > ５": ("found ５", "５", "digits are 0 to 9"),
    "a > ٣": ("found ٣", "٣", "digits are 0 to 9"),
    "a\u00a0> 5": ("U+00A0 NO-BREAK SPACE", "\u00a0", "a plain space"),
    "a\u2028> 5": ("U+2028 LINE SEPARATOR", "\u2028", "a plain space"),
    "a\u200b > 5": ("U+200B ZERO WIDTH SPACE", "\u200b", "cannot be seen"),
    "\ufeffa > 5": ("U+FEFF", "\ufeff", "cannot be seen"),
    "cafe\u0301 > 5": ("U+0301 COMBINING ACUTE", "\u0301", "such a character in backticks"),
    "🌡 > 5": ("U+1F321 THERMOMETER", "🌡", "such a character in backticks"),
    "℘ > 5": ("U+2118 SCRIPT CAPITAL P", "℘", "such a character in backticks"),
    "a > 9223372036854775808": ("64-bit integer", "9223372036854775808", "as a float"),
    "a > 1e999": ("64-bit float", "1e999", "1.79e308"),
    "a > -1e999": ("64-bit float", "1e999", "1.79e308"),
}

LISTS_AND_FUNCTIONS: Mistakes = {
    "a BETWEEN 1, 2": ("expected AND, then the upper bound", ",", "BETWEEN low AND high"),
    "a BETWEEN 1 OR 2": ("expected AND, then the upper bound", "OR", "BETWEEN low AND high"),
    "a BETWEEN 1": ("expected AND, then the upper bound", "", "BETWEEN low AND high"),
    "a BETWEEN AND 3": ("found AND", "AND", "BETWEEN low AND high"),
    "a IN ()": ("expected a literal", ")", "nothing between the parentheses"),
    "a IN 1, 2": ("expected a list in parentheses", "1", "IN (1, 2)"),
    "a IN (1, 'x')": ("a number and a string", "'x'", "one IN for each type"),
    "a IN (1, TRUE)": ("a number and a boolean", "TRUE", "one IN for each type"),
    "a IN (1 2)": ("a comma or a closing parenthesis", "2", "a list holds numbers"),
    "a IN (1, 2": ("a comma or a closing parenthesis", "", "a list holds numbers"),
    "a IN (1,)": ("expected a literal", ")", "one comma too many"),
    "a IN (b)": ("expected a literal", "b", "strings in single quotes"),
    "a IN (t)": ("expected a literal", "t", "strings in single quotes"),
    "a IN (1+1)": ("a comma or a closing parenthesis", "+", "a list holds numbers"),
    "a IN (-b)": ("expected a literal", "-", "a list holds numbers"),
    "a IN (NULL)": ("found NULL", "NULL", "IS NULL"),
    "a IN (SELECT b)": ("found SELECT", "SELECT", "a list holds numbers"),
    "a LIKE b": ("a pattern in single quotes", "b", "LIKE 'air%'"),
    "a LIKE 5": ("a pattern in single quotes", "5", "LIKE 'air%'"),
    "a LIKE 'x' ESCAPE 'ab'": ("ESCAPE takes one character", "'ab'", "ESCAPE '!'"),
    "a LIKE 'x' ESCAPE ''": ("ESCAPE takes one character", "''", "ESCAPE '!'"),
    "a LIKE 'x' ESCAPE '%'": ("neither % nor _", "'%'", "ESCAPE '!'"),
    "a LIKE 'x' ESCAPE": ("one character in single quotes", "", "ESCAPE '!'"),
    "a LIKE 'x!' ESCAPE '!'": ("after ! in the pattern", "'x!'", "write !!"),
    "a LIKE 'x!y' ESCAPE '!'": ("after ! in the pattern", "'x!y'", "write !!"),
    "distanc(a, b, c, d) < 5": ("no function distanc", "distanc", "did you mean distance?"),
    "startwith(a, 'x')": ("no function startwith", "startwith", "did you mean startswith?"),
    "max(a, b) > 5": ("no function max", "max", "did you mean greatest?"),
    "now() > 5": ("no function now", "now", "there are abs, least"),
    "`abs`(a) > 5": ("no function `abs`", "`abs`", "did you mean abs?"),
    "t(5) > 1": ("no function t", "t", "there are abs"),
    "abs() > 1": ("abs takes 1 argument, not 0", "abs", "write abs(a)"),
    "abs(a, b) > 1": ("abs takes 1 argument, not 2", "abs", "write abs(a)"),
    "pow(2) > 1": ("pow takes 2 arguments, not 1", "pow", "write pow(a, b)"),
    "least(a) > 1": ("least takes at least 2 arguments, not 1", "least", "least(a, b)"),
    "least(a, b,) > 1": ("found )", ")", "one comma too many"),
    "distance(a, b) < 5": ("distance takes 4 arguments", "distance", "(lat, long, lat, long)"),
    "abs(a > 1": ("a comma or a closing parenthesis in abs", ">", "write abs(a)"),
    "abs a > 1": ("found a", "a", "arguments of abs in parentheses"),
    "startswith(a)": ("expected a comma", ")", "startswith(attribute, 'text')"),
    "startswith(a, b)": ("expected a string", "b", "startswith(attribute, 'text')"),
    "startswith('x', a)": ("only an attribute", "'x'", "contains(name, 'text')"),
    "lower(a, b) = 'x'": ("closing parenthesis in lower", ",", "write lower(a)"),
    "lower(5) = 'x'": ("only an attribute", "5", "lower(name)"),
    "lower() = 'x'": ("expected a value", ")", "nothing between"),
}

TYPES: Mistakes = {
    "1 = 'x'": ("a number is never equal to", "'x'", "numbers compare with numbers"),
    "t = 'x'": ("a number is never equal to", "'x'", "numbers compare with numbers"),
    "a + 1 = 'x'": ("a number is never equal to", "'x'", "numbers compare with numbers"),
    "+a = 'x'": ("a number is never equal to", "'x'", "numbers compare with numbers"),
    "+a IN ('x')": ("a number is never equal to", "'x'", "numbers compare with numbers"),
    "+a LIKE 'x'": ("only an attribute", "+", "write name LIKE"),
    "+'x' = a": ("a + sign needs a number", "'x'", "no numbers"),
    "lower(a) = 5": ("a string is never equal to", "5", "strings with strings"),
    "TRUE = 1": ("a boolean is never equal to", "1", "TRUE with FALSE"),
    "a > TRUE": ("booleans have no order", "TRUE", "use = or !="),
    "FALSE <= a": ("booleans have no order", "FALSE", "use = or !="),
    "a BETWEEN FALSE AND TRUE": ("booleans have no order", "FALSE", "use = or !="),
    "a BETWEEN 1 AND 'z'": ("a number is never equal to", "'z'", "strings with strings"),
    "t BETWEEN 'a' AND 'b'": ("a number is never equal to", "'a'", "numbers compare"),
    "'x' IN (1)": ("a string is never equal to", "1", "strings with strings"),
    "'x' + 1 > 5": ("arithmetic needs a number, and this is a string", "'x'", "without quotes"),
    "a + TRUE > 5": ("arithmetic needs a number, and this is a boolean", "TRUE", "no numbers"),
    "-'x' > 5": ("a - sign needs a number", "'x'", "without quotes"),
    "abs('x') > 5": ("abs needs a number", "'x'", "without quotes"),
    "abs(lower(a)) > 5": ("abs needs a number", "lower", "no numbers"),
    "(a > 5) = TRUE": ("a condition cannot be compared", "(", "AND, OR and NOT"),
    "a = (b > 5)": ("a condition cannot be compared", "(", "AND, OR and NOT"),
    "(a OR b) BETWEEN 1 AND 2": ("a condition cannot be compared", "(", "AND, OR and NOT"),
    "(a AND b) IN (TRUE)": ("a condition cannot be compared", "(", "AND, OR and NOT"),
    "contains(a, 'x') = TRUE": ("a condition cannot be compared", "contains", "AND, OR"),
    "(a > 5) + 1 > 2": ("arithmetic needs a number, and this is a condition", "(", "AND, OR"),
    "abs((a > 1)) > 1": ("abs needs a number, and this is a condition", "(", "AND, OR"),
    "(a > 5) IS NULL": ("only an attribute", "(", "test those"),
    "5 LIKE 'x'": ("only an attribute", "5", "name LIKE 'text%'"),
    "abs(a) LIKE 'x'": ("only an attribute", "abs", "name LIKE 'text%'"),
    "ORDER BY 'a' LIMIT 1 WITHIN 1 DAY": ("a score needs a number", "'a'", "without quotes"),
    "ORDER BY (a > 1) LIMIT 1 WITHIN 1 DAY": ("a score needs a number", "(", "AND, OR"),
}

WHOLE: Mistakes = {
    "SELECT": ("expected an attribute to select", "", "separated by commas"),
    "SELECT a,": ("expected an attribute to select", "", "separated by commas"),
    "SELECT a, WHERE b": ("expected an attribute to select, found WHERE", "WHERE", "commas"),
    "SELECT t": ("expected an attribute to select", "t", "odd ones in backticks"),
    "SELECT me.x": ("expected an attribute to select", "me.x", "publication's attributes"),
    "SELECT 5": ("expected an attribute to select", "5", "names"),
    "SELECT *, a": ("found ,", ",", "takes * or names"),
    "SELECT a + 1 WHERE b": ("found WHERE", "WHERE", "takes * or names"),
    "SELECT abs(a) WHERE b > 1": ("found WHERE", "WHERE", "takes * or names"),
    "a WHERE b": ("found WHERE", "WHERE", "before the condition"),
    "WHERE": ("expected a value, found the end", "", "must follow WHERE"),
    "a > 5 SELECT b": ("found SELECT", "SELECT", "SELECT comes first"),
    "LIMIT 10": ("found LIMIT", "LIMIT", "ORDER BY score LIMIT 10"),
    "a > 5 LIMIT 10": ("found LIMIT", "LIMIT", "ORDER BY score LIMIT 10"),
    "a WITHIN 5 HOURS": ("found WITHIN", "WITHIN", "ORDER BY score LIMIT 10"),
    "ORDER a LIMIT 1 WITHIN 1 DAY": ("expected BY after ORDER", "a", "ORDER BY score"),
    "ORDER BY LIMIT 1 WITHIN 1 DAY": ("found LIMIT", "LIMIT", "ORDER BY score"),
    "ORDER BY a": ("expected LIMIT", "", "LIMIT 10 WITHIN 24 HOURS"),
    "ORDER BY a, b LIMIT 1 WITHIN 1 DAY": ("expected LIMIT", ",", "ORDER BY score LIMIT"),
    "ORDER BY a DSC LIMIT 1 WITHIN 1 DAY": ("expected LIMIT", "DSC", "ORDER BY score LIMIT"),
    "ORDER BY a LIMIT 10": ("expected WITHIN", "", "WITHIN 24 HOURS"),
    "ORDER BY a LIMIT 0 WITHIN 1 DAY": ("a whole number from 1 to 10,000", "0", "LIMIT 10"),
    "ORDER BY a LIMIT 2.5 WITHIN 1 DAY": ("a whole number from 1", "2.5", "LIMIT 10"),
    "ORDER BY a LIMIT -1 WITHIN 1 DAY": ("a whole number after LIMIT", "-", "LIMIT 10"),
    "ORDER BY a LIMIT ten WITHIN 1 DAY": ("a whole number after LIMIT", "ten", "LIMIT 10"),
    "ORDER BY a LIMIT 1 WITHIN 24 HOURZ": ("expected a unit", "HOURZ", "units are"),
    "ORDER BY a LIMIT 1 WITHIN 24": ("expected a unit", "", "units are"),
    "ORDER BY a LIMIT 1 WITHIN 24 mınutes": ("expected a unit", "mınutes", "units are"),
    "ORDER BY a LIMIT 1 WITHIN HOURS": ("a number, then a unit", "HOURS", "24 HOURS"),
    "ORDER BY a LIMIT 1 WITHIN 24h": ("expected a unit, found h", "h", "a number is digits"),
    "ORDER BY a LIMIT 1 WITHIN 0 DAYS": ("longer than nothing", "0", "24 HOURS"),
    "ORDER BY a LIMIT 1 WITHIN 0 PUBLICATIONS": ("longer than nothing", "0", "500 PUBL"),
    "ORDER BY a LIMIT 1 WITHIN 1e308 DAYS": ("shorter than for ever", "1e308", "24 HOURS"),
    "ORDER BY a LIMIT 1 WITHIN 5e-324 MILLISECONDS": ("longer than nothing", "5e-324", "24"),
    "ORDER BY a LIMIT 1 WITHIN 1.5 PUBLICATIONS": ("whole publications", "1.5", "500 PUBL"),
    "ORDER BY a LIMIT 1 WITHIN 1 DAY AND b": ("expected the end, found AND", "AND", "nothing"),
    "ORDER BY a LIMIT 1 WITHIN 1 DAY 2 HOURS": ("expected the end", "2", "nothing after it"),
}

MISTAKES = (
    FROM_OTHER_LANGUAGES | SLIPS | NUMBERS_STRINGS_NAMES | LISTS_AND_FUNCTIONS | TYPES | WHOLE
)


@pytest.mark.parametrize(
    ("text", "what", "blamed", "hint"),
    [(text, *expected) for text, expected in MISTAKES.items()],
    ids=[ascii(text) for text in MISTAKES],
)
def test_a_mistake_is_explained(text: str, what: str, blamed: str, hint: str) -> None:
    with pytest.raises(TextError) as caught:
        parse(text)
    error = caught.value
    assert what in error.what
    assert text[error.start : error.end] == blamed
    assert hint in (error.hint or "")


def test_the_blame_lies_on_the_right_one_of_several_equal_words() -> None:
    text = "a > 5 AND a > 6 AND a > > 7"
    with pytest.raises(TextError) as caught:
        parse(text)
    assert caught.value.start == text.rindex(">")


def test_a_long_word_is_cut_in_the_explanation() -> None:
    for text in ("a > 5 " + "x" * 5000, "x" * 5000 + "(5) > 5", "a = '" + "x" * 5000 + "' 5"):
        with pytest.raises(TextError) as caught:
            parse(text)
        assert len(caught.value.what) < 100


def test_a_string_over_two_lines_is_shown_in_one() -> None:
    with pytest.raises(TextError, match=r"found 'x y'\n") as caught:
        parse("a > 5 'x\ny'")
    assert "\n" not in caught.value.what
