"""Chapters 1 to 3: the node, the product installed on it as users do it, and the cards that it then has.

Enters: the scene, built images. Leaves: the product at work in pods. May not live here: pods of users.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from devcluster.demo.stage import Stage
from devcluster.demo_node.scene import Object, Scene, has_condition
from devcluster.image.product import PRODUCT, SCHEDULER, Image
from devcluster.product import CRDS, MANIFESTS, ROOT, prepare, wait_in_force
from vgpu import names

OVERLAY = MANIFESTS / "overlays" / "devnode"
FIRST = (MANIFESTS / "base" / "namespace.yaml", CRDS)
# What manifests/ and the overlay promise: (account, image) -> how many pods.
WANTED = {
    (names.OPERATOR_ACCOUNT, PRODUCT): 2,
    (names.SCHEDULER_ACCOUNT, SCHEDULER): 1,
    (names.AGENT_ACCOUNT, PRODUCT): 1,
}
CARDS = 2
SLOTS = 20


def show_node(scene: Scene, stage: Stage, images: Sequence[Image]) -> None:
    """The node is Ready and gets the images."""
    stage.chapter(
        "A node of this machine",
        "A real kubelet, containerd and kube-proxy in namespaces of their own; images built from the Dockerfile.",
    )
    with stage.working("giving the node the images") as progress:
        for image in images:
            scene.node.import_image(image.archive)
            progress.step(image.name)
    stage.command("kubectl get nodes -o wide")
    stage.output(scene.node.kubectl("get", "nodes", "-o", "wide"))
    node = scene.own_node()
    told = node["status"]["nodeInfo"]
    stage.claim(
        "a node with a real container runtime is Ready",
        f"kubelet {told['kubeletVersion']} with {told['containerRuntimeVersion']}, "
        f"{len(images)} images from this machine",
        has_condition(node, "Ready") and told["containerRuntimeVersion"].startswith("containerd://"),
    )


def show_install(scene: Scene, stage: Stage) -> None:
    """The README's commands with the overlay for this node."""
    stage.chapter(
        "Two commands install the product",
        "Operator, kube-scheduler and agent start as pods from the images, each under its own service account.",
    )
    files = [argument for path in FIRST for argument in ("-f", _shown(path))]
    stage.command(f"kubectl apply {' '.join(files)}")
    with stage.working("installing the product"):
        prepare(scene.node)
        stage.command(f"kubectl apply -k {_shown(OVERLAY)}")
        scene.node.kubectl("apply", "-k", str(OVERLAY))
        wait_in_force(scene.node)
    scene.wait(stage, lambda: running(scene.system_pods()) == WANTED, "the product's pods to be ready")
    stage.command(f"kubectl get pods -n {names.NAMESPACE}")
    stage.output(scene.node.kubectl("get", "pods", "-n", names.NAMESPACE))
    pods = scene.system_pods()
    found = running(pods)
    restarts = sum(status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"])
    stage.claim(
        "operator (2), kube-scheduler and agent are ready, from the built images, under their own accounts",
        f"{', '.join(f'{account} ({image}): {n}' for (account, image), n in found.items())}; {restarts} restarts",
        found == WANTED and restarts == 0,
    )


def show_cards(scene: Scene, stage: Stage) -> None:
    """The agent publishes cards and kubelet offers their slots."""
    stage.chapter(
        "The node has cards",
        "The agent publishes them (here from a file instead of the driver) and offers their slots to kubelet.",
    )
    stage.wait(
        lambda: (
            scene.allocatable() == SLOTS
            and [has_condition(item, "Ready") for item in scene.inventories()] == [True]
        ),
        "the inventory to be Ready and kubelet to offer the slots",
    )
    stage.command("kubectl get gpunodeinventory")
    stage.output(scene.node.kubectl("get", "gpunodeinventory"))
    found = scene.inventories()
    cards = [gpu["uuid"] for item in found for gpu in item["spec"]["gpus"]]
    stage.claim(
        f"the node publishes {CARDS} cards, is Ready, and kubelet offers {SLOTS} slots",
        f"{len(cards)} cards, {sum(has_condition(item, 'Ready') for item in found)} inventory Ready, "
        f"{scene.allocatable()} {names.VOLCANO_NUMBER}",
        len(set(cards)) == CARDS and scene.allocatable() == SLOTS,
    )


def running(pods: Sequence[Object]) -> dict[tuple[str, str], int]:
    """(account, image) of every pod that is Ready, and how many there are of each."""
    ready = [pod for pod in pods if has_condition(pod, "Ready")]
    return dict(
        Counter((pod["spec"]["serviceAccountName"], pod["spec"]["containers"][0]["image"]) for pod in ready)
    )


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT))
