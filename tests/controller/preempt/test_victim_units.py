"""Who runs now may not have run when it was decided who goes: gangs that came to be whole meanwhile, bindings."""

from tests.controller.preempt.planner_world import Api, World, whole
from tests.controller.preempt.test_gang_victims import member
from tests.controller.preempt.test_planner import play
from tests.core.building import make_booking
from vgpu.core.placement import Placement, Policies, place


def test_a_gang_that_has_come_to_run_goes_whole_or_not_at_all() -> None:
    """Two of three are booked when it is decided, the third follows before anybody is asked to go."""

    async def scenario(world: World) -> None:
        for name in ("m0", "m1"):
            world.low(name, whole(), **member(3))
        late = world.pod("m2", whole(), **member(3))
        process = await world.begin()

        def follows(kind: str) -> None:
            if kind == "create" and not world.bound(late.uid):
                world.low("m2", whole(), "n2", **member(3))
                process.hear()

        world.api.on_write = follows
        world.high("h", whole(2))
        await world.until(lambda: world.bound("uid-h"), "h runs")
        assert sorted(world.api.evictions) == ["uid-m0", "uid-m1", "uid-m2"]

    play(scenario, Api(nodes={"n1": 2, "n2": 1}))


def test_nobody_is_asked_to_go_whose_binding_is_on_its_way() -> None:
    async def scenario(world: World) -> None:
        low = world.pod("l", whole())
        process = await world.begin()
        view = process.ledger.view("n1")
        assert view is not None
        placement = place(view, whole(), low.uid, Policies())
        assert isinstance(placement, Placement)
        process.ledger.book(make_booking(low.uid, placement))
        world.high("h", whole())
        await world.pass_time(5)
        assert world.api.evictions == []
        assert world.api.made == 1, "and nothing is decided anew meanwhile"
        world._bind(low, placement)
        await world.until(lambda: world.bound("uid-h"), "h runs")
        assert world.api.evictions == [low.uid]
        assert world.api.made == 1

    play(scenario, Api(nodes={"n1": 1}))
