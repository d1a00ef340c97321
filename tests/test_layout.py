"""The shape of the repository, held by checks: sizes, fixed places, who may write to the API."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "operator" / "vgpu"
MAX_MODULE_LINES = 300
MAX_FUNCTION_LINES = 40
WRITERS = {"controller/writer.py", "agent/publisher.py"}
FIXED = [
    "pyproject.toml", "operator", "crds", "manifests", "tests", "Dockerfile", "README.md", "LICENSE", "Makefile",
    "docs", "benchmarks", "devcluster", ".ci/run",
]  # fmt: skip


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "_pb2" not in path.name)


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("name", FIXED)
def test_the_top_level_is_in_place(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_operator_folder_does_not_shadow_pythons_operator_module() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    run = subprocess.run(
        ["python3", "-c", "import operator; print(operator.add(1, 2))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "3\n"


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_modules_are_small_and_say_what_they_are(path: Path) -> None:
    source = path.read_text()
    assert ast.get_docstring(ast.parse(source)), "a module opens with what it is for"
    assert len(source.splitlines()) <= MAX_MODULE_LINES


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_functions_are_short(path: Path) -> None:
    long = [
        f"{function.name}: {length} lines"
        for function in functions(path)
        if (length := (function.end_lineno or 0) - function.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert long == []


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_only_one_file_per_process_writes_to_the_api(path: Path) -> None:
    """Both processes reach the API server through ApiClient; `send` is its only writing verb."""
    calls = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "send"
        and "client" in ast.unparse(node.func.value)
    ]
    assert calls == [] or relative(path) in WRITERS


def test_names_of_labels_and_annotations_stand_in_one_file() -> None:
    """A literal with one of the known domains outside names.py would be a second spelling."""
    domains = ("vgpu.dev/", "volcano.sh/", "hami.io/", "nvidia.com/")
    found = []
    for path in modules():
        if relative(path) == "names.py":
            continue
        tree = ast.parse(path.read_text())
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        found += [
            f"{relative(path)}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.startswith(domains)
            and " " not in node.value
            and id(node) not in docstrings
        ]
    assert found == []
