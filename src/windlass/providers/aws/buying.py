"""This module buys slices on EC2: it selects machine types, creates a launch template and requests a fleet per market.

The launch template of a slice is deleted with the slice. If no security group is given, one is created for the cluster;
it allows SSH from the controller and nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import asyncssh

from windlass.core.model.snapshot import amounts
from windlass.offers import MachineOffer, in_region, read_catalogue
from windlass.providers.aws.api import EC2Api, TemplateExists, TemplateMissing, fleet_error
from windlass.providers.aws.machine_types import DEVICES, fitting_types
from windlass.providers.aws.user_data import joining_script, make_host_key, public_part, script
from windlass.providers.protocol import (
    ClusterIdentity,
    InsufficientCapacity,
    InvalidRequest,
    LaunchOrder,
    ProviderError,
    QuotaExceeded,
)
from windlass.providers.remote.connection import plain

Market = Literal["spot", "on-demand", "spot-first"]
TAG: Final = "windlass:"
SLOTS: Final = "slots"
"""A resource that a pool's nodes add themselves: processes, each of which needs a CPU."""
LONGEST_TOKEN: Final = 64
"""The most characters that EC2 accepts in a client token."""
UBUNTU: Final = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{arch}/hvm/ebs-gp3/ami-id"


@dataclass(frozen=True, slots=True)
class AWSSettings:
    """The settings for launches: region, network, image, market and keys."""

    region: str = "us-east-1"
    zones: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    security_group: str = ""
    image_id: str = ""
    profile: str = ""
    market: Market = "on-demand"
    max_price: float | None = None
    """The highest spot price in dollars per hour; None: the on-demand price."""
    endpoint_url: str = ""
    user: str = "ubuntu"
    key_file: str = ""
    """The path of our private key; empty: ``ssh_key`` in ``directory``, which is created if it is missing."""
    directory: str = "~/.config/windlass"
    ssh_from: str = ""
    """The network from which SSH is allowed, such as ``203.0.113.7/32``; empty: our own public address."""
    connect: Literal["tunnel", "direct"] = "tunnel"
    disk: int = 50
    """GiB."""
    instance_type: str = ""
    prices: Mapping[str, float] = field(default_factory=dict)
    metadata_url: str = "http://169.254.169.254"


class FleetBuyer:
    """Buys slices as fleets in one account and region."""

    def __init__(self, api: EC2Api, settings: AWSSettings) -> None:
        self._api = api
        self.settings = settings
        self._cluster = ClusterIdentity()
        self._key: str | None = None
        self._group_id = settings.security_group
        self._image_ids: dict[str, str] = {}
        self._making = asyncio.Lock()

    def bind(self, cluster: ClusterIdentity) -> None:
        self._cluster = cluster

    @property
    def cluster(self) -> str:
        """The cluster's name in the names of launch templates and security groups."""
        return self._cluster.id or self._cluster.name

    async def buy(self, order: LaunchOrder, epoch: int) -> None:
        """Buy all hosts of a slice or none. After a refusal nothing is left in the account."""
        types = self._types(order)
        try:
            await self._template(order, epoch, types[0].arch)
            await self._fleets(order, types)
        except (InsufficientCapacity, QuotaExceeded, InvalidRequest):
            await self.delete_template(order.slice_id)
            raise

    def _types(self, order: LaunchOrder) -> Sequence[MachineOffer]:
        """Return the machine types that a launch may use, the preferred one first."""
        named = order.settings.get("instance_type") or self.settings.instance_type
        catalogue = in_region(read_catalogue(["aws"], prices=self.settings.prices), self.settings.region)
        if named:
            names = [named] if isinstance(named, str) else list(named)
            known = {one.type: one for one in catalogue}
            return [known.get(name) or MachineOffer("aws", name, "on-demand", 0) for name in names]
        needs = dict(order.resources)
        found = fitting_types(
            catalogue,
            str(order.settings.get("market") or self.settings.market),
            model=order.labels.get("accelerator", ""),
            devices=amounts({name: needs[name] for name in DEVICES if needs.get(name)}),
            cpus=-(-max(needs.get("cpu", 0), needs.get(SLOTS, 0)) // 1000),
            memory=needs.get("memory", 0),
        )
        if not found:
            raise InvalidRequest(
                f"no EC2 machine type of the catalogue has the resources of group {order.group}; name one in its "
                "settings (instance_type), see windlass offers --provider aws"
            )
        return found

    async def _template(self, order: LaunchOrder, epoch: int, arch: str) -> None:
        """Create the slice's launch template, unless an interrupted launch has created it."""
        joins = joins_by_itself(order)
        private, public = ("", "") if joins else make_host_key()
        tags = {
            "cluster": self._cluster.name,
            "cluster-id": self._cluster.id,
            "slice": order.slice_id,
            "group": order.group,
            "hosts": str(len(order.hosts)),
            "epoch": str(epoch),
            **({"joins": "by itself"} if joins else {"host-key": public}),
        }
        named = [{"Key": f"{TAG}{key}", "Value": value} for key, value in tags.items()]
        named.append({"Key": "Name", "Value": f"windlass {order.slice_id}"})
        if joins:
            start = joining_script(str(order.settings["user_data"]), order.hosts[0].environment)
        else:
            start = script(private, public, await self._client_key(), self.settings.user)
        data: dict[str, Any] = {
            "ImageId": await self._image_id(order, arch),
            "UserData": base64.b64encode(start.encode()).decode(),
            "SecurityGroupIds": [await self._security_group(joins)],
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "HttpEndpoint": "enabled"},
            "BlockDeviceMappings": [
                {
                    "DeviceName": "/dev/sda1",
                    "Ebs": {
                        "Encrypted": True,
                        "VolumeType": "gp3",
                        "VolumeSize": order.settings.get("disk") or self.settings.disk,
                        "DeleteOnTermination": True,
                    },
                }
            ],
            "InstanceInitiatedShutdownBehavior": "terminate",
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": named},
                {"ResourceType": "volume", "Tags": named[:4]},
            ],
        }
        if profile := str(order.settings.get("instance_profile") or ""):
            data["IamInstanceProfile"] = {"Arn" if profile.startswith("arn:") else "Name": profile}
        with suppress(TemplateExists):
            await self._api.call(
                "create_launch_template",
                LaunchTemplateName=self._template_name(order.slice_id),
                LaunchTemplateData=data,
                TagSpecifications=[{"ResourceType": "launch-template", "Tags": named[:4]}],
            )

    async def _fleets(self, order: LaunchOrder, types: Sequence[MachineOffer]) -> None:
        """Request the slice once in each market of the settings, until one has capacity."""
        chosen = order.settings.get("market") or self.settings.market
        markets = ("spot", "on-demand") if chosen == "spot-first" else (chosen,)
        for last, market in ((market == markets[-1], market) for market in markets):
            try:
                own = order.slice_id if market == markets[0] else f"{order.slice_id}-od"
                await self._fleet(order, types, market, client_token(own))
                return
            except (InsufficientCapacity, QuotaExceeded):
                if last:
                    raise

    async def _fleet(self, order: LaunchOrder, types: Sequence[MachineOffer], market: str, token: str) -> None:
        count = len(order.hosts)
        price = order.settings.get("max_price", self.settings.max_price)
        capped = {"MaxPrice": f"{price:g}"} if price is not None and market == "spot" else {}
        places: list[dict[str, str]] = [{"SubnetId": one} for one in self.settings.subnets]
        places = places or [{"AvailabilityZone": one} for one in self.settings.zones] or [{}]
        overrides = [{"InstanceType": one.type, **place, **capped} for one in types for place in places]
        options: dict[str, Any] = {"AllocationStrategy": "lowest-price"}
        if market == "spot":
            options = {"AllocationStrategy": "price-capacity-optimized"}
        if count > 1:
            options |= {"MinTargetCapacity": count, "SingleInstanceType": True, "SingleAvailabilityZone": True}
        answer = await self._api.call(
            "create_fleet",
            Type="instant",
            ClientToken=token,
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateName": self._template_name(order.slice_id),
                        "Version": "$Latest",
                    },
                    "Overrides": overrides,
                }
            ],
            TargetCapacitySpecification={"TotalTargetCapacity": count, "DefaultTargetCapacityType": market},
            TagSpecifications=[
                {"ResourceType": "fleet", "Tags": [{"Key": f"{TAG}cluster", "Value": self._cluster.name}]}
            ],
            **{"SpotOptions" if market == "spot" else "OnDemandOptions": options},
        )
        got = [name for one in answer.get("Instances") or () for name in one.get("InstanceIds") or ()]
        if len(got) < count:
            if got:
                await self._api.call("terminate_instances", InstanceIds=got)
            raise fleet_error(answer.get("Errors") or ())

    def _template_name(self, slice_id: str) -> str:
        return f"windlass-{self.cluster}-{slice_id}"[-128:]

    async def delete_template(self, slice_id: str) -> None:
        with suppress(TemplateMissing):
            await self._api.call("delete_launch_template", LaunchTemplateName=self._template_name(slice_id))

    async def _client_key(self) -> str:
        async with self._making:
            if self._key is None:
                self._key = await asyncio.to_thread(client_key, self.key_file)
            return self._key

    @property
    def key_file(self) -> Path:
        given = self.settings.key_file or f"{self.settings.directory}/ssh_key"
        return Path(given).expanduser()

    async def _image_id(self, order: LaunchOrder, arch: str) -> str:
        given = order.settings.get("image_id") or self.settings.image_id
        if given:
            return str(given)
        async with self._making:
            if arch not in self._image_ids:
                name = UBUNTU.format(arch=arch)
                answer = await self._api.other("ssm", "get_parameters", Names=[name])
                found = [one["Value"] for one in answer.get("Parameters") or ()]
                if not found:
                    raise InvalidRequest(
                        f"AWS has no image {name} in {self.settings.region}; set image_id of the provider"
                    )
                self._image_ids[arch] = str(found[0])
            return self._image_ids[arch]

    async def _security_group(self, joins: bool = False) -> str:
        """Return the given security group, or one of our own that allows SSH from us and nothing else."""
        async with self._making:
            if self._group_id:
                return self._group_id
            if joins:
                raise InvalidRequest("aws: security_group is missing; give the one of the Kubernetes cluster's nodes")
            name = f"windlass-{self.cluster}"
            there = await self._api.pages(
                "describe_security_groups", "SecurityGroups", Filters=[{"Name": "group-name", "Values": [name]}]
            )
            if not there:
                made = await self._api.call(
                    "create_security_group",
                    GroupName=name,
                    Description="SSH from the Windlass controller",
                    TagSpecifications=[
                        {
                            "ResourceType": "security-group",
                            "Tags": [{"Key": f"{TAG}cluster", "Value": self._cluster.name}],
                        }
                    ],
                )
                group = str(made["GroupId"])
                source = self.settings.ssh_from or f"{await asyncio.to_thread(_own_address)}/32"
                ranges = [{"CidrIp": source, "Description": "the controller"}]
                rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": ranges}
                await self._api.call("authorize_security_group_ingress", GroupId=group, IpPermissions=[rule])
                self._group_id = group
            else:
                self._group_id = str(there[0]["GroupId"])
            return self._group_id


def joins_by_itself(order: LaunchOrder) -> bool:
    """Whether the machine joins its cluster by its user data. Raises ``InvalidRequest`` if the user data is missing."""
    if any(host.command for host in order.hosts):
        return False
    if not order.settings.get("user_data"):
        raise InvalidRequest(
            f"group {order.group}: user_data is missing in its settings (template.settings of a NodeProvisioner); give "
            "a script with which a machine joins the cluster, such as one that starts a kubelet with "
            "--node-labels=$WINDLASS_NODE_LABELS"
        )
    if len(order.hosts) != 1:
        raise InvalidRequest(f"group {order.group} has {len(order.hosts)} hosts; machines with user_data have one")
    return True


def client_token(name: str) -> str:
    """Return the idempotency token of a launch: the id of its slice, or a hash if the id is too long for EC2."""
    return name if len(name) <= LONGEST_TOKEN else hashlib.sha256(name.encode()).hexdigest()[:LONGEST_TOKEN]


def client_key(path: Path) -> str:
    """Return the public part of our key; create the key, readable by its owner only, if it is missing."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = asyncssh.generate_private_key("ssh-ed25519")
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(handle, "wb") as file:
                file.write(key.export_private_key())
    try:
        return public_part(asyncssh.read_private_key(str(path)))
    except (OSError, asyncssh.KeyImportError) as error:
        raise InvalidRequest(
            f"aws: key_file {path} cannot be used as a private key ({plain(error)}); give one without a passphrase"
        ) from error


def _own_address() -> str:
    """Return this computer's public IP address."""
    import ipaddress
    import urllib.request

    try:
        with urllib.request.urlopen("https://checkip.amazonaws.com", timeout=10) as answer:
            return str(ipaddress.ip_address(answer.read(100).decode().strip()))
    except (OSError, ValueError) as error:
        raise ProviderError(
            f"aws: the public address of this computer could not be found ({plain(error)}); set ssh_from, such as "
            "203.0.113.7/32, or security_group"
        ) from error
