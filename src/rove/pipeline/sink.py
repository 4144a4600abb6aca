"""The sink of a streaming job: a folder of Parquet parts, of which manifests say what counts.

    <folder>/_manifests/0000000042-0000000042.json    one per batch, or one for many
    <folder>/parts/0000000042-<unique>.parquet        rows
    <folder>/states/0000000042-<unique>.bin           what a job remembers from batch to batch
    <folder>/scratch/…                                between two steps of one batch

**Exactly once.** Tasks may run twice, die half-way or live on when nobody waits for them any more.
So each writes files of its own, under names that nobody else uses, and tells the driver. What of
all this is the result, one manifest says, which the driver puts into place by a rename when
everything that it names is on disk. A batch has a manifest or has never been. Spark repeats a
batch whose end it did not note; then its manifest is there and the batch is passed over. Positions
stand in the manifest too, so that a checkpoint that belongs to another folder is noticed.

**It stays small.** Two batches a second are 170,000 files a day. So 64 manifests are folded into
one, 64 of these into a larger one, and small parts into larger parts with them; never the newest,
which a restart may ask for. Files that no manifest names are removed when their batch is long over,
those of which a fold made larger ones only after a while, since somebody may be reading them.

Needs a folder that the driver and all tasks see under one name, with renames that are atomic. A
commit costs two flushes of the disk, a part one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rove.errors import RoveError
from rove.lake.storage import sync
from rove.pipeline.disk import told

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PARTS: Final = "parts"
STATES: Final = "states"
SCRATCH: Final = "scratch"
BATCHES_KEPT: Final = 16
"""The newest are neither folded nor cleaned up behind: a restart, or a late task, is near them."""
FOLD: Final = 64
"""So many manifests become one."""
PART_ROWS_MAX: Final = 1_000_000
"""Parts are put together up to this size."""
RETIRED_S: Final = 600.0
"""How long a reader may take that began before a fold."""
READ_ATTEMPTS: Final = 3
"""A reader who was overtaken by folds this often in a row is told so."""

_MANIFESTS: Final = "_manifests"
_MANIFEST_NAME: Final = re.compile(r"(\d+)-(\d+)\.json")
_BATCH: Final = re.compile(r"\.?(\d+)-")


class SinkError(RoveError):
    """The folder of a sink cannot be used, or does not fit to what is asked."""


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Parquet file, and which positions its rows have."""

    name: str
    rows: int
    first: int = -1
    last: int = -1


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a batch has given; after a fold, what several have."""

    batch: int
    first_batch: int
    """Less than `batch` after a fold."""
    after: int
    """What lay at positions in `(after, last]` of the log is done."""
    last: int
    at: float = 0.0
    """When it was committed."""
    parts: tuple[Part, ...] = ()
    states: dict[str, str] = {}
    """File by name of what it remembers; those of the last batch count."""
    notes: tuple[str, ...] = ()
    """What a reader should know, such as files that were gone before they were read."""
    retired: tuple[str, ...] = ()
    """Parts that a fold has put into larger ones."""

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def file_name(self) -> str:
        return f"{self.first_batch:010d}-{self.batch:010d}.json"


# --- what tasks write -----------------------------------------------------------------------------


def write_part(folder: Path, batch: int, table: pa.Table, kind: str = PARTS) -> Part:
    """Write rows as a part of this batch, which counts when a manifest names it."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = _new_file(folder / kind, batch, "parquet")
    pq.write_table(table, path, compression="zstd")
    sync(path)
    if "position" not in table.column_names or not table.num_rows:
        return Part(path.name, table.num_rows)
    ends = pc.min_max(table["position"])
    return Part(path.name, table.num_rows, ends["min"].as_py(), ends["max"].as_py())


def write_bytes(folder: Path, batch: int, content: bytes, kind: str = STATES) -> str:
    """Write a file of this batch; the name of it."""
    path = _new_file(folder / kind, batch, "bin")
    path.write_bytes(content)
    sync(path)
    return path.name


def _new_file(folder: Path, batch: int, ending: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{batch:010d}-{uuid.uuid4().hex}.{ending}"


# --- what the driver commits ----------------------------------------------------------------------


class Sink:
    """The one writer of a folder. `tidy` may run in another thread than the rest."""

    def __init__(self, folder: Path) -> None:
        """Open the folder, or make it."""
        self.folder = folder
        self._lock = threading.Lock()
        with told(f"cannot use the folder {folder}", SinkError):
            for name in (_MANIFESTS, PARTS, STATES, SCRATCH):
                (folder / name).mkdir(parents=True, exist_ok=True)
            sync(folder)
            self._manifests = {each.file_name: each for each in manifests(folder)}
            for path in (folder / _MANIFESTS).iterdir():
                if path.name not in self._manifests:  # unfinished, or folded before a crash
                    path.unlink()

    @property
    def last(self) -> Manifest | None:
        """The newest manifest."""
        with self._lock:
            return next(reversed(self._manifests.values()), None)

    def holds(self, batch: int, after: int, last: int) -> bool:
        """Whether a batch is committed; SinkError if its positions do not fit to what is here.

        Of batches that were folded only the bounds are known; what lies within them is done.
        """
        newest = self.last
        if newest is None:
            return False
        if batch > newest.batch:
            if (batch, after) == (newest.batch + 1, newest.last):
                return False
            raise SinkError(self._stranger(batch, after, last, newest))
        held = next(each for each in reversed(self._in_order()) if each.first_batch <= batch)
        is_single = held.first_batch == held.batch
        fits = (
            (held.after, held.last) == (after, last)
            if is_single
            else held.after <= after <= last <= held.last
        )
        if not fits:
            raise SinkError(self._stranger(batch, after, last, held))
        return True

    def commit(self, manifest: Manifest) -> None:
        """Let this manifest count; all that it names must be on disk."""
        with told(f"cannot commit batch {manifest.batch} in {self.folder}", SinkError):
            for kind in (PARTS, STATES):
                sync(self.folder / kind)
            self._put(manifest)

    def tidy(self) -> None:
        """Fold what has become many, and remove what nobody names; cheap when there is nothing."""
        with told(f"cannot tidy up {self.folder}", SinkError):
            folded = False
            while group := _foldable(self._in_order()):
                self._fold(group)
                folded = True
            if folded:
                self.collect()

    def collect(self) -> int:
        """Remove files that no manifest names and whose batch is long over; how many."""
        known = self._in_order()
        if not known:
            return 0
        now = time.time()
        named = {part.name for each in known for part in each.parts}
        named |= {name for each in known[-BATCHES_KEPT:] for name in each.states.values()}
        named |= {name for each in known if now - each.at < RETIRED_S for name in each.retired}
        oldest_kept = known[-1].batch - BATCHES_KEPT + 1
        removed = 0
        for kind in (PARTS, STATES, SCRATCH):
            for path in _files_before(self.folder / kind, oldest_kept):
                if path.name not in named:
                    path.unlink(missing_ok=True)
                    removed += 1
        return removed

    # -- inside --------------------------------------------------------------------------------

    def _in_order(self) -> list[Manifest]:
        with self._lock:
            return list(self._manifests.values())

    def _put(self, manifest: Manifest) -> None:
        """In sight only when it is complete and on disk."""
        path = self.folder / _MANIFESTS / manifest.file_name
        unfinished = path.with_name(f".{path.name}.tmp")
        unfinished.write_bytes(msgspec.json.encode(manifest))
        sync(unfinished)
        unfinished.rename(path)
        sync(path.parent)
        with self._lock:
            self._manifests[manifest.file_name] = manifest

    def _fold(self, group: Sequence[Manifest]) -> None:
        before = [part for each in group for part in each.parts]
        parts = tuple(self._merged(before, group[-1].batch))
        kept = {part.name for part in parts}
        whole = Manifest(
            batch=group[-1].batch,
            first_batch=group[0].first_batch,
            after=group[0].after,
            last=group[-1].last,
            at=time.time(),
            parts=parts,
            notes=tuple(note for each in group for note in each.notes),
            retired=tuple(part.name for part in before if part.name not in kept),
        )
        sync(self.folder / PARTS)
        self._put(whole)
        for each in group:
            (self.folder / _MANIFESTS / each.file_name).unlink(missing_ok=True)
        with self._lock:
            for each in group:
                del self._manifests[each.file_name]
            self._manifests = dict(sorted(self._manifests.items()))

    def _merged(self, parts: Iterable[Part], batch: int) -> Iterator[Part]:
        """Neighbours as one part, while they are small."""
        waiting: list[Part] = []
        for part in parts:
            if waiting and sum(each.rows for each in waiting) + part.rows > PART_ROWS_MAX:
                yield self._as_one(waiting, batch)
                waiting = []
            waiting.append(part)
        if waiting:
            yield self._as_one(waiting, batch)

    def _as_one(self, parts: Sequence[Part], batch: int) -> Part:
        import pyarrow as pa

        if len(parts) == 1:
            return parts[0]
        tables = [_read_part(self.folder / PARTS / part.name) for part in parts]
        return write_part(self.folder, batch, pa.concat_tables(tables))

    def _stranger(self, batch: int, after: int, last: int, here: Manifest) -> str:
        return (
            f"{self.folder} does not fit to the checkpoint: there batch {batch} has the positions "
            f"{after + 1} to {last}, here batch {here.batch} has {here.after + 1} to {here.last}; "
            "bring back the one that belongs to the other, or remove both to begin anew"
        )


def _foldable(known: Sequence[Manifest]) -> Sequence[Manifest]:
    """The oldest neighbours that are enough to be folded."""
    for _, run in itertools.groupby(known[:-BATCHES_KEPT], key=_level):
        group = list(itertools.islice(run, FOLD))
        if len(group) == FOLD:
            return group
    return ()


def _level(manifest: Manifest) -> int:
    """How often it was folded."""
    level, batches = 0, manifest.batch - manifest.first_batch + 1
    while batches >= FOLD:
        level, batches = level + 1, batches // FOLD
    return level


def _files_before(folder: Path, batch: int) -> list[Path]:
    with os.scandir(folder) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if (found := _BATCH.match(entry.name)) and int(found[1]) < batch
        ]


# --- what readers see -----------------------------------------------------------------------------


def manifests(folder: Path) -> list[Manifest]:
    """What is committed, in order; each batch in one of them only."""
    for _ in range(READ_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):  # folded since it was listed
            return [_read_manifest(path) for path in _manifest_files(folder)]
    raise SinkError(f"{folder} changes faster than it can be read; try again")


def table(folder: Path, schema: pa.Schema) -> pa.Table:
    """The committed rows, in the order of batches and of parts in them."""
    import pyarrow as pa

    for _ in range(READ_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):  # put into a larger part
            found = [_read_part(path) for path in part_files(folder)]
            return pa.concat_tables([schema.empty_table(), *found])
    raise SinkError(f"{folder} changes faster than it can be read; try again")


def read(spark: SparkSession, folder: Path, schema: pa.Schema) -> DataFrame:
    """The rows that are committed now, as a DataFrame, in no order."""
    paths = [str(path) for path in part_files(folder)]
    if not paths:
        return spark.createDataFrame(schema.empty_table())
    return spark.read.parquet(*paths)


def part_files(folder: Path, after_batch: int = -1) -> list[Path]:
    """The parts that count, in order; with `after_batch`, those of later batches."""
    return [
        folder / PARTS / part.name
        for manifest in manifests(folder)
        if manifest.batch > after_batch
        for part in manifest.parts
    ]


def _manifest_files(folder: Path) -> list[Path]:
    """In order, without those that a fold has replaced and could not remove any more."""
    spans = [
        (int(found[1]), -int(found[2]), path)
        for path in (folder / _MANIFESTS).glob("*.json")
        if (found := _MANIFEST_NAME.fullmatch(path.name))
    ]
    kept: list[Path] = []
    done = -1
    for _, last_negated, path in sorted(spans):  # of those with one beginning the widest first
        if -last_negated > done:
            kept.append(path)
            done = -last_negated
    return kept


def _read_manifest(path: Path) -> Manifest:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.DecodeError as error:
        raise SinkError(f"cannot read the manifest {path}: {error}") from error


def _read_part(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(path).read()
