"""A whole control plane on loopback, owned by this process and gone with it.

Enters: options and the built programs. Leaves: a running cluster with its own folder, ports, keys and logs.
May not live here: what its programs are told (components) and what can be asked of any cluster (access).
"""

import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from devcluster import components, etcd
from devcluster.access import ClusterAccess, Target
from devcluster.audit import AuditSlice, read_audit
from devcluster.build import ensure_binaries
from devcluster.components import Options, Site
from devcluster.credentials import Account, create_credentials
from devcluster.errors import ApiRefused, StartFailed
from devcluster.folders import ClusterFolder
from devcluster.ports import free_ports
from devcluster.probes import is_healthy, is_listening
from devcluster.process import Command, Process, Usage

READY_TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.05
GRACE_SECONDS = 70.0
ADMIN_GROUP = "system:masters"
ADMIN = "devcluster-admin"
APISERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
KWOK = "kwok"
SCHEDULER = "kube-scheduler"


class Cluster(ClusterAccess):
    """Context manager: running and ready inside the block, with nothing left behind it."""

    def __init__(
        self, options: Options | None = None, *, folder: Path | None = None, leashed: bool = True
    ) -> None:
        """Choose folder and ports. A given folder is the caller's; not leashed means outliving this process."""
        self.options = options or Options()
        self._leashed = leashed
        binaries = ensure_binaries()
        self._own_folder = None if folder else ClusterFolder()
        path = folder or self._own_folder.path  # type: ignore[union-attr]
        etcd_port, peer_port, api_port = free_ports(3)
        self.site = Site(path, binaries, etcd_port, peer_port, api_port)
        # One administrator's account for each of our own callers, so that the audit log tells them apart.
        self._tokens = {user: secrets.token_hex(16) for user in (ADMIN, CONTROLLER_MANAGER, KWOK, SCHEDULER)}
        own = [Account(f"system:{user}", (ADMIN_GROUP,), token) for user, token in self._tokens.items()]
        accounts = [*own, *self.options.accounts]
        self._credentials = create_credentials(path / "credentials", accounts, self.options.server_addresses)
        self.processes: dict[str, Process] = {}
        kubectl = self.site.binaries.path("kubectl")
        target = Target(self.site.server, self._credentials.ca.read_bytes(), self._tokens[ADMIN], kubectl)
        super().__init__(target, path)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start what the options name and wait until the API server is ready. Raises StartFailed."""
        try:
            self._run("etcd", components.etcd(self.site))
            self.start_apiserver()
            self.start_controller_manager()
            self.start_kwok()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process hard and remove the folder, unless the folder is the caller's."""
        for process in self.processes.values():
            process.signal(signal.SIGKILL)
        for process in self.processes.values():
            process.kill()
        self.processes.clear()
        if self._own_folder is not None:
            self._own_folder.close()

    def start_apiserver(self) -> None:
        """Start the API server on its port and data, and wait until it is ready. Raises StartFailed."""
        arguments = components.apiserver(self.site, self._credentials, self.options)
        self._wait_up(self._run(APISERVER, arguments), self._answers_ready)

    def stop_apiserver(self, *, hard: bool = True) -> None:
        """End the API server; not hard can take a minute while watches are open."""
        process = self.processes.pop(APISERVER)
        if hard:
            process.kill()
        else:
            process.terminate(GRACE_SECONDS)

    def restart_apiserver(self, *, hard: bool = True) -> None:
        """End the API server and start it again: same address, same data."""
        self.stop_apiserver(hard=hard)
        self.start_apiserver()

    def start_controller_manager(self) -> None:
        """Start kube-controller-manager if the options want it."""
        if self.options.controller_manager:
            kubeconfig = self.kubeconfig(self._tokens[CONTROLLER_MANAGER])
            arguments = components.controller_manager(self.site, self._credentials, self.options, kubeconfig)
            self._run(CONTROLLER_MANAGER, arguments)

    def start_kwok(self) -> None:
        """Start kwok if the options want it."""
        if self.options.kwok:
            home = {"HOME": str(self.site.folder)}  # it would read a configuration in the user's home folder
            self._run(KWOK, components.kwok(self.site, self.kubeconfig(self._tokens[KWOK])), home)

    def start_scheduler(self, config: Path, *, token: str | None = None, name: str = SCHEDULER) -> Process:
        """Start a kube-scheduler and wait until it is healthy; several may run under different names.

        The configuration's own kubeconfig is replaced by one for the token (an administrator's without one).
        Raises StartFailed, ValueError when the file is no KubeSchedulerConfiguration.
        """
        [port] = free_ports(1)
        effective = self.site.folder / f"{name}.json"
        components.effective_scheduler_config(config, effective, self.kubeconfig(token or self._tokens[SCHEDULER]))
        process = self._run(name, components.scheduler(self.site, effective, port))
        self.expose(port)
        self._wait_up(process, lambda: is_healthy(port))
        return process

    def stop_scheduler(self, name: str = SCHEDULER) -> None:
        """End a kube-scheduler hard."""
        self.end_process(name)

    def start_forwarder(self, port: int, *, namespace: str, lease: str, annotation: str) -> Process:
        """Forward a loopback port to the address that a Lease's annotation names, wherever it moves."""
        arguments = [
            sys.executable, "-m", "devcluster.forwarder", "--kubeconfig", str(self.kubeconfig()),
            "--port", str(port), "--namespace", namespace, "--lease", lease, "--annotation", annotation,
        ]  # fmt: skip
        root = str(Path(__file__).parent.parent)
        process = self._run("forwarder", arguments, {"PYTHONPATH": root})
        self.expose(port)
        self._wait_up(process, lambda: is_listening(port))
        return process

    def start_process(
        self, name: str, arguments: Sequence[str], environment: dict[str, str] | None = None
    ) -> Process:
        """Start a program of the caller's (an operator, say) that ends with this cluster; log in NAME.log."""
        return self._run(name, list(arguments), environment)

    def end_process(self, name: str) -> None:
        """End one process hard (SIGKILL) and forget it."""
        self.processes.pop(name).kill()

    def pause(self, name: str) -> None:
        """Stop a process where it stands (SIGSTOP)."""
        self.processes[name].signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a paused process go on."""
        self.processes[name].signal(signal.SIGCONT)

    def usage(self, name: str) -> Usage:
        """Memory and processor time of one process."""
        return self.processes[name].usage()

    def expose(self, port: int) -> None:
        """Let this process reach a loopback port of the cluster's programs: it can already."""

    def compact_etcd(self) -> int:
        """Make etcd forget everything before its current revision, which is handed back.

        The API server still serves older versions from its watch cache: see `forget_history`.
        """
        return etcd.compact(self.site.etcd_port)

    def forget_history(self) -> int:
        """Compact etcd and restart the API server: every watch from an older version now gets 410."""
        revision = self.compact_etcd()
        self.restart_apiserver()
        return revision

    def audit_events(self, since: int = 0) -> AuditSlice:
        """What the API server was asked since a position of an earlier slice (0: since its start)."""
        return read_audit(self.site.audit_log, since)

    def _run(self, name: str, arguments: list[str], environment: dict[str, str] | None = None) -> Process:
        if name in self.processes and self.processes[name].alive():
            raise StartFailed(f"{name} runs already")
        log = self.site.folder / f"{name}.log"
        process = self._launch(Command(name, arguments, log, environment or {}, self._leashed))
        self.processes[name] = process
        return process

    def _launch(self, command: Command) -> Process:
        """Run a command where this cluster's programs run: here."""
        return Process(command)

    def _wait_up(self, process: Process, condition: Callable[[], bool]) -> None:
        """Wait for a process to come up; one that ends meanwhile is reported at once, with its log."""
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while not condition():
            process.require_alive()
            if time.monotonic() > deadline:
                raise StartFailed(f"{process.name} was not ready in time:\n{process.log_tail()}")
            time.sleep(POLL_SECONDS)

    def _answers_ready(self) -> bool:
        self.processes["etcd"].require_alive()
        try:
            self.api.get("/readyz")
        except (ApiRefused, OSError):
            return False
        return True
