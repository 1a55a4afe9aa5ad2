"""This module turns the types of providers and workloads in the two registries into sections of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from windlass.providers.registry import PROVIDER_TYPES
from windlass.scenario.declarations import REQUIRED, Form, Key
from windlass.setting_types import Section
from windlass.workloads.registry import WORKLOAD_TYPES


@dataclass(frozen=True)
class Types:
    """The known types of one section."""

    noun: str
    known: Mapping[str, Any]
    """``ProviderType`` or ``WorkloadType`` by name; one is imported when it is looked up."""

    def section(self, name: str) -> Section:
        section: Section = self.known[name].section
        return section

    def form(self, name: str) -> Form:
        """The keys of one type. The meaning of ``type`` lists all types, which is for the reference alone."""
        return self.section(name).typed(Key(REQUIRED, "Which type it is."))

    def reference_form(self, name: str) -> Form:
        meaning = " ".join(f"`{one}`: {self.known[one].summary}" for one in self.known)
        return self.section(name).typed(Key(REQUIRED, meaning))


PROVIDERS: Final = Types("a provider", PROVIDER_TYPES)
WORKLOADS: Final = Types("a workload", WORKLOAD_TYPES)
