# SPDX-License-Identifier: GPL-2.0
"""rnbd_ec over the disks of three servers.

    client: /dev/ec0 ── rnbd_ec ── /dev/rnbd0, 1, 2 ── wire 0 ── server, server2, server3: /dev/vda
"""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from vmlab import ec, rnbd, tier
from vmlab.checks import eq, ge, until
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs
from vmlab.patience import scaled
from vmlab.tests.ec import WRITE

TIER = tier.ALL
DEVICE = "vda"      # survives the power failure of its machine
# Slow enough that four machines and one processor do not fall behind.
LOAD = WRITE + " --time_based --runtime={} --rate_iops=150"


def map_all(lab: Lab) -> list[rnbd.Disk]:
    """The disk of each server, mapped."""
    def load(machine: Machine) -> None:
        if machine is lab.client:
            rnbd.load_client(lab)
            machine.run("mods ours rnbd-ec")
        else:
            rnbd.load_server(lab, server=machine)
    with ThreadPoolExecutor(len(lab.machines)) as pool:
        list(pool.map(load, lab.machines))
    lines = {server.name: rnbd.request(lab, DEVICE, server.name, server=server) for server in lab.servers}
    return [rnbd.map_disk(lab, DEVICE, session, line=line) for session, line in lines.items()]


def reaches_all(lab: Lab, machine: Machine) -> None:
    """One wire joins all machines."""
    for other in lab.machines:
        machine.run(f"ping -c 1 -W 10 -s 8900 {lab.address(other, 0)}")


@needs(machines=4, own_modules=True, disruptive=True, timeout=400)
def test_a_server_dies_under_load_and_comes_back(lab: Lab) -> None:
    """Nothing is lost: fio verifies all the time, and the server that was away has all of it when another one dies."""
    reaches_all(lab, lab.servers[2])
    disks = map_all(lab)
    array = ec.assemble(lab, ec.line_of([disk.path for disk in disks], options="member_timeout_ms=2000"))
    eq(array.state(), "clean")
    load = array.fio(LOAD.format(round(scaled(15))))
    until(lambda: array.stats()["batches"] > 50, 30, "IO is going on")
    away = lab.servers[1]
    away.kill()
    array.becomes("degraded", 30)
    mark = array.stats()["batches"]
    until(lambda: array.stats()["batches"] > mark + 50, 30, "writes go on without it")
    lab.reboot(away)
    rnbd.load_server(lab, server=away)
    array.becomes("clean", 120)
    load.clean()
    ge(array.stats()["member_returns"], 1)
    before = array.checksum(0, 8)
    rnbd.fail_fast(lab, 1, lab.servers[0].name)     # or the stop would wait for its requests
    lab.servers[0].kill()
    mark = array.stats()["recovered_reads"]
    eq(array.checksum(0, 8), before)
    ge(array.stats()["recovered_reads"], mark + 1)
