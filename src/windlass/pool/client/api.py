"""This module defines the API for users: functions that create lazy tasks, and operators that send tasks to a pool.

    @wl.compute
    def trial(lr): ...

    trial(0.1) >> pool        one task: wait for its value
    trial(0.1) > pool         one task: a future
    trial(0.1) @ pool         once on every node, by rank
    (a() & b()) >> pool       different tasks at once: a tuple
    wl.gather(*tasks) >> pool many tasks: a list, in their order

Nothing runs before one of the operators is used, and nothing is pickled either.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, ParamSpec, TypeVar, TypeVarTuple, overload

from windlass.pool.errors import BadPool, is_number, is_whole
from windlass.pool.transport.serialization import StaysHere

from .rules import Rule, rules_of

if TYPE_CHECKING:
    from windlass.pool.pool import ComputePool

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
V = TypeVar("V")
Rs = TypeVarTuple("Rs")

_NO_KEYWORDS: Final[Mapping[str, Any]] = {}
"""The keyword arguments of all tasks without any: fewer objects make the garbage collector run less often."""


@dataclass(frozen=True)
class Options:
    """The options of a task."""

    needs: Mapping[str, int | float | str] | None = None
    """Resources in addition to one slot; None: the pool's ``needs``."""
    retries: int | None = None
    """How often it runs again after a lost node, a crash or its own exception. None: three times after lost nodes, once
    after a crash, never after its own exception.
    """
    timeout: float | None = None
    """Seconds that one run may take."""
    queue_timeout: float | None = None
    """Seconds that it may wait for its start."""
    where: str | tuple[str, ...] = ()
    """Conditions on the labels of its node, such as ``zone == us-1a``."""
    apart: Rule | Sequence[Rule] = ()
    """``"node"``: at most one task of this function on a node. ``"slice"``, ``"zone"``: at most one in a slice, or on
    all nodes with the same label. In full: ``{"by": "node", "at_most": 2, "from": "other_function"}``.
    """
    spread: Rule | Sequence[Rule] = ()
    """``"zone"``: tasks run evenly over the values of a label. In full: ``{"over": "zone", "max_skew": 2,
    "min_domains": 3, "of": "other_function"}``.
    """
    name: str | None = None

    @property
    def conditions(self) -> tuple[str, ...]:
        return (self.where,) if isinstance(self.where, str) else tuple(self.where)

    def __post_init__(self) -> None:
        if self.retries is not None and not is_whole(self.retries, 0, 10**6):
            raise BadPool(f"retries must be a whole number, at least 0, is {self.retries!r}")
        for name in ("timeout", "queue_timeout"):
            value = getattr(self, name)
            if value is not None and not is_number(value, 1e-6):
                raise BadPool(f"{name} must be more than 0 seconds, is {value!r}")
        if self.needs is not None and not isinstance(self.needs, Mapping):
            raise BadPool(f"needs must name resources, such as {{'gpu': 1}}, is {self.needs!r}")
        rules_of("task", self.apart, self.spread)


class Compute(Generic[P, R]):
    """A function whose calls are lazy tasks."""

    __name__: str

    def __init__(self, function: Callable[P, R], options: Options) -> None:
        functools.update_wrapper(self, function)
        self.function, self.options_ = function, options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Task[R]:
        return Task(self, args, kwargs or _NO_KEYWORDS)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function in this process, without a pool."""
        return self.function(*args, **kwargs)

    def options(self, **changes: Any) -> Compute[P, R]:
        """Return the same function with other options: ``trial.options(retries=2)(0.1)``."""
        return Compute(self.function, _options(changes, self.options_))

    @property
    def name(self) -> str:
        return str(self.options_.name or getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def streams(self) -> bool:
        """Whether it is a generator function, whose values arrive one by one."""
        return inspect.isgeneratorfunction(inspect.unwrap(self.function))

    def __repr__(self) -> str:
        return f"<compute {self.name}>"


def _options(changes: Mapping[str, Any], base: Options | None = None) -> Options:
    try:
        return replace(base or Options(), **changes)
    except TypeError:
        unknown = sorted(set(changes) - set(Options.__dataclass_fields__))
        known = ", ".join(Options.__dataclass_fields__)
        raise BadPool(f"compute has no option {', '.join(unknown)}; there are {known}") from None


@overload
def compute(function: Callable[P, R], /) -> Compute[P, R]: ...
@overload
def compute(**options: Any) -> Callable[[Callable[P, R]], Compute[P, R]]: ...
def compute(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function whose calls are lazy tasks: ``@compute``, or ``@compute(needs={"gpu": 1}, retries=2)``.

    Options: ``needs``, ``retries``, ``timeout``, ``queue_timeout``, ``where``, ``apart``, ``spread``, ``name``.
    """
    made = _options(options)
    if function is None:
        return lambda given: compute_of(given, made)
    return compute_of(function, made)


def compute_of(function: Callable[..., Any], options: Options | None = None) -> Compute[..., Any]:
    """Return a function whose calls are lazy tasks; a ``Compute`` is returned unchanged."""
    if isinstance(function, Compute):
        return function if options is None else Compute(function.function, options)
    if not callable(function):
        raise BadPool(f"compute takes a function, not {type(function).__name__}: {function!r}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        name = getattr(function, "__name__", "function")
        raise BadPool(
            f"{name} is an async function, and a slot has no event loop. Send a plain function that runs it: "
            f"def run(*args): return asyncio.run({name}(*args))"
        )
    return Compute(function, options or Options())


class Sendable(ABC, Generic[V]):
    """Something that a pool runs; its value is a ``V``."""

    __slots__ = ()

    @abstractmethod
    def _run(self, pool: ComputePool) -> V: ...

    @abstractmethod
    def _start(self, pool: ComputePool) -> Future[V]: ...

    def __rshift__(self, pool: ComputePool) -> V:
        """Run it on the pool and wait for its value."""
        return self._run(pool) if _is_pool(pool) else NotImplemented

    def __gt__(self, pool: ComputePool) -> Future[V]:
        """Start it on the pool and return a future of its value."""
        return self._start(pool) if _is_pool(pool) else NotImplemented

    def __reduce__(self) -> NoReturn:
        raise StaysHere(
            f"{self!r} has not run, and a task cannot wait for another one. Run it first, and pass on its value: "
            "value = first(...) >> pool; second(value) >> pool. Inside of a task call a function of yours as "
            "function.local(...)"
        )

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self!r} has not run yet, so it is neither true nor false. Send it to a pool first: task >> pool. "
            "(a > b > pool does not work either: start each with its own task > pool.)"
        )


def _is_pool(thing: object) -> bool:
    from windlass.pool.pool import ComputePool

    return isinstance(thing, ComputePool)


class Task(Sendable[R]):
    """One call that has not been made yet. ``R``: what the function returns; an iterator for a generator."""

    __slots__ = ("args", "compute", "kwargs")

    def __init__(self, compute: Compute[..., R], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.compute, self.args, self.kwargs = compute, args, kwargs

    def _run(self, pool: ComputePool) -> R:
        value: R = pool.run(self)
        return value

    def _start(self, pool: ComputePool) -> Future[R]:
        return pool.submit(self)

    def __matmul__(self, pool: ComputePool) -> list[R]:
        """Run it once on every node; return the values by rank."""
        return pool.everywhere(self) if _is_pool(pool) else NotImplemented

    @overload
    def __and__(self, other: Task[S]) -> TaskSequence[R, S]: ...
    @overload
    def __and__(self, other: Sendable[Any]) -> TaskSequence[*tuple[Any, ...]]: ...
    def __and__(self, other: Sendable[Any]) -> Any:
        return TaskSequence((self,)) & other

    def __repr__(self) -> str:
        return f"<task {self.compute.name}>"


@dataclass(frozen=True, eq=False, repr=False)
class GangTask(Sendable[list[R]]):
    """A gang: calls that start all at once or not at all, one for each rank."""

    compute: Compute[..., R]
    size: int
    spread: bool = False
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> GangTask[R]:
        """Return the gang with these arguments, the same for every member."""
        return replace(self, args=args, kwargs=kwargs)

    def _run(self, pool: ComputePool) -> list[R]:
        values: list[R] = pool.run(self)
        return values

    def _start(self, pool: ComputePool) -> Future[list[R]]:
        return pool.submit(self)

    def __and__(self, other: Sendable[Any]) -> TaskSequence[*tuple[Any, ...]]:
        return TaskSequence[*tuple[Any, ...]]((self,)) & other

    def __repr__(self) -> str:
        return f"<gang of {self.size} {self.compute.name}>"


AnyTask = Task[Any] | GangTask[Any]
"""What a pool runs: one call, or a gang."""


@dataclass(frozen=True, eq=False, repr=False)
class TaskSequence(Sendable[tuple[*Rs]]):
    """Different tasks that run at once: ``(a() & b()) >> pool``."""

    tasks: tuple[AnyTask, ...]

    @overload
    def __and__(self, other: Task[S]) -> TaskSequence[*Rs, S]: ...
    @overload
    def __and__(self, other: Sendable[Any]) -> TaskSequence[*tuple[Any, ...]]: ...
    def __and__(self, other: Sendable[Any]) -> Any:
        if isinstance(other, TaskSequence | Gathered):
            return TaskSequence((*self.tasks, *other.tasks))
        if isinstance(other, Task | GangTask):
            return TaskSequence((*self.tasks, other))
        return NotImplemented

    def _run(self, pool: ComputePool) -> tuple[*Rs]:
        return tuple(pool.gather(self.tasks))

    def _start(self, pool: ComputePool) -> Future[tuple[*Rs]]:
        return pool.submit_all(self.tasks, tuple)

    def __repr__(self) -> str:
        return f"<{len(self.tasks)} tasks at once>"


@dataclass(frozen=True, eq=False, repr=False)
class Gathered(Sendable[V]):
    """Many tasks."""

    tasks: tuple[AnyTask, ...]
    stream: bool = False
    ordered: bool = True
    return_exceptions: bool = False

    def _run(self, pool: ComputePool) -> V:
        found: Any
        if self.stream:
            found = pool.stream(self.tasks, ordered=self.ordered, return_exceptions=self.return_exceptions)
        else:
            found = pool.gather(self.tasks, return_exceptions=self.return_exceptions)
        values: V = found
        return values

    def _start(self, pool: ComputePool) -> Future[V]:
        if self.stream:
            raise BadPool("a stream cannot be started with >; iterate over gather(..., stream=True) >> pool")
        return pool.submit_all(self.tasks, list, return_exceptions=self.return_exceptions)

    def __and__(self, other: Sendable[Any]) -> TaskSequence[*tuple[Any, ...]]:
        return TaskSequence[*tuple[Any, ...]](self.tasks) & other

    def __repr__(self) -> str:
        return f"<gather of {len(self.tasks)} tasks>"


@overload
def gather(*tasks: Task[R]) -> Gathered[list[R]]: ...
@overload
def gather(*tasks: GangTask[R]) -> Gathered[list[list[R]]]: ...
@overload
def gather(
    *tasks: Task[R], stream: Literal[True], ordered: bool = ..., return_exceptions: Literal[False] = ...
) -> Gathered[Iterator[R]]: ...
@overload
def gather(
    *tasks: Task[R], return_exceptions: Literal[True], ordered: bool = ...
) -> Gathered[list[R | BaseException]]: ...
@overload
def gather(
    *tasks: AnyTask, stream: bool = ..., ordered: bool = ..., return_exceptions: bool = ...
) -> Gathered[Any]: ...
def gather(
    *tasks: AnyTask, stream: bool = False, ordered: bool = True, return_exceptions: bool = False
) -> Gathered[Any]:
    """Combine many tasks: ``gather(*tasks) >> pool`` returns the list of their values, in their order.

    With ``stream`` it returns an iterator that yields each value as soon as it has arrived: in the order of the tasks,
    or with ``ordered=False`` in the order in which they end. The first exception is raised and the other tasks are
    cancelled; with ``return_exceptions`` all tasks run, and exceptions are among the values.
    """
    if not {Task, GangTask}.issuperset(map(type, tasks)):
        _complain(tasks)
    return Gathered(tasks, stream, ordered, return_exceptions)


def _complain(given: Iterable[Any]) -> None:
    for number, one in enumerate(given):
        if not isinstance(one, Task | GangTask):
            hint = "; unpack it: gather(*tasks)" if isinstance(one, Iterable) and not isinstance(one, str) else ""
            raise BadPool(
                f"gather takes tasks, and its argument {number + 1} is {type(one).__name__}{hint}. A task is a call of "
                "a function made with @compute, such as trial(0.1)"
            )


def gang_of(function: Callable[..., Any] | Task[Any], size: int, *, spread: bool = False) -> GangTask[Any]:
    """Create a gang of ``size`` calls that start together: ``gang(train, size=4)(lr=0.1) >> pool`` returns a list by
    rank.

    Each member finds RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in its environment. ``spread``: each
    member on a different node.
    """
    if not is_whole(size, 1, 10**5):
        raise BadPool(f"gang: size must be a whole number, at least 1, is {size!r}")
    if isinstance(function, Task):
        return GangTask(function.compute, size, spread, function.args, function.kwargs)
    made = compute_of(function)
    if made.streams:
        raise BadPool(f"gang: {made.name} is a generator; the members of a gang return their values at their end")
    return GangTask(made, size, spread)
