"""The two TLS Secrets: created once, used as they are, completed where that is possible."""

import base64

import pytest

from tests.kube.fake_api import FakeApi, Fault
from vgpu import names
from vgpu.controller.certificates import TlsSecrets, server_context
from vgpu.controller.fence import Fence
from vgpu.controller.writer import Writer
from vgpu.errors import ConfigurationError, NotLeading
from vgpu.kube.client import ApiClient
from vgpu.settings import OperatorSettings

SECRETS = f"/api/v1/namespaces/{names.NAMESPACE}/secrets"
SERVER, CLIENT = names.EXTENDER_TLS_SECRET, names.SCHEDULER_CLIENT_SECRET


@pytest.fixture
def secrets(client: ApiClient, writer: Writer) -> TlsSecrets:
    return TlsSecrets(client, writer, names.NAMESPACE)


def data(api: FakeApi, name: str) -> dict[str, bytes]:
    stored = api.get(SECRETS, name, names.NAMESPACE)
    assert stored is not None
    return {key: base64.b64decode(value) for key, value in stored["data"].items()}


async def test_first_leader_creates_both_of_one_ca(api: FakeApi, secrets: TlsSecrets) -> None:
    assert await secrets.read() is None
    pair = await secrets.ensure()
    assert data(api, SERVER)["tls.crt"] == pair.certificate
    assert data(api, SERVER)["ca.crt"] == data(api, CLIENT)["ca.crt"]
    assert "ca.key" not in data(api, CLIENT)
    assert await secrets.read() == pair


async def test_existing_ones_are_used_as_they_are(api: FakeApi, secrets: TlsSecrets) -> None:
    pair = await secrets.ensure()
    posts = api.count("POST")
    assert await secrets.ensure() == pair
    assert api.count("POST") == posts


async def test_leader_that_died_between_the_two_is_made_up_for(api: FakeApi, secrets: TlsSecrets) -> None:
    pair = await secrets.ensure()
    api.remove(SECRETS, CLIENT, names.NAMESPACE)
    assert await secrets.ensure() == pair
    assert data(api, CLIENT)["ca.crt"] == pair.ca


async def test_lone_server_secret_without_the_cas_key_is_explained(api: FakeApi, secrets: TlsSecrets) -> None:
    await secrets.ensure()
    api.remove(SECRETS, CLIENT, names.NAMESPACE)
    stored = api.get(SECRETS, SERVER, names.NAMESPACE)
    assert stored is not None
    del stored["data"]["ca.key"]
    with pytest.raises(ConfigurationError, match=r"holds no ca\.key"):
        await secrets.ensure()


async def test_lone_client_secret_is_explained(api: FakeApi, secrets: TlsSecrets) -> None:
    await secrets.ensure()
    api.remove(SECRETS, SERVER, names.NAMESPACE)
    with pytest.raises(ConfigurationError, match=f"{SERVER} is missing while {CLIENT} exists"):
        await secrets.ensure()


async def test_secret_without_a_key_is_named(api: FakeApi, secrets: TlsSecrets) -> None:
    api.put(SECRETS, {"metadata": {"name": SERVER, "namespace": names.NAMESPACE}, "data": {"tls.crt": "eA=="}})
    with pytest.raises(ConfigurationError, match=r"lacks tls\.key, ca\.crt"):
        await secrets.read()


async def test_secrets_of_two_cas_are_refused(api: FakeApi, secrets: TlsSecrets) -> None:
    await secrets.ensure()
    kept = api.get(SECRETS, CLIENT, names.NAMESPACE)
    for name in (SERVER, CLIENT):
        api.remove(SECRETS, name, names.NAMESPACE)
    await secrets.ensure()
    assert kept is not None
    api.put(SECRETS, {**kept, "metadata": {"name": CLIENT, "namespace": names.NAMESPACE}})
    with pytest.raises(ConfigurationError, match="one CA"):
        await secrets.ensure()


async def test_race_with_another_leader_ends_with_one_ca(api: FakeApi, client: ApiClient, writer: Writer) -> None:
    """The other one created its Secret between our read and our write."""
    other = await TlsSecrets(client, writer, names.NAMESPACE).ensure()
    api.remove(SECRETS, CLIENT, names.NAMESPACE)
    api.faults.append(Fault("GET", f"secrets/{SERVER}", status=404, reason="NotFound"))
    assert await TlsSecrets(client, writer, names.NAMESPACE).ensure() == other
    assert data(api, CLIENT)["ca.crt"] == other.ca


async def test_follower_creates_nothing(api: FakeApi, secrets: TlsSecrets, fence: Fence) -> None:
    fence.lost()
    with pytest.raises(NotLeading):
        await secrets.ensure()
    assert api.count("POST") == 0


async def test_context_asks_for_client_certificates(client: ApiClient, writer: Writer) -> None:
    context = await server_context(client, writer, OperatorSettings())
    assert context.verify_mode.name == "CERT_REQUIRED"
    assert len(context.get_ca_certs()) == 1
