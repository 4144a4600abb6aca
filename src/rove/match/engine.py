"""Whether the compiled kernels are there yet.

Numba compiles them the first time they are imported, which takes some ten seconds, and caches the
result, which is loaded in a second and takes 150 MB. A broker must not wait for either: when the
first subscription with an expression is added (`when_wanted`), it calls `warm_up` in the
background, and searches with NumPy until that is done. The kernels for ranked subscriptions are
loaded separately, since most brokers have none.

The parts of NumPy that Numba imports are imported here already: two threads that import the same
package in different orders can deadlock, and Python then raises an error in one of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy.random  # noqa: F401

from rove.match.index.segment import Kernel
from rove.match.patterns import pattern_set

search_kernel: Kernel | None = None
"""What searches a segment; None until it is compiled."""
_ranks_are_ready = False
_wanted: set[bool] = set()
_waiting: dict[bool, list[Callable[[], None]]] = {False: [], True: []}


def want(*, ranked: bool = False) -> None:
    """A matcher of this process has a subscription, or a ranked one: call those who wait."""
    for kind in (False, True)[: 1 + ranked]:
        _wanted.add(kind)
        while _waiting[kind]:
            _waiting[kind].pop()()


def when_wanted(call: Callable[[], None], *, ranked: bool = False) -> None:
    """Call `call` when a matcher has its first subscription (ranked one), or now if it has."""
    if ranked in _wanted:
        call()
    else:
        _waiting[ranked].append(call)


def warm_up(*, ranked: bool = True) -> None:
    """Load the kernels, or compile them where no cache has them.

    Without `ranked`, those that rank are left out.
    """
    global search_kernel, _ranks_are_ready
    if search_kernel is None:
        from rove.match.index import construction_kernels  # noqa: F401
        from rove.match.index import search_kernels as kernels

        pattern_set.warm_up()
        search_kernel = kernels.find
    if ranked and not _ranks_are_ready:
        from rove.match.ranked import pool  # noqa: F401

        _ranks_are_ready = True


def can_rank() -> bool:
    """Whether the kernels that rank are there, too."""
    return search_kernel is not None and _ranks_are_ready
