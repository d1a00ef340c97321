"""The series of cards as Prometheus text, eight per card: made once per node view and kept while that view stands.

Enters: the views of all nodes. Leaves: text. At 5,000 nodes of 8 cards these are 320,000 lines, which general
machinery makes anew at every scrape in seconds; here a scrape costs what has changed. Lines of nodes that are
gone go with them. May not live here: other metrics.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from vgpu.core.views import CardView, NodeView

FAMILIES = (
    ("vgpu_card_slots", "Slots of the card"),
    ("vgpu_card_slots_used", "Slots that holders take"),
    ("vgpu_card_memory_mib", "Memory that pods may use"),
    ("vgpu_card_memory_used_mib", "Memory that holders take"),
    ("vgpu_card_cores", "Cores of the card (percent)"),
    ("vgpu_card_cores_used", "Cores that holders take"),
    ("vgpu_card_healthy", "1 when the card takes new work"),
    ("vgpu_card_overbooked", "1 when outside facts put more on the card than it has"),
)
NODE_FAMILY = ("vgpu_node_open", "1 when the node takes new pods")
READY = "Ready"


@dataclass(frozen=True, slots=True)
class _NodeText:
    """One view's lines, one text per family."""

    view: NodeView
    card_lines: tuple[str, ...]
    node_line: str


class CardMetrics:
    """Remembers the lines of each node's last view."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeText] = {}

    def render(self, views: Iterable[NodeView]) -> bytes:
        """The text of all families for exactly these nodes. One caller at a time."""
        known = self._nodes
        self._nodes = {view.name: _text_of(view, known.get(view.name)) for view in views}
        texts = self._nodes.values()
        parts = [_head(*NODE_FAMILY), *(text.node_line for text in texts)]
        for number, family in enumerate(FAMILIES):
            parts.append(_head(*family))
            parts += [text.card_lines[number] for text in texts]
        return "".join(parts).encode()


def _text_of(view: NodeView, known: _NodeText | None) -> _NodeText:
    if known is not None and known.view is view:
        return known
    reason = view.closed.reason.value if view.closed else READY
    node_line = f'{NODE_FAMILY[0]}{{node="{view.name}",reason="{reason}"}} {int(view.closed is None)}\n'
    rows = [(_label(view.name, card), _values(card)) for card in view.cards]
    card_lines = tuple(
        "".join(f"{name}{labels} {values[number]}\n" for labels, values in rows)
        for number, (name, _) in enumerate(FAMILIES)
    )
    return _NodeText(view, card_lines, node_line)


def _values(card: CardView) -> tuple[int, ...]:
    """In the order of FAMILIES."""
    fact = card.fact
    return (
        fact.slots,
        card.used_slots,
        fact.memory_mib,
        card.used_memory_mib,
        fact.cores,
        card.used_cores,
        int(fact.healthy),
        int(card.overbooked),
    )


def _label(node: str, card: CardView) -> str:
    uuid = card.fact.uuid.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{node="{node}",uuid="{uuid}"}}'


def _head(name: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} gauge\n"
