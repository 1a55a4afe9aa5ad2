"""This module turns the provider and workload types of the two registries into sections of a configuration."""

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
    """``ProviderType`` or ``WorkloadType`` by name. A lookup imports the type."""

    def section(self, name: str) -> Section:
        section: Section = self.known[name].section
        return section

    def form(self, name: str) -> Form:
        """Return the keys of one type."""
        return self.section(name).typed(Key(REQUIRED, "The type."))

    def reference_form(self, name: str) -> Form:
        """Return the keys of one type; the meaning of ``type`` is the summary of this type."""
        return self.section(name).typed(Key(REQUIRED, f"`{name}`: {self.known[name].summary}"))


PROVIDERS: Final = Types("a provider", PROVIDER_TYPES)
WORKLOADS: Final = Types("a workload", WORKLOAD_TYPES)
