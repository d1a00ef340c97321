"""What the end of a plan taught about its owner: whom and where not to try again, and when to try again at all.

Enters: Ends, moments (whole seconds of the wall clock). Leaves: an Avoid for the next decision, and until when the
owner rests. In memory only: its loss costs one more try. May not live here: why plans end.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from vgpu.controller.preempt.vain_nodes import VainNodes
from vgpu.core.preempt.decision_world import NOTHING_LEARNT, Avoid
from vgpu.core.preempt.plan import End, PlanEnd

KEPT_SECONDS = 300
"""So long victims and nodes are left alone; after it the world is another."""
FIRST_REST_SECONDS = 10
LONGEST_REST_SECONDS = 300
FREE_TRIES = 2
"""Plans that may fail one after another before the owner rests."""
INNOCENT = frozenset(
    {
        PlanEnd.OWNER_BOUND,
        PlanEnd.TAKEN_OVER,
        PlanEnd.ROOM_ELSEWHERE,
        PlanEnd.OWNER_GONE,
        PlanEnd.OWNER_CHANGED,
    }
)
"""Ends that say nothing against another plan for the same owner."""
RULES_SAY_IT = frozenset({PlanEnd.VICTIM_CHANGED})
"""The next decision finds out by itself who may not go, and notices when he may again."""
IN_VAIN = frozenset({PlanEnd.HOLD_EXPIRED, PlanEnd.BIND_FAILED})
"""Ends at which all was free and the owner did not come."""


@dataclass(slots=True)
class _Lesson:
    avoid: Avoid = NOTHING_LEARNT
    unwilling: frozenset[str] = frozenset()
    """Victims whose eviction keeps failing: to find that out anew takes long, whatever the rules say."""
    until_seconds: int = 0
    failures: int = 0
    rests_until_seconds: int = 0

    def fail(self, free: int, now_seconds: int) -> None:
        """One more plan came to nothing; the first `free` ones cost no rest."""
        self.failures += 1
        over = self.failures - free
        if over > 0:
            rest = min(FIRST_REST_SECONDS << min(over - 1, 10), LONGEST_REST_SECONDS)
            self.rests_until_seconds = now_seconds + rest


class Lessons:
    """By uid of the pod that waits; `owner_of` gives whose pod it is, or its own uid."""

    def __init__(self, owner_of: Callable[[str], str] = lambda uid: uid) -> None:
        self._lessons: dict[str, _Lesson] = {}
        self._owner_of = owner_of
        self._vain = VainNodes()

    def note(self, uids: Iterable[str], end: End, now_seconds: int) -> None:
        """A plan for these pods has ended so."""
        if end.reason in INNOCENT:
            return
        uids = list(uids)
        if end.reason in IN_VAIN:
            self._vain.note(map(self._owner_of, uids), end.avoid_nodes, now_seconds)
            end = replace(end, avoid_nodes=frozenset())
        for uid in uids:
            lesson = self._lessons.setdefault(uid, _Lesson())
            known = self._known(lesson, now_seconds)
            unwilling = end.avoid_victims if end.reason is PlanEnd.EVICTION_FAILED else frozenset()
            lesson.unwilling = (lesson.unwilling & known.victims) | unwilling
            lesson.avoid = _more(known, end)
            lesson.until_seconds = now_seconds + KEPT_SECONDS
            lesson.fail(FREE_TRIES if end.replan else 0, now_seconds)

    def failed(self, uids: Iterable[str], now_seconds: int) -> None:
        """The object of a plan for these pods could not be created."""
        for uid in uids:
            self._lessons.setdefault(uid, _Lesson()).fail(0, now_seconds)

    def avoid(self, uids: Iterable[str], now_seconds: int, exists: Callable[[str], bool]) -> Avoid:
        """What to leave alone for these pods now; a victim that is gone is nobody's obstacle any more."""
        uids = list(uids)
        known = [self._known(self._lessons[uid], now_seconds) for uid in uids if uid in self._lessons]
        known += [Avoid(nodes=self._vain.of(owner, now_seconds)) for owner in set(map(self._owner_of, uids))]
        if not any(one != NOTHING_LEARNT for one in known):
            return NOTHING_LEARNT
        return Avoid(
            frozenset(uid for one in known for uid in one.victims if exists(uid)),
            frozenset(node for one in known for node in one.nodes),
            frozenset(uid for one in known for uid in one.stuck if exists(uid)),
        )

    def rests_until(self, uids: Iterable[str], now_seconds: int) -> int | None:
        """Until when no plan is made for these pods, or None."""
        moments = [self._lessons[uid].rests_until_seconds for uid in uids if uid in self._lessons]
        latest = max(moments, default=0)
        return latest if latest > now_seconds else None

    def wakes_at(self, uids: Iterable[str], now_seconds: int) -> int | None:
        """When what is known of these pods lapses, or None."""
        uids = list(uids)
        moments = [self._lessons[uid].until_seconds for uid in uids if uid in self._lessons]
        moments += [moment for owner in set(map(self._owner_of, uids)) for moment in self._vain.moments(owner)]
        return min((moment for moment in moments if moment > now_seconds), default=None)

    def forgive_victims(self) -> None:
        """Budgets, queues or groups are others than before: who could not go then may go now."""
        for lesson in self._lessons.values():
            lesson.avoid = replace(lesson.avoid, victims=lesson.unwilling)

    def forget(self, uid: str) -> None:
        """The pod is bound or gone."""
        self._lessons.pop(uid, None)

    def known_uids(self) -> list[str]:
        """Pods of which something is remembered."""
        return list(self._lessons)

    @staticmethod
    def _known(lesson: _Lesson, now_seconds: int) -> Avoid:
        return lesson.avoid if now_seconds < lesson.until_seconds else NOTHING_LEARNT


def _more(known: Avoid, end: End) -> Avoid:
    victims = frozenset() if end.reason in RULES_SAY_IT else end.avoid_victims
    return Avoid(known.victims | victims, known.nodes | end.avoid_nodes, known.stuck | end.stuck)
