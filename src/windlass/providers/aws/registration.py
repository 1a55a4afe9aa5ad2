"""This module declares the provider type ``aws``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from windlass.offers import MachineOffer, in_region, read_catalogue
from windlass.providers.aws.settings_check import LARGEST_DISK, SMALLEST_DISK, all_mistakes, group_mistakes
from windlass.providers.protocol import Provider
from windlass.providers.registry import ProviderContext, ProviderType
from windlass.providers.ssh.registration import IMAGE, check_network
from windlass.setting_types import Name, Number, OneOf, Place, Prices, Section, Setting, Whole, Words


def settings_of(settings: Mapping[str, Any]) -> Any:
    """Convert the settings of the configuration."""
    from .buying import AWSSettings

    return AWSSettings(
        region=settings["region"],
        zones=tuple(settings["zones"] or ()),
        subnets=tuple(settings["subnets"] or ()),
        security_group=settings["security_group"] or "",
        image_id=settings["image_id"] or "",
        profile=settings["profile"] or "",
        market=settings["market"],
        max_price=settings["max_price"],
        endpoint_url=settings["endpoint_url"] or "",
        user=settings["user"],
        key_file=settings["key_file"] or "",
        ssh_from=settings["ssh_from"] or "",
        connect=settings["connect"],
        disk=settings["disk"],
        prices=settings["prices"] or {},
        metadata_url=settings["metadata_url"],
    )


def _build(settings: Mapping[str, Any], context: ProviderContext) -> Provider:
    from .provider import AWSProvider

    return AWSProvider(
        settings_of(settings),
        image=settings["image"],
        read_only=context.read_only,
        now=context.now,
    )


def _check(settings: Mapping[str, Any], name: str, workload: str) -> list[str]:
    return [*check_network(settings, name, workload), *all_mistakes(settings, f"providers.{name}.")]


def _sells(settings: Mapping[str, Any]) -> list[MachineOffer]:
    """Return the catalogue for the provider's region; where it has none of that region, the prices of another one
    hold.
    """
    return in_region(read_catalogue(["aws"], prices=settings["prices"] or {}), settings["region"])


def _offer_settings(offer: MachineOffer, max_price: float | None) -> dict[str, Any]:
    limit = {} if max_price is None or offer.market != "spot" else {"max_price": max_price}
    return {"instance_type": offer.type, "market": offer.market, **limit}


AWS_INSTANCES: Final = ProviderType(
    summary="instances of Amazon EC2. A group names its machine type: `settings: {instance_type: m7i.large}`.",
    section=Section(
        "a provider of EC2 instances",
        (
            Setting("region", Name(), "us-east-1", "", "The region of the instances."),
            Setting("zones", Words(), None, "", "Zones that may be used.", absent="all of the region"),
            Setting("subnets", Words(), None, "", "Subnets that may be used.", absent="those of the default network"),
            Setting(
                "security_group",
                Name(),
                None,
                "",
                "It must allow SSH from the controller.",
                absent="one is created that allows SSH from the controller and nothing else",
            ),
            Setting("image_id", Name(), None, "", "The machine image.", absent="Ubuntu 24.04"),
            Setting("profile", Name(), None, "", "A profile of `~/.aws/config`.", absent="boto3's own search"),
            Setting(
                "market",
                OneOf(("on-demand", "spot", "spot-first")),
                "on-demand",
                "",
                "`spot-first`: spot, and on-demand if there is no spot capacity.",
            ),
            Setting(
                "max_price",
                Number(),
                None,
                "$/h",
                "The highest price for a spot instance.",
                absent="the on-demand price",
            ),
            Setting(
                "endpoint_url",
                Name(),
                None,
                "",
                "The URL of another EC2 API, such as a fake one.",
                absent="that of AWS",
            ),
            Setting("user", Name(), "ubuntu", "", "The user name of the image."),
            Setting(
                "key_file",
                Place(),
                None,
                "",
                "The file with the private key.",
                absent="one is created in `~/.config/windlass`",
            ),
            Setting(
                "ssh_from",
                Name(),
                None,
                "",
                "The network from which the created security group allows SSH.",
                absent="this computer's public address",
            ),
            Setting("connect", OneOf(("tunnel", "direct")), "tunnel", "", "`tunnel` or `direct`, as for `type: ssh`."),
            Setting(
                "disk", Whole(low=SMALLEST_DISK, high=LARGEST_DISK), 50, "GiB", "The size of the encrypted root disk."
            ),
            Setting(
                "prices",
                Prices(),
                None,
                "$/h",
                "Your own prices, by machine type (`p4d.24xlarge`) or type and market (`p4d.24xlarge/spot`).",
                absent="the catalogue's",
            ),
            Setting(
                "metadata_url",
                Name(),
                "http://169.254.169.254",
                "",
                "The metadata service from which instances read interruption notices.",
            ),
            IMAGE,
        ),
    ),
    build=_build,
    runs=frozenset({"dask"}),
    check=_check,
    check_group=group_mistakes,
    modules=("boto3", "asyncssh"),
    extra="aws",
    takes_images=True,
    sells=_sells,
    offer_settings=_offer_settings,
)
