"""Whether the compiled kernels are there yet.

Numba compiles them the first time they are imported, which takes some ten seconds, and keeps the
result in its cache, from which they are loaded in half a second. A broker must not wait for
either: it calls `warm_up` in the background, and searches with NumPy until that is done.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import cast

from rove.match import texts
from rove.match.segment import Kernel

_MODULES = ("rove.match.kernels", "rove.match.building_kernels", "rove.match.ranked_kernels")
_ready = False


def warm_up() -> None:
    """Load the kernels, or compile them where no cache has them."""
    global _ready
    if _ready:
        return
    for name in _MODULES:
        import_module(name)
    texts.warm_up()
    _ready = True


def kernel() -> Kernel | None:
    """What searches a segment, or None as long as that is not compiled."""
    return cast(Kernel, sys.modules[_MODULES[0]].find) if _ready else None
