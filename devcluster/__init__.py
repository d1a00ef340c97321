"""A real Kubernetes control plane on loopback for tests, demo and benchmarks: no container engine, no root.

`Cluster` starts etcd, kube-apiserver and, where wanted, kube-controller-manager, kwok and kube-scheduler as
children of this process; they end with it. Independent of the operator's package: it knows no name of ours. The
modules product and operators and the packages demo and node stand on top and are not imported from here.
"""

from devcluster.access import ClusterAccess
from devcluster.audit import AuditEvent, AuditSlice
from devcluster.cluster import Cluster
from devcluster.components import Options
from devcluster.credentials import Account
from devcluster.errors import ApiRefused, BuildFailed, DevclusterError, KubectlFailed, NotSupported, StartFailed
from devcluster.existing import ExistingCluster, existing_is_wanted
from devcluster.kwok import COMPLETE_ANNOTATION, HOLD_ANNOTATION, LINGER_ANNOTATION, SIMULATED_LABEL
from devcluster.nodes import NodeShape
from devcluster.process import Usage

__all__ = [
    "COMPLETE_ANNOTATION",
    "HOLD_ANNOTATION",
    "LINGER_ANNOTATION",
    "SIMULATED_LABEL",
    "Account",
    "ApiRefused",
    "AuditEvent",
    "AuditSlice",
    "BuildFailed",
    "Cluster",
    "ClusterAccess",
    "DevclusterError",
    "ExistingCluster",
    "KubectlFailed",
    "NodeShape",
    "NotSupported",
    "Options",
    "StartFailed",
    "Usage",
    "existing_is_wanted",
]
