"""Whether the compiled kernels are there yet.

Numba compiles them the first time they are imported, which takes some ten seconds, and keeps the
result in its cache, from which they are loaded in a second, and then they take 150 MB. A broker
must not wait for either: once a matcher has something to find (`when_wanted`), it calls `warm_up`
in the background, and searches with NumPy until that is done.

What Numba imports of NumPy beyond its core is imported here already: two threads that import the
same package in different orders can stand in each other's way, and Python then refuses one of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy.random  # noqa: F401

from rove.match import texts
from rove.match.segment import Kernel

_kernel: Kernel | None = None
_is_wanted = False
_waiting: list[Callable[[], None]] = []


def want() -> None:
    """A matcher of this process has something to find."""
    global _is_wanted
    _is_wanted = True
    while _waiting:
        _waiting.pop()()


def when_wanted(call: Callable[[], None]) -> None:
    """Have something called once a matcher of this process has something to find, or now."""
    if _is_wanted:
        call()
    else:
        _waiting.append(call)


def warm_up() -> None:
    """Load the kernels, or compile them where no cache has them."""
    global _kernel
    if _kernel is not None:
        return
    from rove.match import building_kernels, kernels, ranked_kernels  # noqa: F401

    texts.warm_up()
    _kernel = kernels.find


def kernel() -> Kernel | None:
    """What searches a segment, or None as long as that is not compiled."""
    return _kernel
