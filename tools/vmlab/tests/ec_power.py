# SPDX-License-Identifier: GPL-2.0
"""Power failures of a server that exports an array of rnbd_ec, whose members lose their volatile caches.

    history (client) ── rnbd ── rnbd-server ── ec0 ── dm-0, 1, 2 ── loop0 ── page cache ── vda

As in power.py the page cache of the server's kernel is the volatile cache. The members are slices of one loop device.
"""
from __future__ import annotations

from vmlab import ec, paths, rnbd, tier
from vmlab.checks import eq, ge
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests import power

TIER = tier.ALL
MIB = 20


def serve(lab: Lab, options: str) -> ec.Array:
    """The members, the array and the server's modules, after each boot."""
    lab.server.run(power.CACHE)
    for member in range(3):
        lab.server.run(f"dmsetup create m{member} --table '0 {MIB * 2048} linear /dev/{power.DEVICE} "
                       f"{member * MIB * 2048}'")
    lab.server.run("mods ours rnbd-ec")
    line = ec.line(**({"options": options} if options else {"mode": "assemble"}))
    eq(lab.server.write(ec.ASSEMBLE, line, ec.SECONDS), "", str(lab.server.log_matches("rnbd_ec", -1)[-3:]))
    rnbd.load_server(lab)
    return ec.Array(lab.server)


@needs(wires=1, disk_mib=64, disruptive=True, timeout=400)
def test_what_was_flushed_survives_the_power_failure_of_all_members(pair: Lab) -> None:
    """Under load, twice: the client's disk comes back as the same one, and has all that was flushed."""
    serve(pair, "force=1")
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, ec.NAME)
    eq(disk.queue("write_cache"), "write back")
    for _ in range(2):
        history = disk.history(size="4m", floor="flushed", flush_ms=20, flushes=20)
        history.reached("flushed", 60)
        paths.wait_busy(disk, 200)
        pair.reboot(pair.server)
        array = serve(pair, "")
        paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 60, "the disk is back")
        result = history.clean(120)
        eq((result.flushes, result.flush_errors), (20, 0))
        eq(array.state(), "clean")
        # After it the client's next flush fails once, as decision 0012 has it; the next history must not meet that.
        pair.client.try_run(power.SYNC.format(disk.path), 60)
    ge(result.receded, 0)
    disk.unmap()
