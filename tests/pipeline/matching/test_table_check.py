"""A text that a table can never meet is refused, with the column, its type and what would help."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from rove.lang.parser import parse
from rove.lang.tree import Attribute, walk
from rove.pipeline.matching.dataframes import match, matches, register
from rove.pipeline.matching.table_check import MatchingError, uses_of
from rove.pipeline.ranked.buckets import RankingError
from rove.pipeline.ranked.ranking import rank
from tests.differential.drawing import Drawing
from tests.effort import some

COLUMNS = {
    "NO2": pa.float64(),
    "count": pa.int16(),
    "price": pa.decimal128(10, 2),
    "name": pa.string(),
    "code": pa.dictionary(pa.int32(), pa.string()),
    "ok": pa.bool_(),
    "at": pa.timestamp("us", tz="UTC"),
    "battery": pa.struct([("level", pa.float64()), ("ok", pa.bool_())]),
    "tags": pa.map_(pa.string(), pa.string()),
    "nothing": pa.null(),
    "place.lat": pa.float64(),
    "`odd.name`": pa.int64(),
}


def check(text: str, columns: dict[str, pa.DataType] = COLUMNS) -> None:
    uses_of(parse(text), f"the expression {text!r}").check(columns)


@pytest.mark.parametrize(
    "text",
    [
        "NO2 > 40 AND count = 3 AND price < 1.5 AND name = 'a' AND code LIKE 'x%' AND ok",
        "battery.level < 0.2 OR NOT battery.ok OR battery IS NULL",
        "at IS NOT NULL AND tags.colour = 'red' AND tags.size > 3",
        "nothing > 3 AND nothing.inner = 'a'",
        "place.lat > 45 AND place IS NOT NULL AND `odd.name` = 3",
        "NO2 > me.limit AND name = me.name AND NO2 = count",
        "NO2 > 3 OR NO2 = 'none'",
        "TRUE",
    ],
)
def test_what_fits(text: str) -> None:
    check(text)


REFUSED = [
    ("NO > 40", r"uses NO, and there is no such column; did you mean NO2\? \(strict=False"),
    ("no2 > 40", r"uses no2, .* did you mean NO2\?"),
    ("humidity IS NULL", r"uses humidity, .*there are NO2, count, price"),
    ("battery.levl < 1", r"uses battery\.levl, .*did you mean battery\.level\?"),
    ("name.first = 'a'", r"uses name\.first, "),
    ("name > 40", r"uses name as a number, and the column is of type string; .*\.cast\('double'\)"),
    ("code + 1 > 40", r"uses code as a number, and the column is of type dictionary; read"),
    ("NO2 = 'high'", r"uses NO2 as a string, .* of type double; compare it with a number"),
    ("ok = 1", r"uses ok as a number, and the column is of type bool; compare it with a boolean"),
    ("at > 40", r"uses at as a number, .* of type timestamp; no expression can compare"),
    ("battery > 1", r"uses battery as a number, .* of type object; name one of its members"),
]


@pytest.mark.parametrize(("text", "complaint"), REFUSED)
def test_what_does_not(text: str, complaint: str) -> None:
    with pytest.raises(MatchingError, match=complaint):
        check(text)


def test_no_attribute_is_overlooked() -> None:
    """What is not named here would not be handed to the workers."""
    drawing = Drawing(Random(3), moving=0.3)
    for subscription in drawing.subscriptions(500):
        named = {one.path[0] for one in walk(subscription.condition) if type(one) is Attribute}
        assert uses_of(subscription, "it").heads == named


def test_an_error_does_not_list_a_hundred_columns() -> None:
    with pytest.raises(MatchingError) as caught:
        check("missing = 1", {f"a{number}": pa.int64() for number in range(100)})
    assert ", a19, … (strict" in str(caught.value)


# -- on Spark --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strings(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A file of CSV, read as most people do."""
    path = tmp_path_factory.mktemp("csv") / "air.csv"
    path.write_text("NO2,place,at\n41.5,Zagreb,2\n39,Rab,1\n")
    return spark.read.option("header", True).csv(str(path))


def test_strings_where_numbers_are_meant(strings: Any) -> None:
    with pytest.raises(MatchingError, match=r"subscription 1 \(NO2 > 40\) uses NO2 as a number"):
        match(strings, ["place = 'Rab'", "NO2 > 40"])
    assert match(strings, ["NO2 > 40"], strict=False).count() == 0
    cast = strings.withColumn("NO2", strings["NO2"].cast("double"))
    assert [row.place for row in match(cast, ["NO2 > 40"]).collect()] == ["Zagreb"]


def test_a_column_that_is_not_there(strings: Any) -> None:
    with pytest.raises(MatchingError, match=r"subscription home \(plce = 'Rab'\) .*mean place\?"):
        match(strings, [("home", "plce = 'Rab'")])
    assert match(strings, ["plce IS NULL"], strict=False).count() == 2


def test_a_hidden_column_is_not_there(strings: Any) -> None:
    with pytest.raises(MatchingError, match="uses place"):
        match(strings, ["place = 'Rab'"], attributes=["NO2"])


def test_the_topic_is_an_attribute(strings: Any) -> None:
    assert match(strings, ["topic LIKE 'Z%'"], topic="place").count() == 1
    with pytest.raises(MatchingError, match="uses topic as a number"):
        match(strings, ["topic > 3"], topic="place")


def test_ranked_texts_are_checked_too(strings: Any) -> None:
    timed = strings.withColumn("at", strings["at"].cast("double"))
    with pytest.raises(MatchingError, match="uses NO2 as a number"):
        rank(timed, ["ORDER BY NO2 DESC LIMIT 1 WITHIN 1 HOUR"], at="at")
    with pytest.raises(MatchingError, match="uses NO3"):
        rank(timed, ["NO3 > 1 ORDER BY at DESC LIMIT 1 WITHIN 1 HOUR"], at="at")
    unchecked = rank(timed, ["ORDER BY NO2 DESC LIMIT 1 WITHIN 1 HOUR"], at="at", strict=False)
    assert unchecked.count() == 0


def test_conditions_and_sql_say_the_same(spark: Any, strings: Any) -> None:
    with pytest.raises(Exception, match=r"the expression 'NO2 > 40' uses NO2 as a number"):
        strings.where(matches("NO2 > 40")).collect()
    register(spark)
    strings.createOrReplaceTempView("strings")
    try:
        with pytest.raises(Exception, match=r"uses plce.* did you mean place\?"):
            spark.sql("SELECT * FROM strings WHERE rove_matches('plce > 1', struct(*))").collect()
        asked = "SELECT * FROM strings WHERE rove_matches('x IS NULL', struct(*, NULL AS x))"
        assert spark.sql(asked).count() == 2
    finally:
        spark.catalog.dropTempView("strings")


@pytest.mark.parametrize("form", some(["pairs", "grouped"]))
def test_a_stream_is_matched_like_a_table(spark: Any, tmp_path: Path, form: Any) -> None:
    table = spark.range(20).selectExpr("id", "id * 1.0D AS x", "timestamp_seconds(id) AS at")
    table.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(table.schema).parquet(str(tmp_path / "rows"))
    texts = ["x > 15", "x < 1 + t", "x < 0"]
    query = (
        match(stream, texts, at="at", keep=["id"], form=form)
        .writeStream.format("memory").queryName(f"found_{form}")
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    expected = match(table, texts, at="at", keep=["id"], form=form).collect()
    assert len(expected) > 10
    assert sorted(map(str, spark.table(f"found_{form}").collect())) == sorted(map(str, expected))
    with pytest.raises(RankingError, match=r"foreachBatch.*RankedStream"):
        rank(stream, ["ORDER BY x DESC LIMIT 1 WITHIN 1 HOUR"], at="at")
