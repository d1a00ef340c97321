"""A real node in namespaces of its own: kubelet, containerd, kube-proxy, pod addresses, and its own control plane.

`RealNode` is a Cluster whose programs run inside; images makes container images from files of this machine. Needs
Linux, root and the packages of `devcluster/install-packages`; `why_impossible` says what is missing.
"""

from devcluster.node.images import BUSYBOX_IMAGE, ImageContent, write_image
from devcluster.node.inside_process import InsideProcess
from devcluster.node.real_node import NodeOptions, RealNode
from devcluster.node.requirements import why_impossible

__all__ = [
    "BUSYBOX_IMAGE",
    "ImageContent",
    "InsideProcess",
    "NodeOptions",
    "RealNode",
    "why_impossible",
    "write_image",
]
