"""Variables that the system keeps: what reports change, and what nobody else may."""

from __future__ import annotations

import pytest

from rove.policy.automatic_variables import (
    ON_ITS_WAY_S,
    ReportError,
    SentCounter,
    changes_of,
    network_share,
    refused_change,
)


@pytest.mark.parametrize(
    ("received", "sent", "share"),
    [(0, 0, 1.0), (5, 0, 1.0), (5, 10, 0.5), (10, 10, 1.0), (12, 10, 1.0), (0, 10, 0.0)],
)
def test_the_network_is_what_came_through(received: int, sent: int, share: float) -> None:
    assert network_share(received, sent) == share


def sent(*moments: float) -> SentCounter:
    traffic = SentCounter()
    for moment in moments:
        traffic.send(moment)
    return traffic


def test_a_report_becomes_changes() -> None:
    report = {"battery": 0.5, "place": None, "received": 3}
    traffic = sent(1, 2, 2, 3)
    assert changes_of(report, traffic, 30) == {"battery": 0.5, "place": None, "network": 0.75}
    assert changes_of({"battery": 1}, traffic, 30) == {"battery": 1}
    assert traffic.sent == 4, "a report that is not taken accounts for nothing"


def test_what_is_on_its_way_is_neither_lost_nor_forgiven() -> None:
    traffic = sent(1, 2, 29.5)
    assert changes_of({"received": 2}, traffic, 30) == {"network": 1.0}
    traffic.account(2, 30)
    assert traffic.sent == 1
    assert changes_of({"received": 0}, traffic, 30 + ON_ITS_WAY_S) == {"network": 0.0}
    assert changes_of({"received": 1}, traffic, 60) == {"network": 1.0}


def test_what_came_at_once_is_not_expected_again() -> None:
    traffic = sent(29.5, 29.9)
    traffic.account(2, 30)
    assert traffic.sent == 0
    assert changes_of({"received": 0}, traffic, 60) == {"network": 1.0}


def test_reports_in_quick_succession_do_not_make_it_lost() -> None:
    traffic = sent(10.0)
    for at, network in ((10.2, 1.0), (10.6, 1.0), (11.0, 0.0)):
        assert changes_of({"received": 0}, traffic, at) == {"network": network}
        traffic.account(0, at)
    assert traffic.sent == 0, "it is told of once"


def test_no_more_is_forgiven_in_all_than_may_be_on_its_way() -> None:
    """Two a second, of which one in half a minute is lost."""
    traffic, shares = SentCounter(), []
    for interval in range(10):
        for n in range(60):
            traffic.send(30 * interval + (n + 1) / 2)
        at = 30.0 * (interval + 1)
        shares.append(changes_of({"received": 59}, traffic, at)["network"])
        traffic.account(59, at)
    assert shares == [1.0, 1.0, *[59 / 60] * 8]


def test_only_moments_that_count_are_remembered() -> None:
    traffic = SentCounter()
    for n in range(10_000):
        traffic.send(n / 100)
    assert len(traffic._recent) <= 101
    assert traffic.sent == 10_000


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
        changes_of(report, SentCounter(), 0.0)


def test_who_may_set_what() -> None:
    assert refused_change(["x", "battery"], ["place"]) == ""
    assert "place" in refused_change(["x", "place"], ["place"])
    assert "network" in refused_change(["network"], [])
