"""Parameters are read by kind, and what is wrong with one is said with its name."""

import pytest

from rove.base.http import HttpError
from rove.serve.http.requests import Query

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
    with pytest.raises(HttpError, match="400"):
        query(("qos", written)).integer("qos", 1, 0, 2)


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(HttpError) as refused:
        query(("topik", "a"))
    assert (refused.value.status, refused.value.hint) == (400, "did you mean topic?")
    with pytest.raises(HttpError) as refused:
        Query([("x", "1")], ())
    assert refused.value.hint == "there is none"
    with pytest.raises(HttpError):
        Query([("user.x", "1")], ("topic",))


@pytest.mark.parametrize("value", ["\0", "\ud800", "x" * 70_000])
def test_what_mqtt_cannot_carry(value: str) -> None:
    with pytest.raises(HttpError, match="400"):
        query(("topic", value))
