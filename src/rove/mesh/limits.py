"""Every limit of the network of brokers, in one place.

A neighbour has shown a secret before it may say anything, but it may still be broken, or somebody
else's. So everything that it can make grow is bounded here.
"""

from __future__ import annotations

import msgspec

KIB = 1024
MIB = 1024 * KIB


class MeshLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a broker allows in its network."""

    # --- the network ---

    brokers_max: int = 1_000
    """Brokers in the network, unreachable ones included. Records of more are ignored."""
    links_max: int = 256
    """Links of this broker. One more is refused."""
    record_keep_s: float = 120.0
    """How long the record of a broker is kept that cannot be reached; a tenth of that where there
    is no room for others."""
    publish_s: float = 1.0
    """How often at most changes of measured delays and clocks are announced."""

    settle_s: float = 0.01
    """How long at most further changes of the network are awaited after one, before the ways of
    tunnels are looked for again. The first change is acted upon at once."""

    # --- links ---

    hello_s: float = 5.0
    """How long the other side may take for its HELLO."""
    ping_s: float = 1.0
    silence_s: float = 5.0
    """A link over which nothing came for so long is closed, and one that takes nothing."""
    control_per_s: int = 100
    """Messages other than frames and records that a neighbour may send in the long run."""
    control_burst: int = 1_000
    """... and at once. One more closes the link."""
    records_per_s: int = 300
    """Records that are taken from a neighbour in the long run."""
    records_burst: int = 3_000
    """... and at once. More are ignored, and asked for later. An honest neighbour passes on what
    others send, so this does not close the link."""
    link_window_bytes: int = 4 * MIB
    """Frames that are on their way over a link. More wait here, so that messages that keep the
    network together can overtake them."""
    link_queue_bytes_max: int = 64 * MIB
    """Frames that wait for a link. More are dropped, and the tunnels that they belong to reset."""

    # --- tunnels ---

    window_bytes: int = MIB
    """Bytes of a tunnel that are on their way, in each direction. More wait here."""
    queue_bytes_max: int = 16 * MIB
    """Bytes that wait for a tunnel. With more it is reset: nobody looked at `writable`."""
    ack_s: float = 0.025
    """How late the receiver may acknowledge a little data."""
    probe_s: float = 1.0
    """After so long without an acknowledgement the other end is asked what has arrived, and then
    less and less often."""
    stall_s: float = 60.0
    """A tunnel is reset if nothing was acknowledged for so long. A slow link with much before it
    takes its time; what was really lost, the first question shows."""
    retry_s_max: float = 2.0
    """How long at most until the opening of a tunnel is tried again."""
