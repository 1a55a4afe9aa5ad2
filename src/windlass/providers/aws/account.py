"""This module checks an AWS account: credentials, permissions and quota, without buying anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

from windlass.providers.aws.api import EC2Api
from windlass.providers.protocol import AuthFailed, ProviderError
from windlass.providers.remote.connection import plain

DRY_RUNS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("describe_instances", {}),
    ("describe_launch_templates", {}),
    ("describe_security_groups", {}),
    ("create_launch_template", {"LaunchTemplateName": "windlass-doctor", "LaunchTemplateData": {"ImageId": "ami-0"}}),
    (
        "create_fleet",
        {
            "Type": "instant",
            "LaunchTemplateConfigs": [
                {"LaunchTemplateSpecification": {"LaunchTemplateName": "windlass-doctor", "Version": "$Latest"}}
            ],
            "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
        },
    ),
    ("terminate_instances", {"InstanceIds": ["i-00000000000000000"]}),
)
"""Each is called with ``DryRun``: EC2 answers whether the call would be allowed, and does nothing."""
ACCELERATORS: Final = {
    "L-DB2E81BA": "on-demand G and VT instances",
    "L-3819A6DF": "spot G and VT instances",
    "L-417A185B": "on-demand P instances",
    "L-7212CCBC": "spot P4, P3 and P2 instances",
}
QUOTAS: Final = {
    "L-1216C47A": "on-demand standard instances",
    "L-34B43A08": "spot standard instances",
    **ACCELERATORS,
}
"""What each quota of EC2 limits, in vCPUs."""


class AccountCheck(NamedTuple):
    """The result of one check. ``remedy`` is empty if the check passed."""

    subject: str
    text: str
    remedy: str = ""
    is_known: bool = True
    """False: the check could not be made, or its result may be no problem."""


async def account_checks(region: str, profile: str = "", endpoint_url: str = "") -> AsyncIterator[AccountCheck]:
    """Check the credentials, then the permissions, then the quotas."""
    api = EC2Api(region, profile, endpoint_url)
    try:
        try:
            who = await api.other("sts", "get_caller_identity")
        except ProviderError as error:
            yield AccountCheck("credentials", plain(error), "set AWS_PROFILE, or run: aws configure")
            return
        yield AccountCheck("credentials", f"{plain(who.get('Arn', ''))} in {region}")
        refused = [name async for name in _refused(api)]
        if refused:
            remedy = "give the user or role the policy that windlass doctor aws --policy prints"
            yield AccountCheck("permissions", f"not allowed: {', '.join(refused)}", remedy)
        else:
            yield AccountCheck("permissions", "all needed calls are allowed (checked with dry runs)")
        for code, what in QUOTAS.items():
            try:
                quota = await api.other("service-quotas", "get_service_quota", ServiceCode="ec2", QuotaCode=code)
                cpus = float(quota["Quota"]["Value"])
            except (ProviderError, KeyError, ValueError, TypeError) as error:
                yield AccountCheck(f"quota of {what}", f"could not be read ({plain(error, 120)})", is_known=False)
                continue
            remedy = "" if cpus >= 1 else "request a higher quota in the AWS console: Service Quotas, Amazon EC2"
            if remedy and code in ACCELERATORS:  # the quota of a new account, and no problem without accelerators
                yield AccountCheck(f"quota of {what}", f"0 vCPUs, so none can be launched; {remedy}", is_known=False)
            else:
                yield AccountCheck(f"quota of {what}", f"{cpus:g} vCPUs", remedy)
    finally:
        api.close()


async def _refused(api: EC2Api) -> AsyncIterator[str]:
    for operation, arguments in DRY_RUNS:
        try:
            await api.call(operation, DryRun=True, **arguments)
        except AuthFailed:
            yield "ec2:" + "".join(word.title() for word in operation.split("_"))
        except ProviderError:
            continue  # the call is allowed: the error has another cause, usually that it is a dry run
