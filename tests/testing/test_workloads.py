"""Workloads: one seed, one workload; shaped as they say."""

from rove.lang import describe, matches, parse
from rove.testing.workloads import AirQuality, City


class TestAirQuality:
    def test_one_seed_gives_one_workload(self) -> None:
        assert AirQuality(3).texts(50) == AirQuality(3).texts(50)
        assert AirQuality(3).publications(50) == AirQuality(3).publications(50)
        assert AirQuality(3).texts(50) != AirQuality(4).texts(50)

    def test_texts_ask_for_boxes_and_thresholds(self) -> None:
        texts = AirQuality().texts(2_000)
        described = [describe(parse(text)) for text in texts]
        assert all(one.kinds == ("Boolean",) and one.indexed for one in described)
        assert {len(one.attributes) for one in described} == {1, 2, 3, 4}
        without_place = sum("lat" not in one.attributes for one in described) / len(described)
        on_two = sum(len(one.attributes.keys() - {"lat", "long"}) == 2 for one in described)
        assert 0.003 < without_place < 0.02
        assert 0.15 < on_two / len(described) < 0.25

    def test_some_publications_match_some_subscriptions(self) -> None:
        workload = AirQuality()
        trees = [parse(text) for text in workload.texts(500)]
        hits = sum(matches(tree, p) for p in workload.publications(200) for tree in trees)
        assert 0.0001 < hits / (500 * 200) < 0.05


class TestCity:
    def test_one_seed_gives_one_city(self) -> None:
        assert list(City(5).readings(4)) == list(City(5).readings(4))

    def test_time_only_moves_forward(self) -> None:
        times = [reading.at for reading in City().readings(10)]
        assert times == sorted(times)
        assert len(times) == 10 * City.SENSORS

    def test_nobody_leaves_the_map(self) -> None:
        for reading in City().readings(200):
            assert City.LAT[0] <= reading.attributes["lat"] <= City.LAT[1]
            assert City.LONG[0] <= reading.attributes["long"] <= City.LONG[1]
