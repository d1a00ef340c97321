"""The only file of the operator that writes to the API.

Enters: typed writes. Leaves: one request each, behind the fence, with a server-side time-out, and a count. May not
live here: whether or when to write, repeats. Each method raises ApiRefused, ApiUnavailable, OutcomeUnknown, and,
but for the Lease, NotLeading. A fence that is closed for a moment is LeaseRunsOut, an ApiUnavailable: whoever
repeats what the API server could not take now repeats that too.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from vgpu import names
from vgpu.controller import writes
from vgpu.controller.fence import Fence
from vgpu.controller.preempt.bodies import PreemptionWrite, preemption_body, preemption_status_body
from vgpu.controller.writes import BindingWrite, Body, EventWrite, SecretWrite, SliceWrite
from vgpu.errors import ApiError, ApiRefused, LeaseRunsOut, NotLeading, OutcomeUnknown
from vgpu.kube.client import ApiClient, WriteRequest
from vgpu.kube.objects import Key
from vgpu.settings import OperatorSettings

__all__ = ["BindingWrite", "EventWrite", "PreemptionWrite", "SecretWrite", "SliceWrite", "Writer"]

# We wait a little longer than the server works, so that its own answer about a time-out still arrives.
ANSWER_SECONDS = 0.5
REMEMBERED_EVENTS = 10_000

Verb = Literal["create", "update", "patch", "amend", "apply", "delete"]
"""`amend`: a strategic merge patch, which changes single entries of a list."""
METHODS: Mapping[Verb, str] = {
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "amend": "PATCH",
    "apply": "PATCH",
    "delete": "DELETE",
}
CONTENT_TYPES: Mapping[Verb, str] = {
    "create": "application/json",
    "update": "application/json",
    "patch": "application/merge-patch+json",
    "amend": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
    "delete": "application/json",
}
PREEMPTIONS = f"/apis/{names.API_VERSION}/namespaces/{{}}/{names.PREEMPTION_PLURAL}"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


@dataclass(frozen=True, slots=True)
class _Write:
    verb: Verb
    resource: str
    path: str
    body: Body


class _EventCount(BaseModel):
    count: int = 1


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Writer:
    """Every write of the operator. `counts` is keyed by (verb, resource, code): code "ok", an HTTP status,
    "0" (no connection) or "unknown"."""

    def __init__(
        self,
        client: ApiClient,
        fence: Fence,
        settings: OperatorSettings,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self.fence = fence
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self._client = client
        self._settings = settings
        self._now = now
        self._events: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._settled_at = 0.0

    async def bind(self, write: BindingWrite) -> None:
        """Bind a pod with its annotations. ApiRefused 409 or 404 may also mean that an earlier try succeeded."""
        path = f"{_pod_path(write.namespace, write.name)}/binding"
        await self._send(_Write("create", "pods/binding", path, writes.binding_body(write)))

    async def nominate(self, pod: Key, node: str | None, wake: int) -> None:
        """Wake a pending pod by a new counter value and, if `node` is given, send it there first.

        ApiRefused 422 when the pod is bound by now or its name belongs to another uid, 404 when it is gone.
        """
        path = f"{_pod_path(pod.namespace, pod.name)}/status"
        await self._send(_Write("patch", "pods/status", path, writes.nomination_body(pod, node, wake)))

    async def assign_bound(self, pod: Key, annotations: Mapping[str, str]) -> None:
        """Give cards to a pod that is bound already. ApiRefused 404 or 422 when this uid is gone."""
        path = f"{_pod_path(pod.namespace, pod.name)}/status"
        await self._send(_Write("patch", "pods/status", path, writes.late_assignment_body(pod, annotations)))

    async def evict(self, pod: Key) -> None:
        """Evict exactly this pod. ApiUnavailable 429 when a disruption budget forbids it now.

        A name that belongs to another uid ends in OutcomeUnknown: the API server takes it for a conflict that may
        pass and tries on until our time-out; nothing is evicted.
        """
        path = f"{_pod_path(pod.namespace, pod.name)}/eviction"
        await self._send(_Write("create", "pods/eviction", path, writes.eviction_body(pod)))

    async def apply_inventory_status(self, node: str, status: Mapping[str, Any]) -> None:
        """Replace what we said in an inventory's status. ApiRefused 404 when there is no such inventory."""
        path = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}/{node}/status"
        body = writes.inventory_status_body(node, status)
        await self._send(_Write("apply", f"{names.INVENTORY_PLURAL}/status", path, body))

    async def apply_queue_status(self, name: str, status: Mapping[str, Any]) -> None:
        """Replace what we said in a queue's status. ApiRefused 404 when there is no such queue."""
        path = f"/apis/{names.API_VERSION}/{names.QUEUE_PLURAL}/{name}/status"
        body = writes.queue_status_body(name, status)
        await self._send(_Write("apply", f"{names.QUEUE_PLURAL}/status", path, body))

    async def create_preemption(self, write: PreemptionWrite) -> bytes:
        """Create a plan's object; gives what is stored. ApiRefused 409 when one of its name exists."""
        path = PREEMPTIONS.format(write.namespace)
        return await self._send(_Write("create", names.PREEMPTION_PLURAL, path, preemption_body(write)))

    async def apply_preemption_status(self, plan: Key, status: Mapping[str, Any]) -> None:
        """Replace what we said in the status of the plan of this name. ApiRefused 404 when there is none."""
        path = f"{PREEMPTIONS.format(plan.namespace)}/{plan.name}/status"
        body = preemption_status_body(plan, status)
        await self._send(_Write("apply", f"{names.PREEMPTION_PLURAL}/status", path, body))

    async def delete_preemption(self, plan: Key) -> None:
        """Delete exactly this plan's object. ApiRefused 404 when it is gone, 409 when the name has another uid."""
        path = f"{PREEMPTIONS.format(plan.namespace)}/{plan.name}"
        await self._send(_Write("delete", names.PREEMPTION_PLURAL, path, writes.deletion_body(plan.uid)))

    async def remove_gate(self, pod: Key, gate: str) -> None:
        """Take one scheduling gate off exactly this pod; others stay. Without such a gate nothing changes.

        ApiRefused 403 without the right to (component gangs), 404 when the pod is gone, 409 when its name belongs
        to another uid.
        """
        path = _pod_path(pod.namespace, pod.name)
        await self._send(_Write("amend", "pods", path, writes.gate_removal_body(pod, gate)))

    async def create_pod(self, namespace: str, body: Body) -> bytes:
        """Create a pod; gives what is stored. ApiRefused 409 when one of its name exists, 403 without the right
        to (component bare-pods) or over a quota."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        return await self._send(_Write("create", "pods", path, body))

    async def write_event(self, event: EventWrite) -> None:
        """Create the Event; one of the same name is renewed instead (message, last time, count), or left."""
        key = (event.namespace, event.name)
        if key in self._events and await self._renew_event(event, self._events[key] + 1):
            return
        path = f"/api/v1/namespaces/{event.namespace}/events"
        try:
            await self._send(_Write("create", "events", path, writes.event_body(event, self._stamp())))
        except ApiRefused as error:
            if error.status != 409:
                raise
            if not event.if_absent:
                await self._renew_event(event, None)
            return
        self._remember_event(key, 1)

    async def create_secret(self, secret: SecretWrite) -> None:
        """Create a Secret. ApiRefused 409 when it exists."""
        path = f"/api/v1/namespaces/{secret.namespace}/secrets"
        await self._send(_Write("create", "secrets", path, writes.secret_body(secret)))

    async def apply_endpoint_slice(self, endpoints: SliceWrite) -> None:
        """Let the Service lead to this one address."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{endpoints.namespace}/endpointslices/{endpoints.name}"
        await self._send(_Write("apply", "endpointslices", path, writes.slice_body(endpoints)))

    async def create_lease(self, lease: Body) -> bytes:
        """Create the Lease; gives the stored object. Not behind the fence: it is what opens the fence."""
        path = LEASES.format(lease["metadata"]["namespace"])
        return await self._request(_Write("create", "leases", path, lease), self._settings.lease_request_seconds)

    async def put_lease(self, lease: Body) -> bytes:
        """Replace the Lease of exactly the resourceVersion in `lease`; gives the stored object. Not fenced."""
        meta = lease["metadata"]
        if not meta.get("resourceVersion"):
            raise ValueError("a Lease without resourceVersion would be replaced whoever holds it")
        path = f"{LEASES.format(meta['namespace'])}/{meta['name']}"
        return await self._request(_Write("update", "leases", path, lease), self._settings.lease_request_seconds)

    async def drain(self) -> None:
        """Wait until no fenced write can still be carried out, those without an answer included."""
        await self._quiet.wait()
        await asyncio.sleep(max(0.0, self._settled_at - asyncio.get_running_loop().time()))

    async def _renew_event(self, event: EventWrite, count: int | None) -> bool:
        """False when the Event is gone by now (they live an hour)."""
        path = f"/api/v1/namespaces/{event.namespace}/events/{event.name}"
        body = writes.event_repeat_body(event, self._stamp(), count)
        try:
            stored = await self._send(_Write("patch", "events", path, body))
        except ApiRefused as error:
            if error.status != 404:
                raise
            self._events.pop((event.namespace, event.name), None)
            return False
        self._remember_event((event.namespace, event.name), _count_of(stored))
        return True

    def _remember_event(self, key: tuple[str, str], count: int) -> None:
        self._events[key] = count
        self._events.move_to_end(key)
        if len(self._events) > REMEMBERED_EVENTS:
            self._events.popitem(last=False)

    def _stamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _send(self, write: _Write) -> bytes:
        try:
            self.fence.admit(f"{write.verb} {write.resource}")
        except (LeaseRunsOut, NotLeading):
            self.counts[write.verb, write.resource, "fenced"] += 1
            raise
        loop = asyncio.get_running_loop()
        # Sent as late as our time-out allows, then worked on for as long as the server's allows.
        bound_to_end_at = loop.time() + 2 * self._settings.write_seconds + ANSWER_SECONDS
        self._under_way += 1
        self._quiet.clear()
        try:
            return await self._request(write, self._settings.write_seconds)
        except (OutcomeUnknown, asyncio.CancelledError):
            self._settled_at = max(self._settled_at, bound_to_end_at)
            raise
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()

    async def _request(self, write: _Write, seconds: float) -> bytes:
        params = {"timeout": f"{round(seconds * 1000)}ms", "fieldManager": names.OPERATOR_FIELD_MANAGER}
        if write.verb == "apply":
            params["force"] = "true"
        request = WriteRequest(
            method=METHODS[write.verb],
            path=write.path,
            body=to_json(write.body),
            content_type=CONTENT_TYPES[write.verb],
            params=params,
            timeout_seconds=seconds + ANSWER_SECONDS,
        )
        code = "unknown"
        try:
            answer = await self._client.send(request)
            code = "ok"
        except ApiError as error:
            code = str(error.status)
            raise
        finally:
            self.counts[write.verb, write.resource, code] += 1
        return answer


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _count_of(stored: bytes) -> int:
    try:
        return _EventCount.model_validate_json(stored).count
    except ValidationError:
        return 1
