"""The development cluster keeps its promises: real answers, simulated nodes, faults on demand."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from devcluster import (
    COMPLETE_ANNOTATION,
    HOLD_ANNOTATION,
    LINGER_ANNOTATION,
    SIMULATED_LABEL,
    Account,
    ApiRefused,
    Cluster,
    ExistingCluster,
    KubectlFailed,
    NodeShape,
    NotSupported,
    Options,
    StartFailed,
    existing_is_wanted,
)
from devcluster.ports import free_ports
from devcluster.waiting import wait_until
from vgpu import names

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
SLOTS = "example.com/slots"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def make_pod(name: str, node: str | None = "node-0000", **annotations: str) -> dict[str, Any]:
    keys = {"complete": COMPLETE_ANNOTATION, "hold": HOLD_ANNOTATION, "linger": LINGER_ANNOTATION}
    spec: dict[str, Any] = {"serviceAccountName": "agent", "containers": [{"name": "main", "image": "none"}]}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, "annotations": {keys[k]: v for k, v in annotations.items()}}, "spec": spec}


def phase(cluster: Cluster, name: str) -> str:
    return str(cluster.api.get(f"{PODS}/{name}")["status"]["phase"])


def exists(cluster: Cluster, path: str) -> bool:
    try:
        cluster.api.get(path)
    except ApiRefused as refusal:
        if refusal.code != 404:
            raise
        return False
    return True


def test_the_simulated_label_is_the_products() -> None:
    assert SIMULATED_LABEL == names.SIMULATED_NODE_LABEL


def test_kubectl_talks_to_a_real_api_server(cluster: Cluster) -> None:
    version = json.loads(cluster.kubectl("version", "-o", "json"))
    assert version["serverVersion"]["gitVersion"] == "v1.36.3"


def test_kubectl_takes_its_input_from_the_caller(clean_cluster: Cluster) -> None:
    manifest = json.dumps({"apiVersion": "v1", "kind": "Pod", **make_pod("from-input", node=None)})
    clean_cluster.kubectl("apply", "-f", "-", input=manifest)
    assert phase(clean_cluster, "from-input") == "Pending"


def test_a_service_account_may_do_what_rbac_grants_and_nothing_else(cluster: Cluster) -> None:
    token = cluster.token_for_service_account("default", "reader")
    with pytest.raises(KubectlFailed, match="nodes is forbidden"):
        cluster.kubectl("get", "nodes", token=token)
    cluster.kubectl("create", "clusterrole", "node-reader", "--verb=get,list", "--resource=nodes")
    cluster.kubectl(
        "create",
        "clusterrolebinding",
        "node-reader",
        "--clusterrole=node-reader",
        "--serviceaccount=default:reader",
    )
    wait_until(
        lambda: cluster.kubectl("auth", "can-i", "list", "nodes", token=token).strip() == "yes", "the grant"
    )
    with pytest.raises(ApiRefused, match="Forbidden"):
        cluster.client(token).delete("/api/v1/nodes")


def test_an_unknown_token_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ApiRefused) as refused:
        cluster.client("made-up").get("/api/v1/nodes")
    assert refused.value.code == 401


def test_a_token_bound_to_a_pod_carries_its_node(clean_cluster: Cluster) -> None:
    clean_cluster.create_nodes(1)
    clean_cluster.api.post(PODS, make_pod("agent-pod"))
    token = clean_cluster.token_for_service_account("default", "agent", pod="agent-pod")
    who = json.loads(clean_cluster.kubectl("auth", "whoami", "-o", "json", token=token))
    assert who["status"]["userInfo"]["extra"]["authentication.kubernetes.io/node-name"] == ["node-0000"]


def test_simulated_nodes_are_ready_with_the_slots_they_were_given(clean_cluster: Cluster) -> None:
    made = clean_cluster.create_nodes(3, NodeShape(resources={SLOTS: 80}, labels={"rack": "a"}), prefix="gpu-")
    found = clean_cluster.api.get("/api/v1/nodes?labelSelector=rack%3Da")["items"]
    assert [node["metadata"]["name"] for node in found] == made == ["gpu-0000", "gpu-0001", "gpu-0002"]
    assert {node["status"]["allocatable"][SLOTS] for node in found} == {"80"}
    assert {c["status"] for n in found for c in n["status"]["conditions"] if c["type"] == "Ready"} == {"True"}


def test_a_labelled_node_without_status_is_brought_up(clean_cluster: Cluster) -> None:
    clean_cluster.api.post("/api/v1/nodes", {"metadata": {"name": "bare", "labels": {SIMULATED_LABEL: "true"}}})

    def status() -> dict[str, Any]:
        return dict(clean_cluster.api.get("/api/v1/nodes/bare")["status"])

    clean_cluster.wait_until(lambda: "conditions" in status(), "the node to become ready")
    assert status()["allocatable"]["pods"] == "250"


def test_what_a_test_sets_on_a_node_stays_while_its_pods_run(clean_cluster: Cluster) -> None:
    clean_cluster.create_nodes(1, NodeShape(resources={SLOTS: 80}))
    clean_cluster.set_allocatable("node-0000", SLOTS, 0)
    clean_cluster.set_ready("node-0000", False)
    before = clean_cluster.api.get("/api/v1/nodes/node-0000")
    # A pod that was started after the change shows that kwok has seen the node since.
    clean_cluster.api.post(PODS, make_pod("later"))
    clean_cluster.wait_until(lambda: phase(clean_cluster, "later") == "Running", "the pod to run")
    after = clean_cluster.api.get("/api/v1/nodes/node-0000")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert (after["status"]["allocatable"][SLOTS], after["status"]["capacity"][SLOTS]) == ("0", "80")


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_a_bound_pod_runs_until_it_is_told_to_end(clean_cluster: Cluster, end: str) -> None:
    clean_cluster.create_nodes(1)
    clean_cluster.api.post(PODS, make_pod("worker"))
    clean_cluster.wait_until(lambda: phase(clean_cluster, "worker") == "Running", "the pod to run")
    clean_cluster.api.patch(f"{PODS}/worker", {"metadata": {"annotations": {COMPLETE_ANNOTATION: end}}})
    clean_cluster.wait_until(lambda: phase(clean_cluster, "worker") == end, "the pod to end")
    [status] = clean_cluster.api.get(f"{PODS}/worker")["status"]["containerStatuses"]
    assert (status["state"]["terminated"]["exitCode"] == 0) == (end == "Succeeded")


def test_held_and_lingering_pods_stay_until_let_go(clean_cluster: Cluster) -> None:
    clean_cluster.create_nodes(1)
    for pod in (make_pod("held", hold="true"), make_pod("lingers", linger="true"), make_pod("plain")):
        clean_cluster.api.post(PODS, pod)
    for name in ("lingers", "plain"):
        clean_cluster.wait_until(lambda name=name: phase(clean_cluster, name) == "Running", f"{name} to run")
        clean_cluster.api.delete(f"{PODS}/{name}")
    clean_cluster.wait_until(lambda: not exists(clean_cluster, f"{PODS}/plain"), "the plain pod to go")
    assert exists(clean_cluster, f"{PODS}/lingers")
    assert phase(clean_cluster, "held") == "Pending"
    for name, key in (("held", HOLD_ANNOTATION), ("lingers", LINGER_ANNOTATION)):
        clean_cluster.api.patch(f"{PODS}/{name}", {"metadata": {"annotations": {key: None}}})
    clean_cluster.wait_until(lambda: phase(clean_cluster, "held") == "Running", "the held pod to run")
    clean_cluster.wait_until(lambda: not exists(clean_cluster, f"{PODS}/lingers"), "the lingering pod to go")


def test_the_audit_log_tells_who_asked_for_what(cluster: Cluster) -> None:
    position = cluster.audit_events().position
    token = cluster.token_for_service_account("default", "asker")
    with pytest.raises(ApiRefused):
        cluster.client(token).get("/api/v1/namespaces/default/secrets/none")
    [event] = [item for item in cluster.audit_events(position).events if item.user.endswith(":asker")]
    assert (event.verb, event.resource, event.namespace, event.name) == ("get", "secrets", "default", "none")
    assert (event.code, event.stage, event.user_agent) == (403, "ResponseComplete", "devcluster")


def watch_answer(cluster: Cluster, version: str) -> int:
    """The code that a watch from an old version gets: 200, or that of the error it begins with."""
    query = f"watch=1&resourceVersion={version}&timeoutSeconds=1&fieldSelector=metadata.name%3Dhistory"
    try:
        answer = cluster.api.get(f"{CONFIG_MAPS}?{query}")
    except ApiRefused as refusal:
        return refusal.code
    return int(answer["object"]["code"]) if answer.get("type") == "ERROR" else 200


def test_a_watch_from_before_forgotten_history_gets_410(cluster: Cluster) -> None:
    made = cluster.api.post(CONFIG_MAPS, {"metadata": {"name": "history"}})
    version = made["metadata"]["resourceVersion"]
    cluster.api.patch(f"{CONFIG_MAPS}/history", {"data": {"a": "1"}})
    assert watch_answer(cluster, version) == 200
    cluster.forget_history()
    assert watch_answer(cluster, version) == 410
    cluster.api.delete(f"{CONFIG_MAPS}/history")


def test_a_restarted_api_server_keeps_address_and_data(cluster: Cluster) -> None:
    cluster.api.post(CONFIG_MAPS, {"metadata": {"name": "kept"}})
    server, pid = cluster.server, cluster.processes["kube-apiserver"].pid
    cluster.restart_apiserver()
    assert cluster.processes["kube-apiserver"].pid != pid
    assert cluster.server == server
    cluster.api.delete(f"{CONFIG_MAPS}/kept")


def test_a_stopped_api_server_answers_nobody(cluster: Cluster) -> None:
    cluster.stop_apiserver()
    with pytest.raises(OSError, match="refused"):
        cluster.api.get("/readyz")
    cluster.start_apiserver()
    assert cluster.api.get("/readyz") == {"message": "ok"}


def test_a_paused_process_does_nothing_until_resumed(clean_cluster: Cluster) -> None:
    clean_cluster.create_nodes(1)
    clean_cluster.pause("kwok")
    clean_cluster.api.post(PODS, make_pod("waits"))
    state = Path(f"/proc/{clean_cluster.processes['kwok'].pid}/stat").read_text().rpartition(")")[2].split()[0]
    assert (state, phase(clean_cluster, "waits")) == ("T", "Pending")
    clean_cluster.resume("kwok")
    clean_cluster.wait_until(lambda: phase(clean_cluster, "waits") == "Running", "the pod to run")


def test_usage_counts_memory_and_processor_time(cluster: Cluster) -> None:
    before = cluster.usage("kube-apiserver")
    for _ in range(200):
        cluster.api.get("/api/v1/namespaces/default")
    after = cluster.usage("kube-apiserver")
    assert after.cpu_seconds > before.cpu_seconds
    assert after.rss_bytes > 50 * 2**20


@pytest.fixture
def scheduler_config(tmp_path: Path) -> Path:
    path = tmp_path / "scheduler.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "leaderElection: {leaderElect: false}\nclientConnection: {qps: 500, burst: 500}\n"
    )
    return path


def test_a_scheduler_can_come_later_and_be_restarted(clean_cluster: Cluster, scheduler_config: Path) -> None:
    clean_cluster.create_nodes(2)
    for number in (1, 2):
        clean_cluster.start_scheduler(scheduler_config)
        name = f"scheduled-{number}"
        clean_cluster.api.post(PODS, make_pod(name, node=None))
        clean_cluster.wait_until(lambda name=name: phase(clean_cluster, name) == "Running", "the pod to run")
        clean_cluster.stop_scheduler()
    written = json.loads((clean_cluster.site.folder / "kube-scheduler.json").read_text())
    assert written["clientConnection"]["qps"] == 500


def test_a_scheduler_with_a_bad_configuration_is_reported_with_its_log(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nnoSuch: 1\n")
    with pytest.raises(StartFailed, match="noSuch"):
        cluster.start_scheduler(path, name="bad-scheduler")
    path.write_text("kind: Pod\n")
    with pytest.raises(ValueError, match="is not one KubeSchedulerConfiguration"):
        cluster.start_scheduler(path)


@contextmanager
def named_server(name: bytes) -> Iterator[int]:
    """A TCP server that tells its name to every caller and holds the connection open until the caller ends it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def hold(connection: socket.socket) -> None:
        with connection:
            connection.sendall(name)
            while connection.recv(1):
                pass

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed: the test is over
                return
            threading.Thread(target=hold, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def next_byte(connection: socket.socket) -> bytes:
    """What the other side says next; nothing when it has ended the connection, politely or not."""
    try:
        return connection.recv(1)
    except ConnectionResetError:
        return b""


def answer_of(port: int) -> bytes:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=10)) as caller:
        return next_byte(caller)


def test_the_forwarder_follows_the_lease(cluster: Cluster) -> None:
    [port] = free_ports(1)
    key = names.LEASE_ADDRESS_ANNOTATION

    def move_to(address: str | None) -> None:
        cluster.api.patch(f"{LEASES}/leader", {"metadata": {"annotations": {key: address}}})

    with named_server(b"a") as first, named_server(b"b") as second:
        cluster.start_forwarder(port, namespace="default", lease="leader", annotation=key)
        assert answer_of(port) == b"", "no Lease, no answer"
        address = f"127.0.0.1:{first}"
        cluster.api.post(LEASES, {"metadata": {"name": "leader", "annotations": {key: address}}})
        wait_until(lambda: answer_of(port) == b"a", "the first address")
        with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as old:
            assert next_byte(old) == b"a"
            move_to(f"127.0.0.1:{second}")
            assert next_byte(old) == b"", "an old connection is cut when the address moves"
        assert answer_of(port) == b"b"
        move_to("nonsense")
        wait_until(lambda: answer_of(port) == b"", "no answer without an address")
        move_to(f"127.0.0.1:{second}")
        wait_until(lambda: answer_of(port) == b"b", "the address to be back")
        cluster.restart_apiserver()
        assert answer_of(port) == b"b", "the last address stays while the API server is away"
        move_to(f"127.0.0.1:{first}")
        wait_until(lambda: answer_of(port) == b"a", "the watch to be taken up again")
        cluster.api.delete(f"{LEASES}/leader")
        wait_until(lambda: answer_of(port) == b"", "no answer without a Lease")
    cluster.end_process("forwarder")


def test_clear_removes_whatever_holds_on(clean_cluster: Cluster) -> None:
    clean_cluster.create_nodes(1)
    stubborn = make_pod("stubborn", linger="true")
    stubborn["metadata"]["finalizers"] = ["example.com/never"]
    clean_cluster.api.post(PODS, stubborn)
    clean_cluster.kubectl("create", "deployment", "owner", "--image=none", "--replicas=3")
    clean_cluster.wait_until(lambda: len(clean_cluster.api.get(PODS)["items"]) == 4, "the deployment's pods")
    clean_cluster.clear()
    assert clean_cluster.api.get("/api/v1/pods")["items"] == []
    assert clean_cluster.api.get("/api/v1/nodes")["items"] == []


def test_options_open_what_agents_rights_and_old_watches_need() -> None:
    kubelet = Account("system:node:gpu-0000", ("system:nodes",))
    options = Options(
        accounts=(kubelet,), node_authorizer=True, watch_cache=False, unlimited_requests=True,
        controller_manager=False, kwok=False,
    )  # fmt: skip
    with Cluster(options) as cluster:
        cluster.create_nodes(2, prefix="gpu-")
        as_kubelet, change = cluster.client(kubelet.token), {"metadata": {"annotations": {"a": "b"}}}
        as_kubelet.patch("/api/v1/nodes/gpu-0000", change)
        with pytest.raises(ApiRefused, match="not allowed to modify node"):
            as_kubelet.patch("/api/v1/nodes/gpu-0001", change)
        made = cluster.api.post(CONFIG_MAPS, {"metadata": {"name": "history"}})
        cluster.api.patch(f"{CONFIG_MAPS}/history", {"data": {"a": "1"}})
        assert watch_answer(cluster, made["metadata"]["resourceVersion"]) == 200
        cluster.compact_etcd()
        assert watch_answer(cluster, made["metadata"]["resourceVersion"]) == 410


def test_an_existing_cluster_answers_the_same_questions(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig()))
    monkeypatch.delenv("VGPU_USE_EXISTING_CLUSTER", raising=False)
    assert not existing_is_wanted()
    monkeypatch.setenv("VGPU_USE_EXISTING_CLUSTER", "1")
    assert existing_is_wanted()
    with ExistingCluster() as existing:
        token = existing.token_for_service_account("default", "visitor")
        who = json.loads(existing.kubectl("auth", "whoami", "-o", "json", token=token))
        assert who["status"]["userInfo"]["username"] == "system:serviceaccount:default:visitor"
        with pytest.raises(NotSupported, match="restart_apiserver"):
            existing.restart_apiserver()
        with pytest.raises(NotSupported):
            existing.clear()
