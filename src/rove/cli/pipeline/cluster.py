"""`rove pipeline cluster`: a Spark cluster on this machine, to try jobs on and to kill parts of.

A standalone master and workers from the Python package, on loopback, until Ctrl-C. What it prints
is what `--master` takes. Up in some ten seconds.
"""

from __future__ import annotations

import argparse
import threading


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove pipeline cluster`."""
    parser.add_argument("--workers", metavar="N", type=int, default=2, help="(default 2)")
    parser.add_argument("--cores", metavar="N", type=int, default=1, help="of each (default 1)")
    parser.add_argument(
        "--worker-memory", metavar="SIZE", default="1g", help="of each (default 1g)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Hold the cluster up until somebody ends it."""
    from rove.bench.servers.spark_cluster import LocalCluster

    with LocalCluster(arguments.workers, arguments.cores, arguments.worker_memory) as cluster:
        print(cluster.master, flush=True)
        threading.Event().wait()
    return 0
