"""What the shipped DaemonSet mounts is what the agent uses as shipped."""

from pathlib import Path
from typing import Any

import yaml

from vgpu.agent.config import NodeSettings
from vgpu.agent.identity.contract import LOCK_FOLDER
from vgpu.agent.options import AgentOptions

BASE = Path(__file__).resolve().parents[3] / "manifests" / "base"


def pod() -> dict[str, Any]:
    workload = yaml.safe_load((BASE / "agent" / "daemonset.yaml").read_text())
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


def test_every_folder_that_the_agent_uses_is_the_nodes_own_under_the_same_path() -> None:
    options, settings = AgentOptions(), NodeSettings()
    used = {
        str(options.plugins_folder),
        str(options.pod_resources.parent),
        str(options.state_folder),
        settings.cdi_folder,
        str(Path(settings.isolation_library).parent),
        LOCK_FOLDER,
        str(options.control_groups),
    }
    host = {volume["name"]: volume["hostPath"]["path"] for volume in pod()["volumes"] if "hostPath" in volume}
    [container] = pod()["containers"]
    inside = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in host}
    assert host == inside
    assert set(host.values()) == used


def test_what_the_agent_only_reads_is_mounted_read_only() -> None:
    [container] = pod()["containers"]
    read_only = {mount["name"] for mount in container["volumeMounts"] if mount.get("readOnly")}
    assert read_only == {"config", "pod-resources", "control-groups"}


def test_the_agents_account_may_read_pods_and_write_none() -> None:
    rules = list(yaml.safe_load_all((BASE / "rbac" / "agent.yaml").read_text()))[1]["rules"]
    [pods] = [rule["verbs"] for rule in rules if "pods" in rule["resources"]]
    assert pods == ["get", "list", "watch"]
