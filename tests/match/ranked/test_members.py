"""Rows and members have room, and what they no longer need is used again."""

from rove.lang import parse
from rove.lang.tree import rank_of
from rove.match.ranked.members import Members


def test_a_pool_tidies_up_before_it_grows() -> None:
    pool = Members()
    rank = rank_of(parse("ORDER BY a LIMIT 3 WITHIN 1 HOUR"))
    for round in range(50):
        rows = [pool.add(id, rank, 0.0, 100) for id in range(5)]
        pool.members["sequence"][pool.rows["start"][rows[2]]] = round
        pool.rows["count"][rows[2]] = 1
        for row in rows[:2] + rows[3:]:
            pool.remove(row)
        assert pool.sequences().tolist() == [round]
        pool.make_room(600)
        assert pool.members["sequence"][pool.rows["start"][rows[2]]] == round
        pool.remove(rows[2])
    assert pool.members.size < 5_000
