"""This module turns refusals of a Kubernetes API server into the errors of a provider."""

from __future__ import annotations

from windlass.kubernetes_api.api import ApiError

from .protocol import AuthFailed, InvalidRequest, ProviderError, Throttled


def provider_error(error: ApiError) -> ProviderError:
    """The error that says to the controller what a refusal means."""
    match error.status:
        case 401 | 403:
            return AuthFailed(str(error))
        case 429:
            return Throttled(str(error), error.retry_after or 1.0)
        case 400 | 422:
            return InvalidRequest(str(error))
        case _:
            return ProviderError(str(error))
