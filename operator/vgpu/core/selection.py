"""Reads the annotations that choose cards and policies, of both presets, into values without preset names.

Enters: a pod's annotations and the preset whose slot resource it names. Leaves: SelectionRead, or a Refusal that
names the annotation: what is not supported refuses the pod and is never passed over (architecture.md 3). Which
card meets a selection is core/fit.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from vgpu import names
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import CardPolicy, NodePolicy, Selection
from vgpu.errors import MalformedObject

_Policy = TypeVar("_Policy", bound=StrEnum)

_NODE_POLICIES: Final = {
    "binpack": NodePolicy.BINPACK,
    "spread": NodePolicy.SPREAD,
    "topology-aware": NodePolicy.TOPOLOGY,
}
_CARD_POLICIES: Final = {
    "binpack": CardPolicy.BINPACK,
    "spread": CardPolicy.SPREAD,
    "topology-aware": CardPolicy.TOPOLOGY,
    "mutex": CardPolicy.MUTEX,
    "numa": CardPolicy.NUMA,
}
_OWN_POLICIES: Final = {policy.value: policy for policy in NodePolicy}
_MODES: Final = {"hami-core": "shared"}
_TRUTH: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "True", "TRUE"), True),
    **dict.fromkeys(("0", "f", "F", "false", "False", "FALSE"), False),
}
"""What HAMi's own reader takes for numa-bind."""

_REFUSED: Final = {
    names.HAMI_SCORING_WEIGHTS: "cards are scored with fixed weights; remove the annotation",
    names.VOLCANO_PODGROUP_POLICY: "cards are not chosen by pod group; remove the annotation",
}
_LONGEST_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class SelectionRead:
    """What the annotations say. `node_policy` None and `card_policies` () = the operator's setting."""

    selection: Selection
    node_policy: NodePolicy | None = None
    card_policies: tuple[CardPolicy, ...] = ()


_READ = frozenset(
    {
        names.USE_TYPE, names.NOUSE_TYPE, names.HAMI_USE_UUID, names.HAMI_NOUSE_UUID, names.VOLCANO_USE_UUID,
        names.VOLCANO_NOUSE_UUID, names.HAMI_MODE, names.VOLCANO_MODE, names.NUMA_BIND, names.HAMI_NODE_POLICY,
        names.HAMI_CARD_POLICY, names.POLICY_SCORE, *_REFUSED,
    }
)  # fmt: skip
_NOTHING_CHOSEN = SelectionRead(Selection())


def read_selection(annotations: Mapping[str, str], *, use_type_hides_nouse: bool) -> SelectionRead | Refusal:
    """Every annotation of facts-protocol.md 3 that chooses cards, whichever preset it belongs to.

    `use_type_hides_nouse`: Volcano's rule that nouse-gputype counts only where use-gputype is not given (HAMi
    applies both). A blank value is the same as no annotation. policy.vgpu.dev/score wins over HAMi's node policy.
    """
    if annotations.keys().isdisjoint(_READ):
        return _NOTHING_CHOSEN
    given = {key: value.strip() for key, value in annotations.items() if value.strip()}
    try:
        return _read(given, use_type_hides_nouse=use_type_hides_nouse)
    except MalformedObject as error:
        return Refusal(Reason.UNSUPPORTED_SELECTION, str(error))


def _read(given: Mapping[str, str], *, use_type_hides_nouse: bool) -> SelectionRead:
    for annotation, wanted in _REFUSED.items():
        if annotation in given:
            raise _unsupported(annotation, given[annotation], wanted)
    use_types = _types(given, names.USE_TYPE)
    nouse_types = () if use_types and use_type_hides_nouse else _types(given, names.NOUSE_TYPE)
    selection = Selection(
        use_types=use_types,
        nouse_types=nouse_types,
        use_uuids=_use_uuids(given),
        nouse_uuids=_items(given, names.HAMI_NOUSE_UUID) | _items(given, names.VOLCANO_NOUSE_UUID),
        mode=_mode(given),
        numa_bind=_truth(given, names.NUMA_BIND),
    )
    hami_policy = _choices(given, names.HAMI_NODE_POLICY, _NODE_POLICIES)
    own_policy = _choices(given, names.POLICY_SCORE, _OWN_POLICIES)
    for annotation, chosen in ((names.HAMI_NODE_POLICY, hami_policy), (names.POLICY_SCORE, own_policy)):
        if len(chosen) > 1:
            raise _unsupported(annotation, given[annotation], "give one policy")
    node_policy = next(iter((*own_policy, *hami_policy)), None)
    return SelectionRead(selection, node_policy, _choices(given, names.HAMI_CARD_POLICY, _CARD_POLICIES))


def _unsupported(annotation: str, value: str, wanted: str) -> MalformedObject:
    shown = value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "..."
    return MalformedObject(f"annotation {annotation}: {shown!r} is not supported: {wanted}")


def _items(given: Mapping[str, str], annotation: str) -> frozenset[str]:
    return frozenset(item.strip() for item in given.get(annotation, "").split(",") if item.strip())


def _types(given: Mapping[str, str], annotation: str) -> tuple[str, ...]:
    """Lower case and sorted, so that two ways to write one selection compare equal."""
    return tuple(sorted({item.lower() for item in _items(given, annotation)}))


def _use_uuids(given: Mapping[str, str]) -> frozenset[str]:
    """A card must be named by every list that is given. Disjoint lists are refused: no card could meet both."""
    hami, volcano = _items(given, names.HAMI_USE_UUID), _items(given, names.VOLCANO_USE_UUID)
    if not hami or not volcano:
        return hami | volcano
    if not hami & volcano:
        wanted = f"it names no card that {names.HAMI_USE_UUID} names too; give one of the two"
        raise _unsupported(names.VOLCANO_USE_UUID, given[names.VOLCANO_USE_UUID], wanted)
    return hami & volcano


def _mode(given: Mapping[str, str]) -> str:
    modes = set()
    for annotation in (names.HAMI_MODE, names.VOLCANO_MODE):
        if annotation in given:
            value = given[annotation]
            if value not in _MODES:
                raise _unsupported(annotation, value, "cards are only shared here; write hami-core or remove it")
            modes.add(_MODES[value])
    return next(iter(modes), "")


def _truth(given: Mapping[str, str], annotation: str) -> bool:
    value = given.get(annotation, "false")
    if value not in _TRUTH:
        raise _unsupported(annotation, value, "write true or false")
    return _TRUTH[value]


def _choices(given: Mapping[str, str], annotation: str, known: Mapping[str, _Policy]) -> tuple[_Policy, ...]:
    """A comma chain of policies in the order given, each once."""
    chosen: dict[_Policy, None] = {}
    for item in given.get(annotation, "").split(","):
        if name := item.strip().lower():
            if name not in known:
                raise _unsupported(annotation, given[annotation], "known are " + ", ".join(known))
            chosen[known[name]] = None
    return tuple(chosen)
