"""What a policy may use: of one call, of its subscriber, and of everybody's patience.

Limits of one call are counted in *steps* first: an iteration of a loop is one, and what the library
does to long texts costs steps by their length. Steps are the same on every machine, so a policy
that is stopped in the broker is stopped on Spark, at the same message. Time is the second line, for
what steps judge wrongly; how often it was needed is counted.

The fields are keys of `[policies]` in the configuration, and their texts are what `rove config`
prints.
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
    """What policies may use; the defaults suit a broker of strangers."""

    # --- of one call ---

    steps_max: Count = 100_000
    """Steps of one call: iterations of loops, and what library functions cost. Some 5 ms of a plain
    loop, 100 of the worst that we have found."""

    inline_steps_max: Count = 10_000
    """Steps that a call may take within the broker's own turn, half a millisecond as a rule. One
    that needs more is begun again in a worker, where it delays nobody, and so are all later ones of
    that policy. Pictures that a worker made smaller do not count."""

    time_ms: Count = 500
    """How long a call may take, waiting for a worker not counted."""

    memory_bytes_max: Count = 16 * MIB
    """Bytes of texts and lists that one call makes, all together."""

    outputs_max: Count = 16
    """Messages that one call may return."""

    output_bytes_max: Count = MIB
    """Size of all messages that one call returns, as they would be sent."""

    # --- of one subscriber ---

    text_bytes_max: Count = 8 * KIB
    """Length of a policy. A longer one is refused."""

    compile_ms: Count = 500
    """How long a worker may take to compile a policy. One that takes longer is refused."""

    variables_bytes_max: Count = 64 * KIB
    """Size of the variables that a policy leaves behind, as JSON: `me.` variables and what `every`,
    `changed` and `summary` remember, each. A call that would leave more is stopped."""

    share: Share = 0.1
    """Of one core, on the average over `share_s`: what the policies of one user may use, in all of
    its sessions, compiling included. What comes while they have used more is not sent."""

    share_s: Seconds = 10.0
    """Over how long that is averaged."""

    waiting_max: Count = 1_000
    """Messages of one subscriber that may wait for a worker. One more is not sent."""

    waiting_bytes_max: Count = 16 * MIB
    """Size of the messages that may wait for one user's policies. What comes then is not sent."""

    waiting_all_bytes_max: Count = 256 * MIB
    """Size of the messages that may wait for all policies together."""

    # --- of patience ---

    offences_max: Count = 5
    """Calls that were stopped within `offences_s` before the policy is suspended. They stay the
    user's when another text is set, or the same in another session."""

    offences_s: Seconds = 60.0
    """How long a stopped call counts."""

    suspension_s: Seconds = 300.0
    """How long a policy stays suspended; then it is tried again. Setting it again does not end
    it. Another text of the same user is tried, and suspended by its first offence."""

    suspended: Suspended = "nothing"
    """What a subscriber gets whose policy is suspended: `nothing`, or everything as it came
    (`deliver`)."""
