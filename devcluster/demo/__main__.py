"""`python -m devcluster.demo`: tells the story and ends with 0 when every claim held, 1 when one did not."""

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from types import FrameType

from devcluster.cluster import Cluster
from devcluster.demo import placing, quiet, waiting
from devcluster.demo.scene import open_scene
from devcluster.demo.stage import Stage
from devcluster.errors import DevclusterError

IDLE_SECONDS = 60.0
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and hand back the exit status."""
    options = _parser().parse_args(arguments)
    stage = Stage(options.width)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        tell(stage, options.idle_seconds)
    except KeyboardInterrupt:
        stage.say("Interrupted; every process of the demo has ended and its folder is gone.")
        return INTERRUPTED
    except (DevclusterError, OSError) as error:
        stage.stopped(str(error))
    return stage.finish()


def tell(stage: Stage, idle_seconds: float) -> None:
    """Every chapter, on a cluster that ends with this call. Raises DevclusterError, OSError."""
    stage.say("A real etcd, kube-apiserver, kube-controller-manager and kube-scheduler on this machine;")
    stage.say("kwok plays the kubelets, so cards are simulated and everything else is as on a cluster.")
    with ExitStack() as stack:
        with stage.working("starting the control plane"):
            cluster = stack.enter_context(Cluster())
        scene = open_scene(cluster, stage)
        placing.show_nodes(scene, stage)
        placing.show_placement(scene, stage)
        waiting.show_refusal(scene, stage)
        waiting.show_lost_agent(scene, stage)
        quiet.show_updates(scene, stage)
        quiet.show_idle(scene, stage, idle_seconds)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m devcluster.demo", description=__doc__)
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS, help="how long chapter 6 idles")
    parser.add_argument("--width", type=int, help="columns; default: the terminal's, 120 in a log")
    return parser


if __name__ == "__main__":
    sys.exit(main())
