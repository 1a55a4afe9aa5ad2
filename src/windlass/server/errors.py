"""This module turns errors into answers: each is a problem with a sentence that says what to do."""

from __future__ import annotations

import time

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from windlass.control.record.state_reader import TooOld
from windlass.journal import JournalError

from .access.guard import API
from .problems import Problem


def handle_errors(app: FastAPI, shell: bytes) -> None:
    """Adds the handlers of errors. ``shell``: the page that a browser gets for an unknown path."""

    async def _http(request: Request, error: Exception) -> Response:
        if _is_unknown_page(request, error):
            return Response(shell, 404, media_type="text/html; charset=utf-8")
        return _http_problem(request, error)

    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(JournalError, _journal)
    app.add_exception_handler(TooOld, _too_old)
    app.add_exception_handler(Exception, _failed)


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    mistakes = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in error.errors()]
    return Problem("invalid", "; ".join(mistakes), mistakes=mistakes).response()


def _is_unknown_page(request: Request, error: Exception) -> bool:
    """Whether a browser asks for a page that does not exist; the shell has a page that says so."""
    unknown = isinstance(error, HTTPException) and error.status_code == 404
    is_page = request.method == "GET" and not request.url.path.startswith((API, "/static/"))
    return unknown and is_page and "text/html" in request.headers.get("accept", "")


def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = dict(error.headers or {})
        return Problem("method-not-allowed", f"{request.method} is not served here.", headers=allowed).response()
    return Problem("not-found", "There is no such address. GET /api/v1/openapi.json lists them.").response()


async def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


async def _journal(_request: Request, error: Exception) -> Response:
    return Problem("journal-unavailable", f"The journal cannot be used now: {error}", retry_after=5).response()


async def _too_old(_request: Request, error: Exception) -> Response:
    assert isinstance(error, TooOld)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(error.since))
    return Problem(
        "too-old", f"The journal reaches back to {when} ({error.since:.0f}). Ask for a later time."
    ).response()


async def _failed(_request: Request, _error: Exception) -> Response:
    return Problem("internal", "The server failed. Its log has the cause; please report it.").response()
