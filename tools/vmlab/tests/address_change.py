# SPDX-License-Identifier: GPL-2.0
"""Addresses of a machine that go and come back while paths use them."""
from __future__ import annotations

import pytest

from vmlab import paths, tier
from vmlab.checks import until
from vmlab.lab import Lab
from vmlab.needs import needs

TIER = tier.ALL


@pytest.mark.parametrize(("who", "title"), [
    pytest.param("client", "The client's address on wire 1 goes and comes back under IO.", id="of_the_client"),
    pytest.param("server", "The server's address on wire 1 goes and comes back under IO.", id="of_the_server")])
@needs(wires=2, timeout=180)
def test_an_address_changes_under_io(pair: Lab, who: str, title: str) -> None:
    """No IO fails; when the address is there again, both paths are connected."""
    del title       # for the list of tests
    machine = getattr(pair, who)
    address = f"{pair.address(machine, 1)}/24 dev eth1"
    with paths.two_paths(pair, options="access_mode=rw heartbeat_interval_ms=200") as disk:
        history = disk.history(writers=4)
        paths.wait_busy(disk, history=history)
        machine.run(f"ip addr del {address}")
        pair.defer(machine.try_run, f"ip addr add {address}")
        until(lambda: paths.states(pair) == ["connected", "disconnected"], 30, "the path is lost")
        paths.wait_busy(disk, history=history)
        machine.run(f"ip addr add {address}")
        until(lambda: paths.states(pair) == ["connected", "connected"], 40, "the path is back")
        history.clean()
        # With a heartbeat of 200 ms a stall of the host may have cost a path once more.
        until(lambda: paths.states(pair) == ["connected", "connected"], 30, "both paths are connected at the end")
