"""Rules of identity have no clock and no input or output."""

import ast
from pathlib import Path

import pytest

IDENTITY = Path(__file__).resolve().parents[3] / "operator" / "vgpu" / "agent" / "identity"
OUTSIDE = ("asyncio", "time", "os", "pathlib", "logging", "random", "secrets", "grpc", "socket", "vgpu.kube")


@pytest.mark.parametrize("name", ["matching.py", "checks.py", "contract.py", "port.py"])
def test_rules_import_nothing_that_reaches_outside(name: str) -> None:
    tree = ast.parse((IDENTITY / name).read_text())
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert [module for module in sorted(found) if module.startswith(OUTSIDE)] == []
