"""Container images made of files of this machine, without a container engine: OCI archives for `ctr import`.

Enters: which files go where. Leaves: a tar file. May not live here: who imports it.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
BUSYBOX_IMAGE = "localhost/busybox:1"
PAUSE_IMAGE = "localhost/pause:1"
APPLETS = (
    "cat", "chmod", "cp", "cut", "date", "dd", "df", "du", "echo", "env", "false", "find", "grep", "head",
    "hostname", "httpd", "id", "ip", "kill", "ln", "ls", "mkdir", "mount", "nc", "pidof", "printf", "ps",
    "pwd", "readlink", "rm", "sed", "seq", "sh", "sha256sum", "sleep", "sort", "stat", "tail",
    "tar", "tee", "test", "timeout", "touch", "tr", "true", "uname", "usleep", "wc", "wget", "xargs",
)  # fmt: skip
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True, slots=True)
class ImageContent:
    """What an image holds (path inside -> file here, path inside -> link target, empty folders) and runs."""

    name: str
    entrypoint: tuple[str, ...]
    files: Mapping[str, Path]
    links: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    user: str = ""
    environment: tuple[str, ...] = ("PATH=/usr/local/bin:/usr/bin:/bin",)


def busybox(name: str = BUSYBOX_IMAGE, entrypoint: tuple[str, ...] = ("/bin/sh",)) -> ImageContent:
    """Debian's static busybox with the usual programs linked to it."""
    links = {f"/bin/{applet}": "busybox" for applet in APPLETS}
    return ImageContent(name, entrypoint, {"/bin/busybox": BUSYBOX}, links, ("/etc", "/root", "/tmp"))


def pause() -> ImageContent:
    """What holds a pod's namespaces: it sleeps."""
    return busybox(PAUSE_IMAGE, ("/bin/sleep", "2147483647"))


def write_image(content: ImageContent, target: Path) -> Path:
    """Write the image as an OCI archive with one layer."""
    layer = _layer(content)
    configuration = {
        "architecture": MACHINES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": list(content.entrypoint), "Env": list(content.environment), "User": content.user},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    config = json.dumps(configuration).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _descriptor(CONFIG, config),
            "layers": [_descriptor(LAYER, layer)],
        }
    ).encode()
    annotations = {"io.containerd.image.name": content.name}
    entry = {**_descriptor(MANIFEST, manifest), "annotations": annotations}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
    with tarfile.open(target, "w") as archive:
        _add(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add(archive, "index.json", json.dumps(index).encode())
        for blob in (layer, config, manifest):
            _add(archive, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
    return target


def _layer(content: ImageContent) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in content.folders:
            item = tarfile.TarInfo(path.strip("/"))
            item.type, item.mode = tarfile.DIRTYPE, 0o1777 if path == "/tmp" else 0o755
            archive.addfile(item)
        for path, source in content.files.items():
            _add(archive, path.strip("/"), source.read_bytes(), 0o755)
        for path, goal in content.links.items():
            item = tarfile.TarInfo(path.strip("/"))
            item.type, item.linkname, item.mode = tarfile.SYMTYPE, goal, 0o777
            archive.addfile(item)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, path: str, content: bytes, mode: int = 0o644) -> None:
    item = tarfile.TarInfo(path)
    item.size, item.mode = len(content), mode
    archive.addfile(item, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _descriptor(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}
