"""Reaches the API server by a kubeconfig, and the operator through it or at a URL of its own.

Enters: where to find both. Leaves: bytes of answers. Everything is a question: the one POST to the API server is a
dry run, those to the operator carry a manifest to ask about. May not live here: what answers mean, how they look.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from vgpu import names
from vgpu.errors import ApiError, ApiRefused, ApiUnavailable, ConfigurationError
from vgpu.kube.answers import status_of
from vgpu.kube.connection import Connection

TIMEOUT_SECONDS = 60.0
CONNECT_SECONDS = 5.0
PORT_FORWARD = (
    "kubectl -n {namespace} port-forward deployment/vgpu-operator 8080, and --operator-url http://localhost:8080"
)


@dataclass(frozen=True, slots=True)
class Question:
    """One request. `body` None: it only reads."""

    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


class Asking:
    """One person's connections; an async context manager. `connection` None: only the operator can be asked."""

    def __init__(self, connection: Connection | None, operator_url: str, namespace: str) -> None:
        self.connection = connection
        self._operator_url = operator_url.rstrip("/")
        self._namespace = namespace
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS, sock_connect=CONNECT_SECONDS)
        self._session = aiohttp.ClientSession(timeout=timeout, headers={"Accept": "application/json"})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def operator(self, question: Question) -> bytes:
        """Ask the operator that leads. Raises ApiRefused, ApiUnavailable, ConfigurationError."""
        if self._operator_url:
            return await self._ask(self._operator_url, question, "the operator")
        base = await self._operator_path()
        try:
            return await self._ask_api(Question(base + question.path, question.params, question.body))
        except ApiRefused as error:
            if error.reason != "Forbidden":
                raise
            way = PORT_FORWARD.format(namespace=self._namespace)
            raise ApiRefused(error.status, error.reason, f"{error}; another way: {way}") from error

    async def api(self, question: Question) -> dict[str, Any]:
        """Ask the API server. Raises ApiRefused, ApiUnavailable, ConfigurationError."""
        answer: dict[str, Any] = json.loads(await self._ask_api(question))
        return answer

    async def _ask_api(self, question: Question) -> bytes:
        if self.connection is None:
            raise ConfigurationError("this needs the API server: name a kubeconfig by --kubeconfig or KUBECONFIG")
        return await self._ask(self.connection.host, question, f"the API server {self.connection.host}")

    async def _operator_path(self) -> str:
        """The leader's pod, found by the Lease that it holds; any replica where that may not be read."""
        folder = f"/api/v1/namespaces/{self._namespace}"
        try:
            pod = await self._leading_pod(folder)
        except ApiRefused as error:
            if error.status == 404:
                raise ConfigurationError(
                    f"no operator was found: there is no Lease {self._namespace}/{names.LEASE_NAME}; is it "
                    "installed, and in this namespace (--operator-namespace)?"
                ) from error
            pod = ""
        if pod:
            return f"{folder}/pods/{pod}:{names.HTTP_PORT}/proxy"
        return f"{folder}/services/{names.HTTP_SERVICE}:{names.HTTP_PORT}/proxy"

    async def _leading_pod(self, folder: str) -> str:
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases/{names.LEASE_NAME}"
        metadata = (await self.api(Question(lease))).get("metadata", {})
        address = (metadata.get("annotations") or {}).get(names.LEASE_ADDRESS_ANNOTATION, "")
        host = address.rpartition(":")[0].strip("[]")
        label, value = names.OPERATOR_POD_LABEL
        pods = await self.api(Question(f"{folder}/pods", {"labelSelector": f"{label}={value}"}))
        found = (pod for pod in pods.get("items", ()) if host and pod.get("status", {}).get("podIP") == host)
        return next((quote(pod["metadata"]["name"]) for pod in found), "")

    async def _ask(self, base: str, question: Question, whom: str) -> bytes:
        query = f"?{urlencode(question.params)}" if question.params else ""
        connection = self.connection if not self._is_operator(base) else None
        try:
            async with self._session.request(
                "GET" if question.body is None else "POST",
                URL(base + question.path + query, encoded=True),
                data=question.body,
                **await _route(connection),
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            told = str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)
            raise ApiUnavailable(0, type(error).__name__, f"{whom} cannot be reached: {told}") from error
        if response.status >= 300:
            raise _failure(response.status, body)
        return body

    def _is_operator(self, base: str) -> bool:
        return bool(self._operator_url) and base == self._operator_url


async def _route(connection: Connection | None) -> dict[str, Any]:
    """How one request goes: the account of the kubeconfig is shown to its API server and to nobody else."""
    if connection is None:
        return {"headers": {"Content-Type": "application/json"}}
    headers = {"Content-Type": "application/json"}
    authorization = await connection.authorize()
    if authorization:
        headers["Authorization"] = authorization
    return {
        "headers": headers,
        "ssl": connection.tls or True,
        "proxy": connection.proxy,
        "server_hostname": connection.server_hostname,
    }


def _failure(status: int, body: bytes) -> ApiError:
    _, reason, message = status_of(body)
    if status >= 500 or status == 429:
        return ApiUnavailable(status, reason, message.strip() or f"HTTP {status}")
    return ApiRefused(status, reason, message.strip() or f"HTTP {status}")
