"""How far one can walk straight ahead: for those who steer by keys.

Who holds a key down wants to go on until it is let go or there is a wall. That is one leg up to
the wall, stopped when the key is let go, and not a step for each tick: so a player's movement is
as good for an evolving subscription as that of an NPC.

The way goes from tile to tile, through the side by which it leaves each: some microseconds for
each tile, and only when somebody presses a key.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rove.world.map.tiles import Tiles
from rove.world.runs.state import WorldError

CLEARANCE_M: Final = 0.05
"""Who walks against a wall stops so far before it."""
_SAME_M: Final = 1e-9


def straight_ahead(tiles: Tiles, x: float, y: float, dx: float, dy: float) -> tuple[float, float]:
    """The last point before a wall, from a point in a direction."""
    length = float(np.sqrt(dx * dx + dy * dy))
    if not 0 < length < np.inf:
        raise WorldError(f"{dx:g} {dy:g} is no direction; write for example 1 0 for the right")
    dx, dy = dx / length, dy / length
    start = int(tiles.tile_at(np.array([x]), np.array([y]))[0])
    farthest = 0.0
    # Through a corner the line may go on in either of two tiles, and one of them may end there.
    waiting = [(0.0, start)] if start >= 0 else []
    seen = {start}
    while waiting:
        metres, tile = waiting.pop()
        metres, beyond = _exits(tiles, tile, x, y, dx, dy, metres)
        farthest = max(farthest, metres)
        waiting += [(metres, each) for each in beyond if each not in seen]
        seen.update(beyond)
    metres = max(0.0, farthest - CLEARANCE_M)
    return x + dx * metres, y + dy * metres


def _exits(
    tiles: Tiles, tile: int, x: float, y: float, dx: float, dy: float, metres: float
) -> tuple[float, list[int]]:
    """After how many metres the line leaves a tile, and where to: nowhere if there is a wall."""
    corners = tiles.triangles[tile].tolist()
    found = []
    for side, (ax, ay) in enumerate(corners):
        bx, by = corners[(side + 1) % 3]
        # Sides run counterclockwise, so this is how fast the line leaves through this one.
        out = dx * (by - ay) - dy * (bx - ax)
        if out > 0:
            at = ((ax - x) * (by - ay) - (ay - y) * (bx - ax)) / out
            found.append((max(at, metres), int(tiles.neighbours[tile, side])))
    first = min(at for at, _ in found)
    return first, [each for at, each in found if each >= 0 and at <= first + _SAME_M]
