# SPDX-License-Identifier: GPL-2.0
"""Speaks to a machine, not to its guest: links, pause, power."""
from __future__ import annotations

import json
import socket
from typing import Any

from vmlab.checks import TooSlow


class QmpError(Exception):
    """QEMU refused a command."""


def execute(path: str, command: str, seconds: float = 20.0, **arguments: Any) -> Any:
    """One command on the QMP socket at `path`; returns its value. QEMU answers beside what its guest does, so one that
    does not has not been served by the host."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(seconds)
        link.connect(path)
        try:
            with link.makefile("rw", encoding="utf-8") as lines:
                return _converse(lines, command, arguments)
        except TimeoutError:
            raise TooSlow(f"QEMU has not answered {command} within {seconds:.0f} s") from None


def _converse(lines: Any, command: str, arguments: dict[str, Any]) -> Any:
    lines.readline()        # the greeting
    value: Any = None
    for request in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
        lines.write(json.dumps(request) + "\n")
        lines.flush()
        value = _answer(lines, command)
    return value


def _answer(lines: Any, command: str) -> Any:
    """The next answer; events may come before it."""
    for line in lines:
        reply = json.loads(line)
        if "error" in reply:
            raise QmpError(f"{command}: {reply['error'].get('desc', reply['error'])}")
        if "return" in reply:
            return reply["return"]
    raise QmpError(f"{command}: QEMU closed the connection")
