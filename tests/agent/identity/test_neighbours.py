"""Whoever was given cards counts for as long as it has them, whatever is said of it since (invariant I3)."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.identity.bench import Bench, assign, make_cards, make_pod
from tests.agent.identity.kubelet_model import Running
from vgpu.agent.identity.neighbours import Neighbours
from vgpu.agent.identity.pod_watch import PodSeen
from vgpu.agent.identity.port import PreStartRefused
from vgpu.kube.objects import Key

FIRST = make_pod("z", assign("uid-z", main=[("card-0", 60_000)]))
LATE = make_pod("b", assign("uid-b", main=[("card-0", 30_000)]))
SMALL = make_pod("c", assign("uid-c", main=[("card-0", 1)]))
OTHER_TEXTS = {
    "removed": "",
    "other card": assign("uid-z", main=[("card-1", 60_000)]),
    "less": assign("uid-z", main=[("card-0", 1)]),
    "no assignment": "{x",
    "of another pod": assign("uid-x", main=[("card-0", 60_000)]),
}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def started(bench: Bench, pod: PodSeen = FIRST) -> Running:
    running = bench.run(pod)
    await bench.start(running)
    bench.show(replace(pod, started=True))
    bench.with_processes.add(pod.uid)
    return running


async def refusal(bench: Bench, pod: PodSeen) -> str:
    with pytest.raises(PreStartRefused) as caught:
        await bench.start(bench.run(pod))
    return str(caught.value)


def lose_the_log(bench: Bench) -> None:
    (bench.places.state / "allocations.jsonl").unlink()
    bench.restart()
    bench.identity.cards_changed(make_cards())


@pytest.mark.parametrize("text", OTHER_TEXTS.values(), ids=OTHER_TEXTS.keys())
async def test_an_altered_annotation_gives_no_cards_on(bench: Bench, text: str) -> None:
    await started(bench)
    bench.show(replace(FIRST, assignment=text, started=True))
    assert "card card-0 has no room for it beside ns/z" in await refusal(bench, LATE)


async def test_with_the_annotation_counted_it_would_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switched off: the annotation of a granted pod is believed."""
    monkeypatch.setattr(Neighbours, "_granted", lambda *_: {})
    await started(bench)
    bench.show(replace(FIRST, assignment="", started=True))
    await bench.start(bench.run(LATE))


async def test_an_altered_annotation_takes_no_other_card(bench: Bench) -> None:
    await started(bench)
    bench.show(replace(FIRST, assignment=OTHER_TEXTS["other card"], started=True))
    elsewhere = bench.run(make_pod("b", assign("uid-b", main=[("card-1", 80_000)])))
    await bench.start(elsewhere)
    assert bench.cards_of(elsewhere) == "card-1"


async def test_a_pod_that_can_no_longer_be_read_keeps_its_cards(bench: Bench) -> None:
    await started(bench)
    bench.watch.malformed(Key("ns", "z", "uid-z"), "metadata.name: is no text")
    assert "no room for it beside ns/z" in await refusal(bench, LATE)


@pytest.mark.parametrize("with_log", [True, False])
async def test_a_pod_that_has_ended_keeps_its_cards_while_it_has_a_process(bench: Bench, with_log: bool) -> None:
    await started(bench)
    bench.show(replace(FIRST, started=True, ended=True))
    if not with_log:
        lose_the_log(bench)
    late = bench.run(LATE)
    with pytest.raises(PreStartRefused, match="no room for it beside ns/z"):
        await bench.start(late)
    bench.with_processes.clear()
    await bench.start(late)
    assert bench.cards_of(late) == "card-0"


class TestLostLog:
    """The pods' CDI files are left, and say which cards; amounts they do not say."""

    async def test_a_deleted_pods_cards_are_held_whole_while_it_has_a_process(self, bench: Bench) -> None:
        await started(bench)
        lose_the_log(bench)
        bench.kubelet.remove("z")
        bench.delete("z")
        small = bench.run(SMALL)
        with pytest.raises(PreStartRefused, match=r"a pod of which no record is left \(uid uid-z\) was deleted"):
            await bench.start(small)
        bench.with_processes.clear()
        await bench.start(small)
        assert bench.cards_of(small) == "card-0"

    async def test_without_the_rule_it_would_start(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("vgpu.agent.identity.cdi.CdiFolder.pods", lambda _: [])
        await started(bench)
        lose_the_log(bench)
        bench.kubelet.remove("z")
        bench.delete("z")
        await bench.start(bench.run(SMALL))

    async def test_other_cards_are_free(self, bench: Bench) -> None:
        await started(bench)
        lose_the_log(bench)
        bench.kubelet.remove("z")
        bench.delete("z")
        await bench.start(bench.run(make_pod("d", assign("uid-d", main=[("card-1", 80_000)]))))

    async def test_a_file_that_does_not_tell_its_cards_may_stand_for_any(self, bench: Bench) -> None:
        await started(bench)
        (bench.places.cdi / "vgpu-pod-uid-z.json").write_bytes(b"[" * 5000 + b"\xff")
        lose_the_log(bench)
        bench.kubelet.remove("z")
        bench.delete("z")
        message = await refusal(bench, make_pod("d", assign("uid-d", main=[("card-1", 80_000)])))
        assert "card card-1 has no room" in message

    async def test_a_pod_that_the_api_shows_counts_by_its_annotation(self, bench: Bench) -> None:
        """The file is all that is left of it, and the amounts are in the annotation."""
        await started(bench)
        lose_the_log(bench)
        await bench.start(bench.run(SMALL))
        assert "no room for it beside ns/c, ns/z" in await refusal(bench, LATE)

    async def test_where_its_annotation_says_nothing_its_cards_are_held_whole(self, bench: Bench) -> None:
        await started(bench)
        lose_the_log(bench)
        bench.show(replace(FIRST, assignment="", started=True))
        assert "no room for it beside ns/z; it starts when they are gone" in await refusal(bench, SMALL)

    async def test_the_pod_itself_starts_again_once_its_answers_are_known(self, bench: Bench) -> None:
        """Its grant alone was lost: its own file does not stand in its way."""
        running = await started(bench)
        log = bench.places.state / "allocations.jsonl"
        lines = [line for line in log.read_text().splitlines(keepends=True) if '"grant"' not in line]
        log.write_text("".join(lines))
        bench.restart()
        bench.identity.cards_changed(make_cards())
        await bench.start(running)
        assert bench.cards_of(running) == "card-0"


@pytest.mark.parametrize("content", [b"\xff\xfe\x80", b"", b"{}"])
async def test_files_that_somebody_overwrote_are_written_anew(bench: Bench, content: bytes) -> None:
    running = await started(bench)
    file, preload = bench.places.cdi / "vgpu-pod-uid-z.json", bench.places.preload
    before = [path.read_bytes() for path in (file, preload)]
    for path in (file, preload):
        path.write_bytes(content)
    await bench.start(running)
    assert [path.read_bytes() for path in (file, preload)] == before


async def test_the_preload_file_that_containers_have_mounted_is_never_touched(bench: Bench) -> None:
    await started(bench)
    before = bench.places.preload.stat()
    await bench.start(bench.run(SMALL))
    after = bench.places.preload.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
