"""The agent with its identity step switched off: `python -m tests.cluster.node.guessing_agent`, and its server.

At PreStartContainer it takes any pod that waits for as many cards as there are slots, instead of asking kubelet
which pod holds them. All else is the agent's own: what tells right from wrong must find it out.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import ClassVar

from vgpu.agent import server
from vgpu.agent.identity import service
from vgpu.agent.identity.matching import Entry, Ids
from vgpu.agent.identity.pod_resources import ShownPod
from vgpu.agent.identity.pod_watch import PodSeen
from vgpu.agent.identity.prestart import NodeIdentity, NotYet
from vgpu.agent.supervise.__main__ import READER
from vgpu.agent.supervise.policy import Limits
from vgpu.agent.supervise.process import ChildSpec
from vgpu.agent.supervise.supervisor import Supervisor

SERVE = "serve"
SERVER = ChildSpec("server", (sys.executable, "-m", "tests.cluster.node.guessing_agent", SERVE), {})


class GuessingIdentity(NodeIdentity):
    """Knows pods by nothing but how many cards they want."""

    _guessed: ClassVar[dict[str, str]] = {}

    def _owner(
        self, ids: Ids, shown: Sequence[ShownPod], seen: Mapping[tuple[str, str], PodSeen]
    ) -> tuple[PodSeen, Mapping[str, str]]:
        entry = next((one for one in reversed(self._log.entries) if one.ids & ids), None)
        waiting = [
            pod
            for pod in self._world.pods.pods.values()
            if pod.uid not in self._taken(entry) and [c.slots.number for c in pod.containers] == [len(ids)]
        ]
        if entry is None or not waiting:
            raise NotYet("no pod waits for so many cards")
        chosen = min(waiting, key=lambda pod: pod.uid)
        self._guessed[entry.nonce] = chosen.uid
        return chosen, {entry.nonce: chosen.containers[0].slots.name}

    def _taken(self, entry: Entry | None) -> set[str]:
        """Pods that other answers were taken to be for."""
        others = {uid for nonce, uid in self._guessed.items() if entry is None or nonce != entry.nonce}
        return others | self._log.grants.keys()


def main() -> int:
    """Exit status."""
    if sys.argv[1:] == [SERVE]:
        service.NodeIdentity = GuessingIdentity  # type: ignore[misc]  # what this module is for
        return server.main()
    return Supervisor((SERVER, READER), Limits()).run()


if __name__ == "__main__":
    sys.exit(main())
