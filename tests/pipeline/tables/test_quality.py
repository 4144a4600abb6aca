"""Rules are read or refused in one line, and each finds its rows and no others."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rove.pipeline.tables.column_builder import ColumnBuilder
from rove.pipeline.tables.quality import (
    AttributeRule,
    QualityRules,
    RuleBook,
    RuleChecker,
    RulesError,
    duplicate_positions,
    file_keys,
    path_of,
    read_rules,
)

USER = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))
NOON_US = 1_800_000_000_000_000


def judged(
    rules: QualityRules,
    payloads: Sequence[Any],
    *,
    at_s: Sequence[float] | None = None,
    watermark_us: int | None = None,
    duplicates: Sequence[bool] | None = None,
) -> list[str]:
    """The reasons, "" for good; payloads are written as JSON unless they are bytes."""
    raw = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in payloads]
    at_us = [NOON_US + int(each * 1e6) for each in at_s or [0.0] * len(raw)]
    users = pa.array([[]] * len(raw), USER)
    rows = pa.table(
        {"at": pa.array(at_us).cast(pa.timestamp("us", tz="UTC")), "payload": pa.array(raw)}
    )
    schema = rules.new_schema("air")
    schema = schema.extended(ColumnBuilder(schema).typed(pa.array(raw), users).unmet)
    builder = ColumnBuilder(schema)
    checker = RuleChecker(rules, builder, watermark_us)
    mask = np.array(duplicates or [False] * len(raw))
    numbers = checker.check(rows, builder.typed(pa.array(raw), users), mask)
    return ["" if number < 0 else checker.reasons[number] for number in numbers]


def test_without_rules_everything_is_good() -> None:
    assert judged(QualityRules(), [{"x": 1}, b"no JSON", {}, {"lat": 1000}]) == [""] * 4


@pytest.mark.parametrize(
    ("rule", "values", "bad"),
    [
        (AttributeRule(min=0, max=5), [0, 5, 5.5, -1, "9", None, True, 2**60], "..xx...x"),
        (AttributeRule(max=5), [-math.pi, 6], ".x"),
        (AttributeRule(type="number"), [1, 1.5, 2**60, "1", True, None, [], {}, {"y": 1}],
         "...xx.xxx"),
        (AttributeRule(type="integer"), [1, 2**60, 1.5, 1.0, "1", 10**30], "..xxxx"),
        (AttributeRule(type="integer"), [1, 2], ".."),
        (AttributeRule(type="string"), ["1", 1, ""], ".x."),
        (AttributeRule(type="boolean"), [True, 0, "true"], ".xx"),
        (AttributeRule(required=True), [0, False, "", None, [], {}, {"y": None}], "...x..."),
    ],
)  # fmt: skip
def test_attributes(rule: AttributeRule, values: list[object], bad: str) -> None:
    rules = QualityRules(attributes={"x": rule})
    payloads = [{"x": value} for value in values] + [{"other": 1}]
    found = judged(rules, payloads)
    assert "".join("x" if reason else "." for reason in found[:-1]) == bad
    assert found[-1] == ("required:x" if rule.required else "")


def test_names_are_written_as_in_texts() -> None:
    rules = QualityRules(
        attributes={
            "a.b": AttributeRule(max=1),
            "`a.b`": AttributeRule(max=1),
            "`odd name`": AttributeRule(required=True),
        }
    )
    found = judged(
        rules,
        [{"a": {"b": 2}, "odd name": 1}, {"a.b": 2, "odd name": 1}, {}, {"odd name": 0, "a": 5}],
    )
    assert found == ["range:a.b", "range:`a.b`", "required:`odd name`", ""]
    assert path_of("a.`x``y`") == ("a", "x`y")


def test_the_first_reason_counts() -> None:
    rules = QualityRules(
        place="required", payload="object", attributes={"x": AttributeRule(required=True, min=0)}
    )
    payloads = [{"lat": 1, "long": 1, "x": -1}, {"lat": 1, "long": 1}, {"x": -1}, b"21.5"]
    assert judged(rules, payloads) == ["range:x", "required:x", "place", "payload"]
    assert judged(rules, payloads, duplicates=[True] * 4) == ["duplicate"] * 4


def test_places() -> None:
    payloads: list[dict[str, Any]] = [
        {"lat": 90, "long": -180}, {"lat": 90.5, "long": 0}, {"lat": 0.5, "long": 200},
        {"lat": 1}, {"lat": "1", "long": "2"}, {},
    ]  # fmt: skip
    assert judged(QualityRules(), payloads) == [""] * 6
    assert judged(QualityRules(place="valid"), payloads) == ["", "place", "place", "place", "", ""]
    assert judged(QualityRules(place="required"), payloads) == ["", *["place"] * 5]
    moved = QualityRules(place="required", lat="p.y", long="p.x")
    assert judged(moved, [{"p": {"x": 1, "y": 2}}, {"lat": 1, "long": 2}]) == ["", "place"]


def test_late_is_before_the_newest_of_earlier_runs() -> None:
    rules = QualityRules(late_s=10)
    at_s = [-10.0, -10.001, 5.0]
    assert judged(rules, [{}] * 3, at_s=at_s, watermark_us=NOON_US) == ["", "late", ""]
    assert judged(rules, [{}] * 3, at_s=at_s) == [""] * 3  # the first run


def test_delayed_is_long_after_it_was_observed() -> None:
    rules = QualityRules(time="seen", delay_s=60)
    noon_s = NOON_US / 1e6
    seen: list[dict[str, Any]] = [
        {"seen": noon_s - 60}, {"seen": noon_s - 61}, {"seen": noon_s + 5}, {}, {"seen": "x"},
    ]  # fmt: skip
    assert judged(rules, seen) == ["", "delayed", "", "", ""]


# --- files ------------------------------------------------------------------------------------


def test_rules_are_read_from_toml_and_json(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(
        '["*"]\nlate_s = 5\n[air]\nduplicates_s = 60\n'
        '[air.attributes.NO2]\nmin = 0\ntype = "number"\n'
    )
    book = read_rules(tmp_path / "rules.toml")
    assert book.of("air") == QualityRules(
        duplicates_s=60, attributes={"NO2": AttributeRule(min=0, type="number")}
    )
    assert book.of("noise") == QualityRules(late_s=5)
    assert RuleBook().of("air") == QualityRules()
    (tmp_path / "rules.json").write_text('{"air": {"place": "valid", "cell_km": 100}}')
    assert read_rules(tmp_path / "rules.json").of("air") == QualityRules(place="valid", cell_km=100)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[air", "is not TOML: Expected"),
        ("[air]\nlate = 5", "there is no key `air.late`; did you mean `lat`"),
        ("[air]\ncell_km = 5", "channel 'air': cell_km is 5; choose from 100, 10 and 1"),
        ("[air]\ntime = 'x'", "`time` and `delay_s` must be given together"),
        ("[air]\nlat = 'a +'", "'a \\+' is no name of an attribute"),
        ("[air]\nlat = 'a > 1 OR b'", "is no name of an attribute"),
        ("[air.attributes.x]\nmin = 5\nmax = 1", "x can never hold: min 5.0 is above max 1.0"),
        ("[air.attributes.x]\ntype = 'string'\nmax = 1", "only numbers have min and max"),
        (
            "[air.attributes.x]\ntype = 'text'",
            "attributes.x.type` is 'text': invalid enum value",
        ),
    ],
)
def test_bad_rules_are_refused_by_name(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(RulesError, match=complaint) as caught:
        read_rules(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rules_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=r"cannot read .*none.toml: No such file"):
        read_rules(tmp_path / "none.toml")


# --- duplicates, by Spark -----------------------------------------------------------------------

Row = tuple[int | None, float, str, str]
"""position, at, client_id, id"""


def file(path: Path, *rows: Row) -> Path:
    positions, at_s, clients, ids = zip(*rows, strict=True)
    at_us = pa.array([int(each * 1e6) for each in at_s])
    table = {
        "position": pa.array(positions, pa.int64()),
        "at": at_us.cast(pa.timestamp("us", tz="UTC")),
        "client_id": pa.array(clients),
        "id": pa.array(ids),
        "more": pa.array([1.5] * len(rows)),
    }
    pq.write_table(pa.table(table), path)
    return path


def fresh(spark: Any, *paths: Path) -> Any:
    return spark.read.parquet(*map(str, paths)).select("position", "at", "client_id", "id")


@pytest.mark.soak
def test_the_same_id_of_the_same_client_shortly_before(spark: Any, tmp_path: Path) -> None:
    one = file(
        tmp_path / "1.parquet",
        (1, 0, "a", "x"), (2, 1, "b", "x"), (3, 2, "a", "y"), (4, 10, "a", "x"), (5, 11, "a", ""),
    )  # fmt: skip
    two = file(
        tmp_path / "2.parquet",
        (6, 20, "a", "x"), (7, 20, "a", ""), (8, 30.5, "a", "x"), (9, 30.5, "b", "x"),
    )  # fmt: skip
    found = duplicate_positions(fresh(spark, one, two), None, 10.0)
    # 4 repeats 1 and 6 repeats 4, which was no good itself; 8 comes 10.5 s after 6.
    assert found.tolist() == [4, 6]
    before = file_keys(spark, str(tmp_path), [one.name])
    again = duplicate_positions(fresh(spark, two), before, 10.0)
    assert again.tolist() == [6]  # as if they had come together
    assert duplicate_positions(fresh(spark, one), None, 10.5).tolist() == [4]


def test_old_rows_without_a_position_and_broken_files(spark: Any, tmp_path: Path) -> None:
    outside = file(tmp_path / "outside.parquet", (None, 5, "a", "x"))
    new = file(tmp_path / "new.parquet", (1, 6, "a", "x"), (2, 6, "a", "z"))
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(b"PAR1 torn")
    before = file_keys(spark, str(tmp_path), [outside.name, torn.name])
    assert duplicate_positions(fresh(spark, new), before, 60.0).tolist() == [1]
    nothing = fresh(spark, new).limit(0)
    assert duplicate_positions(nothing, before, 60.0).tolist() == []
