"""Where the API server is and how we show who we are.

Enters: a kubeconfig or the pod's own account, read by kubernetes_asyncio. Leaves: a Connection that gives the
Authorization header for each request. May not live here: requests.
"""

import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, kube_config
from kubernetes_asyncio.config.incluster_config import load_incluster_config

from vgpu.errors import ConfigurationError

REFRESH_SECONDS = 60.0
# The library reads a kubeconfig without checking its shape: a wrong one ends in any of these.
UNREADABLE = (ConfigException, OSError, ValueError, TypeError, KeyError, AssertionError)

Authorize = Callable[[], Awaitable[str | None]]


async def no_authorization() -> str | None:
    """The Authorization header of somebody without a token."""
    return None


@dataclass(frozen=True, slots=True)
class Connection:
    """The API server's address, its TLS and the account. `authorize` is asked before every request."""

    host: str
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    proxy: str | None = None
    authorize: Authorize = no_authorization


async def load_connection(kubeconfig: Path | None) -> Connection:
    """Read the kubeconfig, or the pod's own account when it is None. Raises ConfigurationError."""
    configuration = Configuration()
    if kubeconfig is not None:
        _check_readable(kubeconfig)
    try:
        if kubeconfig is None:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # the library's function has no types
            authorize = _header_of(configuration)
        else:
            loader = await kube_config.load_kube_config(
                config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
            )
            authorize = _Refreshed(loader, configuration).header
    except (*UNREADABLE, yaml.YAMLError) as error:
        source = "the pod's own account" if kubeconfig is None else f"kubeconfig {kubeconfig}"
        raise ConfigurationError(f"{source} cannot be used: {error}") from error
    host = str(configuration.host or "").rstrip("/")
    return Connection(
        host=host,
        tls=_tls(host, configuration),
        server_hostname=configuration.tls_server_name or None,
        proxy=configuration.proxy or None,
        authorize=authorize,
    )


def _check_readable(kubeconfig: Path) -> None:
    """The library takes a file that is not there for an empty one."""
    try:
        with kubeconfig.open("rb"):
            return
    except FileNotFoundError as error:
        raise ConfigurationError(f"kubeconfig {kubeconfig} does not exist") from error
    except OSError as error:
        raise ConfigurationError(f"kubeconfig {kubeconfig} cannot be read: {error.strerror}") from error


def _tls(host: str, configuration: Configuration) -> ssl.SSLContext | None:
    if not host.startswith("https"):
        return None
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _header_of(configuration: Configuration) -> Authorize:
    """The in-cluster loader refreshes its token file by a hook that runs whenever the key is asked for."""

    async def header() -> str | None:
        value = await configuration.get_api_key_with_prefix("BearerToken")
        return str(value).strip() if value else None

    return header


class _Refreshed:
    """A kubeconfig's token file or exec plugin is read once by the library: read it again every minute."""

    def __init__(self, loader: kube_config.KubeConfigLoader, configuration: Configuration) -> None:
        self._loader = loader
        self._configuration = configuration
        self._read_at = time.monotonic()

    async def header(self) -> str | None:
        now = time.monotonic()
        if now - self._read_at >= REFRESH_SECONDS:
            self._read_at = now
            await self._loader.load_and_set(self._configuration)
        value = self._configuration.api_key.get("BearerToken")
        return str(value).strip() if value else None
