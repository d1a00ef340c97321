"""Who may import what inside the agent."""

import ast
from pathlib import Path

AGENT = Path(__file__).resolve().parents[2] / "operator" / "vgpu"
PURE = {"canonical.py", "health.py", "xid.py", "nvlink.py", "source.py"}
OUTSIDE = {"asyncio", "time", "os", "pathlib", "logging", "random", "aiohttp", "socket", "vgpu.kube"}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_one_file_knows_pynvml() -> None:
    assert [path.name for path in sorted(AGENT.rglob("*.py")) if "pynvml" in imports(path)] == ["nvml.py"]


def test_rules_have_no_clock_and_no_input_or_output() -> None:
    guilty = {
        name: found
        for name in PURE
        if (found := {module for module in imports(AGENT / "agent" / name) if module in OUTSIDE})
    }
    assert guilty == {}
