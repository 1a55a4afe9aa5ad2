"""The multiplexer of a tunnel: connections break and are resumed, and no byte is lost or doubled."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from windlass.providers.remote.mux import Mux

SIZE = 3_000_000


@pytest.mark.parametrize("breaks", [0, 5])
def test_bytes_go_both_ways_whole_and_in_order_however_often_the_connection_breaks(tmp_path: Path, breaks: int) -> None:
    sent = bytes(number % 251 for number in range(SIZE))

    async def story() -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.close()

        async def connect(target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_unix_connection(target)

        machine = Mux(1, connect, session="none")
        controller = Mux(0, connect, session="one")
        servers = [
            await asyncio.start_unix_server(echo, str(tmp_path / "echo")),
            await asyncio.start_unix_server(machine.attach, str(tmp_path / "tunnel")),
        ]

        async def hold() -> None:
            while True:
                await controller.attach(*await asyncio.open_unix_connection(str(tmp_path / "tunnel")))

        async def carried(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            controller.open(str(tmp_path / "echo"), reader, writer)

        holding = asyncio.create_task(hold())
        servers.append(await asyncio.start_unix_server(carried, str(tmp_path / "near")))
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "near"))

        async def send() -> None:
            writer.write(sent)
            await writer.drain()
            writer.write_eof()

        sending, got = asyncio.create_task(send()), bytearray()
        for number in range(breaks):
            while len(got) < SIZE * (number + 1) // (breaks + 2):
                got += await reader.read(65536)
            controller.drop()
        while data := await reader.read(65536):
            got += data
        await sending
        holding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await holding
        controller.drop()
        machine.drop()
        controller.close()
        machine.close()
        writer.close()
        for server in servers:
            server.close()
        while len(asyncio.all_tasks()) > 1:  # what serves the connections ends with them
            await asyncio.sleep(0.01)
        return bytes(got)

    async def limited() -> bytes:
        async with asyncio.timeout(60):
            return await story()

    assert asyncio.run(limited()) == sent
