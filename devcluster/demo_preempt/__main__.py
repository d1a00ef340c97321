"""`python -m devcluster.demo_preempt`: tells the story; exit status 0 when every claim held, else 1."""

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from types import FrameType

from devcluster.cluster import Cluster
from devcluster.demo.stage import Stage
from devcluster.demo_preempt import filling, returning, taking
from devcluster.demo_preempt.scene import open_play
from devcluster.errors import DevclusterError

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and hand back the exit status."""
    stage = Stage(_parser().parse_args(arguments).width)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        tell(stage)
    except KeyboardInterrupt:
        stage.say("Interrupted; every process of the demo has ended and its folder is gone.")
        return INTERRUPTED
    except (DevclusterError, OSError) as error:
        stage.stopped(str(error))
    return stage.finish()


def tell(stage: Stage) -> None:
    """Every chapter, on a cluster that ends with this call. Raises DevclusterError, OSError."""
    stage.say("A real etcd, kube-apiserver, kube-controller-manager and kube-scheduler on this machine;")
    stage.say("kwok plays the kubelets, so cards are simulated and everything else is as on a cluster.")
    with ExitStack() as stack:
        with stage.working("starting the control plane"):
            cluster = stack.enter_context(Cluster())
        play = open_play(cluster, stage)
        filling.show_full(play, stage)
        foretold = filling.show_question(play, stage)
        evicted = taking.show_evictions(play, stage, foretold)
        taking.show_hole(play, stage, evicted)
        returning.show_burst(play, stage)
        returning.show_return(play, stage)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m devcluster.demo_preempt", description=__doc__)
    parser.add_argument("--width", type=int, help="columns; default: the terminal's, 120 in a log")
    return parser


if __name__ == "__main__":
    sys.exit(main())
