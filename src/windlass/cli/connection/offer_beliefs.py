"""This module reads from a journal which machine types were available, and how long they took to start."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import click

from windlass.cli.connection.config_option import load
from windlass.cli.ui.output import exists
from windlass.cli.ui.pages import span
from windlass.config import Config, ConfigError, read_config
from windlass.control.reconcile.provider_health import availability_of, boot_time
from windlass.control.settings import GroupSettings
from windlass.control.state.fleet import ProviderHealth
from windlass.journal import JournalError
from windlass.offers import MachineOffer
from windlass.providers.registry import PROVIDER_TYPES

from .observe_once import known

Key = tuple[str, str]
"""A machine type and a market."""


class OfferBelief(NamedTuple):
    """The availability of an offer, as the journal shows it."""

    text: str
    can_be_had: bool = True


def configured_offers(file: str, given: bool) -> Config | None:
    """Return the configuration, if there is one. A mistake in it is an error only if the user named the file."""
    if given:
        return load(file)
    if not exists(file):
        return None
    try:
        return read_config(Path(file).read_bytes(), path=file)
    except (OSError, ConfigError):
        click.echo(f"{file} has mistakes, so its prices and its journal are not used: windlass config check", err=True)
        return None


def offers_of(config: Config) -> dict[str, list[MachineOffer]]:
    """Return the machines of each provider of a configuration, with the prices of the configuration."""
    found = {name: list(PROVIDER_TYPES[one.type].sells(one.settings)) for name, one in config.providers.items()}
    return {name: offers for name, offers in found.items() if offers}


def beliefs_of(config: Config) -> Mapping[Key, OfferBelief]:
    """Return the availability by machine type and market."""
    try:
        health = known(config).fleet.provider_health
    except JournalError as error:
        click.echo(f"the journal cannot be read, so its facts are not shown: {error}", err=True)
        return {}
    now = time.time()
    found: dict[Key, OfferBelief] = {}
    for configured in config.settings.groups:
        if configured.group.name in health and (key := _key(configured)) is not None:
            found[key] = _belief(health[configured.group.name], config, now)
    return found


def _key(configured: GroupSettings) -> Key | None:
    kind = configured.settings.get("instance_type") or configured.group.labels.get("machine_type")
    market = "spot" if configured.group.preemptible or configured.settings.get("market") == "spot" else "on-demand"
    return (kind, market) if isinstance(kind, str) else None


def _belief(health: ProviderHealth, config: Config, now: float) -> OfferBelief:
    available = availability_of(health, config.settings.policy.backoff, now)
    if available.state != "available":
        name = "quota" if available.state == "quota_exceeded" else "backoff"
        left = f" for {span(available.until - now)}" if available.until is not None and available.until > now else ""
        return OfferBelief(f"{name}{left}: {available.why}", can_be_had=False)
    boot = boot_time(health)
    words = [] if health.succeeded_at is None else [f"started {span(now - health.succeeded_at)} ago"]
    words += [] if boot is None else [f"takes {span(boot)}"]
    return OfferBelief(", ".join(words) or "available")
