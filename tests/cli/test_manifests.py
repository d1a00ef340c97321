"""Which pod a file of manifests asks about."""

import json
from typing import Any

import pytest

from vgpu.cli.manifests import pods_of
from vgpu.errors import ConfigurationError

SPEC = {"containers": [{"name": "main"}]}
POD = {"kind": "Pod", "metadata": {"name": "p"}, "spec": SPEC}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}
JOB = {"kind": "Job", "metadata": {"name": "j", "namespace": "team"}, "spec": {"template": TEMPLATE}}
CRON = {"kind": "CronJob", "metadata": {"name": "c"}, "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}}
CONFIG = {"kind": "ConfigMap", "metadata": {"name": "m"}}


def text(*documents: Any) -> str:
    return "\n---\n".join(json.dumps(one) for one in documents)


VOLCANO_JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"tasks": [{"template": POD}]}}


def test_a_pod_is_itself() -> None:
    assert pods_of(text(CONFIG, POD), "f") == (POD, 1)


@pytest.mark.parametrize("maker", [JOB, CRON], ids=["job", "cronjob"])
def test_what_makes_pods_is_asked_about_by_its_template(maker: dict[str, Any]) -> None:
    found, _ = pods_of(text(maker), "f")
    assert found["kind"] == "Pod"
    assert found["spec"] == SPEC
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["metadata"]["generateName"] == f"{maker['metadata']['name']}-"
    assert found["metadata"].get("namespace") == maker["metadata"].get("namespace")


def test_a_list_is_looked_into() -> None:
    assert pods_of(text({"kind": "List", "items": [CONFIG, POD]}), "f") == (POD, 1)


@pytest.mark.parametrize(
    ("kind", "spec", "copies"),
    [
        ("Job", {}, 1),
        ("Job", {"parallelism": 3}, 3),
        ("Job", {"parallelism": 3, "completions": 2}, 2),
        ("Job", {"completions": 8}, 1),
        ("Job", {"parallelism": 0}, 1),
        ("Deployment", {"replicas": 4}, 4),
        ("Deployment", {}, 1),
        ("Deployment", {"replicas": "many"}, 1),
    ],
)
def test_so_many_are_asked_about_as_there_would_be_at_once(kind: str, spec: dict[str, Any], copies: int) -> None:
    made = {"kind": kind, "metadata": {"name": "m"}, "spec": {**spec, "template": TEMPLATE}}
    assert pods_of(text(made), "f")[1] == copies


def test_a_cron_job_makes_as_many_as_its_job() -> None:
    job = {"parallelism": 5, "template": TEMPLATE}
    made = {"kind": "CronJob", "metadata": {"name": "c"}, "spec": {"jobTemplate": {"spec": job}}}
    assert pods_of(text(made), "f")[1] == 5


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (text(CONFIG), ["no manifest that makes pods", "ConfigMap"]),
        (text(VOLCANO_JOB), ["it holds: Job of batch.volcano.sh", "ask for one of their pods"]),
        (text(POD, JOB), ["2 manifests", "ask for one"]),
        ("", ["nothing"]),
        ("a: [", ["neither YAML nor JSON"]),
        ("just words", ["nothing"]),
    ],
    ids=["none", "unknown", "two", "empty", "broken", "text"],
)
def test_a_file_that_asks_about_nothing_says_what_it_holds(given: str, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as error:
        pods_of(given, "file.yaml")
    assert all(word in str(error.value) for word in ["file.yaml", *words])
