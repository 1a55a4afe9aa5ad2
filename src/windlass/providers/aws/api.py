"""This module makes calls to EC2: one attempt each, on separate threads, with typed errors.

botocore would retry a launch without capacity; here the planner decides what to try next. Every answer is untrusted:
its text is shortened and stripped of control characters before it is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import boto3
import botocore.config
import botocore.exceptions

from windlass.providers.protocol import (
    AuthFailed,
    InsufficientCapacity,
    InvalidRequest,
    ProviderError,
    QuotaExceeded,
    Throttled,
)
from windlass.providers.remote.connection import plain

THREADS: Final = 8
CAPACITY: Final = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacityOnHost",
        "InsufficientFreeAddressesInSubnet",
        "UnfulfillableCapacity",
        "InsufficientVolumeCapacity",
        "SpotMaxPriceTooLow",
        "Unsupported",
    }
)
QUOTA: Final = frozenset(
    {
        "InstanceLimitExceeded",
        "VcpuLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "MaxSpotFleetRequestCountExceeded",
        "VolumeLimitExceeded",
        "TargetCapacityLimitExceeded",
        "MaxFleetCountExceeded",
        "LaunchTemplateLimitExceeded",
        "SecurityGroupLimitExceeded",
        "PrivateIpAddressLimitExceeded",
    }
)
THROTTLE: Final = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "BandwidthLimitExceeded",
        "SlowDown",
    }
)
AUTH: Final = frozenset(
    {
        "UnauthorizedOperation",
        "AuthFailure",
        "InvalidClientTokenId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "ExpiredTokenException",
        "OptInRequired",
        "Blocked",
        "AccessDenied",
        "AccessDeniedException",
        "UnrecognizedClientException",
        "InvalidSignatureException",
        "IncompleteSignature",
        "MissingAuthenticationToken",
        "RequestExpired",
        "PendingVerification",
    }
)
TEMPLATE_EXISTS: Final = frozenset({"InvalidLaunchTemplateName.AlreadyExistsException"})
TEMPLATE_MISSING: Final = frozenset({"InvalidLaunchTemplateName.NotFoundException", "InvalidLaunchTemplateId.NotFound"})
RETRY_AFTER: Final = 2.0
_NO_CREDENTIALS: Final = (
    botocore.exceptions.NoCredentialsError,
    botocore.exceptions.PartialCredentialsError,
    botocore.exceptions.ProfileNotFound,
)


class TemplateExists(InvalidRequest):
    """A launch template of this name exists already."""


class TemplateMissing(InvalidRequest):
    """There is no launch template of this name."""


class EC2Api:
    """Calls EC2 in one region."""

    def __init__(self, region: str, profile: str = "", endpoint_url: str = "") -> None:
        self.region = region
        self._profile, self._endpoint = profile, endpoint_url
        self._client: Any = None
        self._threads = ThreadPoolExecutor(THREADS, "ec2")

    async def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Call one operation once and return its answer; raises ``ProviderError``."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, operation, arguments)

    async def pages(self, operation: str, key: str, **arguments: Any) -> list[Any]:
        """Return the items of all pages of a list."""
        found: list[Any] = []
        token: str | None = None
        while True:
            page = await self.call(operation, **arguments, **({"NextToken": token} if token else {}))
            found += page.get(key) or []
            token = page.get("NextToken")
            if not token:
                return found

    def _call(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if self._client is None:
                self._client = self._made("ec2")
            answer: dict[str, Any] = getattr(self._client, operation)(**arguments)
        except botocore.exceptions.ClientError as error:
            raise error_of(operation, error.response.get("Error", {})) from error
        except _NO_CREDENTIALS as error:
            raise no_credentials(error) from error
        except botocore.exceptions.ParamValidationError as error:
            raise InvalidRequest(f"EC2 {operation}: {plain(error)}") from error
        except botocore.exceptions.BotoCoreError as error:
            raise ProviderError(f"EC2 does not answer {operation}: {plain(error)}") from error
        return answer

    def _made(self, service: str) -> Any:
        session = boto3.Session(profile_name=self._profile or None, region_name=self.region)
        config = botocore.config.Config(
            retries={"total_max_attempts": 1}, connect_timeout=10, read_timeout=60, max_pool_connections=THREADS
        )
        client: Any = session.client  # its type stubs accept literal service names only
        return client(service, endpoint_url=self._endpoint or None, config=config)

    async def other(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        """Call another service, such as ``sts``."""

        def call() -> dict[str, Any]:
            try:
                answer: dict[str, Any] = getattr(self._made(service), operation)(**arguments)
            except botocore.exceptions.ClientError as error:
                raise error_of(operation, error.response.get("Error", {})) from error
            except _NO_CREDENTIALS as error:
                raise no_credentials(error) from error
            except botocore.exceptions.BotoCoreError as error:
                raise AuthFailed(f"AWS does not answer {operation}: {plain(error)}") from error
            return answer

        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._threads = ThreadPoolExecutor(THREADS, "ec2")


def no_credentials(error: Exception) -> AuthFailed:
    if isinstance(error, botocore.exceptions.ProfileNotFound):
        return AuthFailed(f"{plain(error)}; name a profile of ~/.aws/config")
    return AuthFailed(
        f"there are no AWS credentials ({plain(error)}); set AWS_PROFILE, run aws configure, or give profile"
    )


def error_of(what: str, error: Mapping[str, Any]) -> ProviderError:
    """Convert an error of EC2 into an error of the provider contract."""
    code = plain(error.get("Code", ""), 60)
    text = f"EC2 {what}: {code}: {plain(error.get('Message', ''))}"
    if code in CAPACITY:
        return InsufficientCapacity(text)
    if code in QUOTA:
        return QuotaExceeded(f"{text}; request a higher quota from AWS, or use another region")
    if code in THROTTLE:
        return Throttled(text, RETRY_AFTER)
    if code in AUTH:
        return AuthFailed(f"{text}; windlass doctor aws --policy prints the permissions that are needed")
    if code in TEMPLATE_EXISTS:
        return TemplateExists(text)
    if code in TEMPLATE_MISSING:
        return TemplateMissing(text)
    if code.startswith(("Invalid", "Missing", "Unknown", "Malformed")):
        return InvalidRequest(text)
    return ProviderError(text)


def fleet_error(errors: Iterable[Mapping[str, Any]]) -> ProviderError:
    """Return one error for all overrides of a fleet without instances, of the kind that is most likely to pass."""
    found: list[tuple[str, ProviderError]] = []
    for one in errors:
        overrides = (one.get("LaunchTemplateAndOverrides") or {}).get("Overrides") or {}
        where = [str(overrides[key]) for key in ("InstanceType", "AvailabilityZone", "SubnetId") if overrides.get(key)]
        error = error_of("CreateFleet", {"Code": one.get("ErrorCode"), "Message": one.get("ErrorMessage")})
        found.append((plain(" in ".join(where), 80), error))
    for kind in (Throttled, InsufficientCapacity, QuotaExceeded, AuthFailed, InvalidRequest):
        for _, error in found:
            if isinstance(error, kind):
                error.args = (
                    "; ".join(dict.fromkeys(f"{where}: {one}" if where else str(one) for where, one in found)),
                )
                return error
    if not found:
        return InsufficientCapacity("EC2 CreateFleet returned no instance and no reason")
    return found[0][1]
