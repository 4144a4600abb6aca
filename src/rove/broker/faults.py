"""Where a fault of the broker ends: at the one who met it.

A fault is an exception that nobody expected, a defect of ours. It must cost one connection and no
more: the step in which it was raised is undone (`rove.broker.steps`), the client is told and its
connection ended, the log gets the traceback and what to report, a counter counts it, and everybody
else goes on. Steps that time brings about are tried again, but not at once: what fails for ever
must not keep the broker busy.

Costs nothing until something fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from rove.broker.counters import Counters
from rove.broker.gate import Gate
from rove.broker.sessions.session import Link

Level = Literal["debug", "info", "warning", "error"]

Attempt = Callable[..., bool]
"""Does something as a step of its own (`Faults.attempt`)."""
RETRY_S: Final = 10.0
"""When something is tried again that has to be done and failed."""
REPORT: Final = "this is a defect of the broker; report it with the traceback and the version"


class Note(msgspec.Struct):
    """Something for the log."""

    level: Level
    event: str
    facts: dict[str, object]
    error: Exception | None = None
    """The log tells where it was raised."""


class Faults:
    """Ends faults."""

    def __init__(self, gate: Gate, counters: Counters, version: str) -> None:
        self._gate = gate
        self._steps = gate.steps
        self._counters = counters
        self._version = version
        self.notes: list[Note] = []
        """What the shell is to log."""
        self.end_connection: Callable[[Link, str], None] = lambda _link, _text: None
        """Ends one with a reason; it fails as a whole if it fails."""

    def attempt(
        self,
        what: str,
        function: Callable[..., object],
        *arguments: object,
        link: Link | None = None,
        client: str = "",
    ) -> bool:
        """Do something as a step of its own; False if it failed and was undone.

        `what` it was is for the log; a `link` is ended by the fault.
        """
        try:
            function(*arguments)
            self._steps.succeed()
        except Exception as error:
            self.happened(error, what, link, client=client)
            return False
        return True

    def happened(
        self, error: Exception, what: str, link: Link | None = None, *, client: str = ""
    ) -> None:
        """A step has failed: undo it, tell of it, and end the connection if it was one's."""
        failures = self._steps.roll_back()
        session = None if link is None else link.session
        self.tell(error, what, client if session is None else session.client_id, link)
        for failure in failures:
            self.tell(failure, f"undoing {what}", client, None)
        if link is not None and not link.closing:
            text = f"the broker failed while it handled this {what}; nothing of it was done"
            try:
                self.end_connection(link, text)
                self._steps.succeed()
            except Exception as second:
                failures = self._steps.roll_back()
                self.tell(second, "ending a connection", client, link)
                link.closing = True
                self._gate.ready.append(link)

    def tell(self, error: Exception, what: str, client: str, link: Link | None) -> None:
        """Count a fault and have it logged."""
        self._counters.faults += 1
        facts: dict[str, object] = {
            "what": what,
            "client": client,
            "error": f"{type(error).__name__}: {error}",
            "version": self._version,
            "report": REPORT,
        }
        if link is not None:
            facts["link"] = link.name
        self.notes.append(Note("error", "fault", facts, error))

    def tell_of_troubles(self) -> None:
        """Tell of faults inside the index that were mended and cost nobody a connection."""
        troubles, warnings = self._steps.troubles, self._steps.warnings
        if troubles:
            for error in troubles:
                self.tell(error, "change of the index", "", None)
            troubles.clear()
        if warnings:
            for what in warnings:
                self.notes.append(Note("warning", "windows made anew", {"what": what}))
            warnings.clear()
