"""What an owner wants: read once, by kind; an owner that is not there, or may not be read, is owed nothing."""

import pytest

from tests.controller.kubernetes_json import Json, encode
from tests.controller.preempt.recovery_world import job
from vgpu.controller.preempt.owners import ask_owner, path_of, wanted_by
from vgpu.core.preempt.facts import Debt
from vgpu.errors import ApiRefused, ApiUnavailable, MalformedObject

JOB = Debt("uid-job", "Job", "team", "train", api_version="batch/v1")
SET = Debt("uid-set", "ReplicaSet", "team", "web", api_version="apps/v1")


def replicas(**spec: object) -> Json:
    return {"metadata": {"name": "web", "uid": "uid-set"}, "spec": spec}


@pytest.mark.parametrize(
    ("owner", "want"),
    [
        (job(), 1),
        (job(spec={}), 1),
        (job(spec={"parallelism": 8, "completions": 10}), 8),
        (job(spec={"parallelism": 8, "completions": 10}, status={"succeeded": 7}), 3),
        (job(spec={"parallelism": 8, "completions": 10}, status={"succeeded": 10}), 0),
        (job(spec={"parallelism": 3}), 3),
        (job(spec={"parallelism": 3}, status={"succeeded": 1}), 0),
        (job(spec={"parallelism": 0, "completions": 5}), 0),
        (job(spec={"parallelism": 1, "suspend": True}), 0),
        (job(status={"conditions": [{"type": "Failed", "status": "True"}]}), 0),
        (job(status={"conditions": [{"type": "Complete", "status": "True"}]}), 0),
        (job(status={"conditions": [{"type": "Failed", "status": "False"}]}), 1),
        (job(deletionTimestamp="2026-01-01T00:00:00Z"), 0),
        (job(uid="another"), 0),
    ],
    ids=str,
)
def test_how_many_pods_a_job_wants(owner: Json, want: int) -> None:
    found = wanted_by(encode(owner), JOB)
    assert found.pods == want
    assert found.pods or found.why


@pytest.mark.parametrize(("spec", "want"), [({"replicas": 3}, 3), ({"replicas": 0}, 0), ({}, 1)], ids=str)
def test_how_many_pods_a_set_wants(spec: Json, want: int) -> None:
    assert wanted_by(encode(replicas(**spec)), SET).pods == want


def test_an_owner_that_cannot_be_read_is_named() -> None:
    with pytest.raises(MalformedObject, match="Job team/train"):
        wanted_by(b'{"metadata": 3}', JOB)


def test_only_kinds_that_we_know_by_their_group_are_read() -> None:
    assert path_of(JOB) == "/apis/batch/v1/namespaces/team/jobs/train"
    assert path_of(Debt("u", "Job", "team", "train", api_version="batch.volcano.sh/v1alpha1")) is None
    assert path_of(Debt("u", "Pod", "team", "bare", api_version="v1")) is None


def test_a_name_that_is_none_leads_nowhere_else() -> None:
    debt = Debt("u", "Job", "a/b", "../x?watch=1\x00\r\n", api_version="batch/v1")
    assert path_of(debt) == "/apis/batch/v1/namespaces/a%2Fb/jobs/..%2Fx%3Fwatch%3D1%00%0D%0A"


@pytest.mark.parametrize(
    ("failure", "want"),
    [
        (ApiRefused(404, "NotFound", "no such Job"), 0),
        (ApiRefused(403, "Forbidden", "no right"), 0),
        (ApiUnavailable(503, "", "down"), None),
    ],
    ids=str,
)
async def test_no_owner_is_asked_for_ever(failure: Exception, want: int | None) -> None:
    class Failing:
        async def get(self, path: str) -> bytes:
            raise failure

    found = await ask_owner(Failing(), JOB)
    assert (None if found is None else found.pods) == want
