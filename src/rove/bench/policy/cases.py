"""The policies of `rove bench policy`: intensive care, its opponents, and some to measure speed by.

`icu` is the policy of the case study, the very text that the ward's doctors use; `STATELESS` is
what SUBLIM compares it with, the two rules of a doctor who knows neither batteries nor networks.
`DIRECT` goes by the last report of the network and forgets what was before; `icu` remembers. Those
of `MALICIOUS` never end.

A `Case` is a policy whose speed is compared with that of the same text as plain Python: compiled by
Python alone, with Python's own functions, over plain objects, and without any limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import resources
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from rove.bench.policy.workload import HEIGHT, PATIENT, WIDTH

STATELESS: Final = '''\
"""A doctor's own patients, and of the others those whose pulse is out of bounds."""


def arrived(m, me):
    if m.patient not in get("patients", []) and 50 <= m.pulse <= 120:
        return None
    return m
'''

DIRECT: Final = '''\
"""Rule R3 by the last report alone, as SUBLIM's own code has it."""


def arrived(m, me):
    if m.patient not in get("patients", []) and 50 <= m.pulse <= 120:
        return None
    network = get("network", 1.0)
    if network < 0.9:
        m.ecg = compress(m.ecg, quality=10 + 10 * round(7 * network))
    return m
'''

MALICIOUS: Final = (
    "def arrived(m, me):\n    while True:\n        pass\n",
    "def arrived(m, me):\n    n = 0\n    while n >= 0:\n        n = n + 1\n    return m\n",
    "def arrived(m, me):\n    for a in range(1000000000):\n        b = a * a\n    return m\n",
)


def icu() -> str:
    """Rules R1 to R4."""
    return (resources.files("rove.world") / "shipped" / "icu.policy").read_text(encoding="utf-8")


class Case(NamedTuple):
    """A policy, and what it is shown."""

    name: str
    text: str
    attributes: dict[str, Any]
    me: dict[str, Any]
    is_demanding: bool = True
    """There is something to compute; where there is not, what surrounds a call is most of it."""

    def plain(self) -> Callable[[], object]:
        """The call as plain Python would make it."""
        names = {**_PLAIN, "get": self.me.get}
        exec(self.text, names)
        function, m, me = names["arrived"], SimpleNamespace(**self.attributes), self.me
        assert callable(function)
        return lambda: function(m, me)


_PLAIN: Final[dict[str, object]] = {
    "sqrt": math.sqrt,
    "split": str.split,
    "lower": str.lower,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
}

# -- without anything to compute -----------------------------------------------------------------

ICU_MESSAGE: Final[dict[str, Any]] = {
    "patient": PATIENT,
    "pulse": 72.5,
    "width": WIDTH,
    "height": HEIGHT,
    "ecg": "/9j/",
}
ICU_STATE: Final[dict[str, Any]] = {
    "patients": [3, 5, PATIENT],
    "battery": 0.9,
    "network": 1.0,
    "display": 1_280,
}


# -- loops over numbers --------------------------------------------------------------------------

_TREND: Final = """\
def arrived(m, me):
    total = 0.0
    low = None
    high = None
    ups = 0
    before = None
    for value in m.values:
        total += value
        if low is None or value < low:
            low = value
        if high is None or value > high:
            high = value
        if before is not None and value > before:
            ups += 1
        before = value
    mean = total / len(m.values)
    if high - low < get("least", 1.0) or ups < 3:
        return None
    if mean > get("limit", 50.0):
        return m
    return None
"""


_NEAREST: Final = """\
def arrived(m, me):
    best = None
    nearest = None
    for place in get("places", []):
        far = sqrt((m.x - place[0]) ** 2 + (m.y - place[1]) ** 2)
        if best is None or far < best:
            best = far
            nearest = place
    if nearest is None or best > get("reach", 100.0):
        return None
    return m
"""


# -- texts ---------------------------------------------------------------------------------------

_WORDS: Final = """\
def arrived(m, me):
    wanted = get("words", [])
    score = 0
    for word in split(lower(m.text)):
        if word in wanted:
            score += 2
        elif starts_with(word, "storm") or ends_with(word, "warning"):
            score += 1
    if score >= 3:
        return m
    return None
"""


# -- a sum with a while --------------------------------------------------------------------------

_CHECK: Final = """\
def arrived(m, me):
    digits = m.code
    position = 0
    total = 0
    while position < len(digits):
        digit = int(digits[position])
        if position % 2 == 0:
            digit = digit * 2
            if digit > 9:
                digit = digit - 9
        total = total + digit
        position = position + 1
    if total % 10 == 0:
        return m
    return None
"""


# -- conditions, and functions of the library ----------------------------------------------------

_SCORE: Final = """\
def arrived(m, me):
    score = 0
    if m.breaths <= 8 or m.breaths >= 25:
        score += 3
    elif m.breaths >= 21:
        score += 2
    elif m.breaths <= 11:
        score += 1
    if m.spo2 <= 91:
        score += 3
    elif m.spo2 <= 93:
        score += 2
    elif m.spo2 <= 95:
        score += 1
    if m.systolic <= 90 or m.systolic >= 220:
        score += 3
    elif m.systolic <= 100:
        score += 2
    elif m.systolic <= 110:
        score += 1
    if m.pulse <= 40 or m.pulse >= 131:
        score += 3
    elif m.pulse >= 111:
        score += 2
    elif m.pulse <= 50 or m.pulse >= 91:
        score += 1
    if m.celsius <= 35.0:
        score += 3
    elif m.celsius >= 39.1:
        score += 2
    elif m.celsius <= 36.0 or m.celsius >= 38.1:
        score += 1
    if score >= get("alarm", 5):
        return m
    return None
"""

_DIGEST: Final = """\
def arrived(m, me):
    values = sorted(m.values)
    count = len(values)
    middle = values[count // 2]
    spread = values[count * 9 // 10] - values[count // 10]
    mean = sum(values) / count
    if spread > get("spread", 5.0) and abs(mean - middle) < 5 and max(values) - min(values) < 50:
        return m
    return None
"""

_VITALS: Final = {"breaths": 22, "spo2": 94.0, "systolic": 118, "pulse": 118.0, "celsius": 38.4}


def cases() -> tuple[Case, ...]:
    """Those whose speed is compared."""
    values = [50.0 + 10.0 * math.sin(place) for place in range(100)]
    places = [[float(37 * n % 100), float(61 * n % 100)] for n in range(30)]
    text = "A storm passes the coast and a gale warning is given for the islands in the north "
    return (
        Case("icu", icu(), ICU_MESSAGE, ICU_STATE, is_demanding=False),
        Case("trend", _TREND, {"values": values}, {"limit": 49.0}),
        Case("nearest", _NEAREST, {"x": 12.5, "y": 40.0}, {"places": places}),
        Case("words", _WORDS, {"text": 3 * text}, {"words": ["gale", "islands"]}),
        Case("score", _SCORE, _VITALS, {"alarm": 5}),
        Case("digest", _DIGEST, {"values": values}, {"spread": 10.0}),
        Case("check", _CHECK, {"code": "4539578763621486"}, {}),
    )
