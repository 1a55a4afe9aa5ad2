"""Preparer turns a user's tasks into scheduled tasks: pickled, checked, with large arguments in the data store.

It runs on the user's own thread. Errors in a task are raised here, before anything is sent: a function that cannot be
pickled, a need that no group has.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from windlass._gc_pause import uncollected
from windlass.core.model.conditions import BadCondition, parse_condition
from windlass.core.model.quantities import format_needs
from windlass.core.model.reasons import IMPOSSIBLE
from windlass.core.model.snapshot import Amounts, Bundle, Demand, Gang, Snapshot
from windlass.core.planner import plan
from windlass.pool.errors import BadPool, NothingFits
from windlass.pool.options import PoolShape, needs_of
from windlass.pool.scheduler.tasks import SLOTS, Kind
from windlass.pool.transport.data_store import LARGE, DataStore, Packed
from windlass.pool.transport.serialization import (
    NO_KEYWORDS,
    Arguments,
    CannotSend,
    Shared,
    are_plain,
    names_used,
    pack_arguments,
    pack_function,
    pack_shared,
)

from .api import AnyTask, Compute, GangTask, Options
from .rules import rules_of

_SMALL: Final = frozenset({int, float, bool, type(None)})
"""Types whose values are never large. Most arguments have one of them."""
KINDS_KEPT: Final = 1000
"""Size of the cache of kinds: a program that makes a new function for each task must not fill its memory."""
LONG_FUNCTION: Final = 1 << 14
"""Bytes of a pickled function from which on it is sent to each node once, not with every batch."""


class Piece(NamedTuple):
    """Consecutive tasks that differ only in their arguments, ready to be sent."""

    kind: Kind
    arguments: list[Arguments]
    """Of each."""
    shared: tuple[str, ...] = ()
    """Names of the large values that each task needs."""


@dataclass(slots=True)
class Prepared:
    """Tasks that are submitted together, and what they share."""

    pieces: list[Piece] = field(default_factory=list)
    store: DataStore | None = None
    held: list[str] = field(default_factory=list)
    """Names of large values that are held until the tasks hold them."""

    def hold(self, value: Packed, name: str | None = None) -> Shared:
        """Put a large value into the store."""
        assert self.store is not None
        kept = self.store.put(value, name)
        self.held.append(kept)
        return Shared(kept, self.store.path(kept))

    def release(self) -> None:
        """Release the large values: the tasks hold them now, or will never be sent."""
        if self.store is not None:
            for name in self.held:
                self.store.drop(name)
        self.held = []


class Preparer:
    """Prepares tasks for one pool, and caches their kinds."""

    def __init__(self, shape: PoolShape, store: DataStore | None = None) -> None:
        """``store``: for large arguments; without one they are sent with each task."""
        self.store = store
        self.reshape(shape)

    def reshape(self, shape: PoolShape) -> None:
        self._shape = shape
        self._kinds: dict[tuple[str, str, Any, bool], Kind] = {}

    def prepare(self, tasks: Sequence[AnyTask]) -> Prepared:
        """Prepare all tasks, or raise the first error. A gang is prepared alone."""
        prepared = Prepared(store=self.store)
        try:
            with uncollected(len(tasks)):
                self._prepare(tasks, prepared)
        except BaseException:
            prepared.release()
            raise
        return prepared

    def _prepare(self, tasks: Sequence[AnyTask], prepared: Prepared) -> None:
        kinds: dict[Compute[..., Any], tuple[Kind, tuple[str, ...]]] = {}
        large: dict[int, Shared] = {}
        made: Compute[..., Any]
        for made, some in groupby(tasks, attrgetter("compute")):
            alike = list(some)
            if made not in kinds:
                kinds[made] = self._kind(alike[0], prepared)
            kind, shared = kinds[made]
            light: list[Arguments] = []
            for task in alike:
                if not task.kwargs and are_plain(task.args):
                    light.append((task.args, NO_KEYWORDS))
                    continue
                arguments, names = self._arguments(task, large, prepared)
                if names:
                    _append(prepared.pieces, Piece(kind, light, shared))
                    _append(prepared.pieces, Piece(kind, [arguments], (*shared, *names)))
                    light = []
                else:
                    light.append(arguments)
            _append(prepared.pieces, Piece(kind, light, shared))

    def _kind(self, task: AnyTask, prepared: Prepared) -> tuple[Kind, tuple[str, ...]]:
        """Return the kind of a task, and the name under which its function is in the store, if it is."""
        made = task.compute
        blob = pack_function(made.function)
        digest = hashlib.sha256(blob).hexdigest()[:24]
        long = len(blob) > LONG_FUNCTION and self.store is not None
        function: bytes | Shared = blob
        if long:
            function = replace(prepared.hold(Packed(blob), f"f-{digest}"), keep=True)
        key = digest, made.name, _hashable(made.options_), isinstance(task, GangTask)
        kind = self._kinds.get(key)
        if kind is None or (isinstance(kind.function, Shared) and kind.function != function):
            kind = self._new_kind(made, function)
            self.check(kind, task)
            self._kinds[key] = kind
            if len(self._kinds) > KINDS_KEPT:
                del self._kinds[next(iter(self._kinds))]
        elif isinstance(task, GangTask):
            self.check(kind, task)
        return kind, (f"f-{digest}",) if long else ()

    def _new_kind(self, made: Compute[..., Any], function: bytes | Shared) -> Kind:
        options = made.options_
        try:
            where = tuple(parse_condition(text) for text in options.conditions)
        except BadCondition as error:
            raise BadPool(f"{made.name}: where {error}") from None
        return Kind(
            name=made.name,
            function=function,
            needs=self._shape.needs if options.needs is None else needs_of(options.needs),
            retries=options.retries,
            timeout=options.timeout,
            queue_timeout=options.queue_timeout,
            streams=made.streams,
            where=where,
            rules=rules_of(made.name, options.apart, options.spread),
        )

    def check(self, kind: Kind, task: AnyTask) -> None:
        """Raise ``NothingFits`` if no group can ever run it, as decided by the planner on an empty cluster."""
        size = task.size if isinstance(task, GangTask) else 1
        spread = isinstance(task, GangTask) and task.spread
        gang = None if not isinstance(task, GangTask) else Gang.SPREAD if spread else Gang.ANY
        rules = kind.rules
        demand = Demand(
            kind.name,
            (Bundle(kind.needs, size),),
            gang=gang,
            where=kind.where,
            classes=rules.classes,
            apart=rules.apart,
            spread=rules.spread,
        )
        groups = tuple(one.group for one in self._shape.settings.groups)
        limits = self._shape.settings.cluster
        waiting = plan(Snapshot(groups, demands=(demand,), cluster=limits)).waiting
        if not waiting:
            return
        (item,) = waiting
        blockers = sorted(item.groups.items(), key=lambda one: (one[1].code in IMPOSSIBLE, one[0]))
        sentences = "; ".join(f"{reason.why}" for _, reason in blockers)
        what = f"a gang of {size} of {kind.name}" if gang else kind.name
        needs = _needs_text(kind.needs)
        raise NothingFits(
            f"{what} can never run in this pool: it needs {needs}. Reason: {sentences}{self._nearest(kind)}"
        )

    def _nearest(self, kind: Kind) -> str:
        """Return the group that lacks the least of the needs, in words."""
        needs = dict(kind.needs)
        scores = []
        for configured in self._shape.settings.groups:
            has = dict(configured.group.resources)
            missing = {name: amount for name, amount in needs.items() if has.get(name, 0) < amount}
            scores.append((len(missing), sum(missing.values()), configured.group.name, has))
        missing_kinds, _, name, has = min(scores, key=lambda one: one[:3])
        return f". The nearest group is {name}, which has {format_needs(has)} on a node" if missing_kinds else ""

    def _arguments(
        self, task: AnyTask, large: dict[int, Shared], prepared: Prepared
    ) -> tuple[Arguments, Sequence[str]]:
        """Return the arguments of a task, with large ones in the store, and their names there. ``large``: large values
        of tasks that are prepared together, by identity, so that each is stored once.
        """
        if self.store is None:
            return pack_arguments(task.args, task.kwargs, task.compute.name), []
        names: list[str] = []

        def light(value: Any) -> Any:
            if not is_large(value):
                return value
            shared = large.get(id(value))
            if shared is None:
                shared = large[id(value)] = prepared.hold(pack_shared(value, f"an argument of {task.compute.name},"))
            return shared

        token = names_used.set(names)
        try:
            args = tuple(light(one) for one in task.args)
            kwargs = {key: light(one) for key, one in task.kwargs.items()}
            arguments = pack_arguments(args, kwargs, task.compute.name)
        finally:
            names_used.reset(token)
        if any(self.store.known(name) is None for name in names):
            raise CannotSend(
                f"an argument of {task.compute.name} has the handle of another pool, or of one that is closed: put the "
                "value into this pool, handle = pool.put(value)"
            )
        if isinstance(arguments, bytes) and len(arguments) >= LARGE:  # a large value is nested in them
            shared = prepared.hold(Packed(arguments))
            names.append(shared.name)
            arguments = pickle.dumps(shared, protocol=pickle.HIGHEST_PROTOCOL)
        return arguments, names


def _append(pieces: list[Piece], piece: Piece) -> None:
    """Add a piece if it has tasks. A single task or a gang is one piece."""
    if piece.arguments:
        pieces.append(piece)


def is_large(value: Any) -> bool:
    """Return whether a value is stored once for all tasks that have it as an argument."""
    return type(value) not in _SMALL and _size(value) >= LARGE


def _size(value: Any) -> int:
    size = getattr(value, "nbytes", None)  # for arrays: getsizeof does not always include their data
    return size if isinstance(size, int) else sys.getsizeof(value)


def _hashable(options: Options) -> Any:
    needs = (
        None if options.needs is None else tuple(sorted((name, str(value)) for name, value in options.needs.items()))
    )
    rules = rules_of("task", options.apart, options.spread)
    return needs, options.retries, options.timeout, options.queue_timeout, options.conditions, rules, options.name


def _needs_text(needs: Amounts) -> str:
    return format_needs({name: amount for name, amount in needs if (name, amount) != (SLOTS, 1000)} or dict(needs))
