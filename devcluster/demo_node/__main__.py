"""`python -m devcluster.demo_node`: tells the story and ends with 0 when every claim held, 1 when one did not."""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from devcluster.demo.stage import Stage
from devcluster.demo_node import installing, sharing
from devcluster.demo_node.scene import Scene
from devcluster.errors import DevclusterError
from devcluster.image.product import ensure_images
from devcluster.node.real_node import RealNode
from devcluster.node.requirements import require_possible

INTERRUPTED = 130
# The scheduler that every cluster has; the product's own comes with the product and places only GPU pods.
DEFAULT_SCHEDULER = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and hand back the exit status."""
    options = _parser().parse_args(arguments)
    stage = Stage(options.width)
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
    """Every chapter, on a node that ends with this call. Raises DevclusterError, OSError."""
    stage.say("A real control plane, kubelet, containerd and kube-proxy in namespaces of this machine, and the")
    stage.say("product in pods from its own image. The cards alone are not real: a file names them.")
    require_possible()
    images = ensure_images()
    with stage.working("starting the node"):
        node = RealNode()
        node.start()
    try:
        config = node.site.folder / "default-scheduler.json"
        config.write_text(json.dumps(DEFAULT_SCHEDULER))
        node.start_scheduler(config)
        scene = Scene(node)
        installing.show_node(scene, stage, images)
        installing.show_install(scene, stage)
        installing.show_cards(scene, stage)
        sharing.show_pods(scene, stage)
        sharing.show_end(scene, stage)
    finally:
        node.stop()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m devcluster.demo_node", description=__doc__)
    parser.add_argument("--width", type=int, help="columns; default: the terminal's, 120 in a log")
    return parser


if __name__ == "__main__":
    sys.exit(main())
