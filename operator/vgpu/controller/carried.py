"""The annotations that carry an assignment: ours, and what the node's own device plugin reads when it is not ours.

Enters: a pod, its booking, the plugin of the node. Leaves: annotations, or the text of a refusal. No I/O.
"""

from vgpu import names
from vgpu.api.assignment import assignment_of
from vgpu.compat import compat_annotations
from vgpu.core.facts import AssignmentFact, AssignmentSource, Plugin, PodFact
from vgpu.core.ledger import Booking
from vgpu.core.presets import ContainerAmounts, PresetSettings
from vgpu.core.reasons import Refusal
from vgpu.errors import MalformedObject


def carried_annotations(
    pod: PodFact, booking: Booking, plugin: Plugin, presets: PresetSettings, unix_seconds: int
) -> dict[str, str] | str:
    """Annotations by key, or why this assignment cannot be written."""
    containers = booking.placement.containers
    try:
        text = assignment_of(
            pod_uid=pod.uid, node=booking.node, nonce=booking.nonce, containers=containers
        ).encode()
    except MalformedObject as error:
        return str(error)
    foreign = compat_annotations(
        AssignmentFact(AssignmentSource.VGPU, booking.node, booking.nonce, containers),
        plugin,
        [ContainerAmounts(name, kind, {}) for name, kind in pod.containers],
        unix_seconds=unix_seconds,
        settings=presets,
    )
    if isinstance(foreign, Refusal):
        return foreign.message
    return {**foreign, names.ASSIGNMENT_ANNOTATION: text}
