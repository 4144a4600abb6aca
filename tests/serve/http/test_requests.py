"""Parameters are read by kind, and what is wrong with one is said with its name."""

import pytest

from rove.serve.http.answers import Fault
from rove.serve.http.requests import Query, json_of

KNOWN = ("topic", "qos", "retain", "user.")


def query(*items: tuple[str, str]) -> Query:
    return Query(items, KNOWN)


def test_texts_numbers_and_flags() -> None:
    found = query(("topic", "a"), ("topic", "b"), ("qos", "2"), ("retain", ""), ("user.x.y", "1"))
    assert found.texts("topic") == ["a", "b"]
    assert found.integer("qos", 1, 0, 2) == 2
    assert found.flag("retain") is True
    assert found.user_properties() == [("x.y", "1")]
    assert (query().text("topic"), query().integer("qos", 1, 0, 2)) == (None, 1)
    assert query(("retain", "No")).flag("retain") is False


@pytest.mark.parametrize("written", ["-1", "3", "1.5", "", "one", "²", "1" * 5000])
def test_what_is_no_number(written: str) -> None:
    with pytest.raises(Fault, match="400"):
        query(("qos", written)).integer("qos", 1, 0, 2)


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(Fault) as refused:
        query(("topik", "a"))
    assert (refused.value.status, refused.value.hint) == (400, "did you mean topic?")
    with pytest.raises(Fault) as refused:
        Query([("x", "1")], ())
    assert refused.value.hint == "there is none"
    with pytest.raises(Fault):
        Query([("user.x", "1")], ("topic",))


@pytest.mark.parametrize("value", ["\0", "\ud800", "x" * 70_000])
def test_what_mqtt_cannot_carry(value: str) -> None:
    with pytest.raises(Fault, match="400"):
        query(("topic", value))


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a": ' + b"[" * 100_000, b"[]"])
def test_a_body_that_is_no_json_object(body: bytes) -> None:
    with pytest.raises(Fault) as refused:
        json_of(body, dict[str, object])
    assert refused.value.status == 400
