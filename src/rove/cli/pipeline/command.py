"""`rove pipeline PART`: the jobs on Spark.

A part is one entry in `PARTS`: its line in the help, a function that adds its arguments, and one
that does the work. Every part has the options of Spark; `spark_settings` reads them, also for other
commands that need Spark. Nothing of Spark is imported before a part runs.
"""

from __future__ import annotations

import argparse
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from rove.cli.common.arguments import CommandPart, add_parts, run_part
from rove.cli.common.output import show_findings
from rove.cli.pipeline import export as pipeline_export
from rove.cli.pipeline import ingest as pipeline_ingest
from rove.cli.pipeline import jobs as pipeline_jobs
from rove.cli.pipeline import policy as pipeline_policy
from rove.cli.pipeline import summary as pipeline_summary

if TYPE_CHECKING:
    from rove.pipeline.spark.session import SparkSettings


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the parts, and to each the options of Spark."""
    add_parts(parser, {name: _with_spark_options(part) for name, part in PARTS.items()})


def _with_spark_options(part: CommandPart) -> CommandPart:
    def configure_both(parser: argparse.ArgumentParser) -> None:
        part.configure(parser)
        add_spark_options(parser)

    return part._replace(configure=configure_both)


def run(arguments: argparse.Namespace) -> int:
    """Run the part that was named."""
    return run_part(arguments)


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that needs Spark."""
    options = parser.add_argument_group(
        "for Spark (or ROVE_SPARK_MASTER, _MEMORY, _UI, _BRIEF, _CONF)"
    )
    options.add_argument(
        "--master", metavar="URL", help="local[n], spark://host:port, yarn, k8s://… (local[*])"
    )
    options.add_argument("--memory", metavar="SIZE", help="of the driver (2g)")
    options.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting, as Spark calls it; as often as needed",
    )
    options.add_argument(
        "--ui", action="store_const", const=True, help="serve Spark's own page at port 4040"
    )
    options.add_argument(
        "--brief", action="store_const", const=True, help="start sooner and compute slower"
    )


def spark_settings(arguments: argparse.Namespace) -> SparkSettings:
    """What those options and the environment say."""
    from rove.pipeline.spark.session import settings_from

    return settings_from(
        os.environ,
        master=arguments.master,
        memory=arguments.memory,
        ui=arguments.ui,
        brief=arguments.brief,
        conf=arguments.conf,
        debug=getattr(arguments, "debug", False),
    )


# --- doctor -------------------------------------------------------------------------------------


def _configure_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one line of JSON")


def _run_doctor(arguments: argparse.Namespace) -> int:
    from rove.pipeline.spark.doctor import examine

    return show_findings(examine(spark_settings(arguments)), as_json=arguments.json)


def _run_jobs(arguments: argparse.Namespace) -> int:
    return pipeline_jobs.run(arguments, spark_settings(arguments))


def _run_ingest(arguments: argparse.Namespace) -> int:
    return pipeline_ingest.run(arguments, spark_settings(arguments))


def _run_export(arguments: argparse.Namespace) -> int:
    return pipeline_export.run(arguments, spark_settings(arguments))


def _run_policy(arguments: argparse.Namespace) -> int:
    return pipeline_policy.run(arguments, spark_settings(arguments))


# --- clusters -------------------------------------------------------------------------------------


def _configure_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", metavar="N", type=int, default=2, help="(default 2)")
    parser.add_argument("--cores", metavar="N", type=int, default=1, help="of each (default 1)")
    parser.add_argument(
        "--worker-memory", metavar="SIZE", default="1g", help="of each (default 1g)"
    )


def _run_cluster(arguments: argparse.Namespace) -> int:
    """Run a standalone master and workers on loopback until Ctrl-C; ready in some ten seconds."""
    from rove.bench.servers.spark_cluster import LocalCluster

    with LocalCluster(arguments.workers, arguments.cores, arguments.worker_memory) as cluster:
        print(cluster.master, flush=True)
        threading.Event().wait()
    return 0


def _configure_package(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", default=Path("dist"), help="(default dist)"
    )


def _run_package(arguments: argparse.Namespace) -> int:
    """Write the files and print the commands that use them."""
    from rove.pipeline.spark.packages import write_packages

    wheel, archive = write_packages(arguments.out)
    for line in (
        f"{wheel}  {_megabytes(wheel)}, for images and environments",
        f"{archive}  {_megabytes(archive)}, for executors: sources and compiled kernels",
        "",
        "Where the job is started, and on executors what Rove needs of others:",
        f"  pip install '{wheel}[spark]'",
        "The job, with this Rove on all executors:",
        f"  spark-submit --master URL --archives {archive}#rove JOB.py",
    ):
        print(line)
    return 0


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


PARTS: dict[str, CommandPart] = {
    "ingest": CommandPart(
        "bring typed tables up to the lake, or files into them",
        pipeline_ingest.configure,
        _run_ingest,
    ),
    "export": CommandPart(
        "write publications or notifications of a lake to a topic of Kafka",
        pipeline_export.configure,
        _run_export,
    ),
    "run": CommandPart(
        "run jobs over a broker's lake until they are stopped",
        pipeline_jobs.configure_run,
        _run_jobs,
    ),
    "status": CommandPart(
        "show the state of jobs", pipeline_jobs.configure_status, pipeline_jobs.status
    ),
    "stop": CommandPart(
        "end jobs after their batch", pipeline_jobs.configure_stop, pipeline_jobs.stop
    ),
    "policy": CommandPart(
        "try a policy on a broker's lake, or repeat what its policies did",
        pipeline_policy.configure,
        _run_policy,
    ),
    "summary": CommandPart(
        "make one table of several runs of `rove bench --json`",
        pipeline_summary.add_summary,
        pipeline_summary.run_summary,
    ),
    "cluster": CommandPart(
        "run a Spark cluster on this machine",
        _configure_cluster,
        _run_cluster,
    ),
    "package": CommandPart(
        "write the files of Rove that spark-submit needs",
        _configure_package,
        _run_package,
    ),
    "doctor": CommandPart(
        "check whether Spark runs here",
        _configure_doctor,
        _run_doctor,
    ),
}
