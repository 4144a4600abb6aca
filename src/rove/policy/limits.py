"""The limits of policies: of one call, of one subscriber, and of stopped calls until a suspension.

Limits of one call are counted in *steps* first: an iteration of a loop is one step, and a library
function costs steps by the length of its arguments. Steps are the same on every machine, so a
policy that is stopped in the broker is stopped on Spark, at the same message. Time is the second
line of defence, where steps underestimate the work.

The fields are keys of `[policies]` in the configuration, and `rove config` prints their
docstrings.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(gt=0, le=1)]
Suspended = Literal["nothing", "deliver"]

KIB: Final = 1024
MIB: Final = 1024 * KIB

BITS_MAX: Final = 256
"""Of an integer that a policy can have. What comes and goes has 64 as a rule; with thousands, a
division would take as long as a hundred steps."""
INT_MAX: Final = 1 << BITS_MAX


PICTURE_PIXELS_MAX: Final = 4_000_000
"""Of a picture that is made smaller, as it is worked on: a tenth of a second for each of decoding,
scaling and encoding. A JPEG with more is decoded at a half, a quarter or an eighth of its size,
which costs as little; a PNG with more is refused."""
JPEG_PIXELS_MAX: Final = 25_000_000
"""Of a JPEG as it came."""
PNG_PIXELS_MAX: Final = 1_000_000
"""Of a picture that is tried as PNG too, if it was one: packing more takes longer than all else."""

REASON_CHARS_MAX: Final = 400
"""Of the sentence that says why a call was stopped: it goes into notices, logs and `GET /policies`,
and may quote what a message had in it."""


class PolicyLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What policies may use; the defaults suit a broker with untrusted users."""

    # --- of one call ---

    steps_max: Count = 100_000
    """Steps of one call: iterations of loops, and the costs of library functions. About 5 ms of
    a simple loop, 100 ms of the worst policy that we have found."""

    inline_steps_max: Count = 10_000
    """Steps that a call may take within the broker's own turn, usually half a millisecond. A
    call that needs more is restarted in a worker, where it delays no other client, and so are
    all later ones of that policy. Compression by a worker does not count."""

    time_ms: Count = 500
    """How long a call may take, without waiting for a worker."""

    memory_bytes_max: Count = 16 * MIB
    """Total bytes of the strings and lists that one call makes."""

    outputs_max: Count = 16
    """Messages that one call may return."""

    output_bytes_max: Count = MIB
    """Total size of the messages that one call returns, as they are sent."""

    # --- of one subscriber ---

    text_bytes_max: Count = 8 * KIB
    """Length of a policy. A longer one is refused."""

    compile_ms: Count = 500
    """How long a worker may take to compile a policy. One that takes longer is refused."""

    variables_bytes_max: Count = 64 * KIB
    """Size of the `me.` variables, and of the state of `every`, `changed` and `summary`, each as
    JSON. A call that would exceed it is stopped."""

    share: Share = 0.1
    """The share of one core, averaged over `share_s`, that the policies of one user may use in
    all of its sessions, compiling included. While they exceed it, their messages are not sent."""

    share_s: Seconds = 10.0
    """The time over which `share` is averaged."""

    waiting_max: Count = 1_000
    """Messages of one subscriber that may wait for a worker. Further ones are not sent."""

    waiting_bytes_max: Count = 16 * MIB
    """Size of the messages that may wait for one user's policies. Further ones are not sent."""

    waiting_all_bytes_max: Count = 256 * MIB
    """Size of the messages that may wait for all policies together."""

    # --- of stopped calls ---

    offences_max: Count = 5
    """Stopped calls within `offences_s` after which the policy is suspended. They are counted
    per user, also if the user sets another policy, or the same in another session."""

    offences_s: Seconds = 60.0
    """How long a stopped call counts."""

    suspension_s: Seconds = 300.0
    """How long a policy stays suspended; then it is tried again. Setting it again does not end
    the suspension. Another policy of the same user may run, and is suspended by its first
    offence."""

    suspended: Suspended = "nothing"
    """What a subscriber gets while its policy is suspended: `nothing`, or every message
    unchanged (`deliver`)."""
