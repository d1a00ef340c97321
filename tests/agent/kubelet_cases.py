"""What a kubelet and our plugin do together, whichever kubelet it is.

Each case gets a node whose kubelet runs, and no plugin. Waits are as long as a real kubelet needs, which writes
its node status every ten seconds.
"""

import asyncio
from collections.abc import Awaitable, Callable

from tests.agent.kubelet_world import Ask, PodView, ScriptedIdentity, World, serving
from tests.kube.fake_api import until
from vgpu.agent.kubelet.slots import Slots

Case = Callable[[World], Awaitable[None]]
PATIENCE_SECONDS = 60.0


async def shows(world: World, allocatable: int | None) -> None:
    """Wait until the Node's status has so many."""
    await until_true(lambda: _is(world.allocatable, allocatable), f"allocatable {allocatable}")


async def pod_is(world: World, name: str, wanted: Callable[[PodView], bool], what: str) -> PodView:
    """Wait until the pod is as wanted."""

    async def check() -> bool:
        return wanted(await world.pod(name))

    try:
        await until_true(check, f"{name} {what}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {await world.pod(name)}") from error
    return await world.pod(name)


async def runs(world: World, name: str) -> PodView:
    """Wait until the pod runs."""
    return await pod_is(world, name, lambda pod: pod.phase == "Running", "runs")


async def healthy_slots_become_allocatable(world: World) -> None:
    """Unhealthy ones count in capacity alone; a change is told at once, and back."""
    async with serving(world.plugin_folder, Slots(12, 8)) as plugin:
        await shows(world, 8)
        assert await world.capacity() == 12
        plugin.board.put(Slots(12, 0))
        await shows(world, 0)
        assert await world.capacity() == 12
        plugin.board.put(Slots(12, 12))
        await shows(world, 12)


async def a_dead_plugin_leaves_nothing_allocatable_and_its_return_opens_the_node(world: World) -> None:
    """Pods that run are left alone, and their slots are still theirs."""
    identity = ScriptedIdentity()
    async with serving(world.plugin_folder, Slots(4, 4), identity):
        await shows(world, 4)
        await world.put_pod("before", [Ask("main", 1)])
        await runs(world, "before")
    await shows(world, 0)
    assert (await world.pod("before")).running == {"main"}
    async with serving(world.plugin_folder, Slots(4, 4), identity):
        await shows(world, 4)
        await world.put_pod("after", [Ask("main", 3)])
        await runs(world, "after")
    assert frozenset.intersection(*identity.allocated.values()) == frozenset()


async def a_restarted_kubelet_knows_the_plugin_again(world: World) -> None:
    """It removes the plugin's socket and forgets it."""
    async with serving(world.plugin_folder, Slots(4, 4)):
        await shows(world, 4)
        await world.put_pod("before", [Ask("main", 4)])
        await runs(world, "before")
        await world.stop_kubelet()
        await world.start_kubelet()
        await shows(world, 4)
        assert (await world.pod("before")).running == {"main"}
        await world.delete_pod("before")
        await world.put_pod("after", [Ask("main", 4)])
        await runs(world, "after")


async def a_held_back_container_says_why_and_starts_by_itself(world: World) -> None:
    """PreStartContainer refused is not the pod's end."""
    async with serving(world.plugin_folder, Slots(4, 4)) as plugin:
        await shows(world, 4)
        plugin.identity.held_back = "the cards of default/held are not known yet"
        await world.put_pod("held", [Ask("main", 2)])
        pod = await pod_is(world, "held", lambda pod: plugin.identity.held_back in pod.message, "says why")
        assert pod.running == set()
        plugin.identity.held_back = ""
        await runs(world, "held")


async def a_refused_allocation_is_the_pods_end(world: World) -> None:
    """Hence Allocate must hardly ever refuse."""
    async with serving(world.plugin_folder, Slots(4, 4)) as plugin:
        await shows(world, 4)
        plugin.identity.refuse = "the answer cannot be written down"
        await world.put_pod("refused", [Ask("main", 1)])
        pod = await pod_is(world, "refused", lambda pod: pod.phase == "Failed", "fails")
        assert pod.reason == "UnexpectedAdmissionError"
        assert "the answer cannot be written down" in pod.message
        plugin.identity.refuse = ""
        await world.put_pod("next", [Ask("main", 4)])
        await runs(world, "next")


async def a_restarted_container_keeps_its_answer(world: World) -> None:
    """Allocate is not called again; PreStartContainer is, with the same slots."""
    async with serving(world.plugin_folder, Slots(4, 4)) as plugin:
        await shows(world, 4)
        await world.put_pod("pod", [Ask("main", 2)])
        await runs(world, "pod")
        given = dict(plugin.identity.allocated)
        await world.restart_container("pod", "main")
        await until(lambda: len(plugin.identity.started) == 2, "started again", PATIENCE_SECONDS)
        assert plugin.identity.allocated == given
        assert set(plugin.identity.started) == set(given.values())


async def a_container_is_restarted_after_a_restart_of_the_plugin(world: World) -> None:
    """The new plugin is asked about slots that it never gave."""
    before, after = ScriptedIdentity(), ScriptedIdentity()
    async with serving(world.plugin_folder, Slots(4, 4), before):
        await shows(world, 4)
        await world.put_pod("pod", [Ask("main", 2)])
        await runs(world, "pod")
    async with serving(world.plugin_folder, Slots(4, 4), after):
        await shows(world, 4)
        await world.restart_container("pod", "main")
        await until(lambda: len(after.started) == 1, "started again", PATIENCE_SECONDS)
    assert after.started == list(before.allocated.values())
    assert after.allocated == {}


async def slots_of_an_init_container_are_given_out_again_in_its_pod(world: World) -> None:
    """Under another answer: slots alone do not tell containers apart."""
    async with serving(world.plugin_folder, Slots(3, 3)) as plugin:
        await shows(world, 3)
        await world.put_pod("pod", [Ask("first", 2, init=True), Ask("main", 2), Ask("second", 1)])
        await runs(world, "pod")
        first, main, second = plugin.identity.allocated.values()
        assert first == main
        assert not main & second


async def slots_of_a_pod_that_is_gone_are_free(world: World) -> None:
    """All of them are given out once more."""
    async with serving(world.plugin_folder, Slots(2, 2)):
        await shows(world, 2)
        for name in ("one", "two"):
            await world.put_pod(name, [Ask("main", 2)])
            await runs(world, name)
            await world.delete_pod(name)


CASES: list[Case] = [
    healthy_slots_become_allocatable,
    a_dead_plugin_leaves_nothing_allocatable_and_its_return_opens_the_node,
    a_restarted_kubelet_knows_the_plugin_again,
    a_held_back_container_says_why_and_starts_by_itself,
    a_refused_allocation_is_the_pods_end,
    a_restarted_container_keeps_its_answer,
    a_container_is_restarted_after_a_restart_of_the_plugin,
    slots_of_an_init_container_are_given_out_again_in_its_pod,
    slots_of_a_pod_that_is_gone_are_free,
]


async def _is(look: Callable[[], Awaitable[int | None]], wanted: int | None) -> bool:
    return await look() == wanted


async def until_true(check: Callable[[], Awaitable[bool]], what: str) -> None:
    """Like `until`, for what must be asked for."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await check():  # noqa: ASYNC110  # a node's status has no event to wait for
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}") from None
