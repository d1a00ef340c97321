"""GpuNodeInventory as a reader sees it: tolerant where it is safe, never healthy by accident."""

import json
from typing import Any

import pytest

from vgpu.api.inventory import Health, parse_inventory
from vgpu.errors import MalformedObject


def make_gpu(number: int = 0, **changes: Any) -> dict[str, Any]:
    """One healthy card; a change to None leaves the field out."""
    gpu = {
        "uuid": f"GPU-{number}",
        "index": number,
        "model": "NVIDIA A100-SXM4-80GB",
        "memoryMiB": 81920,
        "cores": 100,
        "slots": 10,
        "mode": "shared",
        "health": "Healthy",
        **changes,
    }
    return {key: value for key, value in gpu.items() if value is not None}


def make_text(gpus: list[dict[str, Any]], **spec: Any) -> str:
    """An inventory's JSON text."""
    base = {"slotResource": "volcano.sh/vgpu-number", "identity": "exact", "plugin": "vgpu", "gpus": gpus}
    return json.dumps(
        {
            "apiVersion": "vgpu.dev/v1alpha1",
            "kind": "GpuNodeInventory",
            "metadata": {"name": "node-1", "managedFields": []},
            "spec": {**base, **spec},
        }
    )


@pytest.mark.parametrize("health", [None, "", "healthy", "Fine", 1, True, ["Healthy"]], ids=str)
def test_only_the_word_healthy_makes_a_card_healthy(health: Any) -> None:
    assert parse_inventory(make_text([make_gpu(health=health)])).spec.gpus[0].health is Health.UNHEALTHY
    assert parse_inventory(make_text([make_gpu()])).spec.gpus[0].health is Health.HEALTHY


def make_lingering(uid: str, *cards: str) -> dict[str, Any]:
    """A lingering pod with a slot of each of these cards."""
    taken = [{"uuid": card, "slots": 1, "memoryMiB": 1000, "cores": 0} for card in cards]
    return {"namespace": "team", "name": uid, "uid": uid, "cards": taken}


def test_order_of_lingering_pods_does_not_change_the_canonical_content_and_each_of_them_does() -> None:
    a, b = make_lingering("a", "GPU-0", "GPU-1"), make_lingering("b", "GPU-0")
    turned = {**a, "cards": a["cards"][::-1]}
    one, other, less, none = (
        parse_inventory(make_text([make_gpu(0)], lingering=pods)).canonical()
        for pods in ([a, b], [b, turned], [a], [])
    )
    assert one == other
    assert one != less
    assert none == parse_inventory(make_text([make_gpu(0)])).canonical()
    assert "lingering" not in none


@pytest.mark.parametrize("wrong", [{"uid": ""}, {"cards": []}, {"cards": [{"uuid": "GPU-0"}]}], ids=str)
def test_a_lingering_pod_must_say_what_it_takes(wrong: dict[str, Any]) -> None:
    with pytest.raises(MalformedObject, match="lingering"):
        parse_inventory(make_text([make_gpu()], lingering=[{**make_lingering("a", "GPU-0"), **wrong}]))


def test_unknown_fields_do_not_break_reading() -> None:
    inventory = parse_inventory(make_text([make_gpu(temperature=40)], firmware="x"))
    assert inventory.metadata.name == "node-1"
    assert "temperature" not in inventory.canonical()["gpus"][0]


def test_order_of_cards_and_peers_does_not_change_the_canonical_content() -> None:
    one = [make_gpu(0, nvlinkPeers=["GPU-2", "GPU-1"]), make_gpu(1), make_gpu(2)]
    other = [make_gpu(2), make_gpu(0, nvlinkPeers=["GPU-1", "GPU-2", "GPU-1"]), make_gpu(1)]
    assert parse_inventory(make_text(one)).canonical() == parse_inventory(make_text(other)).canonical()


def test_empty_optional_fields_do_not_change_the_canonical_content() -> None:
    empty = make_text([make_gpu(healthReason="", nvlinkPeers=[])], readError="", bootId="")
    assert parse_inventory(empty).canonical() == parse_inventory(make_text([make_gpu()])).canonical()


@pytest.mark.parametrize(
    ("gpu", "spec"),
    [
        ({"health": "Unhealthy"}, {}),
        ({"healthReason": "XID-79"}, {}),
        ({"slots": 9}, {}),
        ({"memoryMiB": 81919}, {}),
        ({"minor": 0}, {}),
        ({"numaNode": 0}, {}),
        ({"nvlinkPeers": ["GPU-9"]}, {}),
        ({"uuid": "GPU-9"}, {}),
        ({}, {"readError": "NVML: driver not loaded"}),
        ({}, {"bootId": "b"}),
        ({}, {"plugin": "hami"}),
    ],
    ids=str,
)
def test_every_change_of_content_changes_the_canonical_content(gpu: dict[str, Any], spec: dict[str, Any]) -> None:
    changed = parse_inventory(make_text([make_gpu(**gpu)], **spec))
    assert changed.canonical() != parse_inventory(make_text([make_gpu()])).canonical()


def test_canonical_content_reads_back_as_the_same_inventory() -> None:
    inventory = parse_inventory(make_text([make_gpu(1, minor=1, numaNode=0), make_gpu(0, health="Unhealthy")]))
    document = json.loads(make_text([])) | {"spec": inventory.canonical()}
    assert parse_inventory(json.dumps(document)).canonical() == inventory.canonical()
    assert inventory.canonical()["gpus"][0]["health"] == "Unhealthy"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "document: Invalid JSON"),
        ("{}", "spec: Field required"),
        (make_text([make_gpu(memoryMiB=0)]), "spec.gpus[0].memoryMiB: "),
        (make_text([make_gpu(memoryMiB=-1)]), "spec.gpus[0].memoryMiB: "),
        (make_text([make_gpu(memoryMiB=10**20)]), "spec.gpus[0].memoryMiB: "),
        (make_text([make_gpu(), make_gpu(1, slots=0)]), "spec.gpus[1].slots: "),
        (make_text([make_gpu(cores=50)]), "spec.gpus[0].cores: Input should be 100"),
        (make_text([make_gpu(uuid=None)]), "spec.gpus[0].uuid: Field required"),
        (make_text([make_gpu(), make_gpu()]), "two cards have the same uuid"),
        (make_text([make_gpu(), make_gpu(0, uuid="GPU-9")]), "two cards have the same index"),
        (make_text([make_gpu(index) for index in range(65)]), "spec.gpus: "),
        (make_text([make_gpu()], identity="guess"), "spec.identity: "),
        (make_text([make_gpu()], slotResource=""), "spec.slotResource: "),
    ],
    ids=lambda value: str(value)[-30:],
)
def test_a_wrong_field_is_named(text: str, want: str) -> None:
    with pytest.raises(MalformedObject) as refused:
        parse_inventory(text)
    assert want in str(refused.value)
