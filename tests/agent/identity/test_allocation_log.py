"""The log of answers: on disk before it is told, whole after any crash, forgetting nothing that may be used."""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.agent.identity.bench import assign
from vgpu.agent.identity.allocation_log import LONGEST_RUN, SPARE_LINES, AllocationLog, Grant, GrantedContainer
from vgpu.agent.identity.matching import Entry, Ids
from vgpu.errors import ConfigurationError


def ids(*numbers: int) -> Ids:
    return frozenset(f"slot-{number}" for number in numbers)


def grant_of(uid: str, *entries: Entry) -> Grant:
    containers = tuple(GrantedContainer(nonce=entry.nonce, name=f"c{n}") for n, entry in enumerate(entries))
    return Grant(
        uid=uid, namespace="ns", name=uid, assignment=assign(uid, c=[("card-0", 1)]), containers=containers
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "allocations.jsonl"


def reopened(path: Path) -> AllocationLog:
    return AllocationLog(path)


def state(log: AllocationLog) -> tuple[Sequence[Entry], dict[str, Grant]]:
    return log.entries, dict(log.grants)


def test_answers_and_grants_are_there_after_a_restart(path: Path) -> None:
    log = AllocationLog(path)
    first, second = log.answer([ids(1, 2), ids(3)])
    log.grant(grant_of("p", first))
    assert first.nonce != second.nonce
    assert second.sequence == first.sequence + 1
    assert state(reopened(path)) == state(log)


def test_the_line_is_on_disk_when_the_answer_is_given(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(path.read_bytes()))
    log = AllocationLog(path)
    synced.clear()
    [entry] = log.answer([ids(1)])
    assert entry.nonce.encode() in synced[-1]


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_torn_last_line_is_cut_off_and_the_rest_stays(path: Path, cut: int) -> None:
    log = AllocationLog(path)
    [kept] = log.answer([ids(1)])
    log.answer([ids(2)])
    os.truncate(path, path.stat().st_size - cut)
    again = reopened(path)
    assert again.entries == (kept,)
    [later] = again.answer([ids(3)])
    assert reopened(path).entries == (kept, later)


def test_an_unreadable_line_in_the_middle_costs_that_line_alone(path: Path) -> None:
    log = AllocationLog(path)
    entries = log.answer([ids(1), ids(2), ids(3)])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"\0\0rubbish\n", lines[2]]))
    assert reopened(path).entries == (entries[0], entries[2])


def test_a_full_disk_leaves_neither_half_a_line_nor_a_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AllocationLog(path)
    [kept] = log.answer([ids(1)])
    write = os.write

    def half(file: int, content: bytes) -> int:
        write(file, content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space left"):
        log.answer([ids(2)])
    with pytest.raises(OSError, match="No space left"):
        log.grant(grant_of("p", kept))
    monkeypatch.setattr(os, "write", write)
    [later] = log.answer([ids(3)])
    assert log.entries == (kept, later)
    assert state(reopened(path)) == ((kept, later), {})


def test_the_owner_of_slots_is_told_only_while_nobody_else_was_given_one_of_them(path: Path) -> None:
    log = AllocationLog(path)
    init, app = log.answer([ids(1, 2), ids(1)])
    grant = grant_of("p", init, app)
    log.grant(grant)
    assert log.granted(ids(1, 2)) == grant
    assert log.granted(ids(1)) == grant
    assert log.granted(ids(2)) is None
    assert log.granted(ids(9)) is None
    log.answer([ids(2, 3)])
    assert log.granted(ids(1)) == grant
    assert log.granted(ids(1, 2)) is None
    assert log.granted(ids(2, 3)) is None


def test_gone_pods_are_forgotten_and_waiting_answers_are_not(path: Path) -> None:
    log = AllocationLog(path)
    gone, waiting = log.answer([ids(1), ids(2)])
    log.grant(grant_of("p", gone))
    log.forget(["p"])
    assert state(log) == ((waiting,), {})


def test_answers_of_pods_that_never_started_do_not_pile_up(path: Path) -> None:
    log = AllocationLog(path)
    for number in range(LONGEST_RUN * 4):
        log.answer([ids(number % 8)])
    log.forget([])
    assert len(log.entries) <= LONGEST_RUN + 8


def test_an_answer_whose_slots_were_given_out_again_within_one_pod_is_kept(path: Path) -> None:
    log = AllocationLog(path)
    init, app = log.answer([ids(1), ids(1)])
    log.forget([])
    assert log.entries == (init, app)


def test_the_file_is_rewritten_when_most_of_it_is_out_of_date(path: Path) -> None:
    log = AllocationLog(path)
    for number in range(SPARE_LINES):
        [entry] = log.answer([ids(1)])
        log.grant(grant_of(f"p{number}", entry))
        log.forget([f"p{number}"])
    [kept] = log.answer([ids(2)])
    assert len(path.read_bytes().splitlines()) <= SPARE_LINES + 3
    again = reopened(path)
    assert kept in again.entries
    [later] = again.answer([ids(3)])
    assert later.sequence > kept.sequence


def test_a_number_is_never_given_twice_although_all_was_forgotten(path: Path) -> None:
    log = AllocationLog(path)
    [entry] = log.answer([ids(1)])
    log.grant(grant_of("p", entry))
    log.forget(["p"])
    log.rewrite()
    assert state(reopened(path)) == ((), {})
    assert reopened(path).answer([ids(1)])[0].sequence > entry.sequence


def test_a_rewrite_that_fails_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AllocationLog(path)
    [entry] = log.answer([ids(1)])
    fsync = os.fsync
    counter = itertools.count()

    def failing(file: int) -> None:
        if next(counter) == 0:
            raise OSError(28, "No space left on device")
        fsync(file)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="No space left"):
        log.rewrite()
    monkeypatch.setattr(os, "fsync", fsync)
    [later] = log.answer([ids(2)])
    assert reopened(path).entries == (entry, later)


def test_lines_are_plain_json(path: Path) -> None:
    log = AllocationLog(path, make_nonce=lambda: "00112233aabbccdd")
    log.answer([ids(2, 1)])
    assert json.loads(path.read_text()) == {
        "v": 1,
        "sequence": 2,
        "nonce": "00112233aabbccdd",
        "ids": ["slot-1", "slot-2"],
    }


def test_a_restart_of_the_agent_or_of_kubelet_leaves_a_gap(path: Path) -> None:
    log = AllocationLog(path)
    [first] = log.answer([ids(1)])
    log.leave_gap()
    [second] = log.answer([ids(2)])
    [third] = reopened(path).answer([ids(3)])
    assert second.sequence > first.sequence + 1
    assert third.sequence > second.sequence + 1


def remove(path: Path) -> None:
    path.unlink()


def remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def put_another_in_place(path: Path) -> None:
    other = path.with_name("copy")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def cut(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("meddle", [remove, remove_folder, put_another_in_place, cut])
def test_what_is_answered_after_somebody_meddled_with_the_file_is_on_disk(
    path: Path, meddle: Callable[[Path], None]
) -> None:
    log = AllocationLog(path)
    [first] = log.answer([ids(1)])
    log.grant(grant_of("p", first))
    meddle(path)
    log.answer([ids(2)])
    assert state(reopened(path)) == state(log)
    meddle(path)
    log.grant(grant_of("q", log.answer([ids(3)])[0]))
    assert state(reopened(path)) == state(log)


def test_without_looking_for_it_the_answer_would_be_lost(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AllocationLog, "_is_in_place", lambda _: True)
    log = AllocationLog(path)
    path.unlink()
    log.answer([ids(1)])
    assert not reopened(path).entries


def test_a_rewrite_whose_folder_cannot_be_synced_loses_nothing_that_follows(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AllocationLog(path)
    log.answer([ids(1)])
    with monkeypatch.context() as broken:
        broken.setattr("vgpu.agent.identity.allocation_log._sync_folder", raise_full)
        with pytest.raises(OSError, match="full"):
            log.rewrite()
    log.answer([ids(2)])
    assert state(reopened(path)) == state(log)


def raise_full(_: Path) -> None:
    raise OSError("full")


def test_many_unreadable_lines_are_told_in_one(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = AllocationLog(path)
    [kept] = log.answer([ids(1)])
    with path.open("ab") as file:
        file.write(b"\xff\x00x\n" * 300 + b"[" * 5000 + b"\n")
    caplog.clear()
    assert reopened(path).entries == (kept,)
    assert [record.getMessage() for record in caplog.records] == [
        f"lines of the allocation log cannot be read file={path} lines=301 first=2"
    ]


def test_a_grant_whose_assignment_cannot_be_read_is_none(path: Path) -> None:
    log = AllocationLog(path)
    log.grant(grant_of("p", log.answer([ids(1)])[0]))
    path.write_text(path.read_text().replace('"assignment":"{', '"assignment":"{{'))
    assert not reopened(path).grants


@pytest.mark.parametrize("line", ['{"v":2,"answers":[]}', '{"v":3,"nonce":7}'])
def test_a_file_of_a_later_version_is_refused_and_left_as_it_is(path: Path, line: str) -> None:
    AllocationLog(path).answer([ids(1)])
    content = path.read_text() + line + "\n"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=r"is of a later version \(v \d, known is 1\): run that version"):
        AllocationLog(path)
    assert path.read_text() == content


def test_a_folder_in_the_files_place_is_told_in_words(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=r"allocations.jsonl cannot be used: .*Is a directory"):
        AllocationLog(path)


def test_a_file_in_the_folders_place_is_told_in_words(path: Path) -> None:
    path.parent.write_text("a file")
    with pytest.raises(ConfigurationError, match="cannot be used: "):
        AllocationLog(path)
