"""A pod that was bound without a readable assignment: may it get cards where it is (architecture.md 5, case c)?

Enters: its fact, its node's view. Leaves: a Placement, a Refusal (left as it is, with that reason told), or None
when the case is not this one. Never evicts, never touches a pod that may already run. Knows no API.
"""

from vgpu.core.facts import Identity, PodFact
from vgpu.core.placement import Placement, Policies, place
from vgpu.core.reasons import Refusal
from vgpu.core.views import NodeView


def is_late_case(pod: PodFact, view: NodeView) -> bool:
    """True when no container ever ran and the node is exact, so that PreStart holds the pod's containers."""
    if not pod.node or pod.node != view.name or pod.assignment is not None or not pod.wants_gpus:
        return False
    if pod.ended or pod.terminating or pod.ever_ran or pod.daemonset_or_mirror:
        return False
    return view.inventory is not None and view.inventory.identity is Identity.EXACT


def place_late(view: NodeView, pod: PodFact, policies: Policies) -> Placement | Refusal | None:
    """Cards for the pod on the node it is already bound to, if they fit now."""
    if not is_late_case(pod, view):
        return None
    if pod.request is None:
        return pod.refusal
    return place(view, pod.request, pod.uid, policies)
