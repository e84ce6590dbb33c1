# SPDX-License-Identifier: GPL-2.0
"""A device that does not flush its queue pairs: what it may still reach is not given back (decision 0014).

The test device refuses to move queue pairs to the error state, or does not flush them there, or keeps what was
received back from the software, until its faults are cleared.
"""
from __future__ import annotations

import re

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ge, in_time, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.testdevice import add_fault, clear_faults, plug_in, queue_pairs

SMP = 2

SUSPENDED = "held"      # a device-mapper disk of the server that can be made not to answer
DEPTH = 8
MIB = 32
SECOND_ADDRESS = "10.0.0.201"
WAITS = r"does not end the work requests of the path"
ENDED = r"work requests of the path to .* have ended"
LEAKED = r"could not be drained"
REFUSES = "fault=refuse_error_state errno=5"
HANGS = "fault=no_flush"


def _slow_disk(vm: Lab) -> None:
    """/dev/dm-0 on the server, over a ram disk."""
    rnbd.ram_disk(vm, MIB)
    vm.server.run(f"modprobe dm_mod; dmsetup create {SUSPENDED} --table '0 {MIB * 2048} linear /dev/ram0 0'")
    vm.defer(vm.server.run, f"dmsetup resume {SUSPENDED}; mods -r; dmsetup remove --retry {SUSPENDED}", 90)
    rnbd.load_server(vm)
    rnbd.load_client(vm)


def _in_flight(disk: rnbd.Disk) -> int:
    return sum(map(int, disk.machine.read(f"/sys/block/{disk.name}/inflight").split()))


def _numbers(vm: Lab, side: str) -> set[int]:
    return {qp["qp"] for qp in queue_pairs(vm)[side]}


def _break(vm: Lab, rule: str, numbers: set[int]) -> None:
    vm.defer(clear_faults, vm)
    for number in numbers:
        add_fault(vm, f"{rule} qp={number}")


def _log(vm: Lab, pattern: str, mark: int) -> list[str]:
    return vm.client.log_matches(pattern, mark)


@needs(machines=1, own_modules=True, waits=True)
def test_a_request_waits_for_a_device_that_does_not_flush(vm: Lab) -> None:
    """Reads on the path of such a device neither end nor go to the other path, until the device has flushed them."""
    vm.server.run(f"ip address add {SECOND_ADDRESS}/24 dev eth0")
    vm.defer(vm.server.run, f"ip address del {SECOND_ADDRESS}/24 dev eth0")
    plug_in(vm)
    _slow_disk(vm)
    disk = rnbd.map_disk(vm, "dm-0", options="access_mode=rw io_timeout_ms=300000")
    first = queue_pairs(vm)
    eq(vm.client.write(rnbd.session_file("add_path"), f"ip:{SECOND_ADDRESS}"), "")
    lost, second = (_numbers(vm, side) - {qp["qp"] for qp in first[side]} for side in ("server", "client"))
    rnbd.round_robin(vm)
    vm.server.run(f"dmsetup suspend --nolockfs --noflush {SUSPENDED}")
    fio = disk.fio(f"--rw=randread --bs=4k --iodepth={DEPTH} --number_ios=64 --size={MIB}m")
    until(lambda: _in_flight(disk) == DEPTH, 20, "the reads are under way")
    mark = vm.client.log_mark()
    # A response that comes nevertheless would end its request.
    _break(vm, "fault=lose times=1000000", lost)
    _break(vm, REFUSES, second)
    name, = (name for name in paths.names(vm) if name.endswith(f"@ip:{SECOND_ADDRESS}"))
    vm.client.start_job(f"echo 1 > {rnbd.session_file('paths')}/{name}/reconnect")
    until(lambda: _log(vm, WAITS, mark), 60, "the device was found not to flush")
    vm.server.run(f"dmsetup resume {SUSPENDED}")
    # The other path goes on, and carries none of them; rounds of the teardown do not change that.
    paths.rest(7)
    waiting = _in_flight(disk)
    ge(waiting, DEPTH // 4, "reads that wait")
    eq(_log(vm, ENDED, mark), [], "ends of work requests")
    eq(len(_log(vm, WAITS, mark)), 1, "lines about it")
    clear_faults(vm)
    fio.clean(60)
    eq(len(_log(vm, ENDED, mark)), 1, "ends of work requests")
    until(lambda: paths.states(vm) == ["connected", "connected"], 60, "both paths are back")
    eq(_log(vm, LEAKED, mark), [], "queue pairs that leaked")
    disk.unmap()


def _closes(vm: Lab, rule: str) -> None:
    plug_in(vm)
    rnbd.start(vm)
    disk = rnbd.map_disk(vm)
    mark = vm.client.log_mark()
    _break(vm, rule, _numbers(vm, "client"))
    close = vm.client.start_job(f"echo 1 > {paths.to_wire(vm)}/disconnect")
    until(lambda: _log(vm, WAITS, mark), 60, "the device was found not to flush")
    paths.rest(7)
    ok(close.running, "the path was closed over work requests that have not ended")
    clear_faults(vm)
    close.ok(30)
    eq(len(_log(vm, ENDED, mark)), 1, "ends of work requests")
    eq(_log(vm, LEAKED, mark), [], "queue pairs that leaked")
    paths.reconnect(vm, paths.to_wire(vm))
    disk.unmap()


@needs(machines=1, own_modules=True, waits=True)
def test_a_path_is_closed_when_its_device_has_flushed_it(vm: Lab) -> None:
    """Nothing is freed before; after that the path connects as any other does."""
    _closes(vm, REFUSES)


@needs(machines=1, own_modules=True, waits=True)
def test_a_path_is_closed_when_a_device_that_hangs_goes_on(vm: Lab) -> None:
    """The same on a device that takes the last work requests and does not complete them for 30 s."""
    _closes(vm, HANGS)


def _is_killed(vm: Lab, file: str, word: str) -> None:
    """A writer of a file that waits for the device is gone when it is killed."""
    writer = vm.client.start_job(f"exec sh -c 'echo {word} > {file}'", 200)
    vm.defer(writer.kill)
    paths.rest(2)
    ok(writer.running, f"the writer of {file} did not wait for the device")
    writer.kill()
    until(lambda: not writer.running, 10, f"the killed writer of {file} is gone")


@needs(machines=1, own_modules=True, waits=True)
def test_who_waits_for_a_device_that_does_not_flush_can_be_killed(vm: Lab) -> None:
    """The writers of disconnect and of unmap_device, over a read in flight: SIGKILL ends them, and neither the path is
    closed nor the disk removed before the device has flushed; both are after it, and the session with them."""
    plug_in(vm)
    _slow_disk(vm)
    disk = rnbd.map_disk(vm, "dm-0")
    vm.server.run(f"dmsetup suspend --nolockfs --noflush {SUSPENDED}")
    read = vm.client.start_job(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct status=none", 200)
    until(lambda: _in_flight(disk) == 1, 20, "the read is under way")
    folder, mark = paths.to_wire(vm), vm.client.log_mark()
    _break(vm, REFUSES, _numbers(vm, "client"))
    _is_killed(vm, f"{folder}/disconnect", "1")
    until(lambda: _log(vm, WAITS, mark), 60, "the device was found not to flush")
    _is_killed(vm, f"{disk.control}/unmap_device", "force")
    ok(read.running, "the read has ended while the device had its pages")
    eq(_log(vm, ENDED, mark), [], "ends of work requests")
    clear_faults(vm)
    until(lambda: not disk.present, 60, "the disk is unmapped")
    ok(read.wait(20).code, "a read of a disk that was unmapped by force succeeded")
    vm.server.run(f"dmsetup resume {SUSPENDED}")
    until(lambda: not vm.client.exists(folder), 20, "the session is closed")
    eq(len(_log(vm, ENDED, mark)), 1, "ends of work requests")
    eq(_log(vm, LEAKED, mark), [], "queue pairs that leaked")
    eq(len(_log(vm, r"rnbd\d+ .*: unmapped", mark)), 1, "disks that were unmapped")
    rnbd.map_disk(vm, "dm-0").unmap()


def _is_full(disk: rnbd.Disk) -> bool:
    """Whether all writes are in flight a moment later."""
    paths.rest(0.1)
    return _in_flight(disk) == DEPTH


@needs(machines=1, own_modules=True, waits=True)
def test_requests_that_a_server_has_not_looked_at_hold_back_their_copies(vm: Lab) -> None:
    """Its adapter has acknowledged them, its software stands still: they go elsewhere when they are discarded."""
    vm.server.run(f"ip address add {SECOND_ADDRESS}/24 dev eth0")
    vm.defer(vm.server.run, f"ip address del {SECOND_ADDRESS}/24 dev eth0")
    plug_in(vm)
    rnbd.start(vm, mib=MIB)
    disk = rnbd.map_disk(vm)
    first = _numbers(vm, "server")
    eq(vm.client.write(rnbd.session_file("add_path"), f"ip:{SECOND_ADDRESS}"), "")
    rnbd.round_robin(vm)
    _break(vm, "fault=hold_receives", _numbers(vm, "server") - first)
    fio = disk.fio(f"--rw=randwrite --bs=4k --iodepth={DEPTH} --number_ios=64 --size={MIB}m --verify=crc32c "
                   "--verify_fatal=1")
    until(lambda: all(_is_full(disk) for _look in range(5)), 20, "all writes are acknowledged and not answered")
    mark = vm.server.log_mark()
    name, = (name for name in paths.names(vm) if name.endswith(f"@ip:{SECOND_ADDRESS}"))
    vm.client.start_job(f"echo 1 > {rnbd.session_file('paths')}/{name}/reconnect")
    paths.rest(3)
    # The first path carries other requests meanwhile.
    vm.client.run(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct status=none")
    eq(_in_flight(disk), DEPTH, "writes that wait until the server has discarded their first copies")
    clear_faults(vm)
    fio.clean(60)
    until(lambda: paths.states(vm) == ["connected", "connected"], 60, "both paths are back")
    eq(vm.server.log_matches("client uses chunk", mark), [], "first copies that came to the service")
    disk.unmap()


@needs(machines=1, own_modules=True, waits=True)
def test_a_server_waits_for_a_device_that_does_not_flush(vm: Lab) -> None:
    """The path of the server keeps its chunks until then, and the client connects again after that."""
    plug_in(vm)
    rnbd.start(vm)
    disk = rnbd.map_disk(vm)
    mark = vm.server.log_mark()
    _break(vm, REFUSES, _numbers(vm, "server"))
    vm.client.start_job(f"echo 1 > {paths.to_wire(vm, 0)}/reconnect")
    until(lambda: vm.server.log_matches(r"does not end the work requests", mark), 30, "it was found not to flush")
    paths.rest(7)
    ok(re.search("reconnecting|disconnected|connecting", " ".join(paths.states(vm))), "the path has come back")
    clear_faults(vm)
    until(lambda: paths.states(vm) == ["connected"], 60, "the path is back")
    eq(vm.server.log_matches(LEAKED, mark), [], "queue pairs that leaked")
    disk.unmap()


# Queue pairs of the selftest. Each has two queues that are polled, at which the driver of mlx5 waits before it looks.
CLOSED, LOOK_MS = 8, 100
FLUSH_MS, FLUSH_AGAIN_MS = 30_000, 1_000


def _tries(vm: Lab, mark: int) -> list[tuple[int, bool]]:
    """The tries to close the queue pairs of the selftest: how long each took in milliseconds, and whether it did."""
    lines = vm.server.log_matches("rdma_test: closed after", mark)
    found = [re.search(r"after (\d+) ms: (Ok|Err\((?:ETIMEDOUT|Error\(110\))\))", line) for line in lines]
    return [(int(one[1]), one[2] == "Ok") for one in found if one]


@needs(machines=1, own_modules=True)
def test_the_driver_of_a_device_that_has_failed_drains_its_queue_pairs_side_by_side(vm: Lab) -> None:
    """One after the other, those of a path with 65 connections would take more than 6 s with mlx5."""
    plug_in(vm, "drains=1")
    mark = vm.server.log_mark()
    load = vm.server.start_job("mods ours rdma_test failure=1")
    until(lambda: vm.server.log_matches("the device may fail", mark), 20, "the queue pairs are connected")
    vm.defer(clear_faults, vm)
    add_fault(vm, "fault=device_fatal")
    load.ok(30)
    (took_ms, is_closed), = _tries(vm, mark)
    ok(is_closed, "they are not closed")
    in_time(took_ms < CLOSED * LOOK_MS, f"it took {took_ms} ms")


@needs(machines=1, own_modules=True, waits=True, tier=tier.ALL)
def test_a_driver_that_drains_without_end_is_not_waited_for_without_end(vm: Lab) -> None:
    """A close says so after 30 s for all queue pairs, and after a second when it is tried again, until it has ended."""
    plug_in(vm, "drains=1")
    mark = vm.server.log_mark()
    load = vm.server.start_job("mods ours rdma_test failure=1")
    until(lambda: vm.server.log_matches("the device may fail", mark), 20, "the queue pairs are connected")
    vm.defer(clear_faults, vm)
    add_fault(vm, HANGS)
    add_fault(vm, "fault=device_fatal")
    until(lambda: len(_tries(vm, mark)) >= 2, 45, "a close has been tried twice")
    clear_faults(vm)
    load.ok(20)
    (first_ms, _), (again_ms, _), *_others, (_last_ms, is_closed) = tries = _tries(vm, mark)
    ok(is_closed and not any(done for _ms, done in tries[:-1]), f"{tries}")
    ok(FLUSH_MS <= first_ms < 2 * FLUSH_MS, f"the first took {first_ms} ms")
    ok(FLUSH_AGAIN_MS <= again_ms < FLUSH_MS, f"the second took {again_ms} ms")
