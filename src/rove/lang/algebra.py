"""Does one subscription cover another, do two intersect? With a proof where there is one.

`covers(a, b)`: every publication that matches b matches a. `intersects(a, b)`: some
publication matches both. Both come down to one question, asked of a *case*: a conjunction of
sets and atoms that must hold, and of some that must not. Does any publication fit it?

- Attributes are independent of each other, so a case that only has sets of attributes is
  decided at once and exactly: strings, patterns and BETWEEN included.
- Where values are computed (arithmetic, `t`, `me.`), ranges are narrowed and halved until a
  publication is found or excluded for certain, within a fixed number of steps.

"Yes, they intersect" and "no, it does not cover" always come with a witness that the oracle
has checked. The other two answers are proofs by exclusion. What neither can be done for is
"don't know"; callers treat it as "does not cover" and "may intersect", so that no
notification is lost to it.

Evolving subscriptions are compared over a stated interval of `t`, both with the same `t`, and
an answer holds for every moment in it. `me.` variables of two subscribers are unrelated,
unless `same_subscriber` says that both texts belong to one. Then the answer speaks of every state
whose numbers are no larger than `STATE_MAX`: beyond it, `me.x - 3` may overflow where `me.x - 2`
does not, and no box would ever cover a smaller one. A ranked subscription is taken
for its condition and for the publications that have a score; what it leaves out for want of
rank only the stream decides, so it covers another for certain only if both rank alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

import msgspec

from rove.lang.canonical_form import canonical
from rove.lang.cases import ProofCase, Undecided, Witness, WitnessSearch
from rove.lang.constant_folding import Unknown, folded
from rove.lang.errors import LanguageError
from rove.lang.normal_form import Conjunction, meet, normalise
from rove.lang.oracle import matches, score_of
from rove.lang.sets import EVERYTHING, NUMBERS, ValueSet
from rove.lang.tree import Literal, Me, Node, Subscription, Time, ValueNode, parts, rebuilt
from rove.lang.values import next_number

FOREVER_S = 1e9
"""The end of the interval of `t` where none is stated: about 32 years."""
STATE_MAX = 1e15
"""Numbers of one subscriber's state are taken to lie between this and its negative."""
_STATES = ValueSet(
    ((-STATE_MAX, next_number(STATE_MAX)),), EVERYTHING.strings, facts=EVERYTHING.facts
)


class ProofResult(Enum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "don't know"


class Answer(msgspec.Struct, frozen=True):
    """The verdict and, where it was found by example, the example."""

    verdict: ProofResult
    witness: Witness | None = None
    reason: str | None = None
    """Why it is not known, if it is not."""


def intersects(
    a: Subscription,
    b: Subscription,
    *,
    during: tuple[float, float] = (0.0, FOREVER_S),
    same_subscriber: bool = False,
) -> Answer:
    """Can some publication match both, at some `t` of `during`?"""
    a, b = _owned(a, "a"), _owned(b, "a" if same_subscriber else "b")
    seeker = WitnessSearch(
        lambda w: _delivered(a, w) and _delivered(b, w), weight=_weight(a) + _weight(b)
    )
    try:
        everything = _everything(during, (a, b) if same_subscriber else ())
        witness = seeker.find(_common(everything, _wanted(a), _wanted(b), seeker))
    except Undecided as undecided:
        return Answer(ProofResult.UNKNOWN, reason=str(undecided))
    return Answer(ProofResult.NO) if witness is None else Answer(ProofResult.YES, witness)


def covers(
    a: Subscription,
    b: Subscription,
    *,
    during: tuple[float, float] = (0.0, FOREVER_S),
    same_subscriber: bool = False,
) -> Answer:
    """Does every publication that matches b match a, at every `t` of `during`?"""
    rank_decides = a.rank is not None and not _alike(a, b)
    a, b = _owned(a, "a"), _owned(b, "a" if same_subscriber else "b")
    seeker = WitnessSearch(
        lambda w: _delivered(b, w) and not _delivered(a, w), weight=_weight(a) + _weight(b)
    )
    wanted, taken = _wanted(b), _wanted(a)
    everything = _everything(during, (a, b) if same_subscriber else ())
    try:
        seeker.look_at(_normalising(wanted) + _normalising(taken))
        cases = [c for one in wanted for c in _left_over(everything.within(one), taken, seeker)]
        witness = seeker.find(cases)
    except Undecided as undecided:
        return Answer(ProofResult.UNKNOWN, reason=str(undecided))
    if witness is not None:
        return Answer(ProofResult.NO, witness)
    if rank_decides and wanted:
        return Answer(
            ProofResult.UNKNOWN, reason="what is left out for want of rank, the stream decides"
        )
    return Answer(ProofResult.YES)


def _normalising(conjunctions: Sequence[Conjunction]) -> int:
    """What it took to normalise a text, whose conjunctions are compared with each other."""
    return len(conjunctions) ** 2 // 4


def _common(
    everything: ProofCase, a: Sequence[Conjunction], b: Sequence[Conjunction], seeker: WitnessSearch
) -> Iterator[ProofCase]:
    """What both match, conjunction by conjunction."""
    for one in a:
        case = everything.within(one)
        for other in b:
            seeker.look_at(1 + len(other.sets) + 8 * len(other.atoms))
            both = case.within(other) if case is not None else None
            if both is not None:
                yield both


def _left_over(
    wanted: ProofCase | None, taken: tuple[Conjunction, ...], seeker: WitnessSearch
) -> Iterator[ProofCase]:
    """The parts of `wanted` that none of `taken` matches, as far as can be seen at once."""
    waiting = [(wanted, 0)]
    while waiting:
        case, index = waiting.pop()
        case = seeker.narrowed(case) if case is not None else None
        if case is None:
            continue
        if index == len(taken):
            yield case
            continue
        seeker.look_at(len(taken[index].sets) + 8 * len(taken[index].atoms))
        common = case.within(taken[index])
        if common is None or seeker.narrowed(common) is None:
            waiting.append((case, index + 1))
        else:
            waiting += [(part, index + 1) for part in case.outside(taken[index])]


def _everything(during: tuple[float, float], following: Sequence[Subscription]) -> ProofCase:
    """Every publication at every `t`, and every state that answers about `following` speak of."""
    start_s, end_s = during
    if not 0 <= start_s <= end_s:
        raise LanguageError(f"t cannot go from {start_s:g} s to {end_s:g} s", "it starts at 0")
    sets: dict[ValueNode, ValueSet] = {
        Time(): ValueSet(((float(start_s), next_number(float(end_s))),))
    }
    for node in (node for one in following for node in parts(one)):
        if isinstance(node, Me):
            sets[node] = _STATES
    return ProofCase(sets)


def _wanted(subscription: Subscription) -> tuple[Conjunction, ...]:
    """What a publication must fulfil to be delivered: the condition, and to have a score."""
    conjunctions = normalise(subscription).conjunctions
    if subscription.rank is None:
        return conjunctions
    try:
        score = folded(subscription.rank.score)
    except Unknown:
        return ()
    if isinstance(score, Literal):
        return conjunctions
    met = (meet(conjunction, Conjunction({score: NUMBERS})) for conjunction in conjunctions)
    return tuple(conjunction for conjunction in met if conjunction is not None)


def _delivered(subscription: Subscription, witness: Witness) -> bool:
    at = (witness.publication, witness.t, witness.me)
    if not matches(subscription, *at):
        return False
    return subscription.rank is None or score_of(subscription, *at) is not None


def _weight(subscription: Subscription) -> int:
    """How many nodes are looked at to try a publication."""
    return sum(1 for _ in parts(subscription))


def _alike(a: Subscription, b: Subscription) -> bool:
    """True if two ranked subscriptions keep the same window of the same publications."""
    if a.rank is None or b.rank is None or a.rank.k != b.rank.k:
        return False  # without the canonical texts, which take far longer
    return msgspec.structs.replace(canonical(a), select=None) == msgspec.structs.replace(
        canonical(b), select=None
    )


def _owned(subscription: Subscription, owner: str) -> Subscription:
    """The subscription with `me.x` read as `me.owner.x`, so that two subscribers differ."""

    if not any(type(node) is Me for node in parts(subscription)):
        return subscription

    def own(node: Node) -> Node:
        return Me((owner, *node.path)) if isinstance(node, Me) else node

    return rebuilt(subscription, own)
