"""The exception tree. A "no" is never an exception: see core.reasons.Refusal.

VgpuError
├── ConfigurationError      a setting or file that a person gave is wrong; the process does not start
├── MalformedObject         an object or annotation cannot be read; it alone is quarantined
├── ApiError                the API server gave an answer that is not success
│   ├── ApiRefused          a definite no (4xx but 408 and 429): nothing was written
│   └── ApiUnavailable      429, 5xx or no connection: nothing is known to be written, try again later
│       ├── StreamSilent    a stream that was answered brought nothing for as long as one waits: open it again
│       └── LeaseRunsOut    this process leads, but not for long enough to write: nothing was sent, try again
├── OutcomeUnknown          the request was sent and no answer came: it may have been carried out
├── NotLeading              a write was asked for while this process does not lead: it is not ours any more
└── SourceError             the cards of a node could not be read
"""


class VgpuError(Exception):
    """Root of all our exceptions."""


class ConfigurationError(VgpuError):
    """A setting or file that a person gave is wrong; the message says which and how to mend it."""


class MalformedObject(VgpuError):
    """An object or annotation cannot be read; the message names the field and what was expected."""


class ApiError(VgpuError):
    """The API server answered, and not with success.

    `status` is the HTTP status, `reason` the Status object's reason (or ""), str() its message.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class ApiRefused(ApiError):
    """A definite no: the request was not carried out."""


class ApiUnavailable(ApiError):
    """429, 5xx or a connection that was never made; `status` 0 when there was no connection.

    `retry_after_seconds` is what the server asked for (Retry-After), 0 when it asked for nothing.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after_seconds: float = 0) -> None:
        super().__init__(status, reason, message)
        self.retry_after_seconds = retry_after_seconds


class StreamSilent(ApiUnavailable):
    """A stream that was answered brought nothing for as long as one waits: nothing may have happened."""


class LeaseRunsOut(ApiUnavailable):
    """The Lease is held, but not for as long as a write may take. Nothing was sent. It is renewed, and then the
    write may be made, or it is lost, and then NotLeading says so."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "", message)


class OutcomeUnknown(VgpuError):
    """The request was sent and no answer came (time-out, connection lost): it may have been carried out."""


class NotLeading(VgpuError):
    """A write was asked for while this process does not hold the Lease: whoever leads next looks at everything
    anew, also where that is this process again."""


class SourceError(VgpuError):
    """The cards could not be read; the message says what NVML or the file said."""
