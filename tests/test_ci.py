"""What is left out in CI is a failure, and `.ci/run` is CI."""

import os
import subprocess
from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = ROOT / "tests" / "conftest.py"
SETTINGS = "[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers =\n    gpu: needs a card\n"
PASSES = "def test_a(): pass\n"
SKIPS = "import pytest\ndef test_b(): pytest.skip('not here')\n"
FIXTURE_SKIPS = "import pytest\n@pytest.fixture\ndef node(): pytest.skip('not here')\ndef test_b(node): pass\n"
MODULE_SKIPS = "import pytest\npytest.skip('not here', allow_module_level=True)\n"
CARD_SKIPS = "import pytest\n@pytest.mark.gpu\ndef test_c(): pytest.skip('no card')\n"


@pytest.mark.parametrize(
    ("ci", "module", "want"),
    [
        pytest.param("true", PASSES, 0, id="nothing left out"),
        pytest.param("true", SKIPS, 1, id="a test left out"),
        pytest.param("true", FIXTURE_SKIPS, 1, id="left out by what it needs"),
        pytest.param("true", MODULE_SKIPS, 1, id="a file left out"),
        pytest.param("true", CARD_SKIPS, 0, id="only what needs a card"),
        pytest.param("true", CARD_SKIPS + SKIPS, 1, id="not only what needs a card"),
        pytest.param("", SKIPS, 0, id="not in CI"),
    ],
)
def test_a_test_left_out_fails_in_ci_alone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, module: str, want: int
) -> None:
    monkeypatch.setenv("CI", ci)
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makeini(SETTINGS)
    pytester.makepyfile(test_other=PASSES, test_this=module)
    result = pytester.runpytest_inprocess()
    assert int(result.ret) == want
    assert ("skipped tests are failures in CI" in result.stdout.str()) == bool(want)


@pytest.mark.parametrize(("module", "want"), [(PASSES, 0), (SKIPS, 1), (CARD_SKIPS, 0)])
def test_the_same_holds_where_tests_run_side_by_side(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, module: str, want: int
) -> None:
    monkeypatch.setenv("CI", "true")
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makeini(SETTINGS)
    pytester.makepyfile(test_other=PASSES, test_this=module)
    assert int(pytester.runpytest_subprocess("-n", "1").ret) == want


def test_what_is_left_out_for_one_reason_is_one_line(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makeini(SETTINGS)
    pytester.makepyfile(test_this=FIXTURE_SKIPS + "def test_c(node): pass\n", test_other=SKIPS)
    printed = pytester.runpytest_inprocess("-ra").stdout.str()
    [line] = [line for line in printed.splitlines() if line.startswith("SKIPPED")]
    assert line.startswith("SKIPPED [3] ")
    assert line.endswith(": not here")


@pytest.mark.parametrize(("given", "want"), [(None, "true"), ("1", "1"), ("", "")])
def test_ci_run_installs_the_nodes_packages_and_tests_as_ci(tmp_path: Path, given: str | None, want: str) -> None:
    for name, said in (("devcluster/install-packages", "packages"), ("bin/make", 'make "$@" "CI=${CI-unset}"')):
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/usr/bin/env bash\necho {said}\n")
        program.chmod(0o755)
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "run").write_text((ROOT / ".ci" / "run").read_text())
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    environment |= {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"} | ({} if given is None else {"CI": given})
    done = subprocess.run(
        ["bash", tmp_path / ".ci" / "run"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["packages", f"make test CI={want}"]
