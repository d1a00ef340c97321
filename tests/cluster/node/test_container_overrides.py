"""A pod whose own spec sets what the agent sets: the container finds the agent's."""

import pytest

from tests.cluster.node.gpu_pods import MEMORY_LIMIT, environment, share, wanted
from tests.cluster.node.stage import NodeStage
from vgpu import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PRELOAD = "/etc/ld.so.preload"
LIBRARY_FOLDER = "/usr/local/vgpu"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def test_a_pods_own_environment_and_mounts_do_not_undo_its_limits(stage: NodeStage) -> None:
    stage.node.api.post(CONFIG_MAPS, {"metadata": {"name": "own"}, "data": {"preload": "", "libvgpu.so": "own"}})
    try:
        pod = share("cunning")
        [container] = pod["spec"]["containers"]
        container["resources"]["limits"][names.VOLCANO_CORES] = "20"
        container["env"] = [
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": f"{MEMORY_LIMIT}0", "value": "0"},
            {"name": "CUDA_DEVICE_SM_LIMIT", "value": "0"},
        ]
        container["volumeMounts"] = [
            {"name": "own", "mountPath": PRELOAD, "subPath": "preload"},
            {"name": "own", "mountPath": LIBRARY_FOLDER},
        ]
        pod["spec"]["volumes"] = [{"name": "own", "configMap": {"name": "own"}}]
        stage.create(pod)
        stage.wait_running("cunning")
        inside = environment(stage, "cunning")
        want = {**wanted(stage, "cunning"), "CUDA_DEVICE_SM_LIMIT": "20"}
        assert {name: inside[name] for name in want} == want
        preload = stage.node.kubectl("exec", "cunning", "--", "cat", PRELOAD)
        assert preload.strip() == f"{LIBRARY_FOLDER}/libvgpu.so"
        assert stage.node.kubectl("exec", "cunning", "--", "cat", preload.strip()) != "own"
    finally:
        stage.remove_pods()
        stage.node.api.delete(f"{CONFIG_MAPS}/own")
