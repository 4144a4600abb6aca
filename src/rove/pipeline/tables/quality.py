"""Quality rules: which rows of a channel are accepted into its table, and why others are rejected.

Rules are a file (TOML, or JSON of the same shape), a section for each channel, `"*"` for the rest:

    [air]
    duplicates_s = 86400        # the same client and id again within a day
    late_s = 3600               # `at` an hour before the newest of earlier runs
    place = "required"          # no row without a position that exists

    [air.attributes.NO2]
    type = "number"
    min = 0
    max = 1000

Without rules every row is accepted. A rejected row is not dropped: it is stored unchanged, with the
first reason in the order of `reasons`, and counted.

**Duplicates.** A row is a duplicate if an earlier one (by position) of the same client has the same
id and came at most `duplicates_s` before it, whether or not that one was accepted; so the result
does not depend on how runs are cut. A row without an id is never a duplicate. This is the only rule
that needs other rows: the first one may be in another file, another task or a table that was
written last month. So Spark finds them in a job of its own, over four narrow columns of the new
rows and of the old ones that are near enough in time, and only where the rule is set: some 3 s for
a million rows on two cores.

The other rules are checked on typed columns with one NumPy expression each, some 10 ns a row.
Attributes that had to go to `::rest` (rove.pipeline.tables.table) are not seen by rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa

from rove.base.documents import converted, read_tables, read_text
from rove.errors import RoveError
from rove.lang.errors import LanguageError
from rove.lang.parser import parse
from rove.lang.printer import name_text
from rove.lang.tree import Attribute as AttributeNode
from rove.lang.tree import IsNull
from rove.pipeline.spark.file_frames import frame_of_files
from rove.pipeline.tables.column_builder import ColumnBuilder, TypedColumns
from rove.pipeline.tables.grid import KM_DEFAULT, is_on_map
from rove.pipeline.tables.table import BASE, Kind, NamePath, TableSchema

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    Mask = NDArray[np.bool_]

EVERY_OTHER: Final = "*"
DUPLICATE: Final = "duplicate"
LATE: Final = "late"
DELAYED: Final = "delayed"
PAYLOAD: Final = "payload"
PLACE: Final = "place"
_KEY: Final = pa.schema([BASE.field(name) for name in ("position", "at", "client_id", "id")])
_KINDS_OF: Final[Mapping[str, tuple[Kind, ...]]] = {
    "number": ("double", "long"),
    "integer": ("long", "int"),
    "string": ("string",),
    "boolean": ("boolean",),
}


class RulesError(RoveError):
    """A file of rules cannot be read, or has an invalid rule."""


class AttributeRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rule of an attribute. Null counts as missing."""

    required: bool = False
    type: Literal["number", "integer", "string", "boolean"] | None = None
    min: float = -math.inf
    """For numbers; the range includes both ends."""
    max: float = math.inf


class QualityRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of one channel. The defaults accept all rows."""

    duplicates_s: float | None = None
    """A row is a duplicate if its client sent the same id within so many seconds before it."""
    late_s: float | None = None
    """How far `at` may lie before the newest `at` of earlier runs."""
    time: str | None = None
    """The attribute with the moment of observation, in seconds since 1970."""
    delay_s: float | None = None
    """How long after the observation a row may be published."""
    payload: Literal["any", "object"] = "any"
    """`object`: a payload that is no JSON object is rejected."""
    place: Literal["any", "valid", "required"] = "any"
    """`valid`: a position, if there is one, must exist on Earth; `required`: there must be one."""
    lat: str = "lat"
    """These three define the cells of a table, and cannot be changed later."""
    long: str = "long"
    cell_km: int = KM_DEFAULT
    attributes: dict[str, AttributeRule] = {}
    """By name, as in expressions: dots reach into objects, odd names stand in backticks."""

    def new_schema(self, channel: str) -> TableSchema:
        """The schema of a new table."""
        return TableSchema(channel, self.cell_km, path_of(self.lat), path_of(self.long))


class RuleBook(msgspec.Struct, frozen=True):
    """The rules of all channels."""

    channels: dict[str, QualityRules] = {}

    def of(self, channel: str) -> QualityRules:
        return self.channels.get(channel) or self.channels.get(EVERY_OTHER) or QualityRules()


def read_rules(path: Path) -> RuleBook:
    """The rules in a file; RulesError says what is wrong and where."""
    if path.suffix == ".json":
        try:
            tables = msgspec.json.decode(read_text(path, RulesError))
        except msgspec.DecodeError as error:
            raise RulesError(f"{path} is not JSON: {error}") from error
    else:
        tables = read_tables(path, RulesError)
    book = RuleBook(converted(tables, dict[str, QualityRules], str(path), RulesError))
    for channel, rules in book.channels.items():
        try:
            _check(rules)
        except RulesError as error:
            raise RulesError(f"{path}, channel {channel!r}: {error}") from error
    return book


def _check(rules: QualityRules) -> None:
    for name in (rules.lat, rules.long, rules.time or rules.lat, *rules.attributes):
        path_of(name)
    if rules.cell_km not in (100, 10, 1):
        raise RulesError(f"cell_km is {rules.cell_km}; choose from 100, 10 and 1")
    if (rules.time is None) != (rules.delay_s is None):
        raise RulesError(
            "`time` and `delay_s` must be given together: an attribute, and the delay after it"
        )
    for name, rule in rules.attributes.items():
        if rule.min > rule.max:
            raise RulesError(f"{name} can never hold: min {rule.min} is above max {rule.max}")
        if rule.type in ("string", "boolean") and (rule.min, rule.max) != (-math.inf, math.inf):
            raise RulesError(f"{name} is a {rule.type}; only numbers have min and max")


def path_of(name: str) -> NamePath:
    """The path that a name means in an expression, so that rules use the same syntax."""
    try:
        condition = parse(f"{name} IS NULL").condition
    except LanguageError as error:
        raise RulesError(f"{name!r} is no name of an attribute: {error.args[0]}") from error
    match condition:
        case IsNull(value=AttributeNode(path=path), negated=False):
            return path
    raise RulesError(f"{name!r} is no name of an attribute; write it as in a subscription")


# --- checking ---------------------------------------------------------------------------------


class RuleChecker:
    """Applies the rules of a channel to typed rows."""

    def __init__(
        self, rules: QualityRules, builder: ColumnBuilder, watermark_us: int | None
    ) -> None:
        self._rules = rules
        self._builder = builder
        self._watermark_us = watermark_us
        self._attributes = [(path_of(name), rule) for name, rule in rules.attributes.items()]
        self.reasons = tuple(self._all_reasons())
        """All possible reasons, in the order in which they are checked."""

    def check(self, rows: Any, typed: TypedColumns, duplicates: Mask) -> NDArray[np.int16]:
        """For each row the number of its reason, or -1 if it is accepted.

        `rows` are rows of the lake; only `at` and `payload` are used.
        """
        masks = {DUPLICATE: duplicates, **self._moments(rows, typed)}
        if self._rules.payload == "object":
            masks[PAYLOAD] = _is_no_object(rows.column("payload"))
        if self._rules.place != "any":
            masks[PLACE] = self._is_nowhere(typed)
        for path, rule in self._attributes:
            masks |= self._of_attribute(path, rule, typed)
        found = np.full(typed.rows, -1, np.int16)
        for number, reason in enumerate(self.reasons):
            if reason in masks:
                found[(found < 0) & masks[reason]] = number
        return found

    def _all_reasons(self) -> list[str]:
        found = [DUPLICATE, LATE, DELAYED, PAYLOAD, PLACE]
        for path, rule in self._attributes:
            name = name_text(path)
            found += [f"required:{name}"] if rule.required else []
            found += [f"type:{name}"] if rule.type else []
            found += [f"range:{name}"] if (rule.min, rule.max) != (-math.inf, math.inf) else []
        return found

    def _moments(self, rows: Any, typed: TypedColumns) -> dict[str, Mask]:
        at_us = rows.column("at").cast(pa.int64()).to_numpy()
        found = {}
        if self._rules.late_s is not None and self._watermark_us is not None:
            found[LATE] = at_us < self._watermark_us - self._rules.late_s * 1e6
        if self._rules.time is not None and self._rules.delay_s is not None:
            observed_s = self._builder.numbers(typed, path_of(self._rules.time))
            found[DELAYED] = at_us / 1e6 - observed_s > self._rules.delay_s
        return found

    def _is_nowhere(self, typed: TypedColumns) -> Mask:
        lat, long = positions(self._builder, typed)
        nowhere = ~is_on_map(lat, long)
        if self._rules.place == "required":
            return nowhere
        return nowhere & ~(np.isnan(lat) & np.isnan(long))

    def _of_attribute(
        self, path: NamePath, rule: AttributeRule, typed: TypedColumns
    ) -> dict[str, Mask]:
        name = name_text(path)
        there = self._builder.is_there(typed, path)
        found = {}
        if rule.required:
            found[f"required:{name}"] = ~there
        if rule.type is not None:
            fits = self._builder.has_kind(typed, path, _KINDS_OF[rule.type])
            found[f"type:{name}"] = there & ~fits
        numbers = self._builder.numbers(typed, path)
        found[f"range:{name}"] = (numbers < rule.min) | (numbers > rule.max)
        return found


def positions(
    builder: ColumnBuilder, typed: TypedColumns
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Latitude and longitude of each row; NaN if missing."""
    return builder.numbers(typed, builder.schema.lat), builder.numbers(typed, builder.schema.long)


def _is_no_object(payloads: Any) -> Mask:
    found: Mask = np.fromiter(map(_lacks_members, payloads.to_pylist()), bool, len(payloads))
    return found


def _lacks_members(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload, type=dict[str, object])
    except (ValueError, RecursionError):
        return True
    return False


# --- duplicates -------------------------------------------------------------------------------


def duplicate_positions(
    fresh: DataFrame, before: DataFrame | None, horizon_s: float
) -> NDArray[np.int64]:
    """Positions of new rows that are duplicates; `before` comes from `file_keys`."""
    from pyspark.sql import functions as f

    parts = [fresh.withColumn("is_new", f.lit(True))]
    if before is not None:
        earliest = fresh.agg(f.min("at")).first()
        if earliest is None or earliest[0] is None:
            return np.empty(0, np.int64)
        since = f.lit(earliest[0]) - f.make_dt_interval(secs=f.lit(horizon_s))
        parts.append(before.where(f.col("at") >= since).withColumn("is_new", f.lit(False)))
    flagged = with_duplicates(reduce(lambda left, right: left.unionByName(right), parts), horizon_s)
    found = flagged.where("is_new AND is_duplicate").select("position").toArrow()
    positions: NDArray[np.int64] = np.sort(found.column("position").to_numpy())
    return positions


def with_duplicates(rows: DataFrame, horizon_s: float) -> DataFrame:
    """Rows with a column `is_duplicate`; needs position, at, client_id, id and is_new."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    by_key = Window.partitionBy("client_id", "id").orderBy(
        "is_new", f.col("position").asc_nulls_first(), "at"
    )
    apart_s = f.col("at").cast("double") - f.lag("at").over(by_key).cast("double")
    is_again = (f.col("id") != "") & (apart_s <= horizon_s)
    return rows.withColumn("is_duplicate", f.coalesce(is_again, f.lit(False)))


def file_keys(spark: SparkSession, uri: str, paths: Sequence[str]) -> DataFrame:
    """The columns that identify duplicates, from files of a table.

    Files that are broken or missing are skipped: other readers report them.
    """
    return frame_of_files(spark, uri, paths, _KEY, pa.schema([]), lenient=True)
