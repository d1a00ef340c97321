"""Removes what was made for pods that are gone for certain, and says which are gone from the API alone.

Enters: the pod watch, kubelet's PodResources, the processes of pods. Leaves: fewer files, a shorter log, and the
lingering pods. A pod is gone when the watch, once complete, does not show its uid, after that kubelet shows no pod
of that name with its slots, and no process of it is there. Nothing is looked at while no pod goes away.
"""

import functools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from vgpu.agent.clock import wait_for_event
from vgpu.agent.identity.allocation_log import AllocationLog, Grant
from vgpu.agent.identity.files import ContainerFiles
from vgpu.agent.identity.lingering import LingeringBoard
from vgpu.agent.identity.pod_resources import PodResourcesAway, ShownPod
from vgpu.agent.identity.prestart import World

LOG = logging.getLogger(__name__)
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
LINGERING_PAUSE_SECONDS = 5.0
"""No longer while a pod lingers: nobody tells when its processes end, and others wait for its cards."""


class Collector:
    """Runs beside the answers of one node."""

    def __init__(self, world: World, log: AllocationLog, files: ContainerFiles, lingering: LingeringBoard) -> None:
        self._pods = world.pods
        self._kubelet = world.kubelet
        self._processes = world.processes
        self._clock = world.clock
        self._log = log
        self._files = files
        self._kept: Mapping[str, str] = {}
        self._lingering = lingering

    async def run(self) -> None:
        """Collect until cancelled."""
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            change = self._pods.change
            if await self.collect():
                pause_seconds = FIRST_PAUSE_SECONDS
                await change.wait()
            else:
                await wait_for_event(change, self._clock, pause_seconds)
                longest = LINGERING_PAUSE_SECONDS if self._lingering.pods else LONGEST_PAUSE_SECONDS
                pause_seconds = min(pause_seconds * 2, longest)

    async def collect(self) -> bool:
        """Collect once; says whether nothing is left to collect."""
        if not self._pods.is_synced:
            return True  # the first complete list is a change
        candidates = [grant for uid, grant in self._log.grants.items() if uid not in self._pods.uids]
        strays = [uid for uid in self._files.pods_with_files() if not self._known(uid)]
        self._alive(candidates, strays)  # before kubelet is asked: that it is away may be why a pod lingers
        if not candidates and not strays:
            return True
        try:
            shown = await self._kubelet.shown()
        except PodResourcesAway as error:
            LOG.warning("files of gone pods are kept problem=%s", error)
            return False
        alive = self._alive(candidates, strays)
        gone = [grant for grant in candidates if grant.uid not in alive and not self._may_live(grant, shown)]
        removals = {grant.uid: functools.partial(self._files.remove, grant) for grant in gone}
        for uid in strays:
            if uid not in alive and not self._known(uid):
                removals[uid] = functools.partial(self._files.remove_unknown, uid)
        kept = self._remove(removals)
        return self._forget([grant for grant in gone if grant.uid not in kept]) and not (
            kept or alive.intersection(strays) or len(candidates) > len(gone)
        )

    def _remove(self, removals: Mapping[str, Callable[[], None]]) -> Mapping[str, str]:
        """Those that could not be removed, and why: told once, and no hindrance to the others."""
        kept = {}
        for uid, remove in removals.items():
            try:
                remove()
            except OSError as error:
                kept[uid] = str(error)
        for uid, problem in kept.items():
            if self._kept.get(uid) != problem:
                LOG.warning("files of a gone pod cannot be removed uid=%s problem=%s", uid, problem)
        self._kept = kept
        return kept

    def _forget(self, gone: Sequence[Grant]) -> bool:
        try:
            self._log.forget(grant.uid for grant in gone)
        except OSError as error:
            LOG.warning("the allocation log cannot be shortened problem=%s", error)
            return False
        for grant in gone:
            LOG.info("pod gone pod=%s/%s uid=%s", grant.namespace, grant.name, grant.uid)
        return True

    def _alive(self, candidates: Collection[Grant], strays: Collection[str]) -> frozenset[str]:
        """Uids of those that have a process. Candidates with one linger, unless the watch shows them by now."""
        alive = self._processes.alive({*strays, *(grant.uid for grant in candidates)})
        shown = self._pods.uids
        self._lingering.put(grant for grant in candidates if grant.uid in alive and grant.uid not in shown)
        return alive

    def _known(self, uid: str) -> bool:
        return uid in self._log.grants or uid in self._pods.uids

    def _may_live(self, grant: Grant, shown: list[ShownPod]) -> bool:
        """Does the watch show it after all, or kubelet a pod of its name that has its slots?"""
        if grant.uid in self._pods.uids:
            return True
        ids = {slot for entry in self._log.entries if entry.nonce in grant.nonces for slot in entry.ids}
        return any(pod.namespace == grant.namespace and pod.name == grant.name and pod.ids & ids for pod in shown)
