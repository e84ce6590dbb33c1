# SPDX-License-Identifier: GPL-2.0
"""Passes connections to one address on to another one: forward.py ADDRESS:PORT ADDRESS:PORT."""
from __future__ import annotations

import socket
import sys
import threading


def parsed(text: str) -> tuple[str, int]:
    """An address with its port."""
    address, _, port = text.partition(":")
    return address, int(port)


def pump(source: socket.socket, target: socket.socket) -> None:
    """Passes bytes on, and then the end."""
    try:
        while part := source.recv(1 << 16):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        target.close()


def main() -> None:
    """Goes on until it is killed."""
    here, there = map(parsed, sys.argv[1:])
    with socket.create_server(here, backlog=64) as listener:
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(there)
            for pair in (near, far), (far, near):
                threading.Thread(target=pump, args=pair, daemon=True).start()


main()
