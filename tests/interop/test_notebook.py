"""The notebook of the examples runs from top to bottom and prints what is stored in it.

Its code cells are plain Python and need no kernel, so they are run here: Jupyter's own runner would
bring thirty packages, to start one more process with one more Spark.
"""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "examples" / "notebook.ipynb"


@pytest.mark.soak
def test_every_cell_prints_what_is_stored(spark: Any) -> None:
    assert spark is not None, "the notebook takes the session that there is"
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        code = compile("".join(cell["source"]), f"{NOTEBOOK.name}:{cell['id']}", "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        stored = "".join(line for out in cell["outputs"] for line in out["text"])
        assert printed.getvalue() == stored, cell["id"]
