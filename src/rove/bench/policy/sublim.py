"""What SUBLIM published of its own evaluation, as far as there are numbers.

Its Figures 5, 6 and 7 are pictures without numbers, its Figure 8b is a table: overheads with 0, 5
and 10 % of malicious subscribers, of which the first column is also what Figure 5 draws. Of the
others only the text can be quoted: of Figure 5 that there was no overhead with 220 subscribers
unless at a high rate, of Figure 7 that batteries lasted up to 31 % longer.
"""

from __future__ import annotations

from typing import Final

SHARES: Final = (0, 5, 10)
"""Of malicious subscribers, in percent."""
MALICIOUS: Final[dict[tuple[int, int], tuple[float, float, float]]] = {
    (120, 100): (17.3, 14.6, 13.6),
    (120, 140): (52.3, 51.0, 50.6),
    (120, 180): (95.3, 93.0, 94.6),
    (120, 200): (118.0, 116.0, 117.0),
    (240, 100): (119.66, 118.8, 123.33),
    (240, 140): (206.6, 204.44, 203.33),
    (240, 180): (288.66, 290.55, 287.77),
    (240, 200): (334.33, 328.0, 333.88),
}
"""For messages a minute and subscribers: overheads in percent, for each of SHARES."""
OVERHEAD: Final = {point: overheads[0] for point, overheads in MALICIOUS.items()}
OVERHEAD_TEXT: Final = "SUBLIM, in words: none for 220\nsubscribers, unless at a high rate"
LINK_TEXT: Final = (
    "SUBLIM, in words: stateful “very high, even for high rates”,\nstateless “decreases very fast”"
)
BATTERY: Final = 31.0
"""How much longer a battery lasted with state, at most, in percent."""
