"""What a reflector must do against any API server; run against the fake and against the real one."""

from collections.abc import Awaitable, Callable

from tests.kube.fake_api import until
from tests.kube.mirror import World, reflecting

Case = Callable[[World], Awaitable[None]]


async def changes_arrive_after_the_list(world: World) -> None:
    """Created before and after, changed and deleted: the mirror follows."""
    await world.put("a", "1")
    async with reflecting(world.client) as (reflector, mirror):
        await until(lambda: mirror.syncs == 1, "synced")
        assert mirror.values["a"] == "1"
        await world.put("a", "2")
        await world.put("b", "1")
        await world.remove("a")
        await until(lambda: mirror.values.get("b") == "1" and "a" not in mirror.values, "followed")
        assert "put a=2" in mirror.told
        assert reflector.state.synced
        assert reflector.state.connected
        assert reflector.state.relists == 0


async def many_pages_make_one_list(world: World) -> None:
    """More objects than a page holds; `synced` comes once, after the last page."""
    for number in range(7):
        await world.put(f"n{number}", "1")
    async with reflecting(world.client, page_size=3) as (_, mirror):
        await until(lambda: mirror.syncs == 1, "synced")
        assert {f"n{number}" for number in range(7)} <= mirror.values.keys()
        assert mirror.told.index("synced") >= 7


async def lost_connection_resumes_without_a_list(world: World) -> None:
    """What happened meanwhile, a deletion included, comes from history."""
    await world.put("kept", "1")
    await world.put("gone", "1")
    async with reflecting(world.client) as (reflector, mirror):
        await until(lambda: mirror.syncs == 1, "synced")
        await world.cable.cut()
        await until(lambda: not reflector.state.connected, "noticed the cut")
        await world.put("kept", "2")
        await world.remove("gone")
        await world.cable.mend()
        await until(lambda: mirror.values.get("kept") == "2" and "gone" not in mirror.values, "caught up")
        assert reflector.state.relists == 0
        assert mirror.syncs == 1


async def forgotten_history_is_made_up_by_the_difference(world: World) -> None:
    """410: deletions that nobody can tell any more, and a name that came back as another object."""
    for name in ("kept", "gone", "reborn"):
        await world.put(name, "1")
    async with reflecting(world.client) as (reflector, mirror):
        await until(lambda: mirror.syncs == 1, "synced")
        old_uid = mirror.uids["reborn"]
        await world.cable.cut()
        await until(lambda: not reflector.state.connected, "noticed the cut")
        await world.remove("gone")
        await world.remove("reborn")
        await world.put("reborn", "2")
        await world.forget_history()
        await world.cable.mend()
        await until(lambda: mirror.syncs == 2, "synced again", timeout_seconds=60)
        assert "gone" not in mirror.values
        assert mirror.values["kept"] == "1"
        assert mirror.values["reborn"] == "2"
        assert mirror.uids["reborn"] != old_uid
        assert mirror.told.index("drop reborn") < mirror.told.index("put reborn=2")
        assert mirror.told.index("drop gone") < len(mirror.told) - 1 - mirror.told[::-1].index("synced")
        assert reflector.state.relists == 1
        await world.put("kept", "3")
        await until(lambda: mirror.values["kept"] == "3", "watching goes on")


async def relist_on_demand_folds_a_list_that_began_later(world: World) -> None:
    """A new leader's first act; the watch goes on from there."""
    await world.put("a", "1")
    async with reflecting(world.client) as (reflector, mirror):
        await until(lambda: mirror.syncs == 1, "synced")
        await world.put("a", "2")
        await reflector.relist()
        assert mirror.values["a"] == "2"
        assert mirror.syncs == 2
        assert reflector.state.relists == 1
        await world.put("a", "3")
        await until(lambda: mirror.values["a"] == "3", "watching goes on")


CASES: tuple[Case, ...] = (
    changes_arrive_after_the_list,
    many_pages_make_one_list,
    lost_connection_resumes_without_a_list,
    forgotten_history_is_made_up_by_the_difference,
    relist_on_demand_folds_a_list_that_began_later,
)
