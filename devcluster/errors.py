"""What can go wrong with a development cluster.

DevclusterError
  BuildFailed       the programs could not be built
  StartFailed       a process ended or did not become ready; the message carries the end of its log
  KubectlFailed     kubectl ended with an error; its exit status and output are attached
  ApiRefused        the API server answered with an error status
  NotSupported      asked of an existing cluster what only an own one can do
"""

from dataclasses import dataclass


class DevclusterError(Exception):
    """Root of this package's errors."""


class BuildFailed(DevclusterError):
    """The programs could not be built."""


class StartFailed(DevclusterError):
    """A process ended or did not become ready in time."""


class NotSupported(DevclusterError):
    """Asked of an existing cluster what only an own one can do."""


@dataclass(eq=False)
class KubectlFailed(DevclusterError):
    """kubectl ended with an error."""

    status: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        return f"kubectl exited with {self.status}: {self.stderr.strip() or self.stdout.strip()}"


@dataclass(eq=False)
class ApiRefused(DevclusterError):
    """The API server answered with an error: HTTP code, machine-readable reason, message for people."""

    code: int
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.code} {self.reason}: {self.message}"
