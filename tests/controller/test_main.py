"""The operator's command line, up to the point where it would run."""

import resource
import sys

import pytest

from vgpu.controller import main


@pytest.mark.parametrize("arguments", [[], ["run"]], ids=["without a command", "run"])
def test_the_log_level_is_read_from_the_environment_and_checked(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The image's command has no arguments."""
    monkeypatch.setattr(sys, "argv", ["vgpu-operator", *arguments])
    monkeypatch.setenv("VGPU_LOG_LEVEL", "loud")
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == main.CONFIGURATION_EXIT
    assert "VGPU_LOG_LEVEL 'loud' is none of DEBUG" in capsys.readouterr().err


def test_the_process_may_open_as_many_files_as_its_hard_limit_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
        main.raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
