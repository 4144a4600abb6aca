"""Rove on the executors: the package and its compiled kernels, for a master that is not local.

An executor must run the same Rove as the driver. So the sources travel with the session, as an
archive that Spark unpacks in each executor's own folder, where its Python looks first; with them
goes what Numba has compiled in the driver, so that executors load kernels (half a second) instead
of each compiling them (some 25 s of a core). Numba knows its files by the text of the sources and
by the processor; an executor on another kind of processor compiles once for itself. What Rove
needs of others (Numba, NumPy, pyarrow, msgspec) is expected there, and one task looks whether it
is.

The obvious way, a zip among Spark's Python files, was not taken: by its sources, Numba keys what
it compiles for code in a zip by the zip's path, which is another one on every executor.

A server of Spark Connect has its own Python, which must have Rove: it is asked, too.

In local mode the workers share Numba's cache on disk with the driver, and all that is done is to
fill it where it is empty, before several workers do so at once.

Files go the same way (`TaskFile`). What is small travels with the task, so that nothing has to be
cleaned up. A larger file is opened where it lies if tasks run on this machine, and is sent to
executors once by Spark otherwise. No part of this needs Spark's context, so it works through Spark
Connect as well.
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
from rove.pipeline.spark.older_spark import check_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED: Final = ("deltalake", "msgspec", "numba", "numpy", "pyarrow")
"""What executors must have of their own."""
CONFIGURATION: Final[Mapping[str, str]] = {"spark.executorEnv.NUMBA_CACHE_DIR": ""}
"""A cache elsewhere would hide the one that is shipped."""
SMALL_BYTES: Final = 2**20
"""Of a file; beyond this, Spark would make a broadcast of every task's code."""
EXECUTOR_S_MAX: Final = 120.0
"""How long a cluster may take to give us one executor."""
_ADVICE: Final = (
    "install there what `pip install 'rove[spark]'` brings, or name an interpreter that has it in "
    "PYSPARK_PYTHON; Rove itself is brought by rove.pipeline.ship(spark), or by spark-submit "
    "--archives (see `rove pipeline package`)"
)
_TAG: Final = "rove-can-executors-run-it"
_MOMENT: Final = (2000, 1, 1, 0, 0, 0)
_log: Final = logging.getLogger(__name__)


class ShippingError(RoveError):
    """Executors do not come, or cannot run Rove."""


class Executor(msgspec.Struct, frozen=True):
    """What a task found where it ran."""

    host: str
    python: str
    rove: str
    """The version."""
    place: str
    """Where it was imported from."""
    missing: tuple[str, ...]
    """Of what is needed."""
    compiled: int
    """Kernels that no cache had."""
    took_s: float
    """Until they were ready."""


def ship(session: SparkSession) -> None:
    """Bring Rove to the executors of any session, and make sure that no two compile the same."""
    if runs_here(session):
        if is_cold():
            _try_to_warm_up()
        return
    if not is_connect(session):
        session.sparkContext.addArchive(f"{package_archive().as_uri()}#rove")
    check_executors(session)


class TaskFile(msgspec.Struct, frozen=True):
    """What a task is told of a file of the driver."""

    name: str
    """Different for different contents."""
    path: str = ""
    """Where it lies, for tasks on the driver's machine."""
    content: bytes = b""
    """All of it, if it is small."""

    def mapped(self) -> memoryview:
        """What is in it; changes of it stay with this process."""
        if self.content:
            return memoryview(bytearray(self.content))
        with Path(self.local_path()).open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))

    def local_path(self) -> str:
        """Where a task finds it, if it is not small."""
        if self.path:
            return self.path
        from pyspark import SparkFiles

        return str(SparkFiles.get(self.name))


def task_file(session: SparkSession, path: Path, small_bytes: int | None = None) -> TaskFile:
    """Make a file known to the tasks of a session. Its name must be unique.

    One that tasks need as a file is not small, whatever its size: `small_bytes=0`.
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
    """A folder that is gone when this process ends, the same for the same name.

    For what Spark may ask for at any time until then.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"rove-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def check_executors(session: SparkSession) -> None:
    """ShippingError unless executors can run Rove; they are asked once in a session."""
    check_spark()
    if runs_here(session):
        return
    name = session.session_id if is_connect(session) else session.sparkContext.applicationId
    if name not in _asked:
        if problem := problem_of(ask_executor(session)):
            raise ShippingError(problem)
        _asked.add(name)


_asked: Final[set[str]] = set()


def runs_here(session: SparkSession) -> bool:
    """Whether tasks run on this machine, under this process."""
    return not is_connect(session) and str(session.conf.get("spark.master")).startswith("local")


def is_connect(session: SparkSession) -> bool:
    """Whether it is a session of Spark Connect: Spark runs in another process, perhaps far away."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def problem_of(found: Executor) -> str | None:
    """What keeps Rove from running on an executor."""
    if found.missing:
        return f"the executor on {found.host} lacks {' and '.join(found.missing)}; {_ADVICE}"
    if found.rove != rove.__version__:
        return (
            f"the executor on {found.host} has Rove {found.rove} of its own in {found.place}, which"
            f" hides the {rove.__version__} that was shipped; remove it from its PYTHONPATH"
        )
    return None


def warm_up() -> None:
    """Have all kernels in this process, and with that in Numba's cache."""
    from rove.match import warm_up as load_kernels

    load_kernels()
    for source in _kernel_sources():  # also what only the pipeline uses
        path = source.relative_to(Path(rove.__file__).parents[1]).with_suffix("")
        importlib.import_module(".".join(path.parts))


def _try_to_warm_up() -> None:
    try:
        warm_up()
    except Exception as error:  # whatever Numba may raise; not every job needs the kernels
        _log.warning("kernels cannot be compiled: %s", _last_error(error))


def is_cold() -> bool:
    """Whether kernels may have to be compiled; found out without loading Numba."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return True
    return any(
        max(map(_changed_s, source.parent.glob(f"__pycache__/{source.stem}.*.nbi")), default=0.0)
        < _changed_s(source)
        for source in _kernel_sources()
    )


def kernel_files() -> dict[str, Path]:
    """What Numba has on disk for the kernels of this version, this Python and this processor.

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
    """A zip of the package, the same for the same contents; gone when this process ends."""
    archive = folder_of_process("shipping") / "rove.zip"
    write_package(archive)
    return archive


def write_package(archive: Path) -> None:
    """Sources and compiled kernels."""
    files = sources() | kernel_files()
    write_zip(archive, {name: path.read_bytes() for name, path in files.items()})


def sources() -> dict[str, Path]:
    """The files of the package, by their names in it."""
    top = Path(rove.__file__).parent
    return {
        path.relative_to(top).as_posix(): path
        for path in top.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def write_zip(archive: Path, files: Mapping[str, bytes]) -> None:
    """The same bytes for the same files."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as target:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _MOMENT)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(entry, files[name])


def ask_executor(session: SparkSession, seconds_max: float = EXECUTOR_S_MAX) -> Executor:
    """What one task finds on an executor; ShippingError if none comes in time or it fails."""
    is_late = threading.Event()

    def give_up() -> None:
        is_late.set()
        session.interruptTag(_TAG)

    timer = threading.Timer(seconds_max, give_up)
    timer.start()
    session.addTag(_TAG)
    try:
        (row,) = session.range(1).mapInArrow(_looked_around, "found binary").collect()
    except Exception as error:
        if is_late.is_set():
            raise ShippingError(
                f"{session.conf.get('spark.master')} gave no executor within {seconds_max:.0f} s; "
                "are there workers with cores and memory to spare (spark.executor.memory, "
                "spark.cores.max)?"
            ) from error
        told = _last_error(error)
        raise ShippingError(f"an executor cannot run Rove: {told}; {_ADVICE}") from error
    finally:
        timer.cancel()
        session.removeTag(_TAG)
    return msgspec.msgpack.decode(row["found"], type=Executor)


def _looked_around(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        found = msgspec.msgpack.encode(_look_around())
        yield pa.RecordBatch.from_pydict({"found": [found] * batch.num_rows})


def _look_around() -> Executor:
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
    """Every compiled function of `rove.match` that is loaded."""
    from numba.core.dispatcher import Dispatcher

    for name, module in sorted(sys.modules.items()):
        if name.startswith("rove.match."):
            for value in vars(module).values():
                if isinstance(value, Dispatcher) and value.py_func.__module__ == name:
                    yield value


def _kernel_sources() -> Iterator[Path]:
    return (Path(rove.__file__).parent / "match").rglob("*kernels.py")


def _last_error(error: BaseException) -> str:
    """The line of a worker's traceback that says what it was."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line.startswith(("ModuleNotFoundError", "ImportError"))]
    spark = [line for line in lines if "Error" in line or "Exception" in line]
    return (told or spark or lines or [type(error).__name__])[0]


def _changed_s(path: Path) -> float:
    return path.stat().st_mtime
