"""`rove pipeline package`: what `spark-submit` needs of Rove, and how to say it.

Starts no Spark.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove pipeline package`."""
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", default=Path("dist"), help="(default dist)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the files and print the lines to use them with."""
    from rove.pipeline.spark.packages import write_packages

    wheel, archive = write_packages(arguments.out)
    for line in (
        f"{wheel}  {_size(wheel)}, for images and environments",
        f"{archive}  {_size(archive)}, for executors: sources and compiled kernels",
        "",
        "Where the job is started, and on executors what Rove needs of others:",
        f"  pip install '{wheel}[spark]'",
        "The job, with this Rove on all executors:",
        f"  spark-submit --master URL --archives {archive}#rove JOB.py",
    ):
        print(line)
    return 0


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"
