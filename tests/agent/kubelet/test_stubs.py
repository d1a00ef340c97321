"""The generated stubs are those of our .proto files, and what they say on the wire is kubelet's API."""

from pathlib import Path

from grpc_tools import protoc

from vgpu.agent.kubelet import deviceplugin_pb2 as pb
from vgpu.agent.kubelet import podresources_pb2 as resources_pb

OPERATOR = Path(__file__).resolve().parents[3] / "operator"
FOLDER = Path("vgpu/agent/kubelet")


def test_stubs_are_what_make_stubs_would_write(tmp_path: Path) -> None:
    sources = [str(path.relative_to(OPERATOR)) for path in (OPERATOR / FOLDER).glob("*.proto")]
    kinds = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    assert protoc.main(["protoc", f"-I{OPERATOR}", *kinds, *(str(OPERATOR / source) for source in sources)]) == 0
    made = {path.name: path.read_text() for path in (tmp_path / FOLDER).iterdir()}
    stored = {path.name: path.read_text() for path in (OPERATOR / FOLDER).glob("*_pb2*.py*")}
    assert made == stored
    assert len(made) == 6


def test_an_allocate_answer_has_the_numbers_that_kubelet_reads() -> None:
    answer = pb.ContainerAllocateResponse(
        envs={"a": "b"},
        mounts=[pb.Mount(container_path="c", host_path="h", read_only=True)],
        cdi_devices=[pb.CDIDevice(name="v/c=n")],
    )
    want = b"\n\x06\n\x01a\x12\x01b" + b"\x12\x08\n\x01c\x12\x01h\x18\x01" + b"*\x07\n\x05v/c=n"
    assert answer.SerializeToString() == want
    assert pb.DESCRIPTOR.package == "v1beta1"


def test_a_pod_resources_answer_is_read_though_it_has_fields_that_are_not_ours() -> None:
    """cpu_ids (3) of a container and a topology (3) of a device entry are skipped."""
    devices = b"\n\x01r\x12\x06slot-1\x1a\x02\n\x00"
    container = b"\n\x01c\x12" + bytes([len(devices)]) + devices + b"\x1a\x01\x05"
    pod = b"\n\x01p\x12\x02ns\x1a" + bytes([len(container)]) + container
    read = resources_pb.ListPodResourcesResponse.FromString(b"\n" + bytes([len(pod)]) + pod)
    held = read.pod_resources[0].containers[0].devices[0]
    assert (read.pod_resources[0].namespace, held.resource_name, list(held.device_ids)) == ("ns", "r", ["slot-1"])
    assert resources_pb.DESCRIPTOR.package == "v1"
