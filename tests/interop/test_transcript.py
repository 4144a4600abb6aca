"""docs/transcript.md is what really comes out, today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.interop.conftest import FindTool

ROOT = Path(__file__).parents[2]


def test_the_transcript_still_comes_out_like_that(find_tool: FindTool, node_modules: Path) -> None:
    for name in ("mosquitto_pub", "mosquitto_sub", "node", "curl"):
        find_tool(name)
    command = [sys.executable, "-m", "tests.interop.transcript"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "transcript.md").read_text(encoding="utf-8")
    assert done.stdout.splitlines() == page.splitlines()
