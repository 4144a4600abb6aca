"""Names of series, there and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rove.metrics.records import kind_of, labels_of, labels_text, split_series
from rove.metrics.world_readings import metric_name

NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True)


@given(st.dictionaries(NAMES, st.text()))
def test_labels_come_back_whatever_they_say(labels: dict[str, str]) -> None:
    assert labels_of(labels_text(labels)) == labels


def test_labels_are_sorted_and_escaped() -> None:
    assert labels_text({"run": "1", "engine": 'a"b\\c\nd'}) == 'engine="a\\"b\\\\c\\nd",run="1"'
    assert labels_text({}) == ""
    assert labels_of("") == {}


def test_names_of_the_world_tell_totals_from_what_is_there() -> None:
    assert metric_name("subscriptions") == "rove_world_subscriptions"
    assert metric_name("subscribes") == "rove_world_subscribes_total"
    assert kind_of(metric_name("subscribes")) == "counter"
    assert kind_of(metric_name("subscribers")) == "gauge"
    assert kind_of(metric_name("battery")) == "gauge"


def test_series_as_prometheus_writes_them() -> None:
    assert split_series('rove_x_total{design="lees"}') == ("rove_x_total", 'design="lees"')
    assert split_series("rove_x") == ("rove_x", "")
