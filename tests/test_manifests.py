"""manifests/ agree with the code: names, ports, resources, settings."""

import ipaddress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from devcluster.components import SERVICE_RANGE
from devcluster.image.product import PRODUCT, SCHEDULER
from vgpu import names
from vgpu.agent.config import NodeSettings, parse_settings
from vgpu.agent.fixed import CardsDocument
from vgpu.agent.options import AgentOptions
from vgpu.core.facts import Identity, Plugin
from vgpu.core.presets import PRESETS
from vgpu.settings import OperatorSettings, settings_from_environment

MANIFESTS = Path(__file__).resolve().parents[1] / "manifests"
BASE = MANIFESTS / "base"
SCHEDULER_CONFIG = BASE / "scheduler" / "config.yaml"


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def container_of(path: Path) -> dict[str, Any]:
    """The one container of a workload."""
    [workload] = documents(path)
    [container] = workload["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


def test_the_scheduler_asks_us_about_every_resource_of_the_presets() -> None:
    """And counts none of them itself: what its own filter refuses, no write of ours can wake."""
    [extender] = documents(SCHEDULER_CONFIG)[0]["extenders"]
    seen = {entry["name"]: entry["ignoredByScheduler"] for entry in extender["managedResources"]}
    resources = [name for p in PRESETS for name in (p.number, p.memory, p.memory_percent, p.cores, p.priority)]
    assert seen == {name: True for name in resources if name is not None}


@pytest.mark.parametrize("workload", ["operator/deployment.yaml", "agent/daemonset.yaml"])
def test_no_service_of_ours_becomes_a_setting(workload: str) -> None:
    """For a Service vgpu-extender kubelet would set VGPU_EXTENDER_PORT=tcp://... in every pod of its namespace."""
    [document] = documents(BASE / workload)
    assert document["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_the_scheduler_reaches_the_extenders_service() -> None:
    [config] = documents(SCHEDULER_CONFIG)
    [extender] = config["extenders"]
    want = f"https://{names.EXTENDER_SERVICE}.{names.NAMESPACE}.svc:{names.EXTENDER_PORT}/v1"
    assert extender["urlPrefix"] == want
    assert config["profiles"] == [{"schedulerName": names.SCHEDULER_NAME}]
    service = next(s for s in documents(BASE / "operator" / "services.yaml") if "selector" not in s["spec"])
    assert service["metadata"]["name"] == names.EXTENDER_SERVICE
    assert [port["port"] for port in service["spec"]["ports"]] == [names.EXTENDER_PORT]


def test_the_scheduler_outwaits_our_slowest_answer() -> None:
    [extender] = documents(SCHEDULER_CONFIG)[0]["extenders"]
    assert float(extender["httpTimeout"].removesuffix("s")) > OperatorSettings().bind_deadline_seconds


def test_the_large_overlay_differs_in_the_sample_alone() -> None:
    large = (MANIFESTS / "overlays" / "large" / "config.yaml").read_text()
    base = SCHEDULER_CONFIG.read_text()
    assert base.count("percentageOfNodesToScore: 100\n") == 1
    assert large == base.replace("percentageOfNodesToScore: 100\n", "percentageOfNodesToScore: 5\n")


DEVNODE = MANIFESTS / "overlays" / "devnode"


def test_the_development_node_runs_the_images_that_are_built_for_it() -> None:
    [overlay] = documents(DEVNODE / "kustomization.yaml")
    named = {f"{image['newName']}:{image['newTag']}" for image in overlay["images"]}
    assert named == {PRODUCT, SCHEDULER}
    for workload in ("operator", "scheduler", "agent"):
        assert container_of(DEVNODE / f"{workload}.yaml")["imagePullPolicy"] == "Never"


def test_the_development_nodes_scheduler_finds_the_extender_without_a_name_service() -> None:
    [service] = documents(DEVNODE / "extender.yaml")
    [deployment] = documents(DEVNODE / "scheduler.yaml")
    [extender] = documents(SCHEDULER_CONFIG)[0]["extenders"]
    address = service["spec"]["clusterIP"]
    want = {"ip": address, "hostnames": [urlsplit(extender["urlPrefix"]).hostname]}
    assert deployment["spec"]["template"]["spec"]["hostAliases"] == [want]
    assert ipaddress.ip_address(address) in ipaddress.ip_network(SERVICE_RANGE)


def test_the_development_node_has_settings_and_cards_that_the_agent_reads() -> None:
    settings = parse_settings((DEVNODE / "config.yaml").read_text(), "config.yaml").for_node("n", {})
    assert settings.effective_identity is Identity.EXACT
    [cards] = documents(DEVNODE / "cards.yaml")
    assert len(CardsDocument.model_validate(cards).reading("n").cards) == 2


def test_the_operator_listens_where_its_manifests_say() -> None:
    container = container_of(BASE / "operator" / "deployment.yaml")
    settings = OperatorSettings()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"extender": settings.extender_port, "http": settings.http_port}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


def test_the_agents_pods_are_known_by_their_label() -> None:
    [workload] = documents(BASE / "agent" / "daemonset.yaml")
    key, value = names.AGENT_POD_LABEL
    assert workload["spec"]["template"]["metadata"]["labels"][key] == value


def test_the_agent_as_shipped_serves_kubelet_itself_and_exactly() -> None:
    settings = shipped_settings("base/agent/config.yaml")
    assert settings.plugin is Plugin.VGPU
    assert settings.effective_identity is Identity.EXACT
    assert settings == NodeSettings(), "what is shipped is what the code does without a file"


def test_beside_another_system_its_plugin_stays_in_charge() -> None:
    """With `plugin: vgpu` two plugins would serve one kubelet, and pods lack the annotations of the other."""
    settings = shipped_settings("overlays/beside/config.yaml")
    assert settings.slots == 10
    assert settings.plugin in (Plugin.HAMI, Plugin.VOLCANO)
    assert settings.effective_identity is Identity.DEFERRED


def test_the_agent_finds_what_its_settings_name_at_the_same_path_as_the_node() -> None:
    """CDI files name files of the node, and the runtime looks for the CDI files themselves there."""
    [workload] = documents(BASE / "agent" / "daemonset.yaml")
    spec = workload["spec"]["template"]["spec"]
    host = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    inside = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    assert {name: inside[name] for name in host} == host
    settings, options = shipped_settings("base/agent/config.yaml"), AgentOptions()
    library = str(Path(settings.isolation_library).parent)
    needed = {library, settings.cdi_folder, str(options.state_folder), str(options.plugins_folder)}
    assert needed | {str(options.pod_resources.parent)} <= set(host.values())


def shipped_settings(path: str) -> NodeSettings:
    """What a file of manifests/ says for a node that it does not name."""
    return parse_settings((MANIFESTS / path).read_text(), path).for_node("n", {})


@pytest.mark.parametrize(
    ("path", "account"),
    [
        ("operator/deployment.yaml", names.OPERATOR_ACCOUNT),
        ("scheduler/deployment.yaml", names.SCHEDULER_ACCOUNT),
        ("agent/daemonset.yaml", names.AGENT_ACCOUNT),
    ],
)
def test_every_workload_has_its_own_account(path: str, account: str) -> None:
    [workload] = documents(BASE / path)
    assert workload["spec"]["template"]["spec"]["serviceAccountName"] == account
    assert workload["metadata"]["namespace"] == names.NAMESPACE


def test_the_admission_policies_name_our_accounts_and_annotations() -> None:
    account = "system:serviceaccount:{}:{}".format
    annotations = (BASE / "admission" / "annotations.yaml").read_text()
    assert f"'{account(names.NAMESPACE, names.OPERATOR_ACCOUNT)}'" in annotations
    assert annotations.count(f"startsWith('{names.OWN_PREFIX}')") == 2
    inventories = (BASE / "admission" / "inventories.yaml").read_text()
    assert f"'{account(names.NAMESPACE, names.AGENT_ACCOUNT)}'" in inventories
    assert f"'{names.NODE_NAME_CLAIM}' in request.userInfo.extra" in inventories


POLICIES_OF_GPU_PODS = ["jobs/jobs.yaml", "gangs/gate.yaml", "bare-pods/only-opted-in.yaml"]


@pytest.mark.parametrize("path", POLICIES_OF_GPU_PODS)
def test_what_asks_for_gpus_is_the_same_everywhere(path: str) -> None:
    text = (MANIFESTS / "components" / path).read_text()
    for preset in PRESETS:
        for resource in (preset.number, preset.memory, preset.memory_percent, preset.cores):
            assert f"'{resource}'" in text, resource


@pytest.mark.parametrize(
    ("component", "setting"), [("gangs", "ungate_gangs"), ("bare-pods", "recreate_bare_pods")]
)
def test_a_component_that_gives_a_right_switches_on_what_needs_it(component: str, setting: str) -> None:
    [document] = documents(MANIFESTS / "components" / component / "kustomization.yaml")
    [patch] = document["patches"]
    assert patch["target"] == {"kind": "Deployment", "name": names.OPERATOR_ACCOUNT}
    [change] = yaml.safe_load(patch["patch"])
    assert change["value"] == {"name": f"VGPU_{setting.upper()}", "value": "true"}
    assert getattr(OperatorSettings(), setting) is False
    assert settings_from_environment({change["value"]["name"]: "true"}).model_dump()[setting] is True


@pytest.mark.parametrize("overlay", [".", "overlays/beside", "overlays/large", "overlays/devnode"])
def test_what_gives_more_rights_is_never_shipped_switched_on(overlay: str) -> None:
    [document] = documents(MANIFESTS / overlay / "kustomization.yaml")
    named = {Path(component).name for component in document["components"]}
    assert not named & {"gangs", "bare-pods"}
    assert "routing" in named


def test_the_components_policies_name_what_the_code_names() -> None:
    account = f"'system:serviceaccount:{names.NAMESPACE}:{names.OPERATOR_ACCOUNT}'"
    for path in ("base/admission/plans.yaml", "components/gangs/only-the-gate.yaml"):
        assert account in (MANIFESTS / path).read_text()
    opted_in = (MANIFESTS / "components" / "bare-pods" / "only-opted-in.yaml").read_text()
    assert account in opted_in
    assert f"'{names.POLICY_EVICT_BARE}'" in opted_in
    assert f"'{names.ASSIGNMENT_ANNOTATION}'" in opted_in
    gate = (MANIFESTS / "components" / "gangs" / "gate.yaml").read_text()
    keys = (names.GANG_GATE, names.POLICY_GANG, names.POLICY_GANG_MIN, *names.VOLCANO_GROUP_KEYS)
    for name in (*keys, names.SCHEDULER_NAME):
        assert f"'{name}'" in gate
    only = (MANIFESTS / "components" / "gangs" / "only-the-gate.yaml").read_text()
    assert f"name == '{names.GANG_GATE}'" in only
    jobs = (MANIFESTS / "components" / "jobs" / "jobs.yaml").read_text()
    assert f"key: {names.POLICY_POD_FAILURE}" in jobs
    assert f"key: {names.POLICY_ROUTE}" in jobs


def test_the_gate_is_put_on_also_when_routing_comes_after_it() -> None:
    """The API server invokes a policy anew only if its conditions held before (1.36.3), and the order is open."""
    policy = documents(MANIFESTS / "components" / "gangs" / "gate.yaml")[0]["spec"]
    asked = [one["expression"] for one in policy["matchConditions"] if "schedulerName" in one["expression"]]
    assert len(asked) == 1
    assert f"schedulerName in ['{names.SCHEDULER_NAME}', 'default-scheduler']" in asked[0]
    assert policy["reinvocationPolicy"] == "IfNeeded"
    [mutation] = policy["mutations"]
    expression = " ".join(mutation["jsonPatch"]["expression"].split())
    assert expression.startswith(f"object.spec.schedulerName != '{names.SCHEDULER_NAME}' ? [] :")


def test_routing_knows_every_resource_of_the_presets() -> None:
    text = (MANIFESTS / "components" / "routing" / "routing.yaml").read_text()
    for preset in PRESETS:
        assert f"'{preset.number}'" in text
        for share in (preset.memory, preset.memory_percent, preset.cores):
            assert text.count(f"'{share}'") == 2, share
    assert f"key: {names.POLICY_ROUTE}" in text
    assert f"'{names.SCHEDULER_NAME}'" in text
