"""How many short tasks travel together."""

from __future__ import annotations

from windlass.pool.scheduler.batching import AIM, Pace


def learned(*batches: list[float]) -> Pace:
    pace = Pace()
    for batch in batches:
        pace.learn(sum(batch), len(batch))
    return pace


def test_what_is_not_known_is_tried_one_by_one():
    assert Pace().size(10_000, 4, 4) == 1


def test_quick_tasks_travel_in_batches_that_grow_step_by_step():
    pace, sizes = learned([0.001]), []
    for _ in range(5):
        size = pace.size(100_000, 4, 4)
        sizes.append(size)
        pace.learn(0.001 * size, size)
    assert sizes[:2] == [8, 64]
    assert sizes[2] == sizes[3] == sizes[4]
    assert 0.2 <= sizes[-1] * 0.001 <= 2, "a batch takes between a fifth of a second and two"


def test_long_tasks_travel_alone():
    assert learned([1.0]).size(1000, 4, 4) == 1


def test_every_slot_gets_its_share_of_what_waits():
    assert learned([0.01] * 100).size(80, 4, 4) == 10


def test_what_would_be_over_in_a_moment_is_shared_out_in_one_round():
    pace = learned([1e-6] * 100)
    assert [pace.size(80, 4, 4), pace.size(60, 4, 3), pace.size(40, 4, 2), pace.size(20, 4, 1)] == [20] * 4


def test_the_last_tasks_do_not_all_go_behind_the_one_slot_that_has_none_behind_it():
    assert learned([2**-10] * 100).size(60, 8, 0) == 20


def test_batches_do_not_become_so_small_that_sending_costs_more_than_they_take():
    pace, waiting, sizes = learned([2**-10] * 500), 4000, []
    while waiting:
        sizes.append(pace.size(waiting, 8, 0))
        waiting -= sizes[-1]
    assert sizes[0] == 250
    assert sorted(sizes, reverse=True) == sizes
    assert min(sizes[:-1]) == 20


def test_one_slow_task_among_quick_ones_makes_batches_small_for_a_while():
    pace = learned([0.001] * 100)
    before = pace.size(100_000, 1, 1)
    pace.learn(0.001 * 99 + 4.0, 100)
    assert pace.size(100_000, 1, 1) <= before / 10
    for _ in range(20):
        pace.learn(0.001 * 10, 10)
    assert pace.size(100_000, 1, 1) >= 400, "and it is forgotten"


def test_only_batches_that_are_known_to_be_short_wait_behind_others():
    assert not Pace().is_short(1)
    assert learned([0.01]).is_short(int(AIM / 0.01))
    assert not learned([5.0]).is_short(1)
