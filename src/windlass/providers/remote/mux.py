"""The multiplexer forwards TCP streams over one connection that may break and resume.

Both sides number the frames that they send, and keep each until the other side has acknowledged it. After a break the
controller attaches a new connection; each side reports how many frames it has received, and the other sends the rest
again. No byte is lost or duplicated, so the TCP connections do not notice the break. Each stream has a window, so that
a slow reader delays its own stream only.

A controller names its session. A session with another name replaces it and closes all streams of the old one.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Python 3.8 cannot subscript these at run time
    from collections.abc import Awaitable, Callable

    Pipe = tuple[asyncio.StreamReader, asyncio.StreamWriter]

HEADER = struct.Struct("!BII")
HELLO, ACK, PING, OPEN, DATA, EOF, RESET, CREDIT, MESSAGE = range(1, 10)
_UNNUMBERED = (HELLO, ACK, PING)
WINDOW = 1 << 20
"""The most bytes of one stream in flight."""
CHUNK = 1 << 16
LONGEST = 1 << 20
"""The longest frame that is accepted, in bytes."""
ACK_EVERY = 32
ACK_DELAY = 0.05


class MuxError(Exception):
    """The other side breaks the protocol, or no longer has the frames that must be sent again."""


class _Stream:
    def __init__(self) -> None:
        self.window = WINDOW
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.tasks: list[asyncio.Task[None]] = []
        self.writer: asyncio.StreamWriter | None = None


class Mux:
    """One side of the multiplexer.

    ``number``: 0 for the controller, 1 for the machine. ``connect``: opens the local end of a stream.
    """

    def __init__(
        self,
        number: int,
        connect: Callable[[str], Awaitable[Pipe]],
        on_message: Callable[[Any], None] | None = None,
        session: str = "",
    ) -> None:
        self._number = number
        self._connect = connect
        self._on_message = on_message
        self.session = session
        self.last_heard = 0.0
        """The loop's time of the last received frame."""
        self._attached: asyncio.StreamWriter | None = None
        self._generation = 0
        self._clear()

    def _clear(self) -> None:
        self._unacknowledged: deque[bytes] = deque()
        self._acknowledged = 0
        """How many of our frames the other side has acknowledged."""
        self._received = 0
        self._confirmed = 0
        """How many of the received frames we have acknowledged."""
        self._streams: dict[int, _Stream] = {}
        self._next = self._number
        self._ack_timer: asyncio.TimerHandle | None = None

    # -- one connection ---------------------------------------------------------------------------------------------

    async def attach(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Exchange frames over a new connection until it breaks. An older connection is dropped."""
        self._generation += 1
        mine = self._generation
        self._detach()
        try:
            if self._number == 0:
                self._hello(writer)
            kind, _, payload = await _frame(reader)
            if kind != HELLO:
                raise MuxError("the other side did not begin with a hello")
            hello = json.loads(payload)
            if mine != self._generation:
                return
            if self._number == 1:
                if hello["session"] != self.session:
                    self.close()
                    self.session = hello["session"]
                self._hello(writer)
            self._resume(int(hello["received"]))
            self._attached = writer
            for frame in self._unacknowledged:
                writer.write(frame)
            while True:
                kind, stream, payload = await _frame(reader)
                if mine != self._generation:
                    return
                self.last_heard = asyncio.get_running_loop().time()
                self._take(kind, stream, payload)
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            if self._attached is writer:
                self._attached = None
            writer.close()

    def _hello(self, writer: asyncio.StreamWriter) -> None:
        payload = json.dumps({"session": self.session, "received": self._received}).encode()
        writer.write(HEADER.pack(HELLO, 0, len(payload)) + payload)

    def _resume(self, received: int) -> None:
        if not self._acknowledged <= received <= self._acknowledged + len(self._unacknowledged):
            raise MuxError("the other side asks for frames that are gone")
        self._acknowledge(received)

    def _acknowledge(self, received: int) -> None:
        while self._acknowledged < received and self._unacknowledged:
            self._unacknowledged.popleft()
            self._acknowledged += 1

    def _detach(self) -> None:
        if self._attached is not None:
            self._attached.close()
            self._attached = None

    def ping(self) -> None:
        self._write(HEADER.pack(PING, 0, 0))

    def drop(self) -> None:
        """Drop the connection. Streams stay open and wait for the next one."""
        self._generation += 1
        self._detach()

    def close(self) -> None:
        """Close all streams and delete all state."""
        for stream in list(self._streams.values()):
            self._end(stream)
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        self._clear()

    # -- frames -----------------------------------------------------------------------------------------------------

    def _send(self, kind: int, stream: int, payload: bytes = b"") -> None:
        frame = HEADER.pack(kind, stream, len(payload)) + payload
        self._unacknowledged.append(frame)
        self._write(frame)

    def _write(self, frame: bytes) -> None:
        if self._attached is not None:
            with suppress(OSError):  # after a break the next connection sends unacknowledged frames again
                self._attached.write(frame)

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == ACK:
            self._resume(struct.unpack("!Q", payload)[0])
            return
        if kind in _UNNUMBERED:
            return
        self._received += 1
        self._plan_ack()
        if kind == MESSAGE:
            if self._on_message is not None:
                self._on_message(json.loads(payload))
            return
        stream = self._streams.get(number)
        if kind == OPEN:
            if number % 2 == self._number or stream is not None:
                raise MuxError("the other side opens a stream under a number that is not its own")
            self._begin(number, lambda: self._connect(payload.decode()))
        elif stream is None:
            return
        elif kind == DATA:
            stream.incoming.put_nowait(payload)
        elif kind == EOF:
            stream.incoming.put_nowait(None)
        elif kind == RESET:
            self._streams.pop(number, None)
            self._end(stream)
        elif kind == CREDIT:
            stream.window += struct.unpack("!I", payload)[0]
            stream.may_send.set()

    def _plan_ack(self) -> None:
        if self._received - self._confirmed >= ACK_EVERY:
            self._ack()
        elif self._ack_timer is None:
            self._ack_timer = asyncio.get_running_loop().call_later(ACK_DELAY, self._ack)

    def _ack(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        self._confirmed = self._received
        self._write(HEADER.pack(ACK, 0, 8) + struct.pack("!Q", self._received))

    # -- streams ----------------------------------------------------------------------------------------------------

    def open(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a connection that was accepted here to ``target``, an address of the other side."""
        number = self._next = self._next + 2
        self._send(OPEN, number, target.encode())

        async def here() -> Pipe:
            return reader, writer

        self._begin(number, here)

    def _begin(self, number: int, connect: Callable[[], Awaitable[Pipe]]) -> None:
        stream = self._streams[number] = _Stream()
        stream.tasks.append(asyncio.ensure_future(self._run(number, stream, connect)))

    async def _run(self, number: int, stream: _Stream, connect: Callable[[], Awaitable[Pipe]]) -> None:
        try:
            reader, stream.writer = await connect()
            ways = [
                asyncio.ensure_future(self._outgoing(number, stream, reader)),
                asyncio.ensure_future(self._incoming(number, stream, stream.writer)),
            ]
            stream.tasks += ways
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
            for way in done:
                way.result()
            stream.writer.close()
            if self._streams.get(number) is stream:
                del self._streams[number]
        except OSError:
            if self._streams.pop(number, None) is stream:
                self._send(RESET, number)
            self._end(stream, but=asyncio.current_task())

    async def _outgoing(self, number: int, stream: _Stream, reader: asyncio.StreamReader) -> None:
        while True:
            while stream.window <= 0:
                stream.may_send.clear()
                await stream.may_send.wait()
            data = await reader.read(min(CHUNK, stream.window))
            if not data:
                self._send(EOF, number)
                return
            stream.window -= len(data)
            self._send(DATA, number, data)

    async def _incoming(self, number: int, stream: _Stream, writer: asyncio.StreamWriter) -> None:
        while True:
            data = await stream.incoming.get()
            if data is None:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
            self._send(CREDIT, number, struct.pack("!I", len(data)))

    def _end(self, stream: _Stream, but: asyncio.Task[Any] | None = None) -> None:
        for task in stream.tasks:
            if task is not but:
                task.cancel()
        if stream.writer is not None:
            stream.writer.transport.abort()


async def _frame(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    kind, stream, length = HEADER.unpack(await reader.readexactly(HEADER.size))
    if length > LONGEST:
        raise MuxError("the other side sends a frame that is too long")
    return kind, stream, await reader.readexactly(length) if length else b""
