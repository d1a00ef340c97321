"""Which pod a file of manifests asks about."""

import json
from typing import Any

import pytest

from vgpu.cli.manifests import pod_of
from vgpu.errors import ConfigurationError

SPEC = {"containers": [{"name": "main"}]}
POD = {"kind": "Pod", "metadata": {"name": "p"}, "spec": SPEC}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}
JOB = {"kind": "Job", "metadata": {"name": "j", "namespace": "team"}, "spec": {"template": TEMPLATE}}
CRON = {"kind": "CronJob", "metadata": {"name": "c"}, "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}}
CONFIG = {"kind": "ConfigMap", "metadata": {"name": "m"}}


def text(*documents: Any) -> str:
    return "\n---\n".join(json.dumps(one) for one in documents)


def test_a_pod_is_itself() -> None:
    assert pod_of(text(CONFIG, POD), "f") == POD


@pytest.mark.parametrize("maker", [JOB, CRON], ids=["job", "cronjob"])
def test_what_makes_pods_is_asked_about_by_its_template(maker: dict[str, Any]) -> None:
    found = pod_of(text(maker), "f")
    assert found["kind"] == "Pod"
    assert found["spec"] == SPEC
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["metadata"]["generateName"] == f"{maker['metadata']['name']}-"
    assert found["metadata"].get("namespace") == maker["metadata"].get("namespace")


def test_a_list_is_looked_into() -> None:
    assert pod_of(text({"kind": "List", "items": [CONFIG, POD]}), "f") == POD


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (text(CONFIG), ["no manifest that makes pods", "ConfigMap"]),
        (text(POD, JOB), ["2 manifests", "ask for one"]),
        ("", ["nothing"]),
        ("a: [", ["neither YAML nor JSON"]),
        ("just words", ["nothing"]),
    ],
    ids=["none", "two", "empty", "broken", "text"],
)
def test_a_file_that_asks_about_nothing_says_what_it_holds(given: str, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as error:
        pod_of(given, "file.yaml")
    assert all(word in str(error.value) for word in ["file.yaml", *words])
