"""Ports of servers that listen a moment later."""

from __future__ import annotations

import errno
import socket

import pytest

from windlass import _free_port as module
from windlass._free_port import free_port


def test_a_free_port_can_be_listened_on():
    with socket.socket() as one:
        one.bind(("127.0.0.1", free_port()))
        one.listen()
        assert one.getsockname()[1] in module.PORTS


def test_a_port_that_is_taken_is_not_given(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        port = taken.getsockname()[1]
        monkeypatch.setattr(module, "PORTS", range(port, port + 1))
        with pytest.raises(OSError, match="no free port"):
            free_port()


def test_an_address_of_another_machine_is_refused_with_its_reason():
    with pytest.raises(OSError) as caught:
        free_port("192.0.2.1")
    assert caught.value.errno == errno.EADDRNOTAVAIL
