"""Card health: folds events and readings into healthy or not, with a reason. Pure: `now` is passed in.

Events and observations enter, a new HealthBook leaves. No clock, no NVML, no logging. A card falls by an event
(Xid, ECC) or by what a reading shows; it recovers by readings alone, without a restart of anything, and a card
that falls again and again has to stay quiet for longer each time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from vgpu.agent.source import EventKind, HealthEvent
from vgpu.agent.xid import Effect, XidPolicy
from vgpu.api.inventory import Health, InventoryGpu

_DOUBLE_BIT_XID = 48


@dataclass(frozen=True, slots=True)
class Damping:
    """How long a card must be quiet before it counts as well again."""

    confirmed_seconds: float = 60
    """After an event, when the driver says that no recovery action is due."""
    unconfirmed_seconds: float = 600
    """After an event, when the driver cannot say so."""
    flap_seconds: float = 60
    """At the second fall; doubles with each further one."""
    longest_seconds: float = 3600
    forget_seconds: float = 7200
    """Falls longer ago than this count no more, and notes end."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one reading says of one card."""

    problem: str = ""
    confirmed_well: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a card takes nothing new. `last_bad` is when it was last seen bad; `xid` None: a reading showed it."""

    reason: str
    last_bad: float
    xid: int | None = None
    recoverable: bool = True


@dataclass(frozen=True, slots=True)
class CardHealth:
    """What is remembered of one card."""

    fault: Fault | None = None
    falls: int = 0
    fell_at: float = 0
    note: str = ""
    noted_at: float = 0
    noted_xid: int | None = None
    confirmed_well: bool = False

    @property
    def reason(self) -> str:
        """The text of healthReason."""
        return self.fault.reason if self.fault else self.note

    @property
    def xid(self) -> int | None:
        """The Xid that `reason` tells of."""
        return self.fault.xid if self.fault else self.noted_xid


@dataclass(frozen=True, slots=True)
class HealthBook:
    """The health of all cards of a node, by UUID. A card that is not in it is well."""

    cards: Mapping[str, CardHealth] = field(default_factory=dict)
    damping: Damping = field(default_factory=Damping)
    policy: XidPolicy = field(default_factory=XidPolicy)

    def of(self, uuid: str) -> CardHealth:
        """What is remembered of one card."""
        return self.cards.get(uuid, CardHealth())

    def after_event(self, event: HealthEvent, now: float) -> "HealthBook":
        """Fold one event. An event without a card blames none."""
        xid = _DOUBLE_BIT_XID if event.kind is EventKind.ECC_DOUBLE else event.xid
        if event.uuid is None or xid is None or event.kind not in (EventKind.XID, EventKind.ECC_DOUBLE):
            return self
        rule, card = self.policy.rule(xid), self.of(event.uuid)
        if rule.effect is Effect.IGNORED:
            return self
        if rule.effect is Effect.SHOWN:
            note = replace(card, note=self.policy.describe(xid), noted_at=now, noted_xid=xid)
            return self._with(event.uuid, note)
        if card.fault and not card.fault.recoverable:
            return self
        fault = Fault(self.policy.describe(xid), now, xid, rule.recoverable)
        return self._with(event.uuid, self._fallen(card, fault, now))

    def after_reading(self, seen: Mapping[str, Observation], now: float) -> "HealthBook":
        """Fold one successful reading. A card that is no longer there takes its record with it."""
        kept = {uuid: card for uuid in seen if (card := self._observe(uuid, seen[uuid], now)) != CardHealth()}
        return replace(self, cards=kept)

    def adopt(self, published: Iterable[InventoryGpu], now: float, *, rebooted: bool = False) -> "HealthBook":
        """Start from what the inventory says, so that a restart of the agent heals nothing by itself.

        `rebooted`: the machine was started anew since then, which reset its cards: only what no reset mends stays.
        What the policy no longer holds for a fault, or no longer shows, is let go.
        """
        cards = dict(self.cards)
        for gpu in published:
            card = self._adopted(gpu, now)
            stays = card.fault is not None and not card.fault.recoverable
            if stays or (not rebooted and card != CardHealth()):
                cards.setdefault(gpu.uuid, card)
        return replace(self, cards=cards)

    def _adopted(self, gpu: InventoryGpu, now: float) -> CardHealth:
        rule = None if gpu.xid is None else self.policy.rule(gpu.xid)
        if gpu.health is not Health.HEALTHY and (rule is None or rule.effect is Effect.FATAL):
            recoverable = rule is None or rule.recoverable
            fault = Fault(gpu.health_reason or "unhealthy", now, gpu.xid, recoverable)
            return CardHealth(fault, falls=1, fell_at=now)
        if gpu.health_reason and (rule is None or rule.effect is Effect.SHOWN):
            return CardHealth(note=gpu.health_reason, noted_at=now, noted_xid=gpu.xid)
        return CardHealth()

    def next_look(self, now: float) -> float | None:
        """Seconds until a reading may show that a card has recovered or a note has ended; None: not foreseen."""
        moments = [
            card.fault.last_bad + self._quiet_seconds(card, card.fault)
            for card in self.cards.values()
            if card.fault and card.fault.recoverable
        ] + [card.noted_at + self.damping.forget_seconds for card in self.cards.values() if card.note]
        ahead = [moment - now for moment in moments if moment > now]
        return min(ahead, default=None)

    def _observe(self, uuid: str, seen: Observation, now: float) -> CardHealth:
        card = replace(self.of(uuid), confirmed_well=seen.confirmed_well)
        fault = card.fault
        if card.note and now - card.noted_at >= self.damping.forget_seconds:
            card = replace(card, note="", noted_at=0, noted_xid=None)
        if seen.problem:
            if fault and fault.xid is not None:
                return replace(card, fault=replace(fault, last_bad=now))
            return self._fallen(card, Fault(seen.problem, now), now)
        if fault and fault.recoverable and now - fault.last_bad >= self._quiet_seconds(card, fault):
            card = replace(card, fault=None)
        if card.fault is None and now - card.fell_at >= self.damping.forget_seconds:
            card = replace(card, falls=0, fell_at=0)
        return card if card.fault or card.note or card.falls else CardHealth()

    def _fallen(self, card: CardHealth, fault: Fault, now: float) -> CardHealth:
        if card.fault:
            return replace(card, fault=fault)
        recent = card.falls if now - card.fell_at < self.damping.forget_seconds else 0
        return replace(card, fault=fault, falls=recent + 1, fell_at=now)

    def _quiet_seconds(self, card: CardHealth, fault: Fault) -> float:
        damping = self.damping
        flap = damping.flap_seconds * 2 ** min(card.falls - 2, 30) if card.falls > 1 else 0
        confirmed = damping.confirmed_seconds if card.confirmed_well else damping.unconfirmed_seconds
        return min(max(flap, 0 if fault.xid is None else confirmed), damping.longest_seconds)

    def _with(self, uuid: str, card: CardHealth) -> "HealthBook":
        return replace(self, cards={**self.cards, uuid: card})
