"""A subscriber's policy over history: what it would have sent, had it been there.

The place for it, not yet the thing: this version of Rove has no policies, neither in the broker nor
here. When it has, `replay_policy` runs one over the notifications of `rove.pipeline.history.replay`
in the order of positions, with the subscriber's state carried from one to the next, by subscriber;
what it gives will be what the broker would have sent. Until then it says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from rove.errors import RoveError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rove.pipeline.lake import Lake


class PolicyError(RoveError):
    """A policy that cannot be run."""


def replay_policy(spark: SparkSession, lake: Lake, client_id: str, policy: str) -> NoReturn:
    """What a policy would have sent to a client; PolicyError as long as there are none."""
    raise PolicyError(
        "this version of Rove has no policies yet, so none can be tried on history; "
        "what the client was notified of is in `rove.pipeline.history.replay`"
    )
