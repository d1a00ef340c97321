"""The two TLS Secrets: read them, and let the first leader create what is missing.

Enters: the Secrets of our namespace. Leaves: the extender's Pair or TLS context. May not live here: cryptography,
the server.

What exists is used as it is, whoever made it. Made by us, the extender's Secret also holds the CA's key (ca.key),
so that a leader that died between the two writes is made up for: the next one issues the missing client
certificate. Without that key a lone Secret cannot be completed, and the error says what to do.
"""

import base64
import binascii
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import BaseModel, ValidationError

from vgpu import names
from vgpu.controller.pki import (
    Authority,
    Pair,
    check_same_authority,
    create_authority,
    issue_client,
    issue_server,
    server_tls,
)
from vgpu.controller.writer import SecretWrite, Writer
from vgpu.errors import ApiRefused, ConfigurationError
from vgpu.kube.client import ApiClient
from vgpu.settings import OperatorSettings

TLS_TYPE = "kubernetes.io/tls"
CERTIFICATE, KEY, CA, CA_KEY = "tls.crt", "tls.key", "ca.crt", "ca.key"


class _Secret(BaseModel):
    data: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Stored:
    pair: Pair
    authority: Authority | None


def _utc_now() -> datetime:
    return datetime.now(UTC)


async def server_context(client: ApiClient, writer: Writer, settings: OperatorSettings) -> ssl.SSLContext:
    """TLS of the extender, for the leader: missing Secrets are created. Raises what TlsSecrets.ensure raises."""
    return server_tls(await TlsSecrets(client, writer, settings.namespace).ensure())


class TlsSecrets:
    """The Secrets of one namespace."""

    def __init__(
        self, client: ApiClient, writer: Writer, namespace: str, now: Callable[[], datetime] = _utc_now
    ) -> None:
        self._client = client
        self._writer = writer
        self._namespace = namespace
        self._now = now

    async def read(self) -> Pair | None:
        """The extender's pair, None while it was not created. Raises ApiUnavailable, ApiRefused,
        ConfigurationError (the Secret lacks something)."""
        stored = await self._read(names.EXTENDER_TLS_SECRET)
        return stored.pair if stored else None

    async def ensure(self) -> Pair:
        """Create what is missing and give the extender's pair; for the leader. Safe to repeat and to race.

        Raises ConfigurationError when what exists cannot be completed or does not fit together, and what the
        writer raises.
        """
        server = await self._read(names.EXTENDER_TLS_SECRET)
        client = await self._read(names.SCHEDULER_CLIENT_SECRET)
        if server is None and client is not None:
            raise ConfigurationError(
                f"Secret {self._namespace}/{names.EXTENDER_TLS_SECRET} is missing while "
                f"{names.SCHEDULER_CLIENT_SECRET} exists: create it from the same CA, or delete "
                f"{names.SCHEDULER_CLIENT_SECRET} to have both made anew, and restart kube-scheduler"
            )
        server = server or await self._create_server()
        client = client or await self._create_client(server)
        check_same_authority(server.pair, client.pair)
        return server.pair

    async def _create_server(self) -> _Stored:
        authority = create_authority(self._now())
        pair = issue_server(authority, self._namespace, self._now())
        return await self._create(names.EXTENDER_TLS_SECRET, pair, {CA_KEY: authority.key})

    async def _create_client(self, server: _Stored) -> _Stored:
        if server.authority is None:
            raise ConfigurationError(
                f"Secret {self._namespace}/{names.SCHEDULER_CLIENT_SECRET} is missing and "
                f"{names.EXTENDER_TLS_SECRET} holds no {CA_KEY} to make it with: create it from the same CA "
                f"({CERTIFICATE}, {KEY}, {CA}), or delete {names.EXTENDER_TLS_SECRET} to have both made anew"
            )
        return await self._create(names.SCHEDULER_CLIENT_SECRET, issue_client(server.authority, self._now()), {})

    async def _create(self, name: str, pair: Pair, more: dict[str, bytes]) -> _Stored:
        """Create a Secret; if another leader was quicker, use what that one created."""
        data = {CERTIFICATE: pair.certificate, KEY: pair.key, CA: pair.ca, **more}
        try:
            await self._writer.create_secret(SecretWrite(self._namespace, name, TLS_TYPE, data))
        except ApiRefused as error:
            if error.status != 409:
                raise
        stored = await self._read(name)
        if stored is None:
            raise ConfigurationError(f"Secret {self._namespace}/{name} was created and is gone again")
        return stored

    async def _read(self, name: str) -> _Stored | None:
        try:
            answer = await self._client.get(f"/api/v1/namespaces/{self._namespace}/secrets/{name}")
        except ApiRefused as error:
            if error.status == 404:
                return None
            raise
        try:
            data = _Secret.model_validate_json(answer).data or {}
            values = {key: base64.b64decode(value, validate=True) for key, value in data.items()}
        except (ValidationError, binascii.Error) as error:
            raise ConfigurationError(f"Secret {self._namespace}/{name} cannot be read: {error}") from error
        missing = [key for key in (CERTIFICATE, KEY, CA) if not values.get(key)]
        if missing:
            raise ConfigurationError(f"Secret {self._namespace}/{name} lacks {', '.join(missing)}")
        pair = Pair(values[CERTIFICATE], values[KEY], values[CA])
        authority = Authority(values[CA], values[CA_KEY]) if values.get(CA_KEY) else None
        return _Stored(pair, authority)
