"""Lets kube-scheduler try the members of a gang: nominations, and the gate taken off.

Enters: pods of gangs that start. Leaves: writes, each once for a pod and occasion. May not live here: who starts.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from vgpu import names
from vgpu.controller.clock import wake_count
from vgpu.controller.pacing import Pace
from vgpu.controller.when_open import when_open
from vgpu.core.facts import PodFact
from vgpu.errors import ApiRefused, ApiUnavailable, NotLeading, OutcomeUnknown
from vgpu.kube.objects import Key

LOG = logging.getLogger(__name__)
SENDS_PER_SECOND = 200


class GangWriter(Protocol):
    """What is written for gangs; the operator's writer. Raise ApiRefused, ApiUnavailable, OutcomeUnknown,
    NotLeading."""

    async def nominate(self, pod: Key, node: str | None, wake: int) -> None:
        """Wake the pod and, if `node` is given, send it there first."""

    async def remove_gate(self, pod: Key, gate: str) -> None:
        """Take one scheduling gate off."""


class GangSender:
    """See the module. `exists`: whether the pod of this uid is still there."""

    def __init__(self, writer: GangWriter, exists: Callable[[str], bool]) -> None:
        self._writer = writer
        self._exists = exists
        self._pace = Pace(SENDS_PER_SECOND)
        self._lifted: set[str] = set()
        self._woken: set[str] = set()

    async def send(self, seats: Sequence[tuple[PodFact, str]]) -> bool:
        """Send everybody to the node where cards are held for him. False: a gate is still to be lifted."""
        for pod, node in seats:
            await self._nominate(pod, node)
        return await self.lift_gates(pod for pod, _ in seats)

    async def let_in(self, pods: Iterable[PodFact]) -> bool:
        """Members are pods like any other now: each is woken once. False: a gate is still to be lifted."""
        pods = list(pods)
        done = await self.lift_gates(pods)
        for pod in pods:
            if pod.unschedulable and pod.uid not in self._woken:
                self._woken.add(pod.uid)
                await self._nominate(pod, None)
        return done

    async def lift_gates(self, pods: Iterable[PodFact]) -> bool:
        """Take the gang's gate off; others stay. False when that should be tried again in a moment."""
        done = True
        for pod in [pod for pod in pods if pod.gated and pod.uid not in self._lifted]:
            name = f"{pod.namespace}/{pod.name}"
            await self._pace.turn()
            try:
                await self._writer.remove_gate(_key(pod), names.GANG_GATE)
            except ApiRefused as error:
                LOG.warning("the gate %s of pod %s stays: %s", names.GANG_GATE, name, error)
            except (ApiUnavailable, OutcomeUnknown, NotLeading) as error:
                LOG.info("the gate of pod %s stays for now: %s", name, error)
                done = False
            else:
                self._lifted.add(pod.uid)
        return done

    def put_back(self, uids: Iterable[str]) -> None:
        """These wait for what they belong to: they are woken again when it is there."""
        self._woken.difference_update(uids)

    def forget_gone(self) -> None:
        """Forget pods that are not there any more."""
        self._lifted = {uid for uid in self._lifted if self._exists(uid)}
        self._woken = {uid for uid in self._woken if self._exists(uid)}

    async def _nominate(self, pod: PodFact, node: str | None) -> None:
        await self._pace.turn()
        try:
            await when_open(lambda: self._writer.nominate(_key(pod), node, wake_count()))
        except (ApiRefused, ApiUnavailable, OutcomeUnknown, NotLeading) as error:
            # The hold ends by its time-out, and that wakes whoever still waits.
            LOG.info("nomination failed pod=%s/%s: %s", pod.namespace, pod.name, error)


def _key(pod: PodFact) -> Key:
    return Key(pod.namespace, pod.name, pod.uid)
