"""Makes once what the tests would otherwise make over and over, or wait for each other to make.

`make test` runs it before them, beside mypy: kernels that Numba compiles, an archive of Spark's
classes (`rove.pipeline.spark.class_archive`), and the tests themselves as pytest rewrites them. All
of it stays for the next time. Nothing here is needed: what cannot be made is made, or done without,
by the test that wants it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from importlib.util import source_hash
from pathlib import Path

from _pytest.assertion.rewrite import PYTEST_TAG

import rove

_HASH_OF_SOURCE = slice(8, 16)
"""Of a compiled file."""


def main() -> None:
    # Another process makes the classes: this one has time for the rest.
    making = threading.Thread(target=attempt, args=(make_classes,))
    making.start()
    attempt(compile_kernels)
    attempt(rewrite_tests)
    making.join()


def attempt(step: Callable[[], None]) -> None:
    try:
        step()
    except Exception as error:
        print(f"tests/prepare.py: {step.__name__}: {error}", file=sys.stderr)


def compile_kernels() -> None:
    sources = Path(rove.__file__).parent
    done = Path(sys.prefix) / ".kernels"
    newest_s = max(source.stat().st_mtime for source in sources.rglob("*.py"))
    if done.exists() and done.stat().st_mtime > newest_s:
        return  # looking whether all of them are there takes as long as loading them: 8 s
    from rove.pipeline.spark.executors import warm_up

    warm_up()
    for source in sorted(sources.glob("world/**/*_kernels.py")):
        import_module(".".join(["rove", *source.relative_to(sources).with_suffix("").parts]))
    done.touch()


def make_classes() -> None:
    from rove.pipeline.spark.class_archive import make
    from rove.pipeline.spark.java import find_java

    make(find_java())


def rewrite_tests() -> None:
    if not any(map(is_changed, Path(__file__).parent.rglob("test_*.py"))):
        return
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq"]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def is_changed(test: Path) -> bool:
    """Whether pytest would rewrite a module of tests: it goes by a hash of the text."""
    rewritten = test.parent / "__pycache__" / f"{test.stem}.{PYTEST_TAG}.pyc"
    try:
        return rewritten.read_bytes()[_HASH_OF_SOURCE] != source_hash(test.read_bytes())
    except FileNotFoundError:
        return True


if __name__ == "__main__":
    main()
