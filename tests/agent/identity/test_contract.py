"""HAMi-core's contract (environment and mounts of volcano-vgpu-device-plugin), numbered as NVML counts inside."""

import json
from pathlib import Path

import pytest

from tests.agent.identity.bench import assign, make_cards
from vgpu.agent.identity.allocation_log import GrantedContainer
from vgpu.agent.identity.cdi import CdiFolder, spec_text
from vgpu.agent.identity.contract import Edits, Paths, Rules, Subject, edits_for
from vgpu.agent.identity.files import ContainerFiles, Places
from vgpu.agent.identity.port import Mount
from vgpu.agent.isolation import library_fault
from vgpu.api.assignment import AssignedCardModel, parse_assignment

NONCE = "00112233aabbccdd"
CARDS = {card.uuid: card for card in make_cards().cards}
PATHS = Paths("/host/libvgpu.so", "/state/ld.so.preload", "/host/containers/u_c", "/tmp/vgpulock")


def card(number: int, memory_mib: int = 1000, cores: int = 0, *, whole: bool = False) -> AssignedCardModel:
    return AssignedCardModel(uuid=f"card-{number}", memory_mib=memory_mib, cores=cores, whole=whole)


def edits(*cards: AssignedCardModel, rules: Rules = Rules(), paths: Paths = PATHS, **spec: object) -> Edits:  # noqa: B008  # frozen
    return edits_for(Subject(NONCE, cards, **spec), CARDS, paths, rules)  # type: ignore[arg-type]


def test_limits_follow_the_cards_index_and_not_the_order_of_the_assignment() -> None:
    got = edits(card(5, 500, 30), card(2, 200, 30)).env
    assert got["NVIDIA_VISIBLE_DEVICES"] == "card-2,card-5"
    assert (got["CUDA_DEVICE_MEMORY_LIMIT_0"], got["CUDA_DEVICE_MEMORY_LIMIT_1"]) == ("200m", "500m")
    assert got["CUDA_DEVICE_SM_LIMIT"] == "30"
    assert got["CUDA_DEVICE_MEMORY_SHARED_CACHE"] == f"/tmp/vgpu/{NONCE}.cache"


def test_a_container_with_its_cards_whole_has_no_limits_and_no_library() -> None:
    assert edits(card(1, 80_000, whole=True), card(0, 80_000, whole=True)) == Edits(
        {"NVIDIA_VISIBLE_DEVICES": "card-0,card-1"}
    )


def test_a_whole_card_with_a_limit_on_cores_keeps_it_and_its_library() -> None:
    got = edits(card(0, 80_000, 30, whole=True))
    assert got.env["CUDA_DEVICE_SM_LIMIT"] == "30"
    assert not [name for name in got.env if name.startswith("CUDA_DEVICE_MEMORY_LIMIT")]
    assert got.mounts[0].container_path == "/usr/local/vgpu/libvgpu.so"


def test_all_cores_make_a_card_whole_and_leave_its_memory_limited() -> None:
    got = edits(card(0, 1000, 100, whole=True))
    assert got.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
    assert "CUDA_DEVICE_SM_LIMIT" not in got.env
    assert got.mounts[0].container_path == "/usr/local/vgpu/libvgpu.so"


def test_all_memory_and_all_cores_are_no_limit() -> None:
    assert edits(card(0, 80_000, 100, whole=True)) == edits(card(0, 80_000, whole=True))


@pytest.mark.parametrize("cores", [0, 100])
def test_no_reserved_cores_and_all_cores_are_no_limit(cores: int) -> None:
    assert "CUDA_DEVICE_SM_LIMIT" not in edits(card(0, 1000, cores)).env


def test_mounts_are_the_library_its_cache_its_lock_and_the_preload_file() -> None:
    assert edits(card(0)).mounts == (
        Mount("/host/libvgpu.so", "/usr/local/vgpu/libvgpu.so"),
        Mount("/host/containers/u_c", "/tmp/vgpu", read_only=False),
        Mount("/tmp/vgpulock", "/tmp/vgpulock", read_only=False),
        Mount("/state/ld.so.preload", "/etc/ld.so.preload"),
    )


def test_a_container_that_switches_control_off_is_not_preloaded() -> None:
    assert "/etc/ld.so.preload" not in [mount.container_path for mount in edits(card(0), control_off=True).mounts]


def test_priority_and_oversubscription_are_told() -> None:
    env = edits(card(0), priority="2", rules=Rules(oversubscribed=True)).env
    assert (env["CUDA_TASK_PRIORITY"], env["CUDA_OVERSUBSCRIBE"]) == ("2", "true")
    assert not {"CUDA_TASK_PRIORITY", "CUDA_OVERSUBSCRIBE"} & edits(card(0)).env.keys()


def test_without_a_library_the_limits_are_told_and_nothing_is_mounted() -> None:
    got = edits(card(0), paths=Paths("", "/p", "/c"))
    assert got.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
    assert got.mounts == ()


def test_device_files_are_named_by_minor_number() -> None:
    got = edits(card(3), card(1), rules=Rules(device_files=True)).devices
    assert got[:2] == ("/dev/nvidia1", "/dev/nvidia7")
    assert "/dev/nvidia-uvm" in got
    assert edits(card(3)).devices == ()


def test_only_control_files_that_the_driver_has_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "nvidia-uvm").touch()
    places = Places(tmp_path, tmp_path, "", devices=tmp_path)
    container = GrantedContainer(nonce=NONCE, name="c")
    assignment = parse_assignment(assign("u", c=[("card-3", 80_000)]))
    got = ContainerFiles(places, Rules(device_files=True)).prepare("u", container, assignment, CARDS)
    assert got.devices == ("/dev/nvidia7", "/dev/nvidia-uvm")


def test_the_cdi_file_says_it_all() -> None:
    text = spec_text({NONCE: Edits({"B": "2", "A": "1"}, (Mount("/h", "/c"),), ("/dev/nvidia7",))})
    assert json.loads(text) == {
        "cdiVersion": "0.5.0",
        "kind": "vgpu.dev/alloc",
        "devices": [
            {
                "name": NONCE,
                "containerEdits": {
                    "env": ["A=1", "B=2"],
                    "mounts": [
                        {"hostPath": "/h", "containerPath": "/c", "options": ["ro", "nosuid", "nodev", "bind"]}
                    ],
                    "deviceNodes": [{"path": "/dev/nvidia7"}],
                },
            }
        ],
    }


def test_a_file_that_says_the_same_is_not_touched(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path / "cdi")
    folder.ensure("uid", {NONCE: Edits({"A": "1"})})
    [path] = (tmp_path / "cdi").iterdir()
    before = path.stat()
    folder.ensure("uid", {NONCE: Edits({"A": "1"})})
    assert path.stat().st_ino == before.st_ino
    folder.ensure("uid", {NONCE: Edits({"A": "2"})})
    assert path.stat().st_ino != before.st_ino
    assert list(folder.pods()) == ["uid"]


def test_a_write_that_fails_leaves_the_whole_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CdiFolder(tmp_path)
    folder.ensure("uid", {NONCE: Edits({"A": "1"})})
    [path] = tmp_path.iterdir()
    before = path.read_text()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        folder.ensure("uid", {NONCE: Edits({"A": "2"})})
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == before


def test_a_missing_or_empty_library_is_a_fault_and_none_wanted_is_not(tmp_path: Path) -> None:
    library = tmp_path / "libvgpu.so"
    assert "is not on this node" in library_fault(str(library))
    library.touch()
    assert "is empty" in library_fault(str(library))
    library.write_text("x")
    assert library_fault(str(library)) == ""
    assert library_fault("") == ""
    assert "is not on this node" in library_fault(str(tmp_path))
