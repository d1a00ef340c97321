"""The image and the locks: nothing unpinned gets in, and nothing of the machine that made the locks."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


def pip_commands(dockerfile: str) -> list[str]:
    """Every pip command that fetches or builds."""
    return re.findall(r"pip (?:install|wheel) [^&\n]*", dockerfile.replace("\\\n", " "))


def unpinned(dockerfile: str) -> list[str]:
    """The commands that may fetch what no lock names; a build without isolation fetches nothing of its own."""
    closed = ("--require-hashes", "--no-index")
    found = pip_commands(dockerfile)
    return [
        command
        for command in found
        if not any(option in command for option in closed)
        or (command.rstrip().endswith(" .") and "--no-build-isolation" not in command)
    ]


def shut_out(dockerfile: str, ignore: str) -> list[str]:
    """What the Dockerfile copies from its context and .dockerignore does not let in."""
    let_in = {line.removeprefix("!") for line in ignore.splitlines() if line.startswith("!")}
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.*)$", dockerfile, re.MULTILINE)]
    return [source for sources in copied for source in sources if source not in let_in]


def test_all_that_the_image_copies_is_let_into_its_build() -> None:
    assert shut_out((ROOT / "Dockerfile").read_text(), (ROOT / ".dockerignore").read_text()) == []


def test_a_file_that_is_shut_out_of_the_build_is_seen() -> None:
    ignore = (ROOT / ".dockerignore").read_text().replace("!requirements/build.lock\n", "")
    assert shut_out((ROOT / "Dockerfile").read_text(), ignore) == ["requirements/build.lock"]


def test_every_pip_command_of_the_image_is_pinned() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert len(pip_commands(text)) == 4
    assert unpinned(text) == []


@pytest.mark.parametrize("option", ["--no-build-isolation ", "--no-index ", "--require-hashes "])
def test_a_command_without_its_pin_is_seen(option: str) -> None:
    assert unpinned((ROOT / "Dockerfile").read_text().replace(option, ""))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_names_no_place_of_the_machine_that_made_it(lock: Path) -> None:
    options = [line for line in lock.read_text().splitlines() if line.startswith("-")]
    assert options == []
