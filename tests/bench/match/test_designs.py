"""The benchmark of the designs runs through, and its own index and errors are what they claim."""

import pytest

from rove.bench.match import designs as designs_bench
from rove.bench.match.designs import ArrayIndex, World, run
from rove.lang import matches, normalise, parse
from rove.match.designs.design import OneByOne
from rove.match.designs.lees import Lees
from rove.match.designs.versioned import Pes


@pytest.mark.soak
def test_every_design_is_measured() -> None:
    measures = {measure.name: measure for measure in run(subscriptions=40, areas=20)}
    assert list(measures) == [
        "designs.lees.40",
        "designs.pes.40.nothing-due",
        "designs.pes.40.version",
        "designs.clees.40.nothing-due",
        "designs.clees.40.version",
        *(f"designs.{name}.wrong.{age}s" for name in ("pes", "clees") for age in ("0.1", "1", "5")),
    ]
    assert measures["designs.pes.40.nothing-due"].against == "designs.lees.40"
    for name in ("pes", "clees"):
        shares = [measures[f"designs.{name}.wrong.{age}s"].value for age in ("0.1", "1", "5")]
        assert shares == sorted(shares), "the older, the more often wrong"
        assert shares[0] < 3
        assert 10 < shares[2] < 60


def test_the_index_of_boxes_is_an_index() -> None:
    slow, quick = OneByOne(), ArrayIndex()
    for id in range(20):
        text = f"x BETWEEN {id} AND {id + 5}" + (f" AND y BETWEEN {-id}.5 AND 3" if id % 5 else "")
        for index in (slow, quick):
            index.add(id, normalise(parse(text)).conjunctions)
    for index in (slow, quick):
        index.remove(7)
    publications = [{"x": x, "y": y} for x in range(25) for y in (-3.5, -3.6, 3, 3.5)]
    found = [index.match(publications) for index in (slow, quick)]
    pairs = [
        sorted(zip(one.publications.tolist(), one.subscriptions.tolist(), strict=True))
        for one in found
    ]
    assert pairs[0] == pairs[1] != []


def test_about_half_of_the_publications_meet_the_area_they_aim_at() -> None:
    world = World(30)
    stream = world.around_areas(seconds=2.0, per_second=100)
    found = world.inhabited(Lees(ArrayIndex), None).match(stream.publications, stream.at)
    told = len(set(found.publications.tolist()))
    assert 0.3 * 200 < told < 0.7 * 200
    first, id = int(found.publications[0]), int(found.subscriptions[0])
    text = world._boxes.text(id)
    t = stream.at[first] - world.accepted_at[id]
    assert matches(parse(text), stream.publications[first], t)


def test_nothing_to_measure_stops_the_benchmark() -> None:
    world = World(3)
    design = world.inhabited(Pes(ArrayIndex), 100.0)
    with pytest.raises(AssertionError, match="must be due"):
        designs_bench._per_version_us(design, world.anywhere(5.0))
