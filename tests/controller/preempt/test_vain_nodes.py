"""A node where the owner did not come is left alone for it and its equals, longer each time, and not for ever."""

from vgpu.controller.preempt.vain_nodes import KEPT_SECONDS, LONGEST_SECONDS, VainNodes


def test_a_node_is_left_alone_longer_each_time_up_to_a_limit() -> None:
    vain, now, kept = VainNodes(), 1000, []
    for _ in range(6):
        vain.note(["job"], ["n"], now)
        [until] = vain.moments("job")
        assert vain.of("job", until - 1) == {"n"}
        assert vain.of("job", until) == frozenset()
        kept.append(until - now)
        now = until
    assert kept == [KEPT_SECONDS, 600, 1200, 2400, LONGEST_SECONDS, LONGEST_SECONDS]


def test_others_and_other_nodes_are_not_concerned_and_what_is_long_over_is_forgotten() -> None:
    vain = VainNodes()
    vain.note(["job"], ["n"], 0)
    assert vain.of("other", 1) == frozenset()
    later = KEPT_SECONDS + LONGEST_SECONDS
    vain.note(["other"], ["m"], later)
    assert vain.moments("job") == []
    vain.note(["job"], [], later)
    assert vain.moments("job") == []
