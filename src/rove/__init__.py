"""Rove: a publish/subscribe broker for things that move.

The package itself holds its version, the base of its errors and the door to a broker:

    client = await rove.connect("mqtt://127.0.0.1:1883")      (see `rove.client`)

It imports nothing heavy: `import rove` costs about a millisecond, and every room below it is
imported by whoever needs it. `connect` is looked up in `rove.client` when it is first asked for.
"""

from rove.errors import RoveError

TYPE_CHECKING = False  # type checkers take it for true; importing `typing` for it costs 10 ms
if TYPE_CHECKING:
    from rove.client import connect
else:

    def __getattr__(name):
        if name != "connect":
            raise AttributeError(f"module 'rove' has no attribute {name!r}")
        from rove.client import connect

        globals()[name] = connect  # from now on it is found without asking
        return connect


__all__ = ["RoveError", "__version__", "connect"]

__version__ = "0.1.0"
