"""Plans of a bridge: what is taken, and what is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest

from rove.base.documents import tables_of
from rove.bridge.routes import (
    BridgeError,
    RouteProgress,
    config_of,
    filter_of,
    key_of,
    progress_line,
)

OUT = {"from": "mqtt:air/#", "to": "kafka:air"}
IN = {"from": "kafka:orders", "to": "mqtt:orders/{key}"}


def told(*routes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kafka": "h:9092", "lake": "lake", "routes": list(routes), **more}


def test_both_ways_with_names_of_their_own() -> None:
    config = config_of(told(OUT, IN, {**OUT, "name": "again", "filter": "NO2 > 40"}), "here")
    out, inbound, again = config.routes
    assert (out.is_to_kafka, out.mqtt_topic, out.kafka_topic) == (True, "air/#", "air")
    assert (inbound.is_to_kafka, inbound.mqtt_topic, inbound.kafka_topic) == (
        False,
        "orders/{key}",
        "orders",
    )
    assert len({route.title for route in config.routes}) == 3
    assert again.title == "again"
    assert filter_of(out) is None
    assert filter_of(again) is not None


def test_a_file_says_the_same() -> None:
    text = """
kafka = "h:9092"
[kafka_options]
"security.protocol" = "SSL"
[[routes]]
from = "kafka:orders"
to = "mqtt:orders"
start = "latest"
"""
    config = config_of(tables_of(text, "f.toml", BridgeError), "f.toml")
    assert config.kafka_options == {"security.protocol": "SSL"}
    assert config.routes[0].start == "latest"


def test_a_key_is_an_attribute() -> None:
    [route] = config_of(told({**OUT, "key": "site.id"}), "here").routes
    found = key_of(route)
    assert found is not None
    assert found.path == ("site", "id")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (told(), "has no routes"),
        (told(OUT, OUT), "two routes called"),
        (told({**OUT, "flter": "x"}), "there is no key `routes[0].flter`; did you mean `filter`?"),
        (told({"from": "mqtt:a", "to": "mqtt:b"}), "one is mqtt:TOPIC, the other kafka:TOPIC"),
        (told({"from": "mqtt:a/#/b", "to": "kafka:b"}), "# is the last level or none"),
        (told({"from": "mqtt:$share/g/a", "to": "kafka:b"}), "knows no shared subscriptions"),
        (told({"from": "mqtt:a", "to": "kafka:a/b"}), "'a/b' is no topic of Kafka"),
        (told({"from": "kafka:a", "to": "mqtt:a/+"}), "has no wildcards"),
        (told({"from": "kafka:a", "to": "mqtt:{value}"}), "{value} is none of {key}"),
        (told({**IN, "key": "x"}), "are for routes towards Kafka"),
        (told({**OUT, "key": "1 +"}), "is no attribute"),
        (told({**OUT, "filter": "NO2 >"}), "expected a value"),
        (told({**OUT, "filter": "NO2 > me.limit"}), "depends on more than the publication"),
        (told({**OUT, "filter": "x < t"}), "depends on more than the publication"),
        (told({**OUT, "name": "a/b"}), "letters, digits"),
        (told(OUT, name="a b"), "letters, digits"),
        (told(OUT, name="air"), "'air' is the topic of the bridge's own positions"),
        (told(OUT, lake=""), "say where that is: lake"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(BridgeError) as caught:
        config_of(wrong, "here")
    assert why in str(caught.value)
    assert str(caught.value).startswith("here")
    assert "\n" not in str(caught.value)


def test_progress_as_one_line() -> None:
    before = RouteProgress("air", sent=1_000)
    now = RouteProgress(
        "air", sent=3_000, left=2, refused=1, position=12_345, trouble="Kafka is away"
    )
    assert progress_line(now, before, 2.0) == (
        "air: 3,000 sent (1,000/s), 2 left, 1 refused, position 12,345, waiting: Kafka is away"
    )
    assert (
        progress_line(RouteProgress("air", is_at_end=True), None, 0.0)
        == "air: 0 sent (0/s), at the end"
    )
