# SPDX-License-Identifier: GPL-2.0
"""Losses of paths, as the words of the drivers tell their reasons: what rxe does by chance fails no test."""
from __future__ import annotations

import re
import unittest
from typing import cast

from vmlab import paths
from vmlab.checks import ByChance, Failed, TooSlow
from vmlab.lab import Lab


class Peer:
    """A machine of which only the log counts."""

    def __init__(self, *log: str) -> None:
        self.log = log

    def log_matches(self, pattern: str, _after: int = -1) -> list[str]:
        """Lines of the log, as a machine gives them."""
        return [line for line in self.log if re.search(pattern, line)]

    def names(self, _folder: str) -> list[str]:
        """Two paths."""
        return ["ip:10.0.0.2@ip:10.0.0.1", "ip:10.0.1.2@ip:10.0.1.1"]

    def read(self, _file: str) -> str:
        """A state."""
        return "disconnected"


class Pair:
    """Two of them."""

    def __init__(self, client: str, server: str = "") -> None:
        self.client, self.server = Peer(client), Peer(server)

    def address(self, _machine: Peer, wire: int) -> str:
        """The server's."""
        return f"10.0.{wire}.1"


def loss(client: str, server: str = "") -> type[Failed]:
    """The failure that `not_lost` makes of the logs of both."""
    try:
        paths.not_lost(cast(Lab, Pair(client, server)), 0)
    except Failed as why:
        return type(why)
    raise AssertionError("the path is lost")


class Losses(unittest.TestCase):
    """Each kind once."""

    def test_rxe_flushes_by_chance(self) -> None:
        """Either side may notice it."""
        flushed = "work request failed: WR flushed, closing the path to ip:10.0.0.1"
        self.assertIs(loss(f"rtrs_client: session s1: {flushed}"), ByChance)
        closed = "path ip:10.0.0.1@ip:10.0.0.2: connection 1: WR flushed (tag 3), path closed"
        self.assertIs(loss("session s1: peer disconnected, closing the path to ip:10.0.0.1", closed), ByChance)

    def test_heartbeats_are_a_matter_of_time(self) -> None:
        """So the test runs again when the host is quiet."""
        self.assertIs(loss("session s1: heartbeat was not answered, closing the path to ip:10.0.0.1"), TooSlow)

    def test_all_else_fails(self) -> None:
        """Also what is said of another path."""
        self.assertIs(loss("session s1: device is being removed, closing the path to ip:10.0.0.1"), Failed)
        self.assertIs(loss("session s1: work request failed: WR flushed, closing the path to ip:10.0.1.1"), Failed)


if __name__ == "__main__":
    unittest.main()
