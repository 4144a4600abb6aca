"""Covers and intersects: a table made by hand, and numbers at their edges.

A wrong "yes" or "no" loses notifications without a sound, so the answers are held against two
judges: people, here (the table says what is true, worked out by hand), and the oracle, in
`test_algebra_and_oracle.py`. "Don't know" is allowed, but counted: the list below the table is
exact, so that it changes only on purpose.
"""

from collections import Counter
from random import Random
from typing import Any, NamedTuple

import pytest

from rove.lang import Answer, LanguageError, ProofResult, cases, covers, intersects, matches, parse
from rove.lang.limits import PROOF_WORK_MAX
from tests.differential.drawing import Drawing, Moment

# --- the table ------------------------------------------------------------------------------

# a | b | does a cover b? | do they intersect? | from..to seconds of t, and "same" subscriber
# (?: nobody can know, for the other publications of the stream decide)
TABLE = """
# equality
x = 5                     | x = 3                     | no  | no
x = 5                     | x = 5.0                   | yes | yes
x = 5                     | x = '5'                   | no  | no
x = 1                     | x = TRUE                  | no  | no
x != 5                    | x = 3                     | yes | yes
x != 5                    | x = 'a'                   | no  | no
x != 5                    | x IN (1, 2)               | yes | yes
x > 3                     | x > 'a'                   | no  | no

# BETWEEN
x BETWEEN 1 AND 9         | x BETWEEN 2 AND 8         | yes | yes
x BETWEEN 2 AND 8         | x BETWEEN 1 AND 9         | no  | yes
x BETWEEN 1 AND 9         | x BETWEEN 1 AND 9         | yes | yes
x BETWEEN 1 AND 5         | x BETWEEN 5 AND 9         | no  | yes
x BETWEEN 1 AND 4         | x BETWEEN 5 AND 9         | no  | no
x BETWEEN 1 AND 9         | x = 9                     | yes | yes
x = 9                     | x BETWEEN 1 AND 9         | no  | yes
x BETWEEN 1 AND 9         | x > 1 AND x < 9           | yes | yes
x > 1 AND x < 9           | x BETWEEN 1 AND 9         | no  | yes
x >= 1                    | x BETWEEN 1 AND 9         | yes | yes
x BETWEEN 1 AND 9         | x >= 1                    | no  | yes
x BETWEEN 1 AND 9         | x > 9                     | no  | no
x BETWEEN 9 AND 1         | x = 5                     | no  | no
x = 5                     | x BETWEEN 9 AND 1         | yes | no
x NOT BETWEEN 1 AND 9     | x > 9                     | yes | yes
x NOT BETWEEN 1 AND 9     | x BETWEEN 2 AND 3         | no  | no
x NOT BETWEEN 4 AND 5     | x NOT BETWEEN 1 AND 9     | yes | yes
x NOT BETWEEN 1 AND 9     | x NOT BETWEEN 4 AND 5     | no  | yes
x NOT BETWEEN 9 AND 1     | x = 5                     | yes | yes
x NOT BETWEEN 9 AND 1     | x = 'a'                   | no  | no
x BETWEEN 1 AND 9 OR x BETWEEN 9 AND 20 | x BETWEEN 5 AND 15 | yes | yes
x BETWEEN 1 AND 8 OR x BETWEEN 9 AND 20 | x BETWEEN 5 AND 15 | no  | yes
s BETWEEN 'a' AND 'c'     | s = 'b'                   | yes | yes
s BETWEEN 'a' AND 'c'     | s = 'ca'                  | no  | no
s BETWEEN 'a' AND 'c'     | startswith(s, 'b')        | yes | yes
s BETWEEN 'a' AND 'b'     | startswith(s, 'b')        | no  | yes
x BETWEEN 1 AND 9         | x BETWEEN '1' AND '9'     | no  | no

# prefixes
startswith(s, 'ab')       | startswith(s, 'abc')      | yes | yes
startswith(s, 'abc')      | startswith(s, 'ab')       | no  | yes
startswith(s, 'abc')      | startswith(s, 'abd')      | no  | no
startswith(s, '')         | s > 'b'                   | yes | yes
startswith(s, '')         | s IS NOT NULL             | no  | yes
startswith(s, 'ab')       | s LIKE 'ab%'              | yes | yes
s LIKE 'ab%'              | startswith(s, 'ab')       | yes | yes
startswith(s, 'ab')       | s LIKE 'ab_'              | yes | yes
s >= 'ab' AND s < 'ac'    | startswith(s, 'ab')       | yes | yes
startswith(s, 'ab')       | s >= 'ab' AND s < 'ac'    | yes | yes
s < 'abz'                 | startswith(s, 'ab')       | no  | yes
NOT startswith(s, 'ab')   | startswith(s, 'ac')       | yes | yes
NOT startswith(s, 'ab')   | startswith(s, 'a')        | no  | yes
NOT startswith(s, 'ab')   | startswith(s, 'abc')      | no  | no
startswith(s, 'ab')       | startswith(s, 'AB')       | no  | no

# endswith, contains, LIKE
endswith(s, 'c')          | endswith(s, 'bc')         | yes | yes
endswith(s, 'bc')         | endswith(s, 'c')          | no  | yes
endswith(s, 'b')          | endswith(s, 'c')          | no  | no
contains(s, 'b')          | contains(s, 'abc')        | yes | yes
contains(s, 'abc')        | contains(s, 'b')          | no  | yes
contains(s, 'b')          | contains(s, 'c')          | no  | yes
contains(s, 'b')          | startswith(s, 'ab')       | yes | yes
contains(s, 'b')          | endswith(s, 'ab')         | yes | yes
contains(s, 'ab')         | s = 'ba'                  | no  | no
contains(s, 'ab') AND contains(s, 'ba')   | s = 'aba'                                 | yes | yes
contains(s, 'a') OR NOT contains(s, 'a')  | s > ''                                    | yes | yes
contains(s, 'a') AND s < 'b'              | s LIKE 'a%'                               | yes | yes
startswith(s, 'ab') AND endswith(s, 'bc') | s LIKE 'ab%bc'                            | yes | yes
s LIKE 'ab%bc'            | startswith(s, 'ab') AND endswith(s, 'bc')                 | no  | yes
s LIKE 'a_c'              | s LIKE 'a%c'              | no  | yes
s LIKE 'a%c'              | s LIKE 'a_c'              | yes | yes
s LIKE 'a%c'              | s LIKE 'a%b%c'            | yes | yes
s LIKE 'a%b%c'            | s LIKE 'a%c'              | no  | yes
s LIKE '_%'               | s LIKE '%_'               | yes | yes
s LIKE '__'               | s LIKE '___'              | no  | no
s LIKE '%'                | endswith(s, 'x')          | yes | yes
s NOT LIKE 'a%'           | s LIKE 'b%'               | yes | yes
s NOT LIKE 'a%'           | s LIKE '%a'               | no  | yes
s NOT LIKE '%ab%'         | s NOT LIKE '%a%'          | yes | yes
s NOT LIKE '%a%'          | s NOT LIKE '%ab%'         | no  | yes
s LIKE 'a!%' ESCAPE '!'   | s = 'a%'                  | yes | yes
s LIKE 'a!%' ESCAPE '!'   | s LIKE 'a%'               | no  | yes

# ranges of strings
s > 'a'                   | s > 'b'                   | yes | yes
s > 'b'                   | s > 'a'                   | no  | yes
s < 'a'                   | s > 'b'                   | no  | no
s > 'a'                   | s = 'a'                   | no  | no
s > 'a'                   | s = 'aa'                  | yes | yes
s >= 'a' AND s <= 'a'     | s = 'a'                   | yes | yes
s > 'Z'                   | s = 'A'                   | no  | no
s > 'a'                   | s > 'a' AND s < 'aa'      | yes | yes
TRUE                      | s < ''                    | yes | no

# IN
x IN (1, 2, 3)            | x IN (1, 3)               | yes | yes
x IN (1, 3)               | x IN (1, 2, 3)            | no  | yes
x IN (1, 2)               | x IN (3, 4)               | no  | no
x IN (1, 2)               | x = 1 OR x = 2            | yes | yes
x IN (1, 2)               | x BETWEEN 1 AND 2         | no  | yes
x BETWEEN 1 AND 2         | x IN (1, 2)               | yes | yes
x NOT IN (1, 2)           | x = 3                     | yes | yes
x NOT IN (1, 2)           | x = 1                     | no  | no
x NOT IN (1, 2)           | x NOT IN (1, 2, 3)        | yes | yes
x NOT IN (1, 2)           | x > 2                     | yes | yes
x NOT IN (1, 2)           | x = 'a'                   | no  | no
s IN ('a', 'b')           | s = 'b'                   | yes | yes
s NOT IN ('a')            | startswith(s, 'a')        | no  | yes
b IN (TRUE, FALSE)        | b                         | yes | yes
b NOT IN (TRUE)           | NOT b                     | yes | yes

# IS NULL
x IS NULL                 | x > 3                     | no  | no
x IS NOT NULL             | x > 3                     | yes | yes
x > 3                     | x IS NOT NULL             | no  | yes
x IS NULL OR x IS NOT NULL | TRUE                     | yes | yes
x > 3 OR x <= 3           | x IS NOT NULL             | no  | yes
x > 3 OR x <= 3           | TRUE                      | no  | yes
NOT x > 3                 | x IS NULL                 | no  | no
x IS NULL                 | y IS NULL                 | no  | yes

# nested attributes
n.m > 1                   | n.m > 2                   | yes | yes
n.m > 1                   | n.k > 2                   | no  | yes
n.m > 1                   | `n.m` > 2                 | no  | yes
n.m IS NULL               | n IS NULL                 | yes | yes
n IS NULL                 | n.m IS NULL               | no  | yes
n IS NOT NULL             | n.m = 3                   | yes | yes
n = 3                     | n.m = 3                   | no  | no
n.m IS NULL               | n = 3                     | yes | yes
n.m.k > 1                 | n.m = 1                   | no  | no

# booleans and constants
b                         | b = TRUE                  | yes | yes
b                         | b != FALSE                | yes | yes
b                         | NOT b                     | no  | no
NOT b                     | b = FALSE                 | yes | yes
b OR NOT b                | b != TRUE                 | yes | yes
b OR NOT b                | b IS NOT NULL             | no  | yes
b                         | b = 'true'                | no  | no
TRUE                      | FALSE                     | yes | no
FALSE                     | TRUE                      | no  | no
FALSE                     | FALSE                     | yes | no

# OR, NOT, several attributes
x < 3 OR x > 5            | x < 2 OR x > 6            | yes | yes
x < 5 OR x > 3            | x = 4                     | yes | yes
x < 3 OR y < 3            | x < 2                     | yes | yes
x < 3                     | x < 2 OR y < 2            | no  | yes
NOT (x < 3 AND y < 3)     | x >= 3                    | yes | yes
NOT (x < 3 OR y < 3)      | x >= 3                    | no  | yes
NOT (NOT x < 3)           | x < 3                     | yes | yes
x < 3 AND y < 3           | x < 3                     | no  | yes
x < 3                     | x < 3 AND y < 3           | yes | yes
x < 3 AND x > 5           | x = 4                     | no  | no
x = 4                     | x < 3 AND x > 5           | yes | no
x > 1                     | y > 1                     | no  | yes
x > 3 AND y > 3           | x < 5 AND y < 5           | no  | yes
x > 3 AND y > 5           | x < 5 AND y < 5           | no  | no
x BETWEEN 0 AND 4 AND y < 4 OR x BETWEEN 4 AND 9 AND y < 4 | x BETWEEN 1 AND 8 AND y < 3 | yes | yes
x BETWEEN 0 AND 4 AND y < 4 OR x BETWEEN 5 AND 9 AND y < 4 | x BETWEEN 1 AND 8 AND y < 3 | no  | yes

# arithmetic over one attribute
x + 1 > 3                 | x BETWEEN 3 AND 10        | yes | yes
x + 1.0 > 3               | x > 2.5                   | yes | yes
2 * x > 10                | x BETWEEN 6 AND 7         | yes | yes
2 * x > 10                | x BETWEEN 1 AND 4         | no  | no
x * x >= 0                | x BETWEEN -5 AND 5        | yes | yes
-x > 3                    | x BETWEEN -9 AND -4       | yes | yes
1 / x > 0                 | x BETWEEN 1 AND 9         | yes | yes
1 / x > 0                 | x = 0                     | no  | no
x - x = 0                 | x BETWEEN 0 AND 9         | yes | yes
abs(x) < 3                | x > -3 AND x < 3          | yes | yes
abs(x) < 3                | x < 2                     | no  | yes
sqrt(x) < 3               | x BETWEEN 0 AND 8         | yes | yes
sqrt(x) >= 0              | x < 0                     | no  | no
pow(x, 2) > 4             | x BETWEEN 3 AND 9         | yes | yes
floor(x) = 3              | x BETWEEN 3 AND 3.5       | yes | yes
ceil(x) = 3               | x = 4                     | no  | no

# arithmetic over several attributes
x > y                     | y < x                     | yes | yes
x > y                     | x < y                     | no  | no
x > y                     | x > y AND x > 3           | yes | yes
x >= y                    | x > y                     | yes | yes
x >= y                    | x = y                     | no  | yes
x <= y                    | x = y                     | no  | yes
x >= y                    | x = y AND x > 0           | yes | yes
x = y                     | x = 3 AND y = 3           | yes | yes
x = y                     | x = 3 AND y = 4           | no  | no
x = y                     | x = 3 AND y = '3'         | no  | no
x != y                    | x = 3 AND y = 4           | yes | yes
x < x                     | TRUE                      | no  | no
x < z                     | x < y AND y < z           | yes | yes
x > y                     | x > y + 1 AND y BETWEEN 0 AND 10 | yes | yes
x > y + 1                 | x > y + 2 AND y BETWEEN 0 AND 10 | yes | yes
x > y                     | x - y > 0                 | yes | yes
x - y > 0                 | x > y                     | no  | yes
x + y = 3                 | y + x = 3                 | yes | yes
x + y > 3                 | x BETWEEN 2 AND 9 AND y BETWEEN 2 AND 9 | yes | yes
x + y > 30                | x BETWEEN 2 AND 9 AND y BETWEEN 2 AND 9 | no  | no
x * y > 3                 | x BETWEEN 2 AND 9 AND y BETWEEN 2 AND 9 | yes | yes
least(x, y) > 3           | x BETWEEN 4 AND 5 AND y BETWEEN 6 AND 9 | yes | yes
greatest(x, y) > 3        | x BETWEEN 4 AND 5         | no  | yes
distance(u, v, 45.8, 15.9) < 1000 | u = 45.8 AND v = 15.9                  | yes | yes
distance(u, v, 45.8, 15.9) < 1000 | u = 46.8 AND v = 15.9                  | no  | no
distance(u, v, 45.8, 15.9) < 1000 | distance(u, v, 45.8, 15.9) < 500       | yes | yes
distance(u, v, 45.8, 15.9) < 500  | distance(u, v, 45.8, 15.9) < 1000      | no  | yes
distance(u, v, 45.8, 15.9) < 3e7  | u BETWEEN -90 AND 90 AND v BETWEEN 0 AND 9 | yes | yes

# lower()
lower(s) = 'abc'          | s = 'ABC'                 | yes | yes
lower(s) = 'abc'          | s = 'abd'                 | no  | no
lower(s) = 'abc'          | s IN ('abc', 'aBc')       | yes | yes
s = 'abc'                 | lower(s) = 'abc'          | no  | yes
lower(s) = 'ABC'          | TRUE                      | no  | no
startswith(lower(s), 'a') | startswith(lower(s), 'ab') | yes | yes
startswith(lower(s), 'a') | startswith(lower(s), 'b') | no  | no
startswith(lower(s), 'a') | startswith(s, 'A')        | yes | yes

# evolving: linear
x < t                     | x < t - 1                 | yes | yes | 0..8
x BETWEEN t - 3 AND t + 3 | x BETWEEN t - 2 AND t + 2 | yes | yes
x BETWEEN t - 2 AND t + 2 | x BETWEEN t - 3 AND t + 3 | no  | yes
x BETWEEN t - 3 AND t + 3 | x BETWEEN 10 AND 11       | no  | yes | 0..8
x BETWEEN t - 3 AND t + 3 | x BETWEEN 10 AND 11       | no  | no  | 0..6
x BETWEEN t - 3 AND t + 3 | x BETWEEN 10 AND 11       | yes | yes | 8..13
x BETWEEN t - 3 AND t + 3 AND y BETWEEN t - 2 AND t + 2 | x = 4 AND y = 3 | no  | no  | 0..0.5
x BETWEEN t - 3 AND t + 3 AND y BETWEEN t - 2 AND t + 2 | x = 4 AND y = 3 | yes | yes | 1..5
x BETWEEN t - 3 AND t + 3 AND y BETWEEN t - 2 AND t + 2 | x = 4 AND y = 3 | no  | no  | 6..8
x < 1 + 0.5 * t           | x < 3                     | no  | yes | 0..8
x < 1 + 0.5 * t           | x < 3                     | yes | yes | 4..8
x < 3                     | x < 1 + 0.5 * t           | yes | yes | 0..4
x = t                     | x = 3                     | no  | yes | 0..8
x = t                     | x = 3                     | no  | no  | 4..8
x < t / 2                 | x < t / 4                 | yes | yes | 1..8
t > 5                     | TRUE                      | no  | yes | 0..8
t > 5                     | TRUE                      | no  | no  | 0..5
t > 5                     | TRUE                      | yes | yes | 6..8
x > 3 AND t < 5           | x > 4                     | yes | yes | 0..4

# evolving: crossing in time
x > t                     | x > 10 - t                | yes | yes | 0..5
x > t                     | x > 10 - t                | no  | yes | 0..6
x < t                     | x > 10 - t                | no  | no  | 0..5
x < t                     | x > 10 - t                | no  | yes | 0..6

# evolving: in pieces, curved, periodic, undefined at a moment
x < 3 + least(t, 8)       | x < 3 + least(t, 5)       | yes | yes
x < 3 + least(t, 5)       | x < 3 + least(t, 8)       | no  | yes | 0..100
x < 3 + least(t, 5)       | x < 3 + least(t, 8)       | yes | yes | 0..5
x < 20                    | x < 3 + least(t, 8)       | yes | yes
x > 10 * abs(t - 5)       | x > 50                    | yes | yes | 0..10
x < t * t                 | x < 4                     | no  | yes | 0..8
x < t * t                 | x < 4                     | yes | yes | 2..8
x < 5 + sin(t)            | x < 4                     | yes | yes | 0..100
x < 5 + sin(t)            | x < 5                     | no  | yes | 0..100
x < 5 + sin(t)            | x > 6                     | no  | no  | 0..100
x < 5 + sin(t)            | x > 5.9                   | no  | yes | 0..100
x > 1 / t                 | x > 1                     | no  | yes | 0..8
x > 1 / t                 | x > 1                     | yes | yes | 2..8

# following
x > me.x                  | x > me.x                  | no  | yes
x > me.x                  | x > me.x                  | yes | yes | same
x > me.x                  | x < me.x                  | no  | yes
x > me.x                  | x < me.x                  | no  | no  | same
me.x > 3                  | me.x > 5                  | no  | yes
me.x > 3                  | me.x > 5                  | yes | yes | same
me.x IS NULL              | x > me.x                  | no  | yes
me.x IS NULL              | x > me.x                  | no  | no  | same
me.vip                    | x > 3                     | no  | yes
x > 4                     | x > me.x AND me.x = 5     | yes | yes
x < me.x + 3              | x < me.x + 2 AND me.x BETWEEN 0 AND 9 | yes | yes | same
x < me.x + 2              | x < me.x + 3 AND me.x BETWEEN 0 AND 9 | no  | yes | same
x < me.x - 3              | x > me.x + 3 AND me.x BETWEEN 0 AND 9 | no  | no  | same
x < me.x + 3.5            | x < me.x + 2.5            | yes | yes | same

# ranked
x > 3                     | x > 5 ORDER BY x LIMIT 3 WITHIN 1 HOUR              | yes | yes
x > 5                     | x > 3 ORDER BY x LIMIT 3 WITHIN 1 HOUR              | no  | yes
x > 5 ORDER BY x LIMIT 3 WITHIN 60 MINUTES | x > 5 ORDER BY x LIMIT 3 WITHIN 1 HOUR | yes | yes
x > 5 ORDER BY x LIMIT 3 WITHIN 1 HOUR | x > 3 ORDER BY x LIMIT 3 WITHIN 1 HOUR | no  | yes
x > 5 ORDER BY y LIMIT 3 WITHIN 1 HOUR | x > 5                                  | no  | yes
x > 5 ORDER BY x LIMIT 3 WITHIN 1 HOUR | x > 5                                  | ?   | yes
x > 5 ORDER BY x LIMIT 9 WITHIN 1 HOUR | x > 5 ORDER BY x LIMIT 3 WITHIN 1 HOUR | ?   | yes
ORDER BY y LIMIT 3 WITHIN 1 HOUR       | y IS NULL                              | no  | no
x > 5                                  | ORDER BY 1 / 0 LIMIT 3 WITHIN 1 HOUR   | yes | no
ORDER BY x - me.x LIMIT 3 WITHIN 1 HOUR | ORDER BY x - me.x LIMIT 3 WITHIN 1 HOUR | no  | yes
ORDER BY x - me.x LIMIT 3 WITHIN 1 HOUR | ORDER BY x - me.x LIMIT 3 WITHIN 1 HOUR | yes | yes | same
SELECT x WHERE x > 3                   | SELECT y WHERE x > 3                   | yes | yes
"""

# What is true above and not found out. Fewer is better; more must be a decision.
DONT_KNOW = {
    # arithmetic over several attributes, or one attribute several times
    ("covers", "x - x = 0", "x BETWEEN 0 AND 9"),
    ("covers", "x < z", "x < y AND y < z"),
    ("covers", "x > y", "x - y > 0"),
    ("covers", "x - y > 0", "x > y"),  # integers far apart overflow
    ("intersects", "x + y = 3", "y + x = 3"),
    ("covers", "distance(u, v, 45.8, 15.9) < 500", "distance(u, v, 45.8, 15.9) < 1000"),
    # what lower() makes of strings that are not known one by one
    ("intersects", "lower(s) = 'ABC'", "TRUE"),
    ("covers", "startswith(lower(s), 'a')", "startswith(s, 'A')"),
    # ranked: whether something is left out for want of rank
    (
        "covers",
        "x > 5 ORDER BY x LIMIT 3 WITHIN 1 HOUR",
        "x > 5",
    ),
    (
        "covers",
        "x > 5 ORDER BY x LIMIT 9 WITHIN 1 HOUR",
        "x > 5 ORDER BY x LIMIT 3 WITHIN 1 HOUR",
    ),
}


class Row(NamedTuple):
    """One line of the table."""

    a: str
    b: str
    covers: str
    intersects: str
    conditions: str = ""

    @property
    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for word in self.conditions.split():
            if word == "same":
                found["same_subscriber"] = True
            else:
                start, end = word.split("..")
                found["during"] = (float(start), float(end))
        return found

    def answers(self) -> dict[str, Answer]:
        a, b = parse(self.a), parse(self.b)
        return {
            "covers": covers(a, b, **self.options),
            "intersects": intersects(a, b, **self.options),
        }

    def verdicts(self) -> tuple[str, str]:
        answers = self.answers()
        return answers["covers"].verdict.value, answers["intersects"].verdict.value

    def expected(self) -> tuple[str, str]:
        truth = {"covers": self.covers, "intersects": self.intersects}
        unknown = {q for q in truth if (q, self.a, self.b) in DONT_KNOW}
        return tuple("don't know" if q in unknown else truth[q] for q in truth)  # type: ignore[return-value]


ROWS = [
    Row(*(cell.strip() for cell in line.split(" | ")))
    for line in TABLE.splitlines()
    if line and not line.startswith("#")
]


def row_id(row: Row) -> str:
    return " | ".join(filter(None, (row.a, row.b, row.conditions)))


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_the_answer_is_what_the_table_says(row: Row) -> None:
    assert row.verdicts() == row.expected()


def test_what_is_not_known_is_counted() -> None:
    questions = {(q, row.a, row.b) for row in ROWS for q in ("covers", "intersects")}
    assert questions >= DONT_KNOW, "a question that is not in the table"
    assert (len(ROWS), len(DONT_KNOW)) == (258, 10)


# What `x _ 3` covers and meets among `x _ 3`, and among `x _ 5`.
COVERED_AT_THE_SAME_BOUND = {
    "=": "=", "!=": "!= < >", "<": "<", "<=": "= < <=", ">": ">", ">=": "= > >=",
}  # fmt: skip
MET_AT_THE_SAME_BOUND = {
    "=": "= <= >=", "!=": "!= < <= > >=", "<": "!= < <=", "<=": "= != < <= >=",
    ">": "!= > >=", ">=": "= != <= > >=",
}  # fmt: skip
COVERED_AT_A_HIGHER_BOUND = {
    "=": "", "!=": "= > >=", "<": "", "<=": "", ">": "= > >=", ">=": "= > >=",
}  # fmt: skip
MET_AT_A_HIGHER_BOUND = {
    "=": "!= < <=", "!=": "= != < <= > >=", "<": "!= < <=", "<=": "!= < <=",
    ">": "= != < <= > >=", ">=": "= != < <= > >=",
}  # fmt: skip
COMPARATORS = ("=", "!=", "<", "<=", ">", ">=")


@pytest.mark.parametrize("other", COMPARATORS)
@pytest.mark.parametrize("one", COMPARATORS)
def test_every_pair_of_comparisons(one: str, other: str) -> None:
    def answers(bound: int) -> tuple[bool, bool]:
        row = Row(f"x {one} 3", f"x {other} {bound}", "", "")
        verdicts = row.verdicts()
        assert set(verdicts) <= {"yes", "no"}
        return verdicts[0] == "yes", verdicts[1] == "yes"

    def found(covered: dict[str, str], met: dict[str, str]) -> tuple[bool, bool]:
        return other in covered[one].split(), other in met[one].split()

    assert answers(3) == found(COVERED_AT_THE_SAME_BOUND, MET_AT_THE_SAME_BOUND)
    assert answers(5) == found(COVERED_AT_A_HIGHER_BOUND, MET_AT_A_HIGHER_BOUND)


# --- numbers at their edges -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "does_cover", "do_intersect"),
    [
        # neighbours: nothing lies between two of them
        ("x > 3", "x >= 3.0000000000000004", "yes", "yes"),
        ("x > 3 AND x < 3.0000000000000004", "TRUE", "no", "no"),
        ("x > 1e308 AND x < 1e308", "TRUE", "no", "no"),
        ("x <= 0", "x < 5e-324", "yes", "yes"),
        ("x = 0", "x = -0.0", "yes", "yes"),
        # integers beyond 2^53 lie between floats
        ("x = 9007199254740993", "x = 9007199254740992.0", "no", "no"),
        ("x > 9007199254740992.0 AND x < 9007199254740994.0", "x = 9007199254740993", "yes", "yes"),
        ("x > 9007199254740992 AND x < 9007199254740993", "TRUE", "no", "no"),
        ("x >= 9223372036854775807", "x > 9223372036854775806", "yes", "yes"),
        ("x > 9223372036854775807", "x >= 9223372036854775808.0", "yes", "yes"),
        ("x IN (9007199254740992, 9007199254740993)", "x = 9007199254740993.0", "yes", "yes"),
        # an overflow is UNKNOWN: x + 1 has no value for the largest integer
        ("x + 1 > 3", "x > 2.5", "no", "yes"),
        ("a + b > 3", "a > 2 AND b > 2", "no", "yes"),
        ("a * 2 > a", "a > 0", "no", "yes"),
        ("-x > 0", "x < 0", "no", "yes"),
        ("abs(x) >= 0", "x < 3", "no", "yes"),
        ("x * x > 4", "x > 2", "no", "yes"),
        ("2.5 * x > 0", "x > 1", "no", "yes"),
        # a sum of floats is rounded; one of integers is not
        ("x + 1 > x", "x BETWEEN 1e16 AND 1e17", "no", "yes"),
        ("x + 1 > x", "x BETWEEN 0 AND 1000", "yes", "yes"),
        ("x > 0.3", "x = 0.1 + 0.2", "yes", "yes"),
        ("x + 0.2 = 0.3", "x = 0.1", "no", "no"),
    ],
)  # fmt: skip
def test_numbers_at_their_edges(a: str, b: str, does_cover: str, do_intersect: str) -> None:
    assert Row(a, b, "", "").verdicts() == (does_cover, do_intersect)


@pytest.mark.parametrize(
    ("a", "b", "publication"),
    [
        pytest.param(
            "c >= x - 9007199254740992.0",
            "c <= x - 9007199254740993 AND x BETWEEN 9007199254740992 AND 9007199254741002",
            {"x": 2**53 + 1, "c": 0},
            id="an integer is rounded when it meets a float",
        ),
        pytest.param(
            "c = 0.1 * a",
            "c = 0.4 * a AND a > 0 AND a < 1e-323",
            {"a": 5e-324, "c": 0},
            id="a product vanishes below all floats",
        ),
        pytest.param(
            "x < y + 9007199254740993 AND y < 1",
            "x >= y + 9007199254740992.0 AND y >= 0",
            {"y": 0, "x": 2**53},
            id="one sum exact, the other rounded",
        ),
    ],
)
def test_rounding_is_allowed_for(a: str, b: str, publication: dict[str, object]) -> None:
    """Each publication matches both, against what exact arithmetic would say."""
    assert matches(parse(a), publication)
    assert matches(parse(b), publication)
    assert intersects(parse(a), parse(b)).verdict is not ProofResult.NO
    assert covers(parse(f"NOT ({a})"), parse(b)).verdict is not ProofResult.YES


@pytest.mark.parametrize("text", ["floor(x * 10) > y", "y > x * x + 1e308", "sin(x + x) = y"])
def test_what_always_overflows_matches_nothing(text: str) -> None:
    huge = parse(f"{text} AND x > 1e308")
    assert intersects(huge, parse("TRUE")).verdict is not ProofResult.YES
    assert covers(parse("FALSE"), huge).verdict is not ProofResult.NO


def test_nested_choices_do_not_breed() -> None:
    """A text of a stranger: every level once doubled the work and more."""
    low, high = "t - 0.5", "t + 0.5"
    for level in range(24):
        low, high = f"least({low}, t + {level})", f"least({high}, t + {level})"
    assert intersects(parse(f"x < {high}"), parse(f"x > {low}")).verdict is ProofResult.YES


@pytest.mark.parametrize("during", [(5.0, 3.0), (-1.0, 3.0), (0.0, float("nan"))])
def test_an_interval_that_is_none_is_refused(during: tuple[float, float]) -> None:
    for text in ("FALSE", "x > t"):
        with pytest.raises(LanguageError, match="t cannot go from"):
            covers(parse(text), parse(text), during=during)
        with pytest.raises(LanguageError, match="t cannot go from"):
            intersects(parse(text), parse("TRUE"), during=during)


# -- one subscriber's state ---------------------------------------------------------------------


def box(random: Random, reach: float) -> str:
    """An area around the subscriber, in one of the ways that people write it."""
    across, along = (round(reach * random.uniform(1, 2), random.choice((0, 2))) for _ in range(2))
    form = random.choice(
        (
            "x BETWEEN me.x - {a} AND me.x + {a} AND y BETWEEN me.y - {b} AND me.y + {b}",
            "kind = 'car' AND x >= me.x - {a} AND x <= me.x + {a} AND y < me.y + {b}",
            "x BETWEEN me.x - {a} + t AND me.x + {a} + t AND y > me.y - {b}",
            "x > me.x + 1 AND x < me.x + 1 + {a} AND y IS NOT NULL",
        )
    )
    return form.format(a=across, b=along)


@pytest.mark.parametrize("seed", range(20))
def test_a_box_around_a_subscriber_covers_a_smaller_one(seed: int) -> None:
    wide, narrow = parse(box(Random(seed), 5)), parse(box(Random(seed), 2))
    assert covers(wide, narrow, same_subscriber=True) == Answer(ProofResult.YES)
    reverse = covers(narrow, wide, same_subscriber=True)
    assert reverse.verdict is ProofResult.NO
    assert covers(wide, narrow).verdict is not ProofResult.YES, "two subscribers have two places"


def test_what_is_said_of_one_subscriber_holds_for_its_states() -> None:
    random, answers = Random(1), Counter[ProofResult]()
    drawing = Drawing(random, moving=0.8, texts=0.0)
    for _ in range(30):
        a, b = (parse(box(random, random.choice((2, 5)))) for _ in range(2))
        if random.random() < 0.3:
            a, b = drawing.subscriptions(2)
        verdict = covers(a, b, same_subscriber=True).verdict
        answers[verdict] += 1
        for _ in range(20 if verdict is ProofResult.YES else 0):
            values = (random.uniform(-9, 9), -3, 10**15, 0.1, "a")
            me = {name: random.choice(values) for name in "xy"}
            t = random.choice((0.0, 0.5, 3.25))
            publication = drawing.publication([a, b], Moment(t, me)) | {"kind": "car"}
            if matches(b, publication, t, me):
                assert matches(a, publication, t, me), (a, b, publication, t, me)
    assert answers[ProofResult.YES] >= 5
    assert answers[ProofResult.NO] >= 5


# -- limits -------------------------------------------------------------------------------------

HARD = {
    "patterns": " OR ".join(f"s LIKE '%{a}%{b}%z%'" for a in "abcdefgh" for b in "abcdefgh"),
    "a long pattern": "s LIKE '" + "%a_" * 2_500 + "b'",
    "boxes": " OR ".join(
        f"(x BETWEEN {i} AND {i}.5 AND y > {i} AND y < {2 * i})" for i in range(64)
    ),
    "pairs": " OR ".join(f"a{i} > b{i}" for i in range(64)),
    "comparisons": " AND ".join(f"a{i} > b{i}" for i in range(200)),
    "bounds": " AND ".join(f"x > y + {i} AND x < z + {i}" for i in range(64)),
    "sums": " AND ".join(f"x{'+y*x' * 4} > {i}" for i in range(60)),
    "values": f"x IN ({','.join(str(3 * i) for i in range(1_000))})",
    "moving": " OR ".join(f"x BETWEEN sin(t) + {i} AND t * t + {i}" for i in range(64)),
}


@pytest.mark.parametrize("a", HARD)
def test_no_pair_is_looked_at_for_longer_than_allowed(
    a: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interval arithmetic and orderings are what takes time; both are counted."""
    work: list[str] = []
    for name in ("enclose", "surely_less", "surely_at_most"):
        counted = getattr(cases, name)

        def asked(*arguments: Any, _counted: Any = counted, _name: str = name) -> Any:
            work.append(_name)
            return _counted(*arguments)

        monkeypatch.setattr(cases, name, asked)
    first = list(HARD).index(a)
    for b in [*HARD, *HARD][first : first + 3]:
        del work[:]
        answer = covers(parse(HARD[a]), parse(HARD[b]))
        assert (answer.verdict is ProofResult.UNKNOWN) is (answer.reason is not None)
        assert len(work) <= PROOF_WORK_MAX


def test_the_reason_is_told() -> None:
    answer = covers(parse(HARD["sums"]), parse(HARD["bounds"]))
    assert answer == Answer(ProofResult.UNKNOWN, reason="more than 6,000 parts to look at")


def test_what_normalising_took_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conjunctions are compared with each other: 64 of them take as long as 1,000 parts."""
    spent: list[int] = []
    look_at = cases.WitnessSearch.look_at

    def counted(seeker: cases.WitnessSearch, parts: int) -> None:
        spent.append(parts)
        look_at(seeker, parts)

    monkeypatch.setattr(cases.WitnessSearch, "look_at", counted)
    covers(parse(HARD["boxes"]), parse(HARD["pairs"]))
    assert spent[0] == 63**2 // 4 + 64**2 // 4
    del spent[:]
    covers(parse("x > 1 AND y = 2"), parse("x > 2 AND y = 2"))
    assert spent[0] == 0
