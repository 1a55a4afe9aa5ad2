"""Journals in every supported database: SQLite always, PostgreSQL if a server is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from windlass.journal import Journal, open_journal

from .servers import PostgresServer, server_binaries

NUMBERS = count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[postgres]'")
    binaries = server_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed: apt-get install postgresql")
    server = PostgresServer(binaries)
    yield server
    server.remove()


@pytest.fixture
def postgres_address(postgres_server: PostgresServer) -> Callable[[], str]:
    import psycopg

    def new() -> str:
        name = f"journal_{next(NUMBERS)}"
        with psycopg.connect(postgres_server.url()) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return postgres_server.url(name)

    return new


@pytest.fixture(params=["sqlite", "postgres"])
def new_address(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Gives the address of a journal that is not there yet, each time another."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_address")  # type: ignore[no-any-return]
    return lambda: str(tmp_path / f"journal-{next(NUMBERS)}.db")


@pytest.fixture
def address(new_address: Callable[[], str]) -> str:
    return new_address()


@pytest.fixture
def journal(address: str) -> Iterator[Journal]:
    with open_journal(address) as opened:
        yield opened
