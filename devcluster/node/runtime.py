"""What containerd, kubelet, kube-proxy and the network plugins of a node are told.

Enters: the node's folder, addresses and programs. Leaves: argument lists and the files that they name. May not
live here: starting and stopping.
"""

import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

from devcluster.build import Binaries
from devcluster.node.images import PAUSE_IMAGE

CNI_PLUGINS = Path("/usr/lib/cni")
CNI_VERSION = "1.0.0"
# These four are paths inside the node's mount namespace.
CONTAINERD_SOCKET = Path("/run/containerd/containerd.sock")
CDI_FOLDER = Path("/var/run/cdi")
KUBELET_FOLDER = Path("/var/lib/kubelet")
CONTAINERD_STATE = Path("/run/containerd")
IMAGE_NAMESPACE = "k8s.io"


@dataclass(frozen=True, slots=True)
class NodeSite:
    """Where the node's programs find their files, and who they are. The folder is the same inside and outside."""

    folder: Path
    name: str
    bridge: str
    address: str
    pod_range: str
    control_plane: Binaries
    containerd: Binaries

    @property
    def cni_folder(self) -> Path:
        """Where containerd finds the network configuration."""
        return self.folder / "cni"


def write_cni(site: NodeSite) -> None:
    """A bridge with addresses handed out by host-local; a pod may call its own Service (hairpin)."""
    site.cni_folder.mkdir()
    bridge = {
        "type": "bridge",
        "bridge": site.bridge,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(site.folder / "cni-addresses"),
            "ranges": [[{"subnet": site.pod_range}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    content = {"cniVersion": CNI_VERSION, "name": "pods", "plugins": [bridge]}
    (site.cni_folder / "10-pods.conflist").write_text(json.dumps(content, indent=1))


def containerd(site: NodeSite) -> list[str]:
    """containerd with CDI, and with the paths of this node's folder."""
    config = site.folder / "containerd.toml"
    config.write_text(f"""\
version = 3
root = "{site.folder / "containerd"}"
state = "{CONTAINERD_STATE}"
oom_score = 0

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
  cdi_spec_dirs = ["{CDI_FOLDER}"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{CNI_PLUGINS}"]
    conf_dir = "{site.cni_folder}"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        SystemdCgroup = false
""")
    return [str(site.containerd.path("containerd")), f"--config={config}", "--log-level=info"]


def ctr(site: NodeSite, arguments: list[str]) -> list[str]:
    """containerd's own client, in the namespace of kubelet's images and containers."""
    return [
        str(site.containerd.path("ctr")), f"--address={CONTAINERD_SOCKET}", f"--namespace={IMAGE_NAMESPACE}",
        *arguments,
    ]  # fmt: skip


def kubelet(site: NodeSite, kubeconfig: Path, control_group: str, status_seconds: int) -> list[str]:
    """kubelet with the whole machine as its node, except for what would touch the machine itself."""
    config = site.folder / "kubelet.json"
    resolver = site.folder / "resolv.conf"
    resolver.touch()  # no name service here, and none of the machine's
    content = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": True,
        "cgroupRoot": f"/{control_group}",
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": f"{status_seconds}s",
        "resolvConf": str(resolver),
        "volumePluginDir": str(site.folder / "volume-plugins"),
        "maxPods": 250,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "healthzPort": 10248,
    }
    config.write_text(json.dumps(content, indent=1))
    return [
        str(site.control_plane.path("kubelet")),
        f"--config={config}",
        f"--kubeconfig={kubeconfig}",
        f"--root-dir={KUBELET_FOLDER}",
        f"--cert-dir={site.folder / 'kubelet-certificates'}",
        f"--hostname-override={site.name}",
        f"--node-ip={_host(site.address)}",
    ]


def kube_proxy(site: NodeSite, kubeconfig: Path) -> list[str]:
    """kube-proxy with iptables rules in the node's own network namespace."""
    return [
        str(site.control_plane.path("kube-proxy")),
        f"--kubeconfig={kubeconfig}",
        "--proxy-mode=iptables",
        f"--hostname-override={site.name}",
        f"--cluster-cidr={site.pod_range}",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
    ]


def _host(address: str) -> str:
    return str(ipaddress.ip_interface(address).ip)
