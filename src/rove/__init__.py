"""Rove: a publish/subscribe broker for things that move.

The package itself holds only its version and the base of its errors, and imports nothing
heavy: `import rove` costs about a millisecond, and every room below it is imported by
whoever needs it.
"""

from rove.errors import RoveError

__all__ = ["RoveError", "__version__"]

__version__ = "0.1.0"
