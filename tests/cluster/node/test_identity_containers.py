"""Several containers with cards in one pod: each finds its own, whatever slots kubelet hands on between them."""

import pytest

from tests.cluster.node.gated import close_gate, gated, open_gate, wait_at_gate
from tests.cluster.node.stage import GRACE_SECONDS, Json, NodeStage, busybox_container
from tests.cluster.node.witness import LOOK, assert_exact, given
from vgpu import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

STAYS = f"{LOOK}; exec sleep 2147483647"
INIT = (("first", 2), ("beside", 1), ("second", 3))
"""Name and cards; `beside` is a sidecar."""
APP = (("left", 1), ("right", 3))
CONTAINERS = len(INIT) + len(APP)


def pod_of_five(name: str, first_memory_mib: int) -> Json:
    """Each container asks for another amount."""
    amounts = iter(range(first_memory_mib, first_memory_mib + CONTAINERS))
    init = [
        _container(container, number, next(amounts), stays=container == "beside") for container, number in INIT
    ]
    init[1]["restartPolicy"] = "Always"
    app = [_container(container, number, next(amounts), stays=True) for container, number in APP]
    spec = {"initContainers": init, "containers": app, "terminationGracePeriodSeconds": GRACE_SECONDS}
    return {"metadata": {"name": name}, "spec": spec}


def _container(name: str, number: int, memory_mib: int, *, stays: bool) -> Json:
    limits = {
        names.VOLCANO_NUMBER: str(number),
        names.VOLCANO_MEMORY: str(memory_mib),
        names.VOLCANO_CORES: str(1 + memory_mib % 10),
    }
    return busybox_container(name, command=["sh", "-c", STAYS if stays else LOOK], limits=limits)


@pytest.mark.parametrize("killed", [False, True], ids=["undisturbed", "agent killed before the starts"])
def test_two_pods_of_a_sidecar_two_init_and_two_app_containers_find_their_own_shares(
    stage: NodeStage, killed: bool
) -> None:
    close_gate(stage)
    pods = [gated(pod_of_five("one", 1001)), gated(pod_of_five("two", 2001))]
    stage.create(*pods)
    wait_at_gate(stage, "one", "two")
    if killed:
        stage.restart_agent()
    open_gate(stage)
    stage.wait_running("one", "two")
    found = stage.items()
    for pod in found.values():
        assert list(given(pod)) == [container for container, _ in (*INIT, *APP)]
    assert assert_exact(stage, found) == 2 * CONTAINERS
