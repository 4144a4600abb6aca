"""There are no policies yet, and who asks for one is told so."""

from pathlib import Path
from typing import cast

import pytest

from rove.pipeline.lake import Lake
from rove.pipeline.policies import PolicyError, replay_policy


def test_the_absence_is_an_honest_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="has no policies yet"):
        replay_policy(cast("object", None), Lake(tmp_path), "ann", "def arrived(m, me): return m")
