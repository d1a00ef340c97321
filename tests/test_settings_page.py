"""docs/settings.md is what the models say, and says of every setting what it means."""

from pathlib import Path

import pytest

from vgpu.agent.config import NodeSettings
from vgpu.settings import OperatorSettings
from vgpu.settings_page import main, page

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"


def test_the_page_is_not_stale() -> None:
    """`make docs` mends it."""
    assert PAGE.read_text() == page()


def test_a_changed_setting_makes_the_page_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    before = page()
    monkeypatch.setattr(OperatorSettings.model_fields["lease_seconds"], "default", 16)
    assert page() != before


@pytest.mark.parametrize("model", [OperatorSettings, NodeSettings])
def test_every_setting_says_what_it_means(model: type[OperatorSettings | NodeSettings]) -> None:
    assert [name for name, field in model.model_fields.items() if not field.description] == []


def test_a_line_has_default_limits_and_choices() -> None:
    lines = page().splitlines()
    assert "| `VGPU_EXTENDER_PORT` | `9443` | at least 1, at most 65535 | its port, mutual TLS |" in lines
    assert any(line.startswith("| `VGPU_CARD_POLICY` | `binpack` | `binpack`, `spread`,") for line in lines)
    assert any(line.startswith("| `plugin` | `vgpu` | `vgpu`, `hami`, `volcano` |") for line in lines)


def test_the_file_must_be_named(tmp_path: Path) -> None:
    assert main([]) == 2
    assert main([str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text() == page()
