# SPDX-License-Identifier: GPL-2.0
"""Devices that make no connections any more, as `rdma resource show qp` shows them."""
from __future__ import annotations

import unittest

from vmlab import rxe

SHOWN = """\
link rxe0/1 lqpn 1 type GSI state RTS sq-psn 5 comm [ib_core]
link rxe1/1 lqpn 1 type GSI state ERR sq-psn 9 comm [ib_core]
link rxe0/1 lqpn 17 type RC state ERR sq-psn 0 comm [rtrs_core]
"""


class DeadDevices(unittest.TestCase):
    """The queue pair of the connection manager counts, and no other."""

    def test_one_is_dead(self) -> None:
        """rxe1 has a failed GSI queue pair; one of a path is no matter."""
        self.assertEqual(rxe.dead(SHOWN), ["rxe1"])

    def test_none(self) -> None:
        """Nothing is shown by a machine without devices."""
        self.assertEqual(rxe.dead(""), [])
