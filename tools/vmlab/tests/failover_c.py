# SPDX-License-Identifier: GPL-2.0
"""The events of failover.py with a C peer on the other side, in both roles."""
from __future__ import annotations

import time

from vmlab import burst, paths, rnbd, tier
from vmlab.checks import eq, ge, until
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2
TIER = tier.ALL


@needs(wires=2, timeout=240, timed=True, own_modules=True)
def test_our_client_loses_one_of_two_paths_to_a_c_server(pair: Lab) -> None:
    """No answer, then no carrier, on one of two paths: no error, and each path reconnects within seconds."""
    with paths.two_paths(pair, server="c", client="ours") as disk:
        rnbd.round_robin(pair)
        history = disk.history()
        paths.wait_busy(disk)
        for wire, lose in ((0, pair.silence), (1, pair.cut)):
            pair.defer(pair.mend, wire)
            lose(wire)
            until(lambda wire=wire: paths.state(pair, wire) == "disconnected", 20, "the path is down")
            paths.rest(2)
            pair.mend(wire)
            took = paths.back_seconds(pair, lambda wire=wire: paths.state(pair, wire) == "connected", 40,
                                       "the path is back")
            paths.figure(f"path to a C server back {took:.2f} s after its link")
        result = history.clean(120)
        paths.figure(f"longest IO {result.worst_ms / 1000:.2f} s")


@needs(wires=2, own_modules=True)
def test_no_late_copy_is_written_over_what_came_after_it(pair: Lab) -> None:
    """A path to a C server is closed while writes on it have not arrived. They are sent elsewhere when the server has
    disconnected it: otherwise the late ones would be served after what the program wrote next at their places."""
    with paths.two_paths(pair, server="c", client="ours") as disk:
        rnbd.round_robin(pair)
        with burst.slow_wire(pair):
            burst.write(pair, disk, times=2)
        burst.check(pair, disk)


@needs(wires=1, timeout=240, timed=True, own_modules=True)
def test_our_client_waits_for_a_c_server(pair: Lab) -> None:
    """A glitch of the only path: IO waits, the C server gets a disconnect, and IO continues."""
    rnbd.ram_disk(pair)
    rnbd.load_server(pair, "c")
    rnbd.load_client(pair, "ours")
    disk = rnbd.map_disk(pair)
    history = disk.history()
    paths.wait_busy(disk)
    pair.defer(pair.mend, 0)
    pair.cut(0)
    time.sleep(2)
    pair.mend(0)
    took = paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 60, "the disk is back")
    paths.figure(f"disk of a C server back {took:.2f} s after its link")
    history.clean(120)
    disk.unmap()


@needs(wires=1, timeout=240, timed=True, own_modules=True)
def test_a_c_server_is_unloaded_and_loaded_again(pair: Lab) -> None:
    """The server's modules are unloaded under load and loaded again: IO waits and continues."""
    rnbd.ram_disk(pair)
    rnbd.load_server(pair, "c")
    rnbd.load_client(pair, "ours")
    disk = rnbd.map_disk(pair)
    history = disk.history()
    paths.wait_busy(disk)
    pair.server.run("mods -r", 90)
    until(lambda: disk.attribute("state") == "closed", 20, "the disk waits")
    rnbd.load_server(pair, "c")
    until(lambda: disk.attribute("state") == "open", 60, "the disk is back")
    history.clean(120)
    disk.unmap()


@needs(wires=2, timeout=300, timed=True, own_modules=True)
def test_a_c_client_loses_one_of_two_paths_to_our_server(pair: Lab) -> None:
    """The C client fails over; our server detects it, frees the path's memory, and accepts the reconnect.

    The C client itself fails a request now and then while it does so (seen in one of four runs with the C server,
    too): that is told, and allowed, but nothing may be lost, or come back that was written over.
    """
    with paths.two_paths(pair, server="ours", client="c") as disk:
        rnbd.round_robin(pair)
        history = disk.history(errors="allowed")
        paths.wait_busy(disk)
        pair.defer(pair.mend, 0)
        pair.silence(0)
        paths.rest(6)
        result = history.clean(100)
        if result.write_errors + result.read_errors:
            paths.figure(f"the C client failed {result.write_errors} writes and {result.read_errors} reads over to us")
        eq(paths.state(pair, 1), "connected")
        sessions = "ls /sys/class/rtrs-server/s1/paths | wc -l"
        until(lambda: int(pair.server.run(sessions)) == 1, 20, "the server has noticed")
        pair.mend(0)
        # The C client waits for 30 s of its own, and 30 s more: the path is asked for by hand.
        until(lambda: pair.client.write(f"{paths.to_wire(pair, 0)}/reconnect", "1", 60) == "", 60, "it reconnects")
        eq(paths.states(pair), ["connected", "connected"])
        ge(paths.failovers(pair, 1), 1, "requests that the other path took over")
