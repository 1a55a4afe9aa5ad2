"""This module converts errors of a Kubernetes API server into errors of the provider contract."""

from __future__ import annotations

from windlass.kubernetes_api.api import ApiError

from .protocol import AuthFailed, InvalidRequest, ProviderError, Throttled


def provider_error(error: ApiError) -> ProviderError:
    """Return the error of the provider contract for an error of the API server."""
    match error.status:
        case 401 | 403:
            return AuthFailed(str(error))
        case 429:
            return Throttled(str(error), error.retry_after or 1.0)
        case 400 | 422:
            return InvalidRequest(str(error))
        case _:
            return ProviderError(str(error))
