"""manifests/ on the real API server: they apply, give each account its rights and no more, and kube-scheduler
takes its configuration."""

import datetime
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from devcluster import ApiRefused, Cluster
from devcluster.errors import StartFailed
from devcluster.product import MANIFESTS, install, prepare, remove_policies, rendered, scheduler_config
from vgpu import names
from vgpu.agent.config import parse_settings
from vgpu.core.facts import Plugin

pytestmark = pytest.mark.cluster

BESIDE = "policy.vgpu.dev/agent"
"""Label and taint of nodes that were handed over to us while another system runs."""

TOLERATION = MANIFESTS / "overlays" / "beside" / "toleration.yaml"

Right = tuple[str, str, str, str]
"""Verb, API group, resource, object name ("" = every object)."""


@pytest.mark.parametrize("overlay", ["", "overlays/large", "overlays/beside", "overlays/devnode"])
def test_a_server_dry_run_passes_once_namespace_and_crds_are_there(clean_cluster: Cluster, overlay: str) -> None:
    prepare(clean_cluster)
    # Another installation's Service has another address, which no apply may change.
    clean_cluster.kubectl("delete", "service", names.EXTENDER_SERVICE, "-n", names.NAMESPACE, "--ignore-not-found")
    printed = clean_cluster.kubectl("apply", "--dry-run=server", "-k", str(MANIFESTS / overlay))
    assert "deployment.apps/vgpu-operator" in printed
    assert "daemonset.apps/vgpu-agent" in printed
    assert "mutatingadmissionpolicy.admissionregistration.k8s.io/routing.vgpu.dev" in printed


@pytest.fixture(scope="module")
def product(cluster: Cluster) -> Iterator[Cluster]:
    cluster.clear()
    install(cluster)
    yield cluster
    remove_policies(cluster)
    cluster.clear()


def test_beside_another_system_nothing_happens_unasked(clean_cluster: Cluster) -> None:
    """Agents run only on labelled nodes; pods are routed only in labelled namespaces, and tolerate the taint."""
    prepare(clean_cluster)
    beside = rendered(clean_cluster, "overlays/beside")
    [agents] = [item for item in beside if item["kind"] == "DaemonSet"]
    assert agents["spec"]["template"]["spec"]["nodeSelector"] == {BESIDE: "on"}
    [settings] = [item for item in beside if item["metadata"]["name"].startswith("vgpu-agent-config")]
    read = parse_settings(settings["data"]["config.yaml"], "config.yaml").for_node("n", {})
    assert read.plugin is Plugin.HAMI
    policies = [item for item in beside if item["kind"].startswith("MutatingAdmission")]
    clean_cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(policies))
    asked = {"metadata": {"name": "asked", "labels": {names.POLICY_ROUTE: "on"}}}
    clean_cluster.api.post("/api/v1/namespaces", asked)
    limits = {names.HAMI_MEMORY: "3000"}
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "a", "image": "n", "resources": {"limits": limits}}]},
    }

    def created(namespace: str) -> dict[str, Any]:
        pod = clean_cluster.api.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
        spec: dict[str, Any] = pod["spec"]
        return spec

    def tolerates() -> bool:
        return any(toleration.get("key") == BESIDE for toleration in created("asked")["tolerations"])

    clean_cluster.wait_until(tolerates, "the policies to be in force")
    # The API server goes through policies in an order of its own, another one after each change of them.
    for _ in range(4):
        clean_cluster.kubectl("delete", "-f", str(TOLERATION))
        clean_cluster.wait_until(lambda: not tolerates(), "the policy to be gone")
        clean_cluster.kubectl("apply", "-f", str(TOLERATION))
        clean_cluster.wait_until(tolerates, "a routed pod to tolerate the taint, whichever policy is asked first")
    spec = created("asked")
    assert spec["schedulerName"] == names.SCHEDULER_NAME
    assert [t for t in spec["tolerations"] if t.get("key") == BESIDE] == [
        {"key": BESIDE, "operator": "Exists", "effect": "NoSchedule"}
    ]
    untouched = created("default")
    assert untouched["schedulerName"] == "default-scheduler"
    assert untouched["containers"][0]["resources"]["limits"].keys() == limits.keys()
    assert not any(toleration.get("key") == BESIDE for toleration in untouched["tolerations"])
    clean_cluster.api.delete("/api/v1/namespaces/asked")
    remove_policies(clean_cluster)


def rights(cluster: Cluster, token: str, namespace: str) -> set[Right]:
    """Everything that the bearer may do in a namespace, as the API server's authorizer lists it."""
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    answer = cluster.client(token).post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)
    return {
        (verb, group, resource, name)
        for rule in answer["status"]["resourceRules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources", [])
        for name in rule.get("resourceNames") or [""]
    }


def own_rights(cluster: Cluster, account: str, namespace: str) -> set[Right]:
    """What the account may do beyond what every service account may."""
    token = cluster.token_for_service_account(names.NAMESPACE, account)
    nobody = cluster.token_for_service_account(names.NAMESPACE, "nobody")
    return rights(cluster, token, namespace) - rights(cluster, nobody, namespace)


def assert_rights(cluster: Cluster, account: str, namespace: str, expected: set[Right]) -> None:
    """Exactly these, once the authorizer has seen what was applied or deleted a moment ago."""
    with suppress(StartFailed):
        cluster.wait_until(lambda: own_rights(cluster, account, namespace) == expected, f"the rights of {account}")
    assert own_rights(cluster, account, namespace) == expected


def each(verbs: str, group: str, resources: str, objects: str = "") -> set[Right]:
    """The rights of `verbs` on `resources`; each argument is a list of words."""
    return {
        (verb, group, resource, name)
        for verb in verbs.split()
        for resource in resources.split()
        for name in objects.split() or [""]
    }


KINDS = "gpunodeinventories gpuqueues gpupreemptions"
OPERATOR_EVERYWHERE = (
    each("get list watch", "", "nodes pods namespaces")
    | each("get list watch", names.GROUP, KINDS)
    | each("get list watch", "policy", "poddisruptionbudgets")
    | each("get list watch", "scheduling.volcano.sh", "podgroups")
    | each("get list watch", "scheduling.k8s.io", "podgroups priorityclasses")
    | each(
        "get list watch", "apiextensions.k8s.io", "customresourcedefinitions", "podgroups.scheduling.volcano.sh"
    )
    | each("get", "apps", "replicasets statefulsets deployments")
    | each("get", "batch", "jobs")
    | each("create delete", names.GROUP, "gpupreemptions")
    | each("patch", names.GROUP, "gpunodeinventories/status gpuqueues/status gpupreemptions/status")
    | each("create", "", "pods/binding pods/eviction")
    | each("patch", "", "pods/status")
    | each("create patch", "", "events")
)
OPERATOR_AT_HOME = (
    each("create", "coordination.k8s.io", "leases")
    | each("get list watch update", "coordination.k8s.io", "leases", names.LEASE_NAME)
    | each("create", "discovery.k8s.io", "endpointslices")
    | each(
        "get patch",
        "discovery.k8s.io",
        "endpointslices",
        f"{names.EXTENDER_SERVICE}-ipv4 {names.EXTENDER_SERVICE}-ipv6",
    )
    | each("create", "", "secrets")
    | each("get", "", "secrets", f"{names.EXTENDER_TLS_SECRET} {names.SCHEDULER_CLIENT_SECRET}")
)
AGENT_EVERYWHERE = (
    each("get list watch create patch", names.GROUP, "gpunodeinventories")
    | each("get", "", "nodes")
    | each("get list watch", "", "pods")
)


def test_the_operator_has_exactly_its_rights(product: Cluster) -> None:
    assert_rights(product, names.OPERATOR_ACCOUNT, "default", OPERATOR_EVERYWHERE)
    assert_rights(product, names.OPERATOR_ACCOUNT, names.NAMESPACE, OPERATOR_EVERYWHERE | OPERATOR_AT_HOME)


def test_an_agent_has_exactly_its_rights(product: Cluster) -> None:
    for namespace in ("default", "kube-system", names.NAMESPACE):
        assert_rights(product, names.AGENT_ACCOUNT, namespace, AGENT_EVERYWHERE)


def test_the_scheduler_has_upstreams_rights_and_its_lease(product: Cluster) -> None:
    upstream: set[Right] = set()
    for role in ("system:kube-scheduler", "system:volume-scheduler"):
        for rule in product.api.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}")["rules"]:
            for group in rule["apiGroups"]:
                objects = " ".join(rule.get("resourceNames", []))
                upstream |= each(" ".join(rule["verbs"]), group, " ".join(rule["resources"]), objects)
    everywhere = own_rights(product, names.SCHEDULER_ACCOUNT, "default")
    assert everywhere <= upstream
    assert ("create", "", "pods/binding", "") in everywhere
    lease = each("get update", "coordination.k8s.io", "leases", names.SCHEDULER_NAME)
    assert_rights(product, names.SCHEDULER_ACCOUNT, names.NAMESPACE, everywhere | lease)
    assert ("get", "", "secrets", "") not in everywhere


def test_the_operator_changes_neither_nodes_nor_pods(product: Cluster) -> None:
    [node] = product.create_nodes(1, prefix="rights-")
    body = {
        "metadata": {"name": "rights"},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "a", "image": "n"}]},
    }
    product.api.post("/api/v1/namespaces/default/pods", body)
    operator = product.client(product.token_for_service_account(names.NAMESPACE, names.OPERATOR_ACCOUNT))
    label = {"metadata": {"labels": {"x": "y"}}}
    for path in (
        f"/api/v1/nodes/{node}",
        f"/api/v1/nodes/{node}/status",
        "/api/v1/namespaces/default/pods/rights",
    ):
        with pytest.raises(ApiRefused, match="cannot patch resource") as refused:
            operator.patch(path, label)
        assert refused.value.code == 403
        if not path.endswith("/status"):
            with pytest.raises(ApiRefused, match="cannot update resource"):
                operator.request("PUT", path, product.api.get(path))
            with pytest.raises(ApiRefused, match="cannot delete resource"):
                operator.delete(path)


def make_certificate(folder: Path) -> Path:
    """One self-signed certificate that serves as authority, server and client."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    service = f"{names.EXTENDER_SERVICE}.{names.NAMESPACE}.svc"
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(service)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    for file, content in (("ca.crt", pem), ("tls.crt", pem), ("tls.key", secret)):
        (folder / file).write_bytes(content)
    return folder


class RefusingExtender(http.server.BaseHTTPRequestHandler):
    """Answers every filter with no node."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reasons = dict.fromkeys(asked["NodeNames"], "these cards are taken")
        body = json.dumps({"NodeNames": [], "FailedAndUnresolvableNodes": reasons}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """pytest shows what failed; a line per request would hide it."""


@pytest.fixture
def extender_url(tmp_path: Path) -> Iterator[str]:
    """An extender on loopback that answers nobody without our client certificate."""
    make_certificate(tmp_path)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), RefusingExtender)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    context.load_verify_locations(tmp_path / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_kube_scheduler_takes_its_configuration_and_asks_us(
    product: Cluster, extender_url: str, tmp_path: Path
) -> None:
    """Under its own account, over mutual TLS; a pod without GPUs is none of our business and is bound."""
    [node] = product.create_nodes(1, prefix="scheduled-")
    product.set_allocatable(node, names.HAMI_NUMBER, 10)
    token = product.token_for_service_account(names.NAMESPACE, names.SCHEDULER_ACCOUNT)
    config = scheduler_config(product, extender_url, tmp_path, leader_elect=True)
    product.start_scheduler(config, token=token, name="vgpu-scheduler")
    limits = {names.HAMI_NUMBER: "1", names.HAMI_MEMORY: "3000"}
    for name, resources in (("with-gpu", {"limits": limits}), ("without", {})):
        container = {"name": "main", "image": "none", "resources": resources}
        spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [container]}
        product.api.post("/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})

    def pod(name: str) -> dict[str, Any]:
        return product.api.get(f"/api/v1/namespaces/default/pods/{name}")

    def told() -> bool:
        conditions = pod("with-gpu").get("status", {}).get("conditions", [])
        return any("these cards are taken" in condition.get("message", "") for condition in conditions)

    product.wait_until(told, "the extender's reason in the pod's condition")
    product.wait_until(lambda: "nodeName" in pod("without")["spec"], "the pod without GPUs to be bound")
    assert "nodeName" not in pod("with-gpu")["spec"]
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases/{names.SCHEDULER_NAME}"
    assert product.api.get(lease)["spec"]["holderIdentity"]
    product.stop_scheduler("vgpu-scheduler")
