"""Framing sends plain Python values as length-prefixed pickles over a stream socket between Windlass processes."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

_SIZE: Final = 8
_lock = threading.Lock()


def frame_of(message: Any) -> bytes:
    text = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(text).to_bytes(_SIZE, "little") + text


def send_frame(link: socket.socket, message: Any) -> None:
    """Send a value; several threads may send at once."""
    frame = frame_of(message)
    with _lock:
        link.sendall(frame)


def receive_frame(link: socket.socket) -> Any:
    """Return the next value; None at the end of the stream."""
    head = _exactly(link, _SIZE)
    if head is None:
        return None
    text = _exactly(link, int.from_bytes(head, "little"))
    return None if text is None else pickle.loads(text)


def _exactly(link: socket.socket, size: int) -> bytearray | None:
    buffer = bytearray(size)
    view, filled = memoryview(buffer), 0
    while filled < size:
        count = link.recv_into(view[filled:])
        if not count:
            return None
        filled += count
    return buffer


class FrameBuffer:
    """Decodes values from bytes as they arrive."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, some: bytes) -> Iterator[Any]:
        """Add bytes; return the values that are complete."""
        self._bytes += some
        while len(self._bytes) >= _SIZE:
            end = _SIZE + int.from_bytes(self._bytes[:_SIZE], "little")
            if len(self._bytes) < end:
                return
            text = bytes(self._bytes[_SIZE:end])
            del self._bytes[:end]
            yield pickle.loads(text)
