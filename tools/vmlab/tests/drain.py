# SPDX-License-Identifier: GPL-2.0
"""A device that does not flush its queue pairs: what it may still reach is not given back (decision 0014).

The module `rdma_fault_test` has a device refuse to move queue pairs to the error state, while it is loaded.
"""
from __future__ import annotations

import re

from vmlab import paths, rnbd
from vmlab.checks import eq, ge, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

SUSPENDED = "held"      # a device-mapper disk of the server that can be made not to answer
DEPTH = 8
MIB = 32
WAITS = r"does not end the work requests of the path"
ENDED = r"work requests of the path to .* have ended"
LEAKED = r"could not be drained"


def _slow_disk(lab: Lab) -> None:
    """/dev/dm-0 on the server, over a ram disk."""
    rnbd.ram_disk(lab, MIB)
    lab.server.run(f"modprobe dm_mod; dmsetup create {SUSPENDED} --table '0 {MIB * 2048} linear /dev/ram0 0'")
    lab.defer(lab.server.run, f"dmsetup resume {SUSPENDED}; mods -r; dmsetup remove --retry {SUSPENDED}", 90)
    rnbd.load_server(lab)
    rnbd.load_client(lab)


def _in_flight(disk: rnbd.Disk) -> int:
    return sum(map(int, disk.machine.read(f"/sys/block/{disk.name}/inflight").split()))


def _break(lab: Lab, wire: int) -> None:
    lab.defer(lab.client.try_run, "rmmod rdma_fault_test 2>/dev/null")
    lab.client.run(f"mods ours rdma_fault_test netdev=eth{wire}")


def _log(lab: Lab, pattern: str, mark: int) -> list[str]:
    return lab.client.log_matches(pattern, mark)


@needs(wires=2, own_modules=True)
def test_a_request_waits_for_a_device_that_does_not_flush(pair: Lab) -> None:
    """Reads on the path of such a device neither end nor go to the other path, until the device has flushed them."""
    _slow_disk(pair)
    disk = rnbd.map_disk(pair, "dm-0", options="access_mode=rw io_timeout_ms=300000")
    eq(pair.client.write(rnbd.session_file("add_path"), f"ip:{pair.address(pair.server, 1)}"), "")
    rnbd.round_robin(pair)
    pair.server.run(f"dmsetup suspend --nolockfs --noflush {SUSPENDED}")
    fio = disk.fio(f"--rw=randread --bs=4k --iodepth={DEPTH} --number_ios=64 --size={MIB}m")
    until(lambda: _in_flight(disk) == DEPTH, 20, "the reads are under way")
    mark = pair.client.log_mark()
    _break(pair, 1)
    pair.defer(pair.mend, 1)
    pair.silence(1)
    until(lambda: _log(pair, WAITS, mark), 60, "the device was found not to flush")
    pair.server.run(f"dmsetup resume {SUSPENDED}")
    # The other path goes on, and carries none of them; rounds of the teardown do not change that.
    paths.rest(7)
    waiting = _in_flight(disk)
    ge(waiting, DEPTH // 4, "reads that wait")
    eq(_log(pair, ENDED, mark), [], "ends of work requests")
    eq(len(_log(pair, WAITS, mark)), 1, "lines about it")
    pair.mend(1)
    pair.client.run("rmmod rdma_fault_test")
    fio.clean(60)
    eq(len(_log(pair, ENDED, mark)), 1, "ends of work requests")
    until(lambda: paths.states(pair) == ["connected", "connected"], 60, "both paths are back")
    eq(_log(pair, LEAKED, mark), [], "queue pairs that leaked")
    disk.unmap()


@needs(wires=1, own_modules=True)
def test_a_path_is_closed_when_its_device_has_flushed_it(pair: Lab) -> None:
    """Nothing is freed before; after that the path connects as any other does."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    mark = pair.client.log_mark()
    _break(pair, 0)
    close = pair.client.start_job(f"echo 1 > {paths.to_wire(pair, 0)}/disconnect")
    until(lambda: _log(pair, WAITS, mark), 30, "the device was found not to flush")
    paths.rest(7)
    ok(close.running, "the path was closed over work requests that have not ended")
    pair.client.run("rmmod rdma_fault_test")
    close.ok(30)
    eq(len(_log(pair, ENDED, mark)), 1, "ends of work requests")
    eq(_log(pair, LEAKED, mark), [], "queue pairs that leaked")
    paths.reconnect(pair, paths.to_wire(pair, 0))
    disk.unmap()


@needs(wires=1, own_modules=True)
def test_a_server_waits_for_a_device_that_does_not_flush(pair: Lab) -> None:
    """The path of the server keeps its chunks until then, and the client connects again after that."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    mark = pair.server.log_mark()
    pair.defer(pair.server.try_run, "rmmod rdma_fault_test 2>/dev/null")
    pair.server.run("mods ours rdma_fault_test netdev=eth0")
    pair.client.start_job(f"echo 1 > {paths.to_wire(pair, 0)}/reconnect")
    until(lambda: pair.server.log_matches(r"does not end the work requests", mark), 30, "it was found not to flush")
    paths.rest(7)
    ok(re.search("reconnecting|disconnected|connecting", " ".join(paths.states(pair))), "the path has come back")
    pair.server.run("rmmod rdma_fault_test")
    until(lambda: paths.states(pair) == ["connected"], 60, "the path is back")
    eq(pair.server.log_matches(LEAKED, mark), [], "queue pairs that leaked")
    disk.unmap()
