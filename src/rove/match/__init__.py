"""Decides who gets what: indexes and kernels over flat arrays.

`Matcher` is the door. It needs Numba's kernels to be quick; `warm_up` loads them, or compiles
them once where no cache has them, and may do so in the background.
"""

from rove.match.designs.design import Counters, Evolve, parse_evolve
from rove.match.engine import warm_up
from rove.match.matcher import Matcher, Work
from rove.match.results import Matches, RankedDelivery
from rove.match.saved import SavedError

__all__ = [
    "Counters",
    "Evolve",
    "Matcher",
    "Matches",
    "RankedDelivery",
    "SavedError",
    "Work",
    "parse_evolve",
    "warm_up",
]
