"""The graph of brokers: every broker finds the same shortest ways."""

from __future__ import annotations

import random

from rove.mesh.graph import HOP_US, NUMBER_STEP_MAX, Edge, Graph, Record
from tests.effort import share


def edge(peer: int, delay_us: int = 100, number: int = 1, offset_us: int = 0) -> Edge:
    return Edge(peer, number, delay_us, offset_us, 10)


def network(links: dict[tuple[int, int], int]) -> dict[int, Record]:
    """The records of brokers with these links, by delay."""
    nodes = sorted({node for ends in links for node in ends})
    return {
        node: Record(
            node,
            f"b{node}",
            1,
            1,
            tuple(
                edge(other, delay_us, offset_us=other - node)
                for ends, delay_us in links.items()
                for other in ends
                if node in ends and other != node
            ),
        )
        for node in nodes
    }


def graph_of(own: int, records: dict[int, Record], *, brokers_max: int = 100) -> Graph:
    graph = Graph(records[own], brokers_max=brokers_max, keep_s=60.0)
    for record in records.values():
        if record.node != own:
            assert graph.add(record, 0.0)
    return graph


def test_the_shortest_way_counts_delays_and_brokers() -> None:
    graph = graph_of(1, network({(1, 2): 100, (2, 3): 100, (1, 3): 250, (3, 4): 50}))
    ways = graph.ways()
    assert ways[3].nodes == (1, 3)
    assert ways[4].nodes == (1, 3, 4)
    assert (ways[4].delay_us, ways[4].offset_us, ways[4].error_us) == (300, 3, 20)
    longer = graph_of(1, network({(1, 2): 100, (2, 3): 100, (1, 3): 250 + HOP_US}))
    assert longer.ways()[3].nodes == (1, 2, 3)


def test_a_link_counts_only_if_both_ends_announce_the_same_one() -> None:
    records = network({(1, 2): 100})
    graph = graph_of(1, records)
    assert list(graph.ways()) == [2]
    assert graph.add(Record(2, "b2", 1, 2, (edge(1, number=2),)), 0.0)
    assert graph.ways() == {}
    graph.publish([edge(2, number=2)])
    assert list(graph.ways()) == [2]


def test_a_way_is_whole_until_a_link_of_it_is_another() -> None:
    graph = graph_of(1, network({(1, 2): 100, (2, 3): 100}))
    way = graph.ways()[3]
    assert graph.is_whole(way)
    graph.publish([edge(2, number=2)])
    assert not graph.is_whole(way)


def test_older_records_and_leaps_are_not_believed() -> None:
    records = network({(1, 2): 100})
    graph = graph_of(1, records)
    assert not graph.add(records[2], 0.0)
    assert not graph.add(Record(2, "b2", 1, 2 + NUMBER_STEP_MAX), 0.0)
    assert not graph.add(Record(2, "other", 1, 2), 0.0)
    assert not graph.add(Record(2, "b2", 2, 2), 0.0)
    assert graph.add(Record(2, "b2", 1, 2), 0.0)


def test_a_broker_outdoes_records_that_others_made_of_it() -> None:
    graph = graph_of(1, network({(1, 2): 100}))
    assert graph.publish((), above=50).number == 51
    assert graph.publish(()).number == 52


def test_unreachable_brokers_are_forgotten_after_a_while_or_for_want_of_room() -> None:
    records = network({(1, 2): 100, (3, 4): 100})
    graph = graph_of(1, records)
    assert not graph.expire(50.0)
    assert graph.expire(61.0)
    assert graph.records.keys() == {1, 2}
    full = graph_of(1, records, brokers_max=4)
    assert not full.add(Record(5, "b5", 1, 1), 1.0)
    assert not full.expire(7.0)
    assert full.add(Record(5, "b5", 1, 1), 7.0)
    assert len(full.records) == 4
    assert {1, 2, 5} <= full.records.keys()


def test_all_brokers_agree_on_every_tree() -> None:
    """So what a broker passes on is what the next one expects, and reaches each target once."""
    for seed in range(share(600)):
        draw = random.Random(seed)
        size = draw.randint(2, 12)
        links = {
            (draw.randrange(node), node): draw.choice((100, 100, 200, 1_000))
            for node in range(1, size)
        }
        for _ in range(draw.randrange(size)):
            one, other = sorted(draw.sample(range(size), 2))
            links[one, other] = draw.choice((100, 100, 200, 1_000))
        records = network(links)
        graphs = {}
        for node in records:
            in_some_order = draw.sample(sorted(records), len(records))
            graphs[node] = graph_of(node, {each: records[each] for each in in_some_order})
        for origin, graph in graphs.items():
            for target, way in graph.ways().items():
                steps = [origin]
                while steps[-1] != target:
                    here = graphs[steps[-1]].route(origin)
                    assert here.parent == (steps[-2] if len(steps) > 1 else None)
                    steps.append(here.onward[target])
                assert tuple(steps) == way.nodes, f"seed {seed}"
