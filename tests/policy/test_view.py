"""What there is to see of policies."""

from __future__ import annotations

import msgspec

from rove.policy.view import PolicyCounts


def test_every_field_of_a_tally_is_added() -> None:
    names = PolicyCounts.__struct_fields__
    one = msgspec.convert({name: 2 for name in names if name != "stopped"}, PolicyCounts)
    one.stopped = {"steps": 1, "time": 2}
    total = PolicyCounts()
    total.add(one)
    total.add(one)
    expected = {name: 4 for name in names if name != "stopped"}
    assert msgspec.structs.asdict(total) == expected | {"stopped": {"steps": 2, "time": 4}}
    assert one.stopped == {"steps": 1, "time": 2}
