"""The benchmark of the bridge runs through and says what it must; figures are not judged here."""

import pytest

from rove.bench import bridge as bridge_bench
from rove.bench.servers.jars import JarsMissingError
from rove.bench.servers.kafka import kafka_jars


@pytest.mark.soak
def test_the_suite_measures_what_it_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        kafka_jars()
    except JarsMissingError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(bridge_bench, "_OUTWARD", 12_000)
    monkeypatch.setattr(bridge_bench, "_INWARD", 2_000)
    measures = {measure.name: measure for measure in bridge_bench.SUITE.run()}
    assert measures.keys() == {
        "bridge.producer", "bridge.outward", "bridge.outward.filter", "bridge.client",
        "bridge.inward",
    }  # fmt: skip
    assert all(measure.value > 0 for measure in measures.values())
    assert measures["bridge.outward"].against == "bridge.producer"
    assert measures["bridge.inward"].against == "bridge.client"
    assert measures["bridge.inward"].ratio is not None
