"""Which pods of this node linger: gone from the API, let start here, and with a process that is there still.

Grants enter as the collector finds them; whoever follows the board is told of each change. What a lingering pod
takes is what it was granted. May not live here: how processes are found, and who may start beside such a pod.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from vgpu.agent.identity.allocation_log import Grant
from vgpu.agent.identity.neighbours import granted_charges
from vgpu.api.lingering import MAX_LINGERING, MAX_SLOTS, Lingering, LingeringCard, LingeringPod
from vgpu.api.model import MAX_MEMORY_MIB
from vgpu.core.charge import Charge
from vgpu.units import CORES_PER_CARD

LOG = logging.getLogger(__name__)


class LingeringBoard:
    """The lingering pods as last seen; None until somebody has looked."""

    def __init__(self) -> None:
        self._pods: Lingering | None = None
        self._told: Callable[[Lingering], None] = lambda pods: None

    @property
    def pods(self) -> Lingering | None:
        """In the order of their uids."""
        return self._pods

    def follow(self, told: Callable[[Lingering], None]) -> None:
        """Tell this one of the pods, now if they are known, and of each change."""
        self._told = told
        if self._pods is not None:
            told(self._pods)

    def put(self, grants: Iterable[Grant]) -> None:
        """The pods of these grants linger from now on, and no others."""
        pods = lingering_pods(grants)
        before = self._pods
        if pods != before:
            self._pods = pods
            _log_change(before or (), pods)
            self._told(pods)


def lingering_pods(grants: Iterable[Grant]) -> Lingering:
    """As others are told of them: by uid, and no more than an inventory may name. Who may start is not decided
    by that list: there each grant counts."""
    found = {grant.uid: (grant, granted_charges(grant)) for grant in grants}
    pods = (_lingering_pod(*found[uid]) for uid in sorted(found) if found[uid][1])
    return tuple(pods)[:MAX_LINGERING]


def _lingering_pod(grant: Grant, charges: Mapping[str, Charge]) -> LingeringPod:
    cards = tuple(
        LingeringCard(
            uuid=uuid,
            slots=min(charges[uuid].slots, MAX_SLOTS),
            memory_mib=min(charges[uuid].memory_mib, MAX_MEMORY_MIB),
            cores=min(charges[uuid].cores, CORES_PER_CARD),
            whole=charges[uuid].exclusive,
        )
        for uuid in sorted(charges)
    )
    return LingeringPod(namespace=grant.namespace, name=grant.name, uid=grant.uid, cards=cards)


def _log_change(before: Lingering, now: Lingering) -> None:
    known, left = {pod.uid for pod in before}, {pod.uid for pod in now}
    for pod in now:
        if pod.uid not in known:
            cards = ",".join(card.uuid for card in pod.cards)
            LOG.warning("pod lingers pod=%s uid=%s gpus=%s", pod.path, pod.uid, cards)
    for pod in before:
        if pod.uid not in left:
            LOG.info("pod lingers no more pod=%s uid=%s", pod.path, pod.uid)
    if len(now) == MAX_LINGERING and len(before) < MAX_LINGERING:
        LOG.warning("pods linger, and no more of them can be told than %d", MAX_LINGERING)
