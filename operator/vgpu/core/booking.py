"""A placement that is on its way to the API server: the ledger counts it before any event shows it.

Values only; the ledger begins and ends bookings, the writer carries them out.
"""

from dataclasses import dataclass

from vgpu.core.placement import Placement


@dataclass(frozen=True, slots=True)
class Booking:
    """A placement that is being written. It ends by an event showing this uid bound, by the pod's end or
    deletion, or by unbook with its nonce (a definite refusal, confirmed by a read)."""

    uid: str
    namespace: str
    name: str
    node: str
    nonce: str
    placement: Placement
