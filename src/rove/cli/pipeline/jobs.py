"""`rove pipeline run`, `status` and `stop`: jobs over a lake, how they are, and their end."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from rove.cli.common.arguments import add_json_flag
from rove.cli.common.output import count_text, duration_text, emit_json
from rove.errors import UsageError

if TYPE_CHECKING:
    from rove.pipeline.jobs.status import Status
    from rove.pipeline.spark.session import SparkSettings

EXIT_NOT_RUNNING = 1
STOP_S_MAX = 60.0
HEADINGS = ("job", "state", "batch", "lag", "behind", "in/s", "out/s", "trigger", "updated")


# --- run ------------------------------------------------------------------------------------------


def configure_run(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove pipeline run`, but for those about Spark."""
    parser.add_argument("jobs", nargs="*", default=["match"], help="by name (default: match)")
    parser.add_argument("--lake", metavar="LOCATION", required=True, help="a folder or a URI")
    parser.add_argument("--out", metavar="LOCATION", required=True, help="likewise, to write")
    parser.add_argument(
        "--checkpoint", metavar="LOCATION", help="of Spark's own notes (default: in --out)"
    )
    parser.add_argument("--once", action="store_true", help="take what there is, and end")
    parser.add_argument(
        "--engine",
        choices=("all", "spark"),
        default="all",
        help="match all subscriptions, or those that only Spark serves (default all)",
    )
    parser.add_argument("--trigger", metavar="SECONDS", type=float, help="between two looks")
    parser.add_argument("--max-rows", metavar="N", type=int, help="publications in a batch")
    parser.add_argument("--buckets", metavar="N", type=int, help="groups of ranked subscriptions")
    parser.add_argument(
        "--start", metavar="POSITION", type=int, default=-1, help="a new job begins after it"
    )
    parser.add_argument(
        "--database", metavar="URL", help="of metrics: for the job metrics, and for how jobs are"
    )
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="an option of one job"
    )
    add_json_flag(parser)


def run(arguments: argparse.Namespace, spark: SparkSettings | None = None) -> int:
    """Run jobs until they are done or stopped."""
    for name in ("trigger", "max_rows", "buckets"):
        given = getattr(arguments, name)
        if given is not None and given <= 0:
            raise UsageError(f"--{name.replace('_', '-')} must be more than 0, not {given:g}")
    from rove.lake.storage import resolved
    from rove.pipeline.jobs.job import JobSettings
    from rove.pipeline.jobs.registry import run_jobs

    settings = JobSettings(
        lake=resolved(arguments.lake),
        out=resolved(arguments.out),
        checkpoint=arguments.checkpoint,
        once=arguments.once,
        trigger_s=arguments.trigger,
        max_rows=arguments.max_rows,
        engine=arguments.engine,
        buckets=arguments.buckets,
        start=arguments.start,
        database=arguments.database,
        options=dict(_option(written) for written in arguments.set),
    )
    _show(run_jobs(arguments.jobs, settings, spark), as_json=arguments.json)
    return 0


def _option(written: str) -> tuple[str, str]:
    name, sign, value = written.partition("=")
    if not sign or not name:
        raise UsageError(f"--set takes NAME=VALUE, not {written!r}")
    return name, value


# --- status ---------------------------------------------------------------------------------------


def configure_status(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove pipeline status`."""
    parser.add_argument("jobs", nargs="*", help="by name (default: all that have run there)")
    parser.add_argument("--out", metavar="LOCATION", required=True, help="of the run")
    add_json_flag(parser)


def status(arguments: argparse.Namespace) -> int:
    """Show how jobs are; the exit code says whether all of them are well."""
    from rove.pipeline.jobs.status import statuses

    found = statuses(arguments.out, arguments.jobs)
    _show(found, as_json=arguments.json)
    return EXIT_NOT_RUNNING if any(one.state in ("failed", "killed") for one in found) else 0


def _show(found: list[Status], *, as_json: bool) -> None:
    if as_json:
        emit_json(msgspec.to_builtins(found))
        return
    rows = [HEADINGS, *(_row(one) for one in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        cells = [
            f"{cell:<{width}}" if column < 2 else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
    for one in found:
        if one.last_error is not None:
            sys.stdout.write(f"{one.job}: {one.last_error}\n")
        sys.stdout.writelines(f"{one.job}: {note}\n" for note in one.notes)


def _row(one: Status) -> tuple[str, ...]:
    return (
        one.job,
        one.state,
        "-" if one.batch is None else str(one.batch),
        count_text(one.lag_rows),
        duration_text(one.lag_s),
        count_text(one.rows_in_per_s),
        count_text(one.rows_out_per_s),
        "-" if one.trigger_s is None else f"{one.trigger_s:.2f}s",
        f"{duration_text(max(0.0, time.time() - one.updated_at))} ago",
    )


# --- stop -----------------------------------------------------------------------------------------


def configure_stop(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove pipeline stop`."""
    parser.add_argument("jobs", nargs="*", help="by name (default: all that run there)")
    parser.add_argument("--out", metavar="LOCATION", required=True, help="of the run")
    parser.add_argument(
        "--wait", metavar="SECONDS", type=float, default=STOP_S_MAX, help="(default 60)"
    )
    add_json_flag(parser)


def stop(arguments: argparse.Namespace) -> int:
    """Let jobs end after their batch, and wait for that."""
    from rove.pipeline.jobs.status import ask_to_stop

    _show(ask_to_stop(arguments.out, arguments.jobs, arguments.wait), as_json=arguments.json)
    return 0
