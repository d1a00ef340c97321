"""Command line: build the programs, leave a cluster running for a person, end it, look at it."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from devcluster import running
from devcluster.build import CONTAINERD, ensure_binaries
from devcluster.cluster import Cluster
from devcluster.errors import DevclusterError
from devcluster.node import why_impossible
from devcluster.nodes import NodeShape


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and hand back the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except DevclusterError as error:
        print(f"devcluster: {error}", file=sys.stderr)
        return 1
    return status


def build(_: argparse.Namespace) -> int:
    """Build the programs, or find them built."""
    print(f"control plane programs: {ensure_binaries().folder} (built)")
    reason = why_impossible()
    print(f"containerd programs: {reason or f'{ensure_binaries(CONTAINERD).folder} (built)'}")
    return 0


def up(options: argparse.Namespace) -> int:
    """Start a cluster that outlives this command."""
    found = running.load()
    if found and all(process.alive() for process in found.processes):
        print("devcluster: runs already", file=sys.stderr)
    else:
        if found:
            running.end(found)
        found = _start(options)
    print(f"export KUBECONFIG={found.kubeconfig}")
    return 0


def _start(options: argparse.Namespace) -> running.Running:
    folder = running.state_folder()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cluster = Cluster(folder=folder, leashed=False)
    cluster.start()
    try:
        if options.nodes:
            cluster.create_nodes(options.nodes, NodeShape(resources=dict(options.resource)))
        if options.scheduler_config:
            cluster.start_scheduler(options.scheduler_config)
        return running.save(cluster.server, cluster.kubeconfig(), cluster.processes)
    except BaseException:
        cluster.stop()
        raise


def down(_: argparse.Namespace) -> int:
    """End the cluster that was left running."""
    found = running.load()
    if found is None:
        print("devcluster: none is running", file=sys.stderr)
        return 0
    running.end(found)
    print("devcluster: ended", file=sys.stderr)
    return 0


def status(_: argparse.Namespace) -> int:
    """Show the processes of the cluster that was left running; 1 when something of it does not run."""
    found = running.load()
    if found is None:
        print("devcluster: none is running")
        return 1
    print(
        f"server      {found.server}\nkubeconfig  {found.kubeconfig}\nlogs        {running.state_folder()}/*.log"
    )
    for process in found.processes:
        print(f"{process.name:<24} pid {process.pid:<8} {'running' if process.alive() else 'ENDED'}")
    return 0 if all(process.alive() for process in found.processes) else 1


def kubectl(options: argparse.Namespace) -> int:
    """Run kubectl against the cluster that was left running."""
    found = running.load()
    if found is None:
        print("devcluster: none is running; start one with `python -m devcluster up`", file=sys.stderr)
        return 1
    program = ensure_binaries().path("kubectl")
    environment = {**os.environ, "KUBECONFIG": str(found.kubeconfig)}
    return subprocess.run([program, *options.arguments], env=environment, check=False).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m devcluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("build", help=build.__doc__).set_defaults(run=build)
    starter = commands.add_parser("up", help=up.__doc__)
    starter.set_defaults(run=up)
    starter.add_argument("--nodes", type=int, default=0, help="simulated nodes to make")
    starter.add_argument(
        "--resource", type=_resource, action="append", default=[], metavar="NAME=COUNT",
        help="an extended resource of every simulated node; may be repeated",
    )  # fmt: skip
    starter.add_argument("--scheduler-config", type=Path, help="also start kube-scheduler with this configuration")
    commands.add_parser("down", help=down.__doc__).set_defaults(run=down)
    commands.add_parser("status", help=status.__doc__).set_defaults(run=status)
    wrapper = commands.add_parser("kubectl", help=kubectl.__doc__, add_help=False, prefix_chars="\0")
    wrapper.add_argument("arguments", nargs=argparse.REMAINDER)
    wrapper.set_defaults(run=kubectl)
    return parser


def _resource(text: str) -> tuple[str, int]:
    name, separator, count = text.partition("=")
    if not separator or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COUNT")
    return name, int(count)


if __name__ == "__main__":
    sys.exit(main())
