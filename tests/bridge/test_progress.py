"""The line that tells how a route is doing."""

from rove.bridge.progress import Progress, line


def test_what_there_is_to_say() -> None:
    before = Progress("air", sent=1_000)
    now = Progress("air", sent=3_000, left=2, refused=1, position=12_345, trouble="Kafka is away")
    assert line(now, before, 2.0) == (
        "air: 3,000 sent (1,000/s), 2 left, 1 refused, position 12,345, waiting: Kafka is away"
    )
    assert line(Progress("air", is_at_end=True), None, 0.0) == "air: 0 sent (0/s), at the end"
