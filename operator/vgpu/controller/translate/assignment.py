"""The assignment that a bound pod carries -> AssignmentFact, or why it is ignored.

Ours comes first; one that is not the pod's own is ignored and reported (architecture.md 3). Then what other
systems wrote is read, so that their pods are counted also where our annotation is broken.
"""

from collections.abc import Mapping, Sequence

from vgpu import names
from vgpu.api.assignment import AssignedCardModel, AssignmentModel, parse_assignment
from vgpu.compat import read_legacy
from vgpu.controller.translate.partial import Metadata
from vgpu.core.facts import AssignedCard, AssignedContainer, AssignmentFact, AssignmentSource
from vgpu.core.presets import ContainerAmounts, PresetSettings
from vgpu.core.reasons import Refusal
from vgpu.core.request import ContainerKind
from vgpu.errors import MalformedObject


def read_assignment(
    metadata: Metadata, node: str, containers: Sequence[ContainerAmounts], presets: PresetSettings
) -> tuple[AssignmentFact | None, str]:
    """(assignment or None, problem or "") of a pod; `node` "" when it is not bound."""
    annotations = metadata.annotations
    if not annotations:
        return None, ""
    own, problem = _read_own(annotations, metadata.uid, node, containers)
    if own is not None or not node:
        return own, problem
    legacy = read_legacy(annotations, node, containers, presets)
    if isinstance(legacy, Refusal):
        return None, problem or legacy.message
    return legacy, problem


def _read_own(
    annotations: Mapping[str, str], uid: str, node: str, containers: Sequence[ContainerAmounts]
) -> tuple[AssignmentFact | None, str]:
    text = annotations.get(names.ASSIGNMENT_ANNOTATION)
    if text is None:
        return None, ""
    try:
        model = parse_assignment(text)
    except MalformedObject as error:
        return None, f"{names.ASSIGNMENT_ANNOTATION}: {error}"
    kinds = {c.name: c.kind for c in containers}
    problem = _foreign(model, uid, node, kinds)
    if problem:
        return None, f"{names.ASSIGNMENT_ANNOTATION}: {problem}"
    assigned = {c.name: tuple(_card(card) for card in c.cards) for c in model.containers}
    in_spec_order = tuple(
        AssignedContainer(c.name, c.kind, assigned[c.name]) for c in containers if assigned.get(c.name)
    )
    return AssignmentFact(AssignmentSource.VGPU, node, model.nonce, in_spec_order), ""


def _foreign(model: AssignmentModel, uid: str, node: str, kinds: Mapping[str, ContainerKind]) -> str:
    if model.pod_uid != uid:
        return f"made for the pod with uid {model.pod_uid[:64]}, this pod has uid {uid}"
    if model.node != node:
        return f"made for node {model.node[:253]}, the pod is " + (f"on {node}" if node else "not bound")
    unknown = [c.name[:63] for c in model.containers if c.name not in kinds]
    if unknown:
        return f"names containers that the pod does not have: {', '.join(unknown[:3])}"
    return ""


def _card(card: AssignedCardModel) -> AssignedCard:
    return AssignedCard(card.uuid, card.memory_mib, card.cores, card.whole)
