"""Variables that the system keeps: what reports change, and what nobody else may."""

from __future__ import annotations

import pytest

from rove.policy.automatic import ReportError, changes_of, network_share, refused_change


@pytest.mark.parametrize(
    ("received", "sent", "share"),
    [(0, 0, 1.0), (5, 0, 1.0), (5, 10, 0.5), (10, 10, 1.0), (12, 10, 1.0), (0, 10, 0.0)],
)
def test_the_network_is_what_came_through(received: int, sent: int, share: float) -> None:
    assert network_share(received, sent) == share


def test_a_report_becomes_changes() -> None:
    report = {"battery": 0.5, "place": None, "received": 3}
    assert changes_of(report, 4) == {"battery": 0.5, "place": None, "network": 0.75}
    assert changes_of({"battery": 1}, 4) == {"battery": 1}


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ({"network": 1.0}, "network is found out by the broker"),
        ({"connected": True}, "connected is found out"),
        ({"received": 1.5}, "received is 1.5"),
        ({"received": True}, "received is True"),
        ({"received": -1}, "received is -1"),
    ],
)
def test_a_report_that_cannot_be(report: dict[str, object], said: str) -> None:
    with pytest.raises(ReportError, match=said):
        changes_of(report, 0)


def test_who_may_set_what() -> None:
    assert refused_change(["x", "battery"], ["place"]) == ""
    assert "place" in refused_change(["x", "place"], ["place"])
    assert "network" in refused_change(["network"], [])
