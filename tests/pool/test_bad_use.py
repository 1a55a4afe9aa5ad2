"""Bad use gets a clear message, as early as possible."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import windlass as wl
from windlass.pool.engines.registry import MissingExtra, need
from windlass.pool.errors import BadPool, CannotSend, NothingFits, ResultTooLarge, ResultUnsendable
from windlass.testing.fake_engine import FakeEngine

from .quick import quick_pool
from .worlds import Machines


@wl.compute
def same(value):
    return value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": (5, 2)}, r"min is 5 and max is 2; the smaller number comes first: nodes=\(2, 5\)\?"),
        ({"nodes": 0}, "max must be at least 1"),
        ({"nodes": -1}, "min must be a whole number from 0"),
        ({"nodes": (1, 2, 3)}, r"has 3 numbers; give \(min, max\), or Nodes\(min, desired, max\)"),
        ({"nodes": "4"}, "must be a whole number"),
        ({"nodes": 2.5}, "must be a whole number"),
        ({"slots": 0}, "slots must be a whole number from 1 to 1024"),
        ({"accelerator": "gpu:many"}, "accelerator must be such as 'gpu', 'gpu:4'"),
        ({"needs": {"gpu": "lots"}}, "needs: gpu must be a number such as 4"),
        ({"needs": {"slots": 0.5}}, "a task takes a whole number of slots"),
        ({"autoscale_cooldown": -1}, "autoscale_cooldown must be seconds, at least 0"),
        ({"autoscale_idle_timeout": "soon"}, "autoscale_idle_timeout must be seconds"),
        ({"reconcile_tick_interval": 0}, "reconcile_tick_interval must be seconds, at least 0.1"),
        ({"budget": "cheap"}, r"budget must be dollars per hour .*write it as '\$20/h'"),
        ({"budget": "$20/h"}, "nothing in this pool has a price"),
        (
            {"budget": "$1/h", "nodes": 3, "provider": wl.Local(price="$0.50/h")},
            r"cost \$1.5/h already, more than \$1/h",
        ),
        ({"groups": []}, "groups is empty"),
        ({"groups": ["big"]}, "'big' is not a group; make one with group"),
        ({"groups": [wl.group("a", max=0, min=2)]}, "min"),
        ({"groups": [wl.group("a", max=1)], "slots": 2}, "accelerator and slots are for a pool with one kind"),
        ({"groups": [wl.group("a", max=1)], "nodes": (1, 3)}, "give each its own min"),
        ({"engine": "spark"}, "engine must be 'dask' or 'ray', is 'spark'"),
        ({"console": "loud"}, "console must be 'auto', 'live', 'lines'"),
        ({"provider": "aws"}, r"provider must be such as Local\(\) or SSH.*, is str"),
        ({"image": {"pip": []}}, "image must be an Image"),
        ({"result_limit": "huge"}, "result_limit must be a number"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_when_it_is_made(arguments, message):
    with pytest.raises(BadPool, match=message):
        wl.ComputePool(**arguments)


def test_a_need_that_no_group_has_is_reported_at_once_with_the_nearest_group():
    with quick_pool(None, groups=[wl.group("small", max=2), wl.group("big", gpu=2, max=1)]) as pool:
        for _ in range(2):  # the second time as well
            with pytest.raises(NothingFits) as caught:
                same.options(needs={"gpu": 4})(1) >> pool
        assert "same can never run in this pool: it needs 4 gpu" in str(caught.value)
        assert "The nearest group is big, which has 2 gpu, 1 slot on a node" in str(caught.value)


def test_a_gang_that_is_larger_than_the_pool_may_become_is_reported_at_once():
    with quick_pool((0, 2)) as pool, pytest.raises(NothingFits, match=r"a gang of 3 of same can never run"):
        wl.gang(same, size=3)(1) >> pool


def test_a_function_that_cannot_be_pickled_is_reported_where_it_is_sent():
    lock = threading.Lock()

    @wl.compute
    def holds():
        return lock

    with quick_pool() as pool, pytest.raises(CannotSend, match=r"the function .*holds cannot be sent to a node.*lock"):
        holds() >> pool


def test_what_belongs_to_the_program_is_refused_with_what_to_send_in_its_place():
    with quick_pool() as pool:
        future = same(1) > pool
        for given, remedy in (
            (future, r"Pass its value: future\.result\(\)$"),
            ([{"deep": future}], r"Pass its value: future\.result\(\)$"),
            (same(2), r"<task same> has not run.*value = first\(\.\.\.\) >> pool"),
            (pool, "a pool cannot be an argument of a task"),
        ):
            with pytest.raises(CannotSend, match=remedy):
                same(given) >> pool
        with pytest.raises(ResultUnsendable, match=r"<task same> has not run.*function\.local\(\.\.\.\)$"):
            wl.compute(lambda: same(3))() >> pool


def test_an_argument_that_cannot_be_pickled_is_named():
    with quick_pool() as pool, pytest.raises(CannotSend, match=r"argument 1 of same cannot be sent to a node"):
        same(threading.Lock()) >> pool


def test_a_result_that_cannot_be_pickled_or_is_too_large_is_reported():
    @wl.compute
    def lock():
        return threading.Lock()

    @wl.compute
    def large():
        return b"x" * 2000

    with quick_pool(result_limit="1Ki") as pool:
        with pytest.raises(ResultUnsendable, match="lock"):
            lock() >> pool
        with pytest.raises(ResultTooLarge, match=r"1Ki|1,?024|1.0 KiB|1000"):
            large() >> pool


def test_gather_takes_tasks_and_nothing_else():
    with pytest.raises(BadPool, match=r"argument 1 is list; unpack it: gather\(\*tasks\)"):
        wl.gather([same(1), same(2)])  # type: ignore[call-overload]
    with pytest.raises(BadPool, match=r"argument 2 is int\. A task is a call of a function made with @compute"):
        wl.gather(same(1), 2)  # type: ignore[call-overload]


def test_an_async_function_is_refused_with_what_to_write():
    async def fetch(url):
        return url

    with pytest.raises(BadPool, match=r"fetch is an async function.* return asyncio\.run\(fetch\(\*args\)\)"):
        wl.compute(fetch)
    with quick_pool() as pool, pytest.raises(BadPool, match="fetch is an async function"):
        pool.submit(fetch, "a")


def test_a_task_is_neither_true_nor_false():
    with pytest.raises(TypeError, match="has not run yet"):
        bool(same(1))


def test_a_task_cannot_be_sent_to_what_is_no_pool():
    with pytest.raises(TypeError, match="unsupported operand"):
        same(1) >> 3  # type: ignore[operator]


def tripled(value):
    return 3 * value


def test_what_is_no_task_says_what_to_write_when_it_is_sent_to_a_pool():
    with quick_pool() as pool:
        for sent, words in [
            (lambda: [same(1), same(2)] >> pool, r"a list of 2 tasks is not a task.*gather\(\*tasks\) >> pool"),
            (lambda: (same(n) for n in range(2)) >> pool, r"a generator is not a task.*gather\(\*tasks\) >> pool"),
            (lambda: tripled(3) >> pool, r"9 is a value of type int, not a task.*decorate it with @compute"),
            (lambda: same >> pool, r"same has not been called: write same\(\.\.\.\) >> pool"),
            (lambda: tripled >> pool, r"tripled is a plain function.*@compute.*pool\.submit\(tripled, \.\.\.\)"),
            (lambda: tripled(3) > pool, r"9 is a value of type int, not a task.*> pool"),
            (lambda: tripled(3) @ pool, r"9 is a value of type int, not a task.*@ pool"),
            (lambda: wl.gang(same, size=2) @ pool, "a gang runs on as many nodes as it has members"),
            (lambda: np.arange(3) >> pool, r"array\(\[0, 1, 2\]\) is a value of type ndarray, not a task"),
        ]:
            with pytest.raises(BadPool, match=words):
                sent()


def test_an_option_that_is_not_there_is_reported_with_those_that_are():
    with pytest.raises(BadPool, match="compute has no option gpus; there are needs, retries, timeout"):
        wl.compute(gpus=1)
    with pytest.raises(BadPool, match="retries must be a whole number"):
        wl.compute(retries=-1)
    with pytest.raises(BadPool, match="timeout must be more than 0"):
        same.options(timeout=0)
    with pytest.raises(BadPool, match="compute takes a function, not int"):
        wl.compute(3)  # type: ignore[call-overload]
    with pytest.raises(BadPool, match="size must be a whole number"):
        wl.gang(same, size=0)


def test_a_pool_that_was_not_started_and_one_that_is_closed():
    pool = wl.ComputePool(console=False)
    with pytest.raises(Exception, match="has not been started: use it in a with"):
        same(1) >> pool
    with quick_pool() as used:
        assert same(1) >> used == 1
    with pytest.raises(Exception, match="the pool is closed"):
        same(1) >> used
    with pytest.raises(Exception, match="a pool can be started only once"):
        used.start()


def test_why_knows_names_that_are_nearly_right():
    with quick_pool() as pool:
        same(1) >> pool
        name = pool.status().nodes[0].name
        with pytest.raises(Exception, match=f"there is no node, task or group {name[:-2]}x.*did you mean"):
            pool.why(f"{name[:-2]}x")


def test_a_missing_extra_has_the_command_that_brings_it():
    with pytest.raises(MissingExtra, match=r"pip install '\.\[pool\]'"):
        need("no_such_module_at_all", "pool")
    program = (
        "import sys\n"
        "sys.modules['cloudpickle'] = None\n"
        "import windlass\n"
        "try:\n"
        "    windlass.ComputePool\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install '.[pool]'" in done.stdout


def test_apt_is_refused_on_this_computer_with_the_command():
    pool = wl.ComputePool(image=wl.Image(apt=["ffmpeg"]), console=False)
    with pytest.raises(BadPool, match="sudo apt install ffmpeg"):
        pool.start()


def test_a_provider_that_cannot_install_says_so():
    engine = FakeEngine()
    pool = wl.ComputePool(Machines(engine), engine=engine, image=wl.Image(pip=["numpy"]), console=False)
    with pytest.raises(BadPool, match="Machines cannot put packages or files on its machines"):
        pool.start()


def test_an_include_that_is_not_there_and_a_list_that_is_none():
    with pytest.raises(BadPool, match=r"there is no file or directory nowhere\.py to include"):
        wl.Image(includes=["nowhere.py"])
    with pytest.raises(BadPool, match=r"pip must be a list, such as pip=\['numpy'\]"):
        wl.Image(pip="numpy")
    with pytest.raises(BadPool, match="give names and values as text"):
        wl.Image(env={"A=B": "c"})
