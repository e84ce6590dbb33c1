# SPDX-License-Identifier: GPL-2.0
"""Links fail, servers crash and freeze: no application sees an error.

Nearly every test runs a load through the event that knows what each sector has to hold (vmlab/history.py), and prints
what it measured. The bars are those of Documentation/failover.md, whatever else the host does.
"""
from __future__ import annotations

import time

from vmlab import paths, rnbd, seed, tier
from vmlab.checks import TooSlow, eq, ge, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.patience import is_debug_kernel

SMP = 2

# Links that flap at random, or `soak.*`, whose trouble they are a part of: one of the two is in each run, by chance.
FLAPS = seed.fresh().random() < 0.5
# An emulated machine stands still now and then while its host does something else.
EMULATION = 1.5
# After a silent link the path is back within 2 s, and within these if the link returns while an attempt to connect has
# the longer timeout that slow servers need (Documentation/failover.md, "When a path reconnects").
BACK_SECONDS = 3.0


def below(found: float, bar: float, what: str) -> None:
    """A bar that emulation may miss by half; the figure is printed. In the debug kernel that is all."""
    paths.figure(f"{what}: {found:.2f} s, bar {bar:g} s")
    if found > bar * EMULATION and not is_debug_kernel():
        raise TooSlow(f"{what}: {found:.2f} s, expected at most {bar:g} s")


@needs(wires=2, timeout=240, timed=True)
def test_one_of_two_paths_is_silent(pair: Lab) -> None:
    """The server's end of a link fails: the client only sees that this path does not answer."""
    with paths.two_paths(pair) as disk:
        rnbd.round_robin(pair)
        history = disk.history()
        paths.wait_busy(disk)
        pair.defer(pair.mend, 0)
        pair.silence(0)
        paths.rest(3)
        result = history.clean(120)
        below(result.worst_ms / 1000, 1.0, "longest IO while one of two paths fell silent")
        eq(paths.state(pair, 1), "connected")
        ge(paths.failovers(pair, 1), 1, "requests that the other path took over")
        pair.mend(0)
        below(paths.back_seconds(pair, lambda: paths.state(pair, 0) == "connected", 30, "the path is back"),
              BACK_SECONDS, "path back after its link")


# One_of_two_paths_is_silent shows in each run that the other path takes over; here it is told, and sooner.
@needs(wires=2, timeout=240, timed=True, tier=tier.ALL)
def test_one_of_two_paths_loses_its_carrier(pair: Lab) -> None:
    """The cable is pulled out at the client."""
    with paths.two_paths(pair) as disk:
        rnbd.round_robin(pair)
        history = disk.history()
        paths.wait_busy(disk)
        pair.defer(pair.mend, 0)
        pair.cut(0)
        paths.rest(4)
        result = history.clean(120)
        below(result.worst_ms / 1000, 0.5, "longest IO while one of two paths lost its carrier")
        eq(paths.state(pair, 0), "disconnected")
        pair.mend(0)
        below(paths.back_seconds(pair, lambda: paths.state(pair, 0) == "connected", 30, "the path is back"),
              2.0, "path back after its carrier")


@needs(wires=1, timeout=240, timed=True)
def test_the_only_path_is_silent_and_idle(pair: Lab) -> None:
    """No request is in flight, so only the heartbeat detects it; reads meanwhile wait and complete."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    pair.defer(pair.mend, 0)
    paths.rest(2)
    pair.silence(0)
    noticed = paths.guest_seconds(pair.client, lambda: paths.state(pair) == "disconnected", 60, "the loss is noticed")
    below(noticed, 6.0, "loss of an idle path noticed")
    until(lambda: disk.attribute("state") == "closed", 10, "the disk waits")
    reader = pair.client.start_job(f"dd if={disk.path} of=/dev/null bs=64k count=4 iflag=direct status=none")
    paths.rest(3)
    ok(reader.running, "the read ended without a path")
    pair.mend(0)
    below(paths.back_seconds(pair, lambda: paths.state(pair) == "connected", 60, "the path is back"),
          BACK_SECONDS, "path back after its link")
    reader.ok()
    eq(disk.attribute("state"), "open")
    disk.unmap()


@needs(wires=1, timeout=300, timed=True)
def test_the_only_path_is_silent_under_load(pair: Lab) -> None:
    """All IO waits while the link is down, and no request is lost."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    history = disk.history()
    paths.wait_busy(disk)
    pair.defer(pair.mend, 0)
    pair.silence(0)
    below(paths.guest_seconds(pair.client, lambda: paths.state(pair) == "disconnected", 60, "the loss is noticed"),
          6.0, "loss of a busy path noticed")
    paths.rest(3)
    pair.mend(0)
    below(paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 60, "the disk is back"),
          BACK_SECONDS, "disk back after its link")
    history.clean(160)
    disk.unmap()


# The_only_path_is_silent_under_load shows in each run that IO waits for its path.
@needs(wires=1, timeout=300, timed=True, tier=tier.ALL)
def test_d23_a_short_glitch_of_the_only_path(pair: Lab) -> None:
    """D23: half a second without carrier; the C driver pays 62 s for that."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    history = disk.history()
    paths.wait_busy(disk)
    pair.defer(pair.mend, 0)
    for _ in range(tier.of(1, 3)):
        pair.cut(0)
        time.sleep(0.5)
        pair.mend(0)
        paths.rest(2)
    result = history.clean(100)
    below(result.worst_ms / 1000, 3.0, "longest IO over glitches of half a second")
    disk.unmap()


@needs(wires=1, disruptive=True, timeout=400)
def test_the_server_dies_and_comes_back(pair: Lab) -> None:
    """Power failure of the server; its disk keeps its data. IO waits for it, resumes and verifies."""
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, "vda")
    rnbd.round_robin(pair)
    history = disk.history()
    paths.wait_busy(disk)
    paths.rest(1)
    pair.reboot(pair.server)
    rnbd.load_server(pair)
    below(paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 60, "the disk is back"),
          5.0, "disk back after its server was ready")
    history.clean(260)
    disk.unmap()


# For its client that is a silent path, as in the_only_path_is_silent_under_load.
@needs(wires=1, timeout=300, tier=tier.ALL)
def test_the_server_is_frozen_for_a_while(pair: Lab) -> None:
    """Ten seconds in which the server does not run: no error, and every block is what was written last."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    history = disk.history()
    paths.wait_busy(disk)
    pair.defer(pair.server.thaw)
    pair.server.freeze()
    time.sleep(10)
    pair.server.thaw()
    result = history.clean(160)
    paths.figure(f"longest IO while the server was frozen for 10 s: {result.worst_ms / 1000:.2f} s")
    until(lambda: paths.state(pair) == "connected", 30, "the path is back")
    disk.unmap()


@needs(wires=2, timeout=600, tier=tier.ALL if FLAPS else tier.LONG, rxe_may_die=True)
def test_both_paths_flap(pair: Lab) -> None:
    """Links flap at random under thirty-two writers."""
    seconds = tier.of(12, 300)
    chance = seed.fresh()
    with paths.two_paths(pair) as disk:
        history = disk.history(seconds + 260, writers=32, readers=2)
        paths.wait_busy(disk)
        for wire in (0, 1):
            pair.defer(pair.mend, wire)
        end = time.monotonic() + seconds * 0.95
        flaps = 0
        while time.monotonic() < end:
            wire = chance.randrange(2)
            chance.choice((pair.cut, pair.silence))(wire)
            time.sleep(chance.uniform(0.1, 6.0))
            pair.mend(wire)
            # Else both might die one after the other, and what is measured would be how long IO waits.
            paths.revive_rxe(pair)
            flaps += 1
            time.sleep(chance.uniform(0.0, 4.0))
        result = history.clean(240)
        paths.figure(f"{flaps} flaps in {seconds} s: 0 errors, longest IO {result.worst_ms / 1000:.1f} s")
        paths.back_seconds(pair, lambda: paths.states(pair) == ["connected", "connected"], 30, "both paths are back")


@needs(wires=1, timeout=240)
def test_d1_d2_no_spurious_errors_under_any_policy(pair: Lab) -> None:
    """D1, D2: eight jobs on one healthy path; the C driver fails about half of these writes."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    for policy in ("min-inflight", "min-latency", "round-robin"):
        eq(pair.client.write(rnbd.session_file("mpath_policy"), policy), "")
        fio = disk.fio("--rw=randwrite --bs=4k --iodepth=4 --numjobs=8 --size=32m --time_based "
                       f"--runtime={tier.of(1, 4)} "
                       "--group_reporting")
        result = fio.clean(100)
        paths.figure(f"{policy}: 0 errors in {sum(j['write']['total_ios'] for j in result.figures['jobs'])} writes")
    disk.unmap()


# D1_d2_no_spurious_errors_under_any_policy shows it in each run, policy by policy.
@needs(wires=2, timeout=240, tier=tier.ALL)
def test_d1_with_two_paths_and_changing_policies(pair: Lab) -> None:
    """The policy changes all the time under thirty-two writers, and no request fails."""
    with paths.two_paths(pair) as disk:
        history = disk.history(writers=32, readers=2)
        paths.wait_busy(disk)
        end = time.monotonic() + tier.of(4, 8)
        while time.monotonic() < end and history.running:
            for policy in ("0", "1", "2"):
                eq(pair.client.write(rnbd.session_file("mp_policy"), policy), "")
        history.clean(100)
