"""Rove on the executors: the package, its compiled kernels, and files for tasks.

An executor must run the same Rove as the driver. So the session ships the sources as an archive,
which Spark unpacks in each executor's working directory, the first place where its Python looks.
The archive also has the kernels that Numba has compiled in the driver: executors load them in half
a second instead of compiling them (some 25 s of a core). Numba identifies its files by the sources
and the processor; an executor with another processor compiles the kernels once. The packages that
Rove needs (Numba, NumPy, pyarrow, msgspec) must be installed on the executors; one task checks
that.

A zip among Spark's Python files was considered and not used: for code in a zip, Numba's cache key
is the path of the zip, which differs on every executor.

A server of Spark Connect has its own Python, which must have Rove; that is checked as well.

In local mode the workers share Numba's cache on disk with the driver. It is only filled if it is
empty, before several workers do so at the same time.

Files are shipped as well (`TaskFile`). A small file travels with the task, so that nothing has to
be cleaned up. A larger one is opened in place if tasks run on this machine; otherwise Spark sends
it to each executor once. Nothing here needs Spark's context, so it works through Spark Connect as
well.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.util
import logging
import mmap
import os
import platform
import shutil
import socket
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

import rove
from rove.errors import RoveError
from rove.pipeline.spark.dialect import check_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED: Final = ("deltalake", "msgspec", "numba", "numpy", "pyarrow")
"""Packages that must be installed on executors."""
CONFIGURATION: Final[Mapping[str, str]] = {"spark.executorEnv.NUMBA_CACHE_DIR": ""}
"""A cache folder elsewhere would hide the shipped cache."""
SMALL_BYTES: Final = 2**20
"""The largest small file; with more, Spark would broadcast the code of every task."""
EXECUTOR_S_MAX: Final = 120.0
"""How long to wait for an executor of a cluster."""
_ADVICE: Final = (
    "install there what `pip install 'rove[spark]'` brings, or name an interpreter that has it in "
    "PYSPARK_PYTHON; Rove itself is brought by rove.pipeline.ship(spark), or by spark-submit "
    "--archives (see `rove pipeline package`)"
)
_TAG: Final = "rove-can-executors-run-it"
_MOMENT: Final = (2000, 1, 1, 0, 0, 0)
_log: Final = logging.getLogger(__name__)


class ShippingError(RoveError):
    """There are no executors, or they cannot run Rove."""


class Executor(msgspec.Struct, frozen=True):
    """What a task found on its executor."""

    host: str
    python: str
    rove: str
    """The version."""
    place: str
    """The folder that it was imported from."""
    missing: tuple[str, ...]
    """Needed packages that are not installed."""
    compiled: int
    """Kernels that had to be compiled."""
    took_s: float
    """Until the kernels were ready."""


def ship(session: SparkSession) -> None:
    """Make Rove and its compiled kernels available on the executors of a session."""
    if runs_here(session):
        if is_cold():
            _try_to_warm_up()
        return
    if not is_connect(session):
        session.sparkContext.addArchive(f"{package_archive().as_uri()}#rove")
    check_executors(session)


class TaskFile(msgspec.Struct, frozen=True):
    """A file of the driver, as it is sent to a task."""

    name: str
    """Unique for its contents."""
    path: str = ""
    """Its path, for tasks on the driver's machine."""
    content: bytes = b""
    """Its content, if it is small."""

    def mapped(self) -> memoryview:
        """Its content, writable: changes stay in this process."""
        if self.content:
            return memoryview(bytearray(self.content))
        with Path(self.local_path()).open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))

    def local_path(self) -> str:
        """Its path in the task, if it is not small."""
        if self.path:
            return self.path
        from pyspark import SparkFiles

        return str(SparkFiles.get(self.name))


def task_file(session: SparkSession, path: Path, small_bytes: int | None = None) -> TaskFile:
    """Make a file available to the tasks of a session. Its name must be unique.

    With `small_bytes=0`, tasks get it as a file whatever its size.
    """
    check_executors(session)
    if path.stat().st_size <= (SMALL_BYTES if small_bytes is None else small_bytes):
        return TaskFile(path.name, content=path.read_bytes())
    if runs_here(session):
        return TaskFile(path.name, str(path))
    session.addArtifacts(str(path), file=True)
    return TaskFile(path.name)


@functools.cache
def folder_of_process(name: str) -> Path:
    """A folder that is deleted when this process ends; the same for the same name.

    For files that Spark may read at any time until then.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"rove-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def check_executors(session: SparkSession) -> None:
    """ShippingError unless executors can run Rove; checked once in a session."""
    check_spark()
    if runs_here(session):
        return
    name = session.session_id if is_connect(session) else session.sparkContext.applicationId
    if name not in _checked:
        if problem := problem_of(probe_executor(session)):
            raise ShippingError(problem)
        _checked.add(name)


_checked: Final[set[str]] = set()


def runs_here(session: SparkSession) -> bool:
    """Whether tasks run on this machine, under this process."""
    return not is_connect(session) and str(session.conf.get("spark.master")).startswith("local")


def is_connect(session: SparkSession) -> bool:
    """Whether this is a session of Spark Connect, with Spark in another process."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def problem_of(found: Executor) -> str | None:
    """Why Rove cannot run on an executor; None if it can."""
    if found.missing:
        return f"the executor on {found.host} lacks {' and '.join(found.missing)}; {_ADVICE}"
    if found.rove != rove.__version__:
        return (
            f"the executor on {found.host} has Rove {found.rove} of its own in {found.place}, which"
            f" hides the {rove.__version__} that was shipped; remove it from its PYTHONPATH"
        )
    return None


def warm_up() -> None:
    """Load all kernels, which fills Numba's cache."""
    from rove.match import warm_up as load_kernels

    load_kernels()
    for source in _kernel_sources():  # including those that only the pipeline uses
        path = source.relative_to(Path(rove.__file__).parents[1]).with_suffix("")
        importlib.import_module(".".join(path.parts))


def _try_to_warm_up() -> None:
    try:
        warm_up()
    except Exception as error:  # Numba may raise anything, and not every job needs the kernels
        _log.warning("kernels cannot be compiled: %s", _last_error(error))


def is_cold() -> bool:
    """Whether kernels may have to be compiled; checked without loading Numba."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return True
    return any(
        max(map(_changed_s, source.parent.glob(f"__pycache__/{source.stem}.*.nbi")), default=0.0)
        < _changed_s(source)
        for source in _kernel_sources()
    )


def kernel_files() -> dict[str, Path]:
    """Numba's cache files for the kernels of this version, this Python and this processor.

    By their names in the package, where Numba looks for them beside the sources.
    """
    warm_up()
    found = {}
    for kernel in _kernels():
        function, folder = kernel.py_func, kernel.stats.cache_path
        *rooms, module = function.__module__.removeprefix("rove.").split(".")
        name = f"{module}.{function.__qualname__}-{function.__code__.co_firstlineno}"
        for path in sorted(Path(folder).glob(f"{name}.py*.nb[ic]")):
            found["/".join((*rooms, "__pycache__", path.name))] = path
    return found


def package_archive() -> Path:
    """A reproducible zip of the package, deleted when this process ends."""
    archive = folder_of_process("shipping") / "rove.zip"
    write_package(archive)
    return archive


def write_package(archive: Path) -> None:
    """Write a zip of sources and compiled kernels."""
    files = sources() | kernel_files()
    write_zip(archive, {name: path.read_bytes() for name, path in files.items()})


def sources() -> dict[str, Path]:
    """The source files, by their names in the package."""
    top = Path(rove.__file__).parent
    return {
        path.relative_to(top).as_posix(): path
        for path in top.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def write_zip(archive: Path, files: Mapping[str, bytes]) -> None:
    """Write a zip that has the same bytes for the same files."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as target:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _MOMENT)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(entry, files[name])


def probe_executor(session: SparkSession, seconds_max: float = EXECUTOR_S_MAX) -> Executor:
    """Run a task that describes its executor; ShippingError if none is available or it fails."""
    is_late = threading.Event()

    def give_up() -> None:
        is_late.set()
        session.interruptTag(_TAG)

    timer = threading.Timer(seconds_max, give_up)
    timer.start()
    session.addTag(_TAG)
    try:
        (row,) = session.range(1).mapInArrow(_described, "found binary").collect()
    except Exception as error:
        if is_late.is_set():
            raise ShippingError(
                f"{session.conf.get('spark.master')} gave no executor within {seconds_max:.0f} s; "
                "are there workers with cores and memory to spare (spark.executor.memory, "
                "spark.cores.max)?"
            ) from error
        message = _last_error(error)
        raise ShippingError(f"an executor cannot run Rove: {message}; {_ADVICE}") from error
    finally:
        timer.cancel()
        session.removeTag(_TAG)
    return msgspec.msgpack.decode(row["found"], type=Executor)


def _described(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        found = msgspec.msgpack.encode(_describe_executor())
        yield pa.RecordBatch.from_pydict({"found": [found] * batch.num_rows})


def _describe_executor() -> Executor:
    """Runs in an executor."""
    begin_s = time.perf_counter()
    missing = tuple(name for name in NEEDED if importlib.util.find_spec(name) is None)
    compiled = 0
    if not missing:
        warm_up()
        compiled = sum(sum(kernel.stats.cache_misses.values()) for kernel in _kernels())
    return Executor(
        host=socket.gethostname(),
        python=platform.python_version(),
        rove=rove.__version__,
        place=str(Path(rove.__file__).parent),
        missing=missing,
        compiled=compiled,
        took_s=time.perf_counter() - begin_s,
    )


def _kernels() -> Iterator[Any]:
    """The compiled functions of `rove.match` that are loaded."""
    from numba.core.dispatcher import Dispatcher

    for name, module in sorted(sys.modules.items()):
        if name.startswith("rove.match."):
            for value in vars(module).values():
                if isinstance(value, Dispatcher) and value.py_func.__module__ == name:
                    yield value


def _kernel_sources() -> Iterator[Path]:
    return (Path(rove.__file__).parent / "match").rglob("*kernels.py")


def _last_error(error: BaseException) -> str:
    """The line of a worker's traceback that has the error."""
    lines = [line.strip() for line in str(error).splitlines()]
    import_errors = [
        line for line in lines if line.startswith(("ModuleNotFoundError", "ImportError"))
    ]
    spark = [line for line in lines if "Error" in line or "Exception" in line]
    return (import_errors or spark or lines or [type(error).__name__])[0]


def _changed_s(path: Path) -> float:
    return path.stat().st_mtime
