"""A plan's object is created once, whatever becomes of the answer.

Enters: the plan as it is to be written. Leaves: the plan as it stands on the API server, ours or the one that was
there before under the same name. May not live here: what to decide, repeats.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from vgpu.controller.preempt.bodies import PreemptionWrite
from vgpu.controller.translate.preemption import decode_preemption
from vgpu.core.preempt.facts import PlanFact
from vgpu.errors import ApiRefused, OutcomeUnknown
from vgpu.kube.objects import Decoded

CONFLICT = 409
NOT_FOUND = 404

ReadPreemption = Callable[[str, str], Awaitable[bytes]]
"""(namespace, name) -> the stored object. Raises ApiRefused (404: there is none) and ApiUnavailable."""


class CreatesPreemptions(Protocol):
    """The one method of the writer that is used here."""

    async def create_preemption(self, write: PreemptionWrite) -> bytes:
        """Create it; gives what is stored."""


async def create_or_take(
    writer: CreatesPreemptions, read: ReadPreemption, write: PreemptionWrite
) -> Decoded[PlanFact]:
    """Create this plan, or take the one of its name: a try whose answer was lost, or another leader's.

    What is taken may hold other cards for other members of a gang: it counts, not what was asked for. Raises
    OutcomeUnknown while nobody can tell (ask again with the same write), and what the writer raises besides.
    """
    try:
        return decode_preemption(await writer.create_preemption(write))
    except ApiRefused as refusal:
        if refusal.status != CONFLICT:
            raise
        return decode_preemption(await read(write.namespace, write.name))
    except OutcomeUnknown as unknown:
        return await _found(read, write, unknown)


async def _found(read: ReadPreemption, write: PreemptionWrite, unknown: OutcomeUnknown) -> Decoded[PlanFact]:
    try:
        return decode_preemption(await read(write.namespace, write.name))
    except ApiRefused as refusal:
        if refusal.status != NOT_FOUND:
            raise
        raise unknown from refusal
