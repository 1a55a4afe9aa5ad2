"""Registry maps a type name to its declaration, built in or from an installed package, and imports it on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

T = TypeVar("T")


class BadRegistration(Exception):
    """An installed package registers something that cannot be used. The text names the package and the reason."""


class Registry(Mapping[str, T], Generic[T]):
    """The known types of one section, by name: those of this package first, then those of entry points by name."""

    def __init__(self, group: str, built_in: Mapping[str, str], kind: type[T]) -> None:
        self._group, self._built_in, self._kind = group, built_in, kind
        self._loaded: dict[str, T] = {}

    @cached_property
    def _added(self) -> dict[str, EntryPoint]:
        found = sorted(entry_points(group=self._group), key=lambda one: (one.name, one.value))
        return {one.name: one for one in found if one.name not in self._built_in}

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._built_in
        yield from self._added

    def __len__(self) -> int:
        return len(self._built_in) + len(self._added)

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in self._added

    def _load(self, name: str) -> T:
        if name in self._built_in:
            module, _, attribute = self._built_in[name].partition(":")
            value = getattr(import_module(module), attribute)
        elif name in self._added:
            value = self._load_added(self._added[name])
        else:
            raise KeyError(name)
        if not isinstance(value, self._kind):
            raise BadRegistration(f"{self._group} {name}: must be a {self._kind.__name__}, is {type(value).__name__}")
        return value

    def _load_added(self, point: EntryPoint) -> object:
        try:
            return point.load()
        except Exception as error:  # code of another package: any error is reported, not raised
            package = point.dist.name if point.dist is not None else "an installed package"
            raise BadRegistration(f"{self._group} {point.name} of {package} cannot be loaded: {error}") from error
