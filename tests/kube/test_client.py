"""What comes out of the client for each thing that can happen to a request."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.kube.fake_api import FakeApi, Fault
from vgpu.controller.pki import create_authority
from vgpu.errors import ApiRefused, ApiUnavailable, ConfigurationError, OutcomeUnknown, StreamSilent
from vgpu.kube.client import ApiClient, WriteRequest
from vgpu.kube.connection import Connection, load_connection

PODS = "/api/v1/namespaces/n/pods"
POD = {"metadata": {"name": "p", "namespace": "n"}}


def create(timeout_seconds: float = 5) -> WriteRequest:
    return WriteRequest("POST", PODS, json.dumps(POD).encode(), timeout_seconds=timeout_seconds)


async def test_read_gives_the_bytes(api: FakeApi, client: ApiClient) -> None:
    api.put(PODS, POD)
    assert json.loads(await client.get(f"{PODS}/p"))["metadata"]["name"] == "p"


async def test_read_of_nothing_is_refused_with_the_servers_words(client: ApiClient) -> None:
    with pytest.raises(ApiRefused, match="not found") as caught:
        await client.get(f"{PODS}/none")
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_read_that_may_work_later_is_unavailable(api: FakeApi, client: ApiClient, status: int) -> None:
    api.faults.append(Fault("GET", status=status, headers={"Retry-After": "3"}))
    with pytest.raises(ApiUnavailable) as caught:
        await client.get(PODS)
    assert (caught.value.status, caught.value.retry_after_seconds) == (status, 3)


@pytest.mark.parametrize("action", ["drop_before", "hang"])
async def test_read_without_an_answer_is_unavailable(api: FakeApi, client: ApiClient, action: str) -> None:
    api.faults.append(Fault("GET", action=action, times=2))  # type: ignore[arg-type]
    with pytest.raises(ApiUnavailable) as caught:
        await client.get(PODS, timeout_seconds=0.2)
    assert caught.value.status == 0


async def test_write_gives_what_is_stored(api: FakeApi, client: ApiClient) -> None:
    assert json.loads(await client.send(create()))["metadata"]["uid"] == "uid-1"


@pytest.mark.parametrize(
    ("status", "want"),
    [
        *((status, ApiRefused) for status in (301, 400, 401, 403, 404, 409, 410, 422)),
        *((status, ApiUnavailable) for status in (429, 503, 507)),
        *((status, OutcomeUnknown) for status in (408, 500, 502, 504)),
    ],
)
async def test_write_answered_with_a_status(
    api: FakeApi, client: ApiClient, status: int, want: type[Exception]
) -> None:
    api.faults.append(Fault("POST", status=status))
    with pytest.raises(want):
        await client.send(create())


@pytest.mark.parametrize("action", ["drop_before", "drop_after", "hang"])
async def test_write_sent_without_an_answer_is_unknown(api: FakeApi, client: ApiClient, action: str) -> None:
    api.faults.append(Fault("POST", action=action))  # type: ignore[arg-type]
    with pytest.raises(OutcomeUnknown):
        await client.send(create(timeout_seconds=0.2))
    assert (api.get(PODS, "p", "n") is not None) == (action == "drop_after")


async def test_write_on_a_kept_connection_without_an_answer_is_unknown(api: FakeApi, client: ApiClient) -> None:
    await client.get(PODS)
    api.faults.append(Fault("POST", action="drop_before"))
    with pytest.raises(OutcomeUnknown):
        await client.send(create())


async def test_write_that_never_met_a_server_is_unavailable() -> None:
    async with FakeApi().serve() as api:
        client = api.client()
    async with client:
        with pytest.raises(ApiUnavailable) as caught:
            await client.send(create())
    assert caught.value.status == 0


async def test_user_agent_and_token_are_sent(api: FakeApi) -> None:
    tokens = iter(["Bearer one", "Bearer two"])
    seen: list[tuple[str | None, str | None]] = []
    serve = api._serve

    async def note(request):  # type: ignore[no-untyped-def]
        seen.append((request.headers.get("Authorization"), request.headers.get("User-Agent")))
        return await serve(request)

    api._serve = note  # type: ignore[method-assign]

    async def authorize() -> str | None:
        return next(tokens)

    async with ApiClient(Connection(api.url, authorize=authorize), "vgpu-tests/1") as client:
        await client.get(PODS)
        await client.get(PODS)
    assert seen == [("Bearer one", "vgpu-tests/1"), ("Bearer two", "vgpu-tests/1")]


async def test_stream_refused_is_told_before_the_first_line(api: FakeApi, client: ApiClient) -> None:
    api.faults.append(Fault("GET", status=403, reason="Forbidden"))
    with pytest.raises(ApiRefused):
        async with client.stream(PODS, {"watch": "1"}, silence_seconds=1):
            pass


async def test_silent_stream_is_unavailable(api: FakeApi, client: ApiClient) -> None:
    async with client.stream(PODS, {"watch": "1", "resourceVersion": "100"}, silence_seconds=0.05) as lines:
        with pytest.raises(StreamSilent, match=re.compile("time", re.IGNORECASE)):
            async for _ in lines:
                pass


async def test_cut_off_last_line_is_not_given_out(api: FakeApi, client: ApiClient) -> None:
    async with client.stream(PODS, {"watch": "1", "resourceVersion": "100"}, silence_seconds=5) as lines:
        for queue in api._watchers:
            queue.put_nowait(b"one\ntw")
            queue.put_nowait(b"o\nthr")
            queue.put_nowait(None)
        assert [line async for line in lines] == [b"one", b"two"]


def kubeconfig(server: str, user: dict[str, str]) -> str:
    return json.dumps(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": user}],
        }
    )


async def test_kubeconfig_gives_server_and_token(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(kubeconfig("http://127.0.0.1:1/prefix/", {"token": "secret"}))
    connection = await load_connection(path)
    assert connection.host == "http://127.0.0.1:1/prefix"
    assert await connection.authorize() == "Bearer secret"


async def test_kubeconfig_that_is_not_there_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="none does not exist"):
        await ApiClient.connect(kubeconfig=tmp_path / "none", user_agent="x")
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        await ApiClient.connect(kubeconfig=tmp_path, user_agent="x")


async def test_token_file_of_a_kubeconfig_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    path = tmp_path / "config"
    path.write_text(kubeconfig("http://127.0.0.1:1", {"tokenFile": str(token)}))
    connection = await load_connection(path)
    token.write_text("two\n")
    assert await connection.authorize() == "Bearer one"
    monkeypatch.setattr("vgpu.kube.connection.REFRESH_SECONDS", 0)
    assert await connection.authorize() == "Bearer two"


@pytest.mark.parametrize("text", ["", "a: [", "{}"])
async def test_bad_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=str(path)):
        await ApiClient.connect(kubeconfig=path, user_agent="x")


async def test_outside_a_pod_the_own_account_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigurationError, match="own account"):
        await ApiClient.connect(kubeconfig=None, user_agent="x")


async def test_own_account_of_a_pod_reads_its_token_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = "kubernetes_asyncio.config.incluster_config"
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("one")
    ca.write_bytes(create_authority(datetime.now(UTC)).certificate)
    monkeypatch.setattr(f"{loader}.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(f"{loader}.SERVICE_CERT_FILENAME", str(ca))
    monkeypatch.setattr(f"{loader}.TOKEN_REFRESH_PERIOD", timedelta(0))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    connection = await load_connection(None)
    assert connection.host == "https://10.96.0.1:443"
    assert connection.tls is not None
    assert await connection.authorize() == "Bearer one"
    token.write_text("two")
    assert await connection.authorize() == "Bearer two"


async def test_token_that_cannot_be_read_is_unavailable_and_nothing_is_sent(api: FakeApi) -> None:
    async def authorize() -> str | None:
        raise FileNotFoundError("/no/such/token")

    async with ApiClient(Connection(api.url, authorize=authorize), "tests") as client:
        with pytest.raises(ApiUnavailable, match="credentials"):
            await client.send(create())
    assert api.requests == []
