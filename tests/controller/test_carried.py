"""What a Binding carries, word for word, for each plugin that may serve the node's kubelet.

Our own annotation is always there: an assignment made for another's plugin is still exact, and counted, once
our agent serves that node.
"""

import json

import pytest

from tests.controller.cluster_facts import pending
from vgpu import names
from vgpu.compat import read_legacy
from vgpu.controller.carried import carried_annotations
from vgpu.core.facts import AssignedCard, AssignedContainer, AssignmentFact, AssignmentSource, Plugin
from vgpu.core.ledger import Booking
from vgpu.core.placement import Placement
from vgpu.core.presets import ContainerAmounts, PresetSettings
from vgpu.core.request import ContainerKind

NOW = 1_790_000_000
KINDS = (("fetch", ContainerKind.INIT), ("web", ContainerKind.APP), ("train", ContainerKind.APP))
SHARES = (AssignedCard("GPU-b", 3000, 30, whole=False), AssignedCard("GPU-a", 40_960, 0, whole=True))
OWN = {
    "v": 1,
    "podUid": "uid-p",
    "node": "n1",
    "nonce": "0123456789abcdef",
    "containers": [
        {
            "name": "train",
            "cards": [
                {"uuid": "GPU-b", "memoryMiB": 3000, "cores": 30, "whole": False},
                {"uuid": "GPU-a", "memoryMiB": 40960, "cores": 0, "whole": True},
            ],
        }
    ],
}
DEVICES = "GPU-b,NVIDIA,3000,30:GPU-a,NVIDIA,40960,100:"
FOREIGN = {
    Plugin.VGPU: {},
    Plugin.HAMI: {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1790000000",
        "hami.io/vgpu-devices-allocated": f";;{DEVICES};",
        "hami.io/vgpu-devices-to-allocate": f";;{DEVICES};",
        "hami.io/bind-time": "1790000000",
        "hami.io/bind-phase": "allocating",
    },
    Plugin.VOLCANO: {
        "volcano.sh/vgpu-node": "n1",
        "volcano.sh/vgpu-time": "1790000000",
        "volcano.sh/vgpu-ids-new": DEVICES,
        "volcano.sh/devices-to-allocate": DEVICES,
        "volcano.sh/bind-time": "1790000000",
        "volcano.sh/bind-phase": "allocating",
    },
}


def carried(plugin: Plugin, *containers: AssignedContainer, now: int = NOW) -> dict[str, str]:
    held = containers or (AssignedContainer("train", ContainerKind.APP, SHARES),)
    booking = Booking("uid-p", "team", "p", "n1", "0123456789abcdef", Placement("n1", held, 0))
    found = carried_annotations(pending("p", containers=KINDS), booking, plugin, PresetSettings(), now)
    assert isinstance(found, dict), found
    return found


@pytest.mark.parametrize("plugin", Plugin)
def test_the_binding_carries_our_assignment_and_what_the_nodes_plugin_reads(plugin: Plugin) -> None:
    found = carried(plugin)
    assert json.loads(found.pop(names.ASSIGNMENT_ANNOTATION)) == OWN
    assert found == FOREIGN[plugin]


@pytest.mark.parametrize(("plugin", "source"), [(p, AssignmentSource(p.value)) for p in Plugin if FOREIGN[p]])
def test_the_other_system_reads_the_same_cards_as_ours(plugin: Plugin, source: AssignmentSource) -> None:
    resource = names.HAMI_NUMBER if plugin is Plugin.HAMI else names.VOLCANO_NUMBER
    spec = [ContainerAmounts(name, kind, {resource: "2"} if name == "train" else {}) for name, kind in KINDS]
    read = read_legacy(carried(plugin), "n1", spec)
    assert isinstance(read, AssignmentFact)
    assert (read.source, [c.name for c in read.containers]) == (source, ["train"])
    assert [card.uuid for card in read.containers[0].cards] == ["GPU-b", "GPU-a"]


@pytest.mark.parametrize("plugin", Plugin)
def test_r30_a_clock_that_is_hours_off_changes_the_times_alone(plugin: Plugin) -> None:
    """They are there because the plugins expect them; which pod is next is decided by events (core.placement)."""
    right, wrong = carried(plugin), carried(plugin, now=NOW - 9 * 3600)
    differ = {key for key in right if right[key] != wrong[key]}
    assert differ <= {names.HAMI_TIME, names.HAMI_BIND_TIME, names.VOLCANO_TIME, names.VOLCANO_BIND_TIME}
    assert right.keys() == wrong.keys()


def test_volcanos_plugin_is_never_given_what_it_would_hand_to_the_wrong_container() -> None:
    held = (
        AssignedContainer("web", ContainerKind.APP, SHARES[:1]),
        AssignedContainer("train", ContainerKind.APP, SHARES[1:]),
    )
    booking = Booking("uid-p", "team", "p", "n1", "0123456789abcdef", Placement("n1", held, 0))
    pod = pending("p", containers=KINDS)
    answer = carried_annotations(pod, booking, Plugin.VOLCANO, PresetSettings(), NOW)
    assert isinstance(answer, str)
    assert "web, train" in answer
