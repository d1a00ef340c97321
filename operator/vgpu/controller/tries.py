"""What each waiting pod was sent to, and whether it may be sent again.

Enters: nominations as they are sent. Leaves: whether another is allowed. A pod's answer is whether its cards fit
anywhere: it is sent a few times, and anew once its answer has changed. A pod to which something is owed rests
after tries that failed, until its backoff is over or room comes. May not live here: who is sent where.
"""

from dataclasses import dataclass, field

from vgpu.controller.guard import one_object
from vgpu.controller.offers import Offers
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.reasons import Reason
from vgpu.core.request import PodRequest


@dataclass(slots=True)
class _Sent:
    """What one pod has been sent to since its answer last changed."""

    count: int = 0
    nodes: set[str] = field(default_factory=set)


class Tries:
    """See the module. `per_answer`: so often a pod is sent after one answer, or before it rests."""

    def __init__(self, ledger: Ledger, index: FitIndex, offers: Offers, per_answer: int) -> None:
        self._ledger = ledger
        self._index = index
        self._offers = offers
        self._per_answer = per_answer
        self._sent: dict[str, _Sent] = {}

    def allowed(self, uid: str, *, owed: bool) -> bool:
        """Whether this pod may be sent now; not while something is held for it already."""
        if self._ledger.nomination(uid) is not None:
            return False
        if owed:
            return not self._offers.rests(uid)
        sent = self._sent.get(uid)
        return sent is None or sent.count < self._per_answer

    def nodes(self, uid: str) -> set[str]:
        """Where it was sent to."""
        sent = self._sent.get(uid)
        return set() if sent is None else sent.nodes

    def note(self, uid: str, node: str) -> bool:
        """It is sent there. True when that was its last try for now."""
        sent = self._sent.setdefault(uid, _Sent())
        sent.count += 1
        sent.nodes.add(node)
        return sent.count >= self._per_answer

    def forget(self, uid: str) -> None:
        """Its next try is the first."""
        self._sent.pop(uid, None)

    def forgive(self) -> None:
        """Forget the tries of pods whose cards fit nowhere now: the next fit is a new answer."""
        fits: dict[PodRequest, bool] = {}
        for uid in list(self._sent):
            pod = self._ledger.pod(uid)
            if pod is None or pod.request is None:
                del self._sent[uid]
                continue
            if pod.request not in fits:
                fits[pod.request] = True
                with one_object("nominations", f"{pod.namespace}/{pod.name}"):
                    fits[pod.request] = self._fits(pod.request)
            if not fits[pod.request]:
                del self._sent[uid]

    def _fits(self, request: PodRequest) -> bool:
        """Whether the request fits somewhere, or would but for what our own nominations hold."""
        verdicts = self._index.verdicts(request, "")
        return bool(verdicts.fitting) or Reason.HELD_FOR_ANOTHER in verdicts.counts()
