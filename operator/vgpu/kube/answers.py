"""What an HTTP answer of the API server means for the caller.

Enters: status, headers and body. Leaves: nothing for a success, otherwise one of our exceptions.
May not live here: requests, retries.
"""

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from vgpu.errors import ApiRefused, ApiUnavailable, OutcomeUnknown, VgpuError

# The API server answers 504 (and 408) when a request ran out of time, and 500 when etcd did ("etcdserver:
# request timed out") or when it panicked after storing; a proxy answers 502 for a lost connection. In all of
# them a write may have been carried out. 429 and 503 are said before a request is worked on.
UNKNOWN_AFTER_WRITE = frozenset({408, 500, 502, 504})
TRY_AGAIN = frozenset({408, 429})
EXCERPT_CHARACTERS = 500


class _Status(BaseModel):
    reason: str = ""
    message: str = ""
    code: int = 0


def status_of(body: bytes) -> tuple[int, str, str]:
    """Code, reason and message of a Status object; (0, "", start of the text) for anything else."""
    try:
        status = _Status.model_validate_json(body)
    except ValidationError:
        return 0, "", body[:EXCERPT_CHARACTERS].decode("utf-8", "replace")
    return status.code, status.reason, status.message


def raise_failure(status: int, body: bytes, headers: Mapping[str, str], *, is_write: bool) -> None:
    """Raise what this answer means; nothing for a success (2xx)."""
    if status < 200 or status >= 300:
        raise _failure(status, body, headers, is_write=is_write)


def _failure(status: int, body: bytes, headers: Mapping[str, str], *, is_write: bool) -> VgpuError:
    _, reason, message = status_of(body)
    if is_write and status in UNKNOWN_AFTER_WRITE:
        return OutcomeUnknown(f"HTTP {status} {reason}: {message}")
    if status >= 500 or status in TRY_AGAIN:
        return ApiUnavailable(status, reason, message, _retry_after_seconds(headers))
    return ApiRefused(status, reason, message)


def _retry_after_seconds(headers: Mapping[str, str]) -> float:
    """The API server sends whole seconds; the date form of HTTP counts as nothing asked."""
    value = headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else 0.0
