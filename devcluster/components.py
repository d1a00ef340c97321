"""The command line of every program of the cluster.

Enters: where files lie, which ports are used, what the caller wants. Leaves: argument lists and the files that
they name. May not live here: starting and stopping.
"""

import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from devcluster.audit import POLICY
from devcluster.build import Binaries
from devcluster.credentials import Account, Credentials
from devcluster.kwok import SIMULATED_LABEL, write_stages

SERVICE_RANGE = "10.96.0.0/16"
LOOPBACK = "127.0.0.1"
# Both write to nodes by themselves: the first closes simulated nodes for want of heartbeats, the second annotates
# every node when their number changes.
NODE_WRITERS = ("node-lifecycle-controller", "ttl-controller")


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller wants of a cluster."""

    accounts: tuple[Account, ...] = ()
    audit: bool = True
    controller_manager: bool = True
    node_lifecycle: bool = False
    kwok: bool = True
    node_authorizer: bool = False
    # Off: every watch goes to etcd itself, so that a compaction alone makes old versions unknown (410).
    watch_cache: bool = True
    # On: no priority and fairness and no limit in flight, for load tests.
    unlimited_requests: bool = False
    apiserver_arguments: tuple[str, ...] = ()
    # On: pods are given service accounts and their tokens, as they are in every cluster but this simulated one.
    service_account_admission: bool = False
    # Where pods reach the API server; only inside a network namespace of its own may it be more than loopback.
    address: str = LOOPBACK

    @property
    def server_addresses(self) -> tuple[str, ...]:
        """The addresses that the API server's certificate must name."""
        first_service = str(ipaddress.ip_network(SERVICE_RANGE)[1])
        return (LOOPBACK,) if self.address == LOOPBACK else (LOOPBACK, self.address, first_service)


@dataclass(frozen=True, slots=True)
class Site:
    """The cluster's folder and ports. Both stay when a program is restarted."""

    folder: Path
    binaries: Binaries
    etcd_port: int
    etcd_peer_port: int
    api_port: int

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://127.0.0.1:{self.api_port}"

    @property
    def audit_log(self) -> Path:
        """Where the API server writes its audit log."""
        return self.folder / "audit.log"


def etcd(site: Site) -> list[str]:
    """etcd on loopback, without the fsyncs that a throw-away cluster does not need."""
    client, peer = f"http://127.0.0.1:{site.etcd_port}", f"http://127.0.0.1:{site.etcd_peer_port}"
    return [
        str(site.binaries.path("etcd")),
        f"--data-dir={site.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def apiserver(site: Site, credentials: Credentials, options: Options) -> list[str]:
    """kube-apiserver with fixed tokens, RBAC, service account tokens and the audit log."""
    arguments = [
        str(site.binaries.path("kube-apiserver")),
        f"--etcd-servers=http://127.0.0.1:{site.etcd_port}",
        f"--secure-port={site.api_port}",
        f"--tls-cert-file={credentials.server_certificate}",
        f"--tls-private-key-file={credentials.server_key}",
        f"--cert-dir={site.folder / 'certificates'}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={credentials.service_account_key}",
        f"--service-account-signing-key-file={credentials.service_account_key}",
        f"--token-auth-file={credentials.token_file}",
        f"--authorization-mode={'Node,RBAC' if options.node_authorizer else 'RBAC'}",
        "--allow-privileged=true",
        f"--watch-cache={str(options.watch_cache).lower()}",
        *_address_arguments(options),
        *_admission_arguments(options),
    ]
    if options.audit:
        policy = site.folder / "audit-policy.json"
        policy.write_text(json.dumps(POLICY))
        # One file without rotation: positions in it stay good.
        arguments += [
            f"--audit-policy-file={policy}",
            f"--audit-log-path={site.audit_log}",
            "--audit-log-maxsize=100000",
        ]
    if options.unlimited_requests:
        arguments += ["--enable-priority-and-fairness=false", "--max-requests-inflight=4000"]
        arguments += ["--max-mutating-requests-inflight=2000"]
    return [*arguments, *options.apiserver_arguments]


def _address_arguments(options: Options) -> list[str]:
    if options.address == LOOPBACK:
        # Loopback is no legal endpoint, and nothing here reaches the API server by its Service.
        where, reconciler = LOOPBACK, ["--endpoint-reconciler-type=none"]
    else:
        where, reconciler = "0.0.0.0", ["--kubelet-preferred-address-types=InternalIP"]
    return [f"--bind-address={where}", f"--advertise-address={options.address}", *reconciler]


def _admission_arguments(options: Options) -> list[str]:
    unwanted = {
        "ServiceAccount": not options.service_account_admission,
        "TaintNodesByCondition": not options.node_lifecycle,
    }
    disabled = ",".join(name for name, is_unwanted in unwanted.items() if is_unwanted)
    arguments = [f"--disable-admission-plugins={disabled}"] if disabled else []
    return [*arguments, *(["--enable-admission-plugins=NodeRestriction"] if options.node_authorizer else [])]


def controller_manager(site: Site, credentials: Credentials, options: Options, kubeconfig: Path) -> list[str]:
    """kube-controller-manager; the controllers that write to nodes by themselves only on demand."""
    off = () if options.node_lifecycle else NODE_WRITERS
    return [
        str(site.binaries.path("kube-controller-manager")),
        f"--kubeconfig={kubeconfig}",
        f"--service-account-private-key-file={credentials.service_account_key}",
        f"--root-ca-file={credentials.ca}",
        f"--controllers={','.join(['*', *(f'-{name}' for name in off)])}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]


def kwok(site: Site, kubeconfig: Path) -> list[str]:
    """kwok for the nodes that carry the label, without heartbeats and without a port of its own."""
    return [
        str(site.binaries.path("kwok")),
        f"--kubeconfig={kubeconfig}",
        f"--config={write_stages(site.folder / 'kwok-stages.yaml')}",
        f"--manage-nodes-with-label-selector={SIMULATED_LABEL}=true",
        "--node-lease-duration-seconds=0",
        "--node-port=0",
    ]


def scheduler(site: Site, config: Path, port: int) -> list[str]:
    """kube-scheduler with an effective configuration file, its health and metrics on a port of its own."""
    return [
        str(site.binaries.path("kube-scheduler")),
        f"--config={config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={site.folder / f'scheduler-certificates-{port}'}",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
    ]


def effective_scheduler_config(source: Path, target: Path, kubeconfig: Path) -> Path:
    """The caller's KubeSchedulerConfiguration with this cluster's kubeconfig in it; everything else is kept."""
    documents: Sequence[dict[str, Any]] = [item for item in yaml.safe_load_all(source.read_text()) if item]
    if len(documents) != 1 or documents[0].get("kind") != "KubeSchedulerConfiguration":
        raise ValueError(f"{source} is not one KubeSchedulerConfiguration")
    content = dict(documents[0])
    content["clientConnection"] = {**content.get("clientConnection", {}), "kubeconfig": str(kubeconfig)}
    target.write_text(json.dumps(content, indent=1))
    return target
