# SPDX-License-Identifier: GPL-2.0
"""Requests that a task submits by one call: decision 0043."""
from __future__ import annotations

from vmlab import paths, rnbd
from vmlab.checks import eq, ge, ok
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.testdevice import CONTROL, plug_in, queue_pairs

IOS = 2048


@needs(machines=1, own_modules=True)
def test_requests_share_a_doorbell(vm: Lab) -> None:
    """Eight READs or WRITEs of 4 KiB are one call into the driver, and a work request each; those that need a
    registration are sent alone. Mixed with others they arrive as they were written."""
    plug_in(vm)
    rnbd.start(vm)
    disk = rnbd.map_disk(vm)
    for kind, options, least, most in (("read", "randread --bs=4k", 0.1, 0.3), ("write", "randwrite --bs=4k", 0.1, 0.3),
                                       ("long read", "randread --bs=8k", 1.0, 1.1)):
        eq(vm.server.write(f"{CONTROL}/counts", "0"), "")
        disk.fio(f"--rw={options} {rnbd.TOGETHER} --number_ios={IOS} --size=8m").clean()
        client = queue_pairs(vm)["client"]
        requests = sum(qp["writes_with_immediate"] for qp in client)
        doorbells = sum(qp["send_doorbells"] for qp in client)
        paths.figure(f"{kind}: {doorbells} doorbells for {requests} requests")
        # 8 MiB are 1024 long reads, and neighbours are merged.
        ge(requests, 900, f"requests, {kind}")
        ok(least * requests <= doorbells <= most * requests, f"{doorbells} doorbells for {requests} requests, {kind}")
    disk.fio(f"--rw=randrw --bsrange=4k-64k {rnbd.TOGETHER} --size=8m --verify=crc32c --verify_fatal=1").clean()
    disk.unmap()


@needs(wires=2, timeout=240)
def test_a_path_is_lost_under_them(pair: Lab) -> None:
    """Those of a group that had been begun go to the other path, and wait for one when both are lost."""
    with paths.two_paths(pair) as disk:
        rnbd.round_robin(pair)
        load = disk.fio(f"--rw=randwrite --bs=4k {rnbd.TOGETHER} --size=8m --loops=1000 --time_based --runtime=14 "
                        "--verify=crc32c --verify_fatal=1", 200)
        paths.wait_busy(disk)
        for wire in (0, 1):
            pair.defer(pair.mend, wire)
        for wires in ((0,), (1,), (0, 1)):
            for wire in wires:
                pair.cut(wire)
            paths.rest(1)
            for wire in wires:
                pair.mend(wire)
            paths.back_seconds(pair, lambda: set(paths.states(pair)) == {"connected"}, 30, "both paths are back")
        load.clean(200)
        ge(paths.failovers(pair, 0) + paths.failovers(pair, 1), 1, "requests that the other path took over")
