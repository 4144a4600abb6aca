"""Makes once what the tests would otherwise make over and over, or wait for each other to make.

`make test` runs it before them, beside mypy: kernels that Numba compiles, an archive of Spark's
classes (`rove.pipeline.class_archive`), and the tests themselves as pytest rewrites them. All of it
stays for the next time. Nothing here is needed: what cannot be made is made, or done without, by
the test that wants it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from _pytest.assertion.rewrite import PYTEST_TAG

import rove


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
    from rove.pipeline.shipping import warm_up

    warm_up()
    for source in sorted(Path(rove.__file__).parent.glob("world/*_kernels.py")):
        import_module(f"rove.world.{source.stem}")


def make_classes() -> None:
    from rove.pipeline.class_archive import make
    from rove.pipeline.java import find_java

    make(find_java())


def rewrite_tests() -> None:
    if not any(map(is_changed, Path(__file__).parent.rglob("test_*.py"))):
        return
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq"]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def is_changed(test: Path) -> bool:
    """Whether pytest would rewrite a module of tests."""
    rewritten = test.parent / "__pycache__" / f"{test.stem}.{PYTEST_TAG}.pyc"
    return not rewritten.exists() or rewritten.stat().st_mtime < test.stat().st_mtime


if __name__ == "__main__":
    main()
