"""JSON lines: every good form is read, every bad one is refused in words."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import LanguageError
from rove.lang.records import (
    PublicationRecord,
    StateRecord,
    SubscriptionRecord,
    read_publication,
    read_subscription,
)
from rove.lang.values import admit


class TestSubscriptions:
    def test_a_text_alone_will_do(self) -> None:
        assert read_subscription(b'"x > 1"') == SubscriptionRecord("x > 1")

    def test_an_object_says_more(self) -> None:
        line = b'{"id": 7, "filter": "x > me.x", "at": 2, "me": {"x": 1}, "evolve": "lees"}'
        assert read_subscription(line) == SubscriptionRecord("x > me.x", 7, 2.0, {"x": 1}, "lees")

    @pytest.mark.parametrize(
        ("line", "complaint"),
        [
            ("x > 1", "not JSON"),
            ("17", "not a subscription"),
            ("{}", "missing required field `filter`"),
            ('{"filter": 3}', "not a subscription"),
            ('{"filter": "x > 1", "when": 3}', "unknown field `when`"),
            ('{"filter": "x > 1", "at": "noon"}', "not a subscription"),
            ('{"filter": "x > 1", "evolve": 3}', "not a subscription"),
            ('{"filter": "x > 1", "me": {"x": ' + "[" * 5_000 + "]" * 5_000 + "}}", "too deep"),
            ("", "not JSON"),
        ],
    )
    def test_others_are_refused(self, line: str, complaint: str) -> None:
        with pytest.raises(LanguageError, match=complaint):
            read_subscription(line)


class TestPublications:
    def test_the_object_is_the_publication(self) -> None:
        record = read_publication('{"id": "p", "at": 1.5, "NO2": 41}', 3)
        assert record == PublicationRecord("p", 1.5, {"id": "p", "at": 1.5, "NO2": 41})

    def test_without_name_and_time_the_line_number_names_it(self) -> None:
        assert read_publication('{"NO2": 41}', 3) == PublicationRecord("3", None, {"NO2": 41})

    def test_the_keys_can_be_chosen(self) -> None:
        record = read_publication('{"n": 5, "w": 2}', 1, time_key="w", id_key="n")
        assert (record.at, isinstance(record, PublicationRecord) and record.id) == (2, "5")

    @pytest.mark.parametrize("line", ['{"at": 2}', '{"at": 2, "$me": {}}', '{"at": 2.0}'])
    def test_a_time_is_a_float_however_it_was_written(self, line: str) -> None:
        at = read_publication(line, 1).at
        assert (type(at), at) == (float, 2.0)

    def test_me_changes_state(self) -> None:
        record = read_publication('{"at": 3, "$me": {"home": {"x": 5}}}', 1)
        assert record == StateRecord(3, {"home": {"x": 5}})

    @pytest.mark.parametrize(
        ("line", "complaint"),
        [
            ("nonsense", "not JSON"),
            ("[]", "not a publication"),
            ('{"at": "noon"}', "a number of seconds"),
            ('{"at": true}', "a number of seconds"),
            ('{"at": 1' + "0" * 400 + "}", "at has 401 digits"),
            ('{"x": ' + "[" * 5_000 + "]" * 5_000 + "}", "too deep"),
            ('{"$me": 3}', "must name subscriptions"),
            ('{"$me": {"home": 3}}', "must name subscriptions"),
            ('{"x": 1e999}', "not JSON"),
            ('{"x": NaN}', "not JSON"),
        ],
    )
    def test_others_are_refused(self, line: str, complaint: str) -> None:
        with pytest.raises(LanguageError, match=complaint):
            read_publication(line, 1)


@given(st.text('ab"\\\\ud8cef0123456789-.E', max_size=30), st.binary(max_size=8))
def test_what_is_read_is_what_every_runtime_may_see(text: str, end: bytes) -> None:
    for line in (f'{{"x": {text}}}'.encode(), f'{{"{text}": "'.encode() + end + b'"}'):
        try:
            record = read_publication(line, 1)
        except LanguageError:
            continue
        assert isinstance(record, PublicationRecord)
        admit(record.attributes)


def refusal_of(read: Callable[[bytes | str], object], line: bytes | str) -> str | None:
    try:
        read(line)
    except LanguageError as error:
        return error.what
    return None


@given(st.binary(max_size=40) | st.text('{}[]":,$me0159.eatu \n', max_size=40))
def test_any_line_is_read_or_refused_in_words(line: bytes | str) -> None:
    for read in (read_subscription, lambda line: read_publication(line, 1)):
        assert refusal_of(read, line) != ""
