"""Card health as tables: what an event or a reading does to a card, and how it recovers (R38-R42)."""

import pytest

from tests.agent.samples import make_card, make_reading, make_spec
from vgpu.agent.canonical import spec_of
from vgpu.agent.config import NodeSettings
from vgpu.agent.health import Damping, HealthBook, Observation
from vgpu.agent.source import EventKind, HealthEvent
from vgpu.agent.xid import XID_POLICY, Effect, XidPolicy
from vgpu.api.inventory import Health, InventoryGpu

WELL = {"GPU-0": Observation(confirmed_well=True), "GPU-1": Observation(confirmed_well=True)}
UNSURE = {"GPU-0": Observation()}
LOST = {"GPU-0": Observation("lost: GPU is lost")}


def xid(number: int, uuid: str | None = "GPU-0") -> HealthEvent:
    return HealthEvent(uuid, number, EventKind.XID)


def healthy(book: HealthBook, uuid: str = "GPU-0") -> bool:
    return book.of(uuid).fault is None


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 109])
def test_r40_an_application_fault_leaves_no_trace_on_its_card(number: int) -> None:
    assert HealthBook().after_event(xid(number), 0) == HealthBook()


@pytest.mark.parametrize("number", [48, 62, 64, 74, 79, 95, 119, 140])
def test_a_fatal_xid_takes_its_card_and_no_other(number: int) -> None:
    book = HealthBook().after_event(xid(number), 0).after_reading(WELL, 1)
    assert not healthy(book)
    assert healthy(book, "GPU-1")
    assert book.of("GPU-0").reason.startswith(f"Xid {number}: ")


@pytest.mark.parametrize("number", [63, 92, 94, 154, 999, 12345])
def test_r40_what_is_harmless_or_unknown_is_shown_and_not_fatal(number: int) -> None:
    book = HealthBook().after_event(xid(number), 0).after_reading(WELL, 1)
    assert healthy(book)
    assert book.of("GPU-0").reason.startswith(f"Xid {number}: ")


def test_r40_the_policy_is_data_and_every_ignored_xid_is_an_application_fault() -> None:
    assert {n for n, rule in XID_POLICY.items() if rule.effect is Effect.IGNORED} == {13, 31, 43, 45, 68, 109}
    assert [n for n, rule in XID_POLICY.items() if not rule.recoverable] == [64]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(xid(79, None), id="card not known"),
        pytest.param(HealthEvent(None, None, EventKind.CHANGED), id="waiting failed"),
        pytest.param(HealthEvent("GPU-0", None, EventKind.ECC_SINGLE), id="single-bit ECC"),
    ],
)
def test_an_event_that_names_no_fault_of_a_card_blames_none(event: HealthEvent) -> None:
    assert HealthBook().after_event(event, 0) == HealthBook()


def test_a_double_bit_error_is_fatal_like_its_xid() -> None:
    book = HealthBook().after_event(HealthEvent("GPU-0", None, EventKind.ECC_DOUBLE), 0)
    assert book.of("GPU-0").reason == "Xid 48: double-bit ECC error"


def test_r39_a_card_recovers_by_readings_alone() -> None:
    book = HealthBook().after_event(xid(79), 0)
    assert not healthy(book.after_reading(WELL, 59))
    assert healthy(book.after_reading(WELL, 60))


def test_a_driver_that_cannot_say_well_is_believed_later() -> None:
    book = HealthBook().after_event(xid(48), 0)
    assert not healthy(book.after_reading(UNSURE, 599))
    assert healthy(book.after_reading(UNSURE, 600))


def test_a_repeated_fault_starts_the_quiet_time_anew() -> None:
    book = HealthBook().after_event(xid(48), 0).after_event(xid(48), 50)
    assert not healthy(book.after_reading(WELL, 60))
    assert healthy(book.after_reading(WELL, 110))


def test_what_a_reading_showed_ends_with_the_first_reading_without_it() -> None:
    book = HealthBook().after_reading(LOST, 0)
    assert book.of("GPU-0").reason == "lost: GPU is lost"
    assert healthy(book.after_reading(UNSURE, 1))


def test_r39_flapping_is_damped_longer_each_time() -> None:
    book, now, want = HealthBook(), 0.0, [0, 60, 120, 240, 480]
    for quiet in want:
        book = book.after_reading(LOST, now)
        if quiet:
            assert not healthy(book.after_reading(WELL, now + quiet - 1)), quiet
        now += quiet + 0.1
        book = book.after_reading(WELL, now)
        assert healthy(book), quiet
        now += 1


def test_without_damping_a_flapping_card_would_be_back_at_once() -> None:
    book = HealthBook(damping=Damping(flap_seconds=0))
    for now in range(0, 20, 2):
        book = book.after_reading(LOST, now).after_reading(WELL, now + 1)
        assert healthy(book)


def test_damping_never_passes_its_limit() -> None:
    book, now = HealthBook(), 0.0
    for _ in range(40):
        book = book.after_reading(LOST, now)
        now += 3600
        book = book.after_reading(WELL, now)
        assert healthy(book)


def test_old_falls_are_forgotten() -> None:
    book = HealthBook().after_reading(LOST, 0).after_reading(WELL, 1).after_reading(WELL, 7200)
    assert book.cards == {}


def test_what_no_reading_can_heal_stays() -> None:
    book = HealthBook().after_event(xid(64), 0).after_event(xid(48), 5)
    assert book.after_reading(WELL, 10**6).of("GPU-0").reason.startswith("Xid 64")


def test_r42_a_replaced_card_starts_clean_and_the_old_record_closes() -> None:
    book = HealthBook().after_event(xid(64), 0).after_reading({"GPU-new": Observation()}, 1)
    assert healthy(book, "GPU-new")
    assert book.cards == {}


def test_a_note_does_not_change_by_repetition_and_ends_in_time() -> None:
    book = HealthBook().after_event(xid(63), 0)
    assert book.after_event(xid(63), 9).of("GPU-0").note == book.of("GPU-0").note
    assert book.after_reading(WELL, 7199).of("GPU-0").reason
    assert book.after_reading(WELL, 7200).of("GPU-0").reason == ""


def test_next_look_is_when_a_reading_may_show_recovery() -> None:
    assert HealthBook().next_look(0) is None
    book = HealthBook().after_event(xid(79), 0).after_reading(WELL, 10)
    assert book.next_look(10) == 50
    assert HealthBook().after_event(xid(64), 0).next_look(0) is None


@pytest.mark.parametrize("number", [79, 64, 63])
def test_r34_a_restart_changes_no_health(number: int) -> None:
    reading = make_reading()
    seen = {card.uuid: Observation(confirmed_well=True) for card in reading.cards}
    before = HealthBook().after_event(xid(number), 0).after_reading(seen, 1)
    published = spec_of(reading, NodeSettings(), before, None)
    assert published is not None
    restarted = HealthBook().adopt(published.gpus, 5000).after_reading(seen, 5001)
    assert spec_of(reading, NodeSettings(), restarted, published) == published


def test_an_unhealthy_card_of_the_last_process_recovers_like_any_other() -> None:
    published = make_spec(make_reading(make_card(0, problem="the driver asks for a GPU reset")))
    book = HealthBook().adopt(published.gpus, 0)
    assert not healthy(book)
    assert healthy(book.after_reading(WELL, 1))


def published_with(number: int) -> tuple[InventoryGpu, ...]:
    """What the inventory says of two cards after this Xid on the first."""
    reading = make_reading()
    seen = {card.uuid: Observation(confirmed_well=True) for card in reading.cards}
    spec = spec_of(reading, NodeSettings(), HealthBook().after_event(xid(number), 0).after_reading(seen, 1), None)
    assert spec is not None
    return spec.gpus


@pytest.mark.parametrize("number", [79, 64, 63])
def test_the_inventory_has_the_number_of_the_xid_beside_its_words(number: int) -> None:
    first, second = published_with(number)
    assert (first.xid, second.xid) == (number, None)
    assert first.health_reason.startswith(f"Xid {number}: ")


@pytest.mark.parametrize(
    ("number", "rebooted", "want"),
    [
        pytest.param(79, True, "", id="a reset mends it"),
        pytest.param(79, False, "Xid 79", id="the agent alone was restarted"),
        pytest.param(64, True, "Xid 64", id="no reset mends it"),
        pytest.param(63, True, "", id="the reset completed it"),
        pytest.param(63, False, "Xid 63", id="it waits for a reset"),
    ],
)
def test_r43_a_reboot_is_no_restart_of_the_agent(number: int, rebooted: bool, want: str) -> None:
    book = HealthBook().adopt(published_with(number), 0, rebooted=rebooted).after_reading(WELL, 1)
    assert book.of("GPU-0").reason.partition(":")[0] == want


def test_r43_what_happened_after_the_reboot_is_not_forgotten_with_what_was_before() -> None:
    book = HealthBook().after_event(xid(95), 0).adopt(published_with(79), 1, rebooted=True)
    assert book.of("GPU-0").xid == 95


@pytest.mark.parametrize(
    ("number", "effect", "want"),
    [
        (79, Effect.IGNORED, (Health.HEALTHY, "")),
        (79, Effect.SHOWN, (Health.HEALTHY, "Xid 79: the card has fallen off the bus")),
        (31, Effect.FATAL, (Health.UNHEALTHY, "Xid 31: memory page fault")),
        (999, Effect.FATAL, (Health.UNHEALTHY, "Xid 999: unknown")),
        (999, Effect.IGNORED, (Health.HEALTHY, "")),
    ],
)
def test_r40_a_nodes_settings_go_over_the_table(number: int, effect: Effect, want: tuple[Health, str]) -> None:
    book = HealthBook(policy=XidPolicy({number: effect})).after_event(xid(number), 0)
    spec = spec_of(make_reading(), NodeSettings(), book, None)
    assert spec is not None
    assert (spec.gpus[0].health, spec.gpus[0].health_reason) == want


def test_r40_what_the_settings_no_longer_hold_for_a_fault_ends_with_the_next_start() -> None:
    lenient = HealthBook(policy=XidPolicy({79: Effect.IGNORED}))
    assert lenient.adopt(published_with(79), 0).cards == {}
    assert HealthBook().adopt(published_with(79), 0).of("GPU-0").xid == 79


def test_r40_a_fault_by_the_settings_alone_can_be_recovered_from() -> None:
    """Xid 64 is final by the table; one that a person lists is not, whatever its number."""
    book = HealthBook(policy=XidPolicy({63: Effect.FATAL})).after_event(xid(63), 0)
    assert not healthy(book)
    assert healthy(book.after_reading(WELL, 60))
