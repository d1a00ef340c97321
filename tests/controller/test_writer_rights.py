"""The operator's account may write what the writer writes, and nothing else: the manifests against the code."""

import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controller.test_preemption_object import make_write
from tests.kube.fake_api import FakeApi
from vgpu import names
from vgpu.controller.fence import Fence
from vgpu.controller.preempt.bodies import preemption_status
from vgpu.controller.writer import BindingWrite, EventWrite, SecretWrite, SliceWrite, Writer
from vgpu.core.preempt.facts import PlanPhase
from vgpu.errors import ApiRefused, NotLeading
from vgpu.kube.objects import Key

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
BASE = MANIFESTS / "base" / "rbac" / "operator.yaml"
GANGS = MANIFESTS / "components" / "gangs" / "rights.yaml"
BARE_PODS = MANIFESTS / "components" / "bare-pods" / "rights.yaml"
Right = tuple[str, str]
"""Verb and resource."""

LEASE = {"metadata": {"name": "vgpu-operator", "namespace": "n", "resourceVersion": "1"}}
POD = Key("n", "p", "u")
EVENT = EventWrite("n", "e", "p", "u", "Reason", "m")
WRITES: dict[str, Callable[[Writer], Awaitable[Any]]] = {
    "bind": lambda w: w.bind(BindingWrite("n", "p", "u", "node", {})),
    "nominate": lambda w: w.nominate(POD, "node", 1),
    "assign_bound": lambda w: w.assign_bound(POD, {}),
    "evict": lambda w: w.evict(POD),
    "apply_inventory_status": lambda w: w.apply_inventory_status("node", {}),
    "apply_queue_status": lambda w: w.apply_queue_status("q", {}),
    "create_preemption": lambda w: w.create_preemption(make_write()),
    "apply_preemption_status": lambda w: w.apply_preemption_status(POD, preemption_status(PlanPhase.BOUND)),
    "delete_preemption": lambda w: w.delete_preemption(POD),
    "remove_gate": lambda w: w.remove_gate(POD, names.GANG_GATE),
    "create_pod": lambda w: w.create_pod("n", {"metadata": {"name": "again", "namespace": "n"}}),
    "write_event": lambda w: w.write_event(EVENT),
    "create_secret": lambda w: w.create_secret(SecretWrite("n", "s", "t", {})),
    "apply_endpoint_slice": lambda w: w.apply_endpoint_slice(SliceWrite("n", "s", "10.0.0.1", "IPv4", 1)),
    "create_lease": lambda w: w.create_lease(LEASE),
    "put_lease": lambda w: w.put_lease(LEASE),
}
NOT_FENCED = {"create_lease", "put_lease"}
PATCHES = dict.fromkeys(("patch", "amend", "apply"), "patch")
RBAC_VERBS = {**PATCHES, "create": "create", "update": "update", "delete": "delete"}
READS = {"get", "list", "watch"}
NEEDED_BESIDE = {("create", "endpointslices")}
"""An apply of an object that is not there creates it."""


def given(path: Path) -> set[Right]:
    """What the roles of a file let their bearer write."""
    roles = [one for one in yaml.safe_load_all(path.read_text()) if one["kind"] in ("Role", "ClusterRole")]
    return {
        (verb, resource)
        for role in roles
        for rule in role["rules"]
        for verb in set(rule["verbs"]) - READS
        for resource in rule["resources"]
    }


async def done(writer: Writer, *methods: str) -> set[Right]:
    """What these methods need, by what they count."""
    for method in methods:
        with suppress(ApiRefused):  # an empty world: what matters is what was asked for
            await WRITES[method](writer)
    return {(RBAC_VERBS[verb], resource) for verb, resource, _ in writer.counts}


def test_every_write_is_known_here() -> None:
    public = inspect.getmembers(Writer, inspect.iscoroutinefunction)
    assert {name for name, _ in public if not name.startswith("_")} - {"drain"} == WRITES.keys()


async def test_what_is_given_is_what_is_written(api: FakeApi, writer: Writer) -> None:
    await writer.write_event(EVENT)  # the second one is a patch
    needed = await done(writer, *WRITES)
    assert given(BASE) | given(GANGS) | given(BARE_PODS) == needed | NEEDED_BESIDE


async def test_each_component_gives_the_one_write_that_it_is_for(
    api: FakeApi, writer: Writer, fence: Fence
) -> None:
    assert given(GANGS) == await done(writer, "remove_gate")
    writer.counts.clear()
    assert given(BARE_PODS) == await done(writer, "create_pod")
    assert not given(BASE) & (given(GANGS) | given(BARE_PODS))


@pytest.mark.parametrize("method", sorted(WRITES.keys() - NOT_FENCED))
async def test_a_closed_fence_stops_it(method: str, api: FakeApi, writer: Writer, fence: Fence) -> None:
    fence.lost()
    with pytest.raises(NotLeading):
        await WRITES[method](writer)
    assert not api.requests


@pytest.mark.parametrize("method", sorted(WRITES))
async def test_each_carries_its_time_limit_for_the_server(method: str, api: FakeApi, writer: Writer) -> None:
    await done(writer, method)
    assert api.requests
    assert all("timeout=" in path for _, path in api.requests)
