"""Who may read what the broker writes: its own user only, unless it is meant for others.

Files get their rights when they are made, so that there is no moment in which others could open
them. What was there before is changed, and that is said.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, Literal

Readers = Literal["owner", "group", "everybody"]

FILE_MODES: Final[dict[Readers, int]] = {"owner": 0o600, "group": 0o640, "everybody": 0o644}
FOLDER_MODES: Final[dict[Readers, int]] = {"owner": 0o700, "group": 0o750, "everybody": 0o755}
PASSAGE_MODES: Final[dict[Readers, int]] = {"owner": 0o700, "group": 0o710, "everybody": 0o711}
"""Of a folder that others may only pass through, on the way to one that they may read."""


def private_opener(path: str, flags: int) -> int:
    """For `open`: what is made so is private from the start."""
    return os.open(path, flags, FILE_MODES["owner"])


def set_mode(path: Path, mode: int) -> bool:
    """Let exactly these have a right to it; whether that changed anything.

    The bits for the group of new files (setgid) and the like stay. What belongs to somebody else
    cannot be changed, and is left as it is.
    """
    if os.name != "posix":
        return False
    before = stat.S_IMODE(path.stat().st_mode)
    if before & 0o777 == mode:
        return False
    try:
        path.chmod(before & ~0o777 | mode)
    except PermissionError:
        return False
    return True


def make_folder(folder: Path, mode: int) -> None:
    """Make a folder, and those above it that are missing, with these rights for the new ones."""
    if folder.is_dir():
        return
    if not folder.parent.exists():
        make_folder(folder.parent, mode)
    folder.mkdir(mode=mode, exist_ok=True)
    set_mode(folder, mode)  # whatever the process's mask says
