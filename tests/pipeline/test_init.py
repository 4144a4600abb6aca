"""The door of the pipeline for programs of others."""

import subprocess
import sys

import pytest

import rove.pipeline


@pytest.mark.parametrize("name", rove.pipeline.__all__)
def test_what_is_promised_is_there(name: str) -> None:
    assert callable(getattr(rove.pipeline, name))


def test_what_is_not_is_told() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        rove.pipeline.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_importing_it_imports_nothing() -> None:
    code = "import sys, rove.pipeline; assert not {'pyspark', 'numba'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
