"""What a plan waits for now, in words: pods that are there still, a gang's members, or the pod itself.

Enters: a Situation, names of pods. Leaves: one short text. Only what is there now is named. May not live here:
what the plan does about it.
"""

from collections.abc import Callable, Collection

from vgpu.core.preempt.plan import OwnerState
from vgpu.core.preempt.situation import Situation
from vgpu.core.preempt.words import names_words
from vgpu.core.wanted import plural_s


def waits_for(state: Situation, name_of: Callable[[str], str], moment_of: Callable[[int], str]) -> str:
    """In the order in which it happens: pods to be asked, pods that leave, a gang's members, its pods to be bound.

    `name_of`: NS/NAME of a pod by its uid, or its uid; `moment_of`: a moment of the situation's clock in words.
    """
    known = state.world.victims
    failing = [one for one in state.needed or () if known[one.uid].fails_since is not None]
    parts = [
        _pods([one.pod for one in state.needed or () if one not in failing], "to be asked to go"),
        _pods(
            [one.pod for one in failing],
            f"whose eviction fails ({known[failing[0].uid].failure})" if failing else "",
        ),
        _pods([name_of(one.uid) for one in state.leaving], "to end"),
        _pods(others_leaving(state), "to end, though not for it"),
    ]
    if state.empty.lacks:
        parts.append(_members(state, moment_of))
    said = ", ".join(part for part in parts if part)
    return said or _owner(state, name_of)


def others_leaving(state: Situation) -> list[str]:
    """NS/NAME of pods that leave the plan's cards and are no victims of it."""
    return sorted({*state.others_leaving.values()})


def held_message(where: str, leaving: Collection[str], plan: str) -> str:
    """For the owner of a plan that evicts nobody: which cards are held for it, and who leaves them."""
    who = f"until {names_words(list(leaving))} have ended, who leave already" if leaving else "until they are free"
    return f"{where or 'cards'} held for it {who}; nobody is evicted for it; plan {plan}"


def seat_message(where: str, gang: str, plan: str) -> str:
    """For a pod that takes the seat of a member of its gang that is gone."""
    return (
        f"it takes the place of a member of gang {gang} that is gone: {where or 'cards'} held for it; plan {plan}"
    )


def _pods(names: Collection[str], what: str) -> str:
    return f"{names_words(list(names))} {what}" if names else ""


def _members(state: Situation, moment_of: Callable[[int], str]) -> str:
    lacks, clocks = state.empty.lacks, state.clocks
    since = min((one for one in (clocks.empty_seconds, clocks.drained_seconds) if one is not None), default=None)
    until = "" if since is None else f", until {moment_of(since + state.world.limits.hold_timeout_seconds)}"
    return f"{lacks} more member{plural_s(lacks)} of the gang{until}"


def _owner(state: Situation, name_of: Callable[[str], str]) -> str:
    waiting = state.owners(OwnerState.WAITING, OwnerState.BOOKED)
    if not waiting:
        return ""
    named = names_words([name_of(pod.uid) for pod in waiting])
    if any(pod.groupless for pod in waiting):
        return f"the PodGroup of {named} to be there"
    if any(pod.barred for pod in waiting):
        return f"its queue to let {named} start"
    return f"{named} to be bound"
