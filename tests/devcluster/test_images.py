"""Image archives made of files of this machine say of themselves what is in them."""

import hashlib
import json
import tarfile
from pathlib import Path

from devcluster.node.images import ImageContent, busybox, write_image


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        found = {}
        for item in archive.getmembers():
            file = archive.extractfile(item)
            assert file is not None
            found[item.name] = file.read()
        return found


def test_every_blob_is_named_by_its_content_and_every_reference_leads_to_one(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"program")
    wanted = ImageContent("localhost/thing:1", ("/bin/program",), {"/bin/program": program}, user="65532")
    files = contents(write_image(wanted, tmp_path / "image.tar"))
    for name, content in files.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"

    def blob(descriptor: dict[str, str]) -> bytes:
        content = files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
        assert len(content) == int(descriptor["size"])
        return content

    [entry] = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "localhost/thing:1"
    manifest = json.loads(blob(entry))
    config = json.loads(blob(manifest["config"]))
    assert config["config"]["Entrypoint"] == ["/bin/program"]
    assert config["config"]["User"] == "65532"
    [layer] = manifest["layers"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    (tmp_path / "layer.tar").write_bytes(blob(layer))
    with tarfile.open(tmp_path / "layer.tar") as archive:
        item = archive.getmember("bin/program")
        assert item.mode == 0o755
        file = archive.extractfile(item)
        assert file is not None
        assert file.read() == b"program"


def test_busybox_has_a_shell_and_links_for_its_programs() -> None:
    content = busybox()
    assert content.links["/bin/sh"] == "busybox"
    assert "/tmp" in content.folders
