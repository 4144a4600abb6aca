"""The published figures, as they were published."""

from rove.bench.policy.sublim import MALICIOUS, OVERHEAD, SHARES


def test_the_table_is_whole_and_grows_with_rate_and_subscribers() -> None:
    assert {rate for rate, _ in MALICIOUS} == {120, 240}
    assert {count for _, count in MALICIOUS} == {100, 140, 180, 200}
    for (rate, count), overheads in MALICIOUS.items():
        assert len(overheads) == len(SHARES)
        assert rate == 240 or overheads < MALICIOUS[240, count]
    for rate in (120, 240):
        column = [OVERHEAD[rate, count] for count in (100, 140, 180, 200)]
        assert column == sorted(column)
    assert (OVERHEAD[120, 100], OVERHEAD[240, 200]) == (17.3, 334.33)
