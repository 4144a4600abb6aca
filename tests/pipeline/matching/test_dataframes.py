"""Subscriptions over DataFrames give what the oracle gives row by row."""

from __future__ import annotations

import datetime
import re
import runpy
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions

import rove.lang
from rove.lang import to_text
from rove.lang.parser import parse
from rove.pipeline.lake.versions import Version
from rove.pipeline.matching import dataframes as matching
from rove.pipeline.matching.dataframes import MatchingError, match, matches, register, unpacked
from rove.pipeline.matching.index import Index
from rove.pipeline.spark import executors
from rove.pipeline.spark.executors import TaskFile, folder_of_process
from tests.differential.drawing import Drawing, Moment
from tests.effort import PATIENCE_S, some

SCHEMA = "id long, NO2 double, count long, name string, ok boolean, n struct<m: double, s: string>"
ROWS: list[tuple[Any, ...]] = [
    (0, 41.5, 2**53 + 1, "Abc", True, (1.0, "x")),
    (1, 12.0, 7, "b", None, None),
    (2, None, None, None, False, (None, "y")),
    (3, float("nan"), -1, "", True, (2.0, None)),
    (4, 40.0, 2**53, "abd", False, (None, None)),
]
TEXTS = [
    "NO2 > 40",
    "NO2 <= 40 OR name LIKE 'ab%'",
    "count > 9007199254740992",
    "n.m + NO2 > 42",
    "n IS NOT NULL AND n.m IS NULL",
    "ok AND lower(name) = 'abc'",
    "NO2 IS NULL",
    "absent = 1 OR name = ''",
]


@pytest.fixture(scope="module")
def table(spark: Any) -> Any:
    return spark.createDataFrame(ROWS, SCHEMA)


def publication(row: tuple[Any, ...]) -> dict[str, Any]:
    """A row as somebody would have published it."""
    names = ("id", "NO2", "count", "name", "ok", "n")
    found = {name: value for name, value in zip(names, row, strict=True) if value is not None}
    if found.get("NO2") != found.get("NO2"):
        del found["NO2"]
    if "n" in found:
        found["n"] = dict(zip(("m", "s"), found["n"], strict=True))
    return found


def wanted(texts: Sequence[str]) -> set[tuple[int, int]]:
    return {
        (row[0], number)
        for row in ROWS
        for number, text in enumerate(texts)
        if rove.lang.matches(parse(text), publication(row))
    }


def pairs(df: Any) -> set[tuple[Any, ...]]:
    rows = [tuple(row) for row in df.collect()]
    assert len(set(rows)) == len(rows), "each pair once"
    return set(rows)


class TestMatch:
    def test_who_gets_which_row(self, table: Any) -> None:
        found = match(table, TEXTS, keep=["id"], strict=False)
        assert found.columns == ["id", "subscription"]
        assert dict(found.dtypes)["subscription"] == "bigint"
        assert pairs(found) == wanted(TEXTS)
        assert {number for _, number in wanted(TEXTS)} == set(range(len(TEXTS)))

    @pytest.mark.soak
    def test_all_columns_are_kept_unless_some_are_named(self, table: Any) -> None:
        (row,) = match(table, [("home", "count = 7")]).collect()
        assert (row.id, row.NO2, row.name, row.n) == (1, 12.0, "b", None)
        assert row.subscription == "home"

    def test_grouped(self, table: Any) -> None:
        found = match(table, TEXTS, keep=["id"], form="grouped", strict=False)
        assert dict(found.dtypes)["subscriptions"] == "array<bigint>"
        rows = {row.id: sorted(row.subscriptions) for row in found.collect()}
        assert rows == {
            id: sorted(number for other, number in wanted(TEXTS) if other == id)
            for id, _ in wanted(TEXTS)
        }

    def test_packed(self, spark: Any, table: Any) -> None:
        found = match(table, TEXTS, keep=["id"], form="packed", strict=False)
        assert dict(found.dtypes)["subscriptions"] == "binary"
        counts = found.selectExpr("sum(length(subscriptions)) / 4 AS pairs").collect()
        assert counts[0].pairs == len(wanted(TEXTS))
        exploded = found.select("id", functions.explode(unpacked()).alias("subscription"))
        assert pairs(exploded) == wanted(TEXTS)

    def test_subscriptions_from_a_table(self, spark: Any, table: Any) -> None:
        texts = spark.createDataFrame([(5, "NO2 > 40"), (6, "NO2 > 0")], "number long, text string")
        assert pairs(match(table, texts, keep=["id"])) == {(0, 5), (0, 6), (1, 6), (4, 6)}

    def test_subscriptions_from_files(self, table: Any, tmp_path: Path) -> None:
        lines = tmp_path / "lines"
        lines.write_text('"NO2 > 40"\n')
        assert pairs(match(table, lines, keep=["id"])) == {(0, "1")}
        Index.build([(8, "NO2 > 40")]).save(tmp_path / "saved")
        with Index.open(tmp_path / "saved") as index:
            assert pairs(match(table, index, keep=["id"])) == {(0, 8)}

    def test_only_columns_that_are_asked_for_go_to_python(self, table: Any) -> None:
        plan = match(table, ["NO2 > 40"], keep=["id"])._jdf.queryExecution().toString()
        sent = plan[plan.index("Optimized Logical Plan") :]
        assert "NO2" in sent
        assert "name" not in sent.split("\n")[2], sent

    def test_an_index_that_changes(self, spark: Any, table: Any) -> None:
        with Index.build([("high", "NO2 > 40")]) as index:
            assert pairs(match(table, index, keep=["id"])) == {(0, "high")}
            index.add([("low", "NO2 < 13")])
            before = match(table, index, keep=["id"])
            index.remove(["high"])
            assert pairs(match(table, index, keep=["id"])) == {(1, "low")}
            assert pairs(before) == {(0, "high"), (1, "low")}, "as it was when it was asked"

    def test_a_large_index_is_opened_where_it_lies(
        self, table: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(executors, "SMALL_BYTES", 0)
        with Index.build(["NO2 > 40"]) as index:
            assert pairs(match(table, index, keep=["id"])) == {(0, 0)}

    def test_names_with_dots_and_odd_ones(self, spark: Any) -> None:
        df = spark.createDataFrame([(1, 2, 3), (4, 5, 6)], "`a.b` int, `odd ``name` int, id int")
        texts = ["a.b = 4", "`odd ``name` = 2"]
        found = match(df, texts, keep=["id", "a.b"])
        assert found.columns == ["id", "a.b", "subscription"]
        assert pairs(found) == {(6, 4, 0), (3, 1, 1)}

    def test_a_stream_of_flat_columns(self, spark: Any, tmp_path: Path) -> None:
        spark.createDataFrame([(1, 50.0), (2, 3.0)], "id long, NO2 double").write.parquet(
            str(tmp_path / "in")
        )
        stream = spark.readStream.schema("id long, NO2 double").parquet(str(tmp_path / "in"))
        kept: list[set[tuple[Any, ...]]] = []
        with Index.build(["NO2 > 40"]) as index:
            query = (
                match(stream, index)
                .writeStream.foreachBatch(lambda df, _: kept.append(pairs(df)))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(PATIENCE_S)
        assert [one for one in kept if one] == [{(1, 50.0, 0)}]

    def test_the_same_texts_in_every_batch_leave_one_file(self, table: Any) -> None:
        def files() -> int:
            return len(list(folder_of_process("indexes").iterdir()))

        match(table, ["NO2 > 41"], keep=["id"])
        before = files()
        for _ in range(5):
            match(table, ["NO2 > 41"], keep=["id"])
        assert files() == before

    def test_attributes_hide_what_is_not_named(self, table: Any) -> None:
        texts = ["NO2 > 40 AND ok IS NULL"]
        assert pairs(match(table, texts, keep=["id", "ok"], attributes=["NO2"], strict=False)) == {
            (0, True, 0)
        }

    def test_a_result_can_be_used_as_any_table(self, spark: Any, table: Any) -> None:
        found = match(table, TEXTS, strict=False).groupBy("subscription").count()
        counts = {row.subscription: row["count"] for row in found.collect()}
        assert counts[0] == 1
        assert sum(counts.values()) == len(wanted(TEXTS))

    def test_topic_filters(self, spark: Any) -> None:
        topics = ["air/1", "air", "water/1", None]
        df = spark.createDataFrame(list(enumerate(topics)), "id int, place string")
        versions = [
            Version(number=0, text="", filter="air/#"),
            Version(number=1, text="topic LIKE '%/1'", filter="+/1"),
            Version(number=2, text="id > 2"),
        ]
        found = match(df, versions, topic="place", keep=["id"])
        assert pairs(found) == {(0, 0), (1, 0), (0, 1), (2, 1), (3, 2)}

    def test_nothing_matches(self, table: Any) -> None:
        assert match(table, ["NO2 > 1000"]).collect() == []


class TestTime:
    def versions(self) -> list[Version]:
        travelling = "x BETWEEN {0} + t AND {0} + 2 + t"
        return [
            Version(number=n, text=travelling.format(n % 7), accepted_at=float(n % 5))
            for n in range(60)
        ]

    @pytest.mark.parametrize("kind", some(["timestamp", "double"]))
    def test_each_evolves_since_it_was_accepted(self, spark: Any, kind: str) -> None:
        random = Random(1)
        rows = [(id, random.uniform(0, 30), random.uniform(0, 25)) for id in range(1_000)]
        at = functions.col("at")
        df = spark.createDataFrame(rows, "id int, at double, x double")
        if kind == "timestamp":
            df = df.withColumn("at", functions.timestamp_micros((at * 1e6).cast("long")))
        found = match(df, self.versions(), at="at", keep=["id"])
        judged = {
            (id, version.number)
            for version in self.versions()
            for subscription in [parse(version.text)]
            for id, seconds, x in rows
            if (when := int(seconds * 1e6) / 1e6 if kind == "timestamp" else seconds)
            >= version.accepted_at
            and rove.lang.matches(subscription, {"x": x}, when - version.accepted_at)
        }
        assert len(judged) > 1_000
        assert pairs(found) == judged

    def test_a_column_may_be_both_time_and_attribute(self, spark: Any) -> None:
        df = spark.createDataFrame([(1.0,), (5.0,)], "at double")
        assert [row.at for row in match(df, ["at > 2 AND t < 6"], at="at").collect()] == [5.0]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"keep": ["none"]}, "there is no column none; there are id, NO2"),
    ({"at": "when"}, "there is no column when"),
    ({"subscriptions": ["x > t"]}, r"subscription 0 \(x > t\) changes with time; .*at='…'"),
    (
        {"subscriptions": [Version(number=3, text="", filter="a/+")]},
        r"subscription 3 \(a/\+\) has a topic filter; .*topic='…'",
    ),
    ({"form": "heap"}, "there is no form 'heap'; choose from pairs, grouped, packed"),
    (
        {"subscriptions": [("home", "NO2 > 40")], "form": "packed"},
        "string ids cannot be packed; use numbers",
    ),
    ({"subscriptions": ["ORDER BY x LIMIT 1 WITHIN 1 HOUR"]}, "is ranked"),
]


@pytest.mark.parametrize(("given", "complaint"), REFUSED)
def test_what_does_not_fit_is_refused(table: Any, given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(MatchingError, match=complaint):
        match(table, **{"subscriptions": ["NO2 > 40"], **given})


def test_a_column_of_that_name_is_in_the_way(table: Any) -> None:
    renamed = table.withColumnRenamed("id", "Subscription")
    with pytest.raises(MatchingError, match="there is a column subscription already"):
        match(renamed, ["NO2 > 40"])
    assert match(renamed, ["NO2 > 40"], keep=["NO2"]).count() == 1


class TestMatches:
    def test_in_a_select_it_is_true_or_false(self, table: Any) -> None:
        texts = [text for text in TEXTS if "absent" not in text]
        hits = [matches(text).alias(str(number)) for number, text in enumerate(texts)]
        found = table.select("id", *hits).collect()
        assert {
            (row.id, number, row[str(number)]) for row in found for number in range(len(texts))
        } == {
            (id, number, (id, number) in wanted(texts))
            for id in range(len(ROWS))
            for number in range(len(texts))
        }

    def test_beside_other_conditions(self, table: Any) -> None:
        both = table.where(~matches("NO2 > 40") & (functions.col("id") > 2) | matches("ok"))
        assert sorted(row.id for row in both.collect()) == [0, 3, 4]

    def test_time_and_state(self, spark: Any) -> None:
        df = spark.createDataFrame([(1.0, 5.0), (4.0, 5.0)], "at double, x double")
        text = "x < me.x + t"
        found = df.where(matches(text, at="at", accepted_at=1.0, me={"x": 3}))
        assert [row["at"] for row in found.collect()] == [4.0]
        found = df.where(matches(text, at=functions.col("at") + 2, me={"x": 3}))
        assert found.count() == 2

    def test_odd_names_and_none(self, spark: Any) -> None:
        df = spark.createDataFrame([(1, 2), (3, 4)], "`a.b` int, `odd name` int")
        assert df.where(matches("`a.b` = 3 AND `odd name` > 0")).count() == 1
        assert df.where(matches("TRUE")).count() == 2

    def test_a_small_letter_is_no_capital(self, spark: Any) -> None:
        """One answer: `match` and `matches` refuse the same, and say what is there."""
        df = spark.createDataFrame([(50.0, (1.0,))], "NO2 double, air struct<no2: double>")
        with pytest.raises(MatchingError, match=r"no2.*did you mean NO2\?"):
            match(df, ["no2 > 40"])
        for asked in (df.where(matches("no2 > 40")), df.select(matches("no2 > 40"))):
            with pytest.raises(PythonException, match=r"no2.*did you mean NO2\?"):
                asked.collect()
        assert df.where(matches("NO2 > 40")).count() == match(df, ["NO2 > 40"]).count() == 1

    def test_only_the_columns_of_the_text_go_to_python(self, table: Any) -> None:
        plan = table.where(matches("NO2 > 40")).select("id")._jdf.queryExecution().toString()
        sent = plan[plan.index("Optimized Logical Plan") : plan.index("Physical Plan")]
        assert "NO2#" in sent
        assert "name#" not in sent.split("LogicalRDD")[0], sent

    def test_what_cannot_be_a_condition_is_refused_at_once(self) -> None:
        with pytest.raises(MatchingError, match="changes with time"):
            matches("x > t")
        with pytest.raises(MatchingError, match="is ranked"):
            matches("ORDER BY x LIMIT 1 WITHIN 1 HOUR")
        with pytest.raises(rove.lang.TextError):
            matches("x >")


class TestSql:
    @pytest.fixture(autouse=True)
    def view(self, spark: Any, table: Any) -> Iterator[None]:
        register(spark)
        table.createOrReplaceTempView("readings")
        yield
        spark.catalog.dropTempView("readings")

    def test_where(self, spark: Any) -> None:
        row = "struct(*, NULL AS absent)"
        one = f"SELECT id, {{0}} AS n FROM readings WHERE rove_matches(:text{{0}}, {row})"
        query = " UNION ALL ".join(one.format(number) for number in range(len(TEXTS)))
        texts = {f"text{number}": text for number, text in enumerate(TEXTS)}
        assert pairs(spark.sql(query, args=texts)) == wanted(TEXTS)

    def test_texts_from_a_table(self, spark: Any) -> None:
        texts = spark.createDataFrame(
            [(0, TEXTS[0]), (1, TEXTS[1]), (2, None)], "number int, text string"
        )
        texts.createOrReplaceTempView("texts")
        query = """
            SELECT id, number FROM readings CROSS JOIN texts
            WHERE rove_matches(text, struct(NO2, name))
        """
        assert pairs(spark.sql(query)) == wanted(TEXTS[:2])
        spark.catalog.dropTempView("texts")

    def test_times(self, spark: Any) -> None:
        query = """
            SELECT rove_matches('id < t', struct(id), id * 2.0) AS since_the_start,
                   rove_matches('id < t', struct(id), id * 2.0, 1.0) AS since_one,
                   rove_matches(NULL, struct(id)) AS nothing
            FROM readings ORDER BY id
        """
        found = spark.sql(query).collect()
        assert [row.since_the_start for row in found] == [False, True, True, True, True]
        assert [row.since_one for row in found] == [False, False, True, True, True]
        assert {row.nothing for row in found} == {None}


# -- in a worker -------------------------------------------------------------------------------


def job(texts: Sequence[Any], **given: Any) -> matching.MatchJob:
    content = b"".join(Index.build(texts)._parts())
    told: dict[str, Any] = {
        "file": TaskFile(uuid.uuid4().hex, content=content),
        "kept": ["id"],
        "at": None,
        "topic": None,
        "hidden": [],
        "form": "pairs",
    }
    return matching.MatchJob(**(told | given))


def test_pieces_keep_batches_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "PIECE_PAIRS", 10_000)
    texts = [f"x >= {number}" for number in range(20)]
    batch = pa.RecordBatch.from_pydict({"id": np.arange(50_000), "x": np.full(50_000, 100)})
    found = list(matching._matched(job(texts), iter([batch])))
    assert sum(each.num_rows for each in found) == 20 * 50_000
    assert max(each.num_rows for each in found[1:]) <= 10_000
    assert found[-1].column("id")[-1].as_py() == 49_999
    grouped = pa.Table.from_batches(matching._matched(job(texts, form="grouped"), iter([batch])))
    assert grouped.column("id").to_pylist() == list(range(50_000))
    assert {len(each) for each in grouped.column("subscriptions").to_pylist()} == {20}


def test_long_texts_keep_batches_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "ARROW_BYTES", 100_000)
    texts = [f"x >= {number}" for number in range(20)]
    long = ["-" * (30_000 if number % 3 else 5) for number in range(30)]
    batch = pa.RecordBatch.from_pydict({"id": list(range(30)), "x": [99] * 30, "text": long})
    told = job(texts, kept=["id", "text"])
    found = list(matching._matched(told, iter([batch])))
    rows = [(row["id"], row["subscription"]) for each in found for row in each.to_pylist()]
    assert sorted(rows) == [(id, number) for id in range(30) for number in range(20)]
    assert max(each.nbytes for each in found) < 120_000
    assert len(found) < 200
    told = job(texts, kept=["id", "text"], form="grouped")
    found = list(matching._matched(told, iter([batch])))
    assert [row for each in found for row in each["id"].to_pylist()] == list(range(30))
    assert {len(row) for each in found for row in each["subscriptions"].to_pylist()} == {20}


def test_numbers_that_are_too_large_are_not_packed() -> None:
    batch = pa.RecordBatch.from_pydict({"id": [1], "x": [1]})
    told = job([(2**31, "x = 1")], form="packed")
    with pytest.raises(MatchingError, match="subscription 2147483648 cannot be packed"):
        list(matching._matched(told, iter([batch])))


def test_packed_columns_may_have_gaps_and_be_slices() -> None:
    packed = pa.array([b"", np.array([1, 2], "<i4").tobytes(), None, np.array([3]).tobytes()])
    found = matching._unpacked(packed.slice(1))
    assert found.to_pylist() == [[1, 2], None, [3, 0]]


def test_drawn_subscriptions_as_the_oracle_has_them() -> None:
    """Typed columns of whatever is drawn, by way of Arrow and of a saved file."""
    random = Random(7)
    drawing = Drawing(random, moving=0.2)
    subscriptions = drawing.subscriptions(150)
    publications = [
        drawing.publication(random.sample(subscriptions, 2), Moment(0.0, {})) for _ in range(60)
    ]
    texts = [to_text(one) for one in subscriptions]
    checked = 0
    for kind, arrow in ((float, pa.float64()), (int, pa.int64()), (str, pa.string())):
        rows = [fitting(one, kind) for one in publications]
        names = sorted({name for one in rows for name in one})
        arrays = [pa.array([one.get(name) for one in rows], arrow) for name in names]
        written = [f"`{name}`" for name in names]
        batch = pa.RecordBatch.from_arrays([pa.array(range(60)), *arrays], ["id", *written])
        told = job(texts, hidden=["id"])
        (found,) = matching._matched(told, iter([batch]))
        judged = [
            (row, number)
            for row, one in enumerate(rows)
            for number, subscription in enumerate(subscriptions)
            if rove.lang.matches(subscription, one)
        ]
        columns = (found.column("id").to_pylist(), found.column("subscription").to_pylist())
        assert sorted(zip(*columns, strict=True)) == judged
        checked += len(judged)
    assert checked > 300


def fitting(drawn: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """What of a publication a column of one type can hold."""
    found: dict[str, Any] = {name: value for name, value in drawn.items() if type(value) is kind}
    if kind is int:
        return {name: value for name, value in found.items() if -(2**63) <= value < 2**63}
    return found


def test_times_are_those_of_the_rows() -> None:
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "x": [3, 3], "at": [at, at]})
    seconds = at.timestamp()
    texts = [f"x < 4 AND t >= {seconds!r}", f"t > {seconds!r}"]
    (found,) = matching._matched(job(texts, at="at"), iter([batch]))
    assert found.to_pydict() == {"id": [1, 2], "subscription": [0, 0]}


def test_the_example_of_the_guide_runs(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).resolve().parents[3]
    example = runpy.run_path(str(root / "docs" / "examples" / "pipeline.py"))
    table = example["readings"](spark)
    example["main"](spark)
    spark.catalog.dropTempView("readings")
    out = capsys.readouterr().out
    shown = dict(re.findall(r"\| *(\w+)\| *(\d+)\|\n", out))
    assert int(shown["alarm"]) == table.where("NO2 > 60").count() > 0
    assert int(shown["weak"]) == table.where("battery.level < 0.2 OR NOT battery.ok").count() > 0
    evening = "NO2 > 40 AND lat BETWEEN 45.805 AND 45.81 AND hour(at) >= 18"
    assert f"{table.where(evening).count()} in the evening" in out
