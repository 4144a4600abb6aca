"""Workloads: one seed, one workload; shaped as they say."""

from itertools import pairwise

from rove.lang import describe, matches, parse
from rove.testing.workloads import AirQuality, City, GasReadings


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
        trees = [parse(text) for text in workload.texts(200)]
        hits = sum(matches(tree, p) for p in workload.publications(150) for tree in trees)
        assert 0.0001 < hits / (200 * 150) < 0.05


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


class TestGasReadings:
    def test_one_seed_gives_one_workload(self) -> None:
        one, same, other = GasReadings(3), GasReadings(3), GasReadings(4)
        assert one.readings == same.readings != other.readings
        assert one.interests(50) == same.interests(50)
        assert one.drawn(50) == same.drawn(50)

    def test_readings_are_of_one_gas_by_many_sensors(self) -> None:
        readings = GasReadings().readings
        assert len(readings) == 4_000
        assert len({reading["sensor"] for reading in readings}) >= 30
        gases = [next(gas for gas in GasReadings.GASES if gas in one) for one in readings]
        assert all(len(one) == 3 for one in readings)
        assert all(800 < gases.count(gas) < 1_200 for gas in GasReadings.GASES)
        assert all(GasReadings.BEGIN <= one["timestamp"] < GasReadings.END for one in readings)

    def test_every_operator_and_windows_that_do_not_overlap(self) -> None:
        interests = GasReadings().interests(2_000)
        windows = sorted((one.value, one.until) for one in interests if one.until is not None)
        assert len(windows) == 500
        assert all(before[1] == after[0] for before, after in pairwise(windows))
        plain = [one.operator for one in interests if one.until is None]
        assert set(plain) == {"=", "<", "<=", ">", ">="}, "CUPUS has no other, but for BETWEEN"
        assert describe(parse(interests[0].text)).indexed

    def test_a_publication_meets_a_thirteenth_of_all(self) -> None:
        workload = GasReadings()
        trees = [parse(one.text) for one in workload.interests(300)]
        readings = [workload.readings[position] for position in workload.drawn(100)]
        hits = sum(matches(tree, reading) for reading in readings for tree in trees)
        assert 0.06 < hits / (300 * 100) < 0.09
