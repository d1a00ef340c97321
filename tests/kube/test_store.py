"""Identity of objects: names that come back, deletions of old uids, differences of lists."""

import json

import pytest

from tests.kube.mirror import Mirror, decode
from vgpu.kube.store import NotJson, Store
from vgpu.kube.wire import WatchEvent


def raw(name: str, uid: str, value: str = "") -> bytes:
    meta = {"namespace": "n", "name": name, "uid": uid, "resourceVersion": "1"}
    return json.dumps({"metadata": meta, "data": {"value": value}}).encode()


def end_list(store: Store[object]) -> None:
    for key in store.unseen():
        store.drop(key)
    store.end_list()


@pytest.fixture
def mirror() -> Mirror:
    return Mirror()


@pytest.fixture
def store(mirror: Mirror) -> Store[tuple[str, str, str]]:
    return Store(decode, mirror)


def test_new_uid_under_an_old_name_drops_the_old_first(store: Store[object], mirror: Mirror) -> None:
    store.fold_event(WatchEvent("ADDED", raw("a", "u1")))
    store.fold_event(WatchEvent("ADDED", raw("a", "u2", "new")))
    assert mirror.told == ["put a=", "drop a", "put a=new"]


def test_deletion_of_an_old_uid_leaves_the_newer(store: Store[object], mirror: Mirror) -> None:
    store.fold_event(WatchEvent("ADDED", raw("a", "u2", "new")))
    store.fold_event(WatchEvent("DELETED", raw("a", "u1")))
    assert mirror.values == {"a": "new"}
    assert len(store) == 1


def test_deletion_of_an_unreadable_object_is_a_drop(store: Store[object], mirror: Mirror) -> None:
    store.fold_event(WatchEvent("ADDED", raw("a", "u1")))
    store.fold_event(WatchEvent("DELETED", b'{"metadata":{"namespace":"n","name":"a","uid":"u1"},"data":7}'))
    assert mirror.values == {}


def test_list_drops_what_it_does_not_hold(store: Store[object], mirror: Mirror) -> None:
    for name in ("a", "b"):
        store.fold_event(WatchEvent("ADDED", raw(name, f"u{name}")))
    store.begin_list()
    store.fold_object(raw("b", "ub"))
    end_list(store)
    assert list(mirror.values) == ["b"]
    assert mirror.told[-2:] == ["drop a", "synced"]


def test_malformed_object_of_a_list_counts_as_there(store: Store[object], mirror: Mirror) -> None:
    store.fold_event(WatchEvent("ADDED", raw("a", "u1", "good")))
    store.begin_list()
    store.fold_object(b'{"metadata":{"namespace":"n","name":"a","uid":"u1","resourceVersion":"2"},"data":7}')
    end_list(store)
    assert mirror.values == {"a": "good"}


def test_list_begun_anew_forgets_the_unfinished_one(store: Store[object], mirror: Mirror) -> None:
    store.begin_list()
    store.fold_object(raw("a", "u1"))
    store.begin_list()
    store.fold_object(raw("b", "u2"))
    end_list(store)
    assert list(mirror.values) == ["b"]


def test_sink_that_fails_even_on_malformed_does_no_harm(store: Store[object], mirror: Mirror) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    mirror.malformed = broken  # type: ignore[method-assign]
    store.fold_object(raw("a", "u1", "crash the sink"))
    store.fold_object(raw("b", "u2", "fine"))
    assert mirror.values == {"b": "fine"}


@pytest.mark.parametrize("kind", ["ADDED", "DELETED"])
def test_bytes_that_are_no_json_are_not_an_object(store: Store[object], kind: str) -> None:
    with pytest.raises(NotJson):
        store.fold_event(WatchEvent(kind, b'{"metadata":{'))
