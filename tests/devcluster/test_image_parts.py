"""The parts of an image build that need neither root nor buildah."""

import shutil
from pathlib import Path

import pytest

from devcluster.image import pip_access, product
from devcluster.image.pip_access import pip_secrets
from devcluster.image.storage import open_storage


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository of the same shape."""
    root = tmp_path / "repository"
    for name, text in {
        "Dockerfile": "FROM scratch\n",
        ".dockerignore": "*\n!operator\n!pyproject.toml\n",
        "pyproject.toml": "",
        "operator/code.py": "one = 1\n",
        "operator/__pycache__/code.pyc": "",
        "tests/test_code.py": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(product, "ROOT", root)
    return root


def copied_key(tmp_path: Path) -> str:
    target = tmp_path / "copy"
    shutil.rmtree(target, ignore_errors=True)
    return product.copy_context(target)


def test_a_build_sees_what_is_let_in_and_nothing_else(tmp_path: Path, repository: Path) -> None:
    copied_key(tmp_path)
    files = sorted(path for path in (tmp_path / "copy").rglob("*") if path.is_file())
    found = [path.relative_to(tmp_path / "copy").as_posix() for path in files]
    assert found == [".dockerignore", "Dockerfile", "operator/code.py", "pyproject.toml"]


@pytest.mark.parametrize("changed", ["Dockerfile", "operator/code.py", "pyproject.toml"])
def test_a_change_of_what_is_let_in_gives_another_image(tmp_path: Path, repository: Path, changed: str) -> None:
    before = copied_key(tmp_path)
    assert copied_key(tmp_path) == before
    (repository / changed).write_text("changed\n")
    assert copied_key(tmp_path) != before


def test_a_change_of_anything_else_gives_the_same_image(tmp_path: Path, repository: Path) -> None:
    before = copied_key(tmp_path)
    (repository / "tests" / "test_code.py").write_text("changed\n")
    (repository / "operator" / "__pycache__" / "code.pyc").write_text("changed\n")
    assert copied_key(tmp_path) == before


def test_what_a_killed_build_left_is_gone_when_the_next_begins(tmp_path: Path) -> None:
    left = tmp_path / "work" / "half-written"
    left.parent.mkdir()
    left.write_text("x")
    with open_storage(tmp_path) as storage:
        assert list(storage.work.iterdir()) == []
        (storage.work / "new").write_text("x")
    assert not storage.work.exists()


def test_pips_access_goes_into_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example/simple")
    monkeypatch.setenv("PIP_CERT", "/somewhere/ca.crt")
    monkeypatch.setenv("PIP_FIND_LINKS", "/somewhere/wheels")
    arguments = pip_secrets(tmp_path)
    assert "id=pip-ca,src=/somewhere/ca.crt" in arguments
    assert f"id=pip-conf,src={tmp_path / 'pip.conf'}" in arguments
    assert set(arguments[::2]) == {"--secret"}
    text = (tmp_path / "pip.conf").read_text()
    assert "index-url = https://packages.example/simple\n" in text
    assert f"cert = {pip_access.CERTIFICATE_INSIDE}\n" in text
    assert "/somewhere" not in text
