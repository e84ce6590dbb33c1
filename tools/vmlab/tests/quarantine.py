# SPDX-License-Identifier: GPL-2.0
"""Chunks of requests that ended without an answer: the server may still write what is in them.

    client: write 'A' to BLOCK ── chunk c ── server: waits in the block layer (device-mapper, suspended)
    both wires are cut: the write fails, or is given back; one path returns; writes of 'B' to other blocks use every
    chunk; the disk is resumed. BLOCK holds what was there, or 'A', and never 'B'.
"""
from __future__ import annotations

from collections.abc import Callable

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.machine import Job, Machine
from vmlab.needs import needs

SMP = 2

SUSPENDED = "held"      # a device-mapper disk of the server that can be made not to answer
BLOCK = 10
BLOCK_BYTES = 4096
QUEUE_DEPTH = 32        # chunks of the session, 24 of them for IO
# Tags for IO, less those whose requests wait for held chunks beside the queue: they do not count as in flight.
IN_FLIGHT_LEAST = QUEUE_DEPTH - 12
# Requests stand still for longer than the block layer likes.
SETTINGS = "reconnect_delay_ms=200 io_timeout_ms=300000"
# More at a time than there are chunks; elsewhere than BLOCK.
FILL = "--rw=randwrite --bs=4k --iodepth=64 --offset=4m --size=512k --buffer_pattern=0x42"
FILL_BLOCK, FILL_BLOCKS = 1024, 128


def _two_disks(lab: Lab) -> None:
    """/dev/dm-0 over ram0, and ram1, on the server."""
    rnbd.ram_disk(lab, 32, 2)
    lab.server.run("dd if=/dev/zero of=/dev/ram0 bs=1M count=8 status=none; modprobe dm_mod; "
                   f"dmsetup create {SUSPENDED} --table '0 {32 * 2048} linear /dev/ram0 0'")
    lab.defer(lab.server.run, f"dmsetup resume {SUSPENDED}; mods -r; dmsetup remove --retry {SUSPENDED}", 90)
    rnbd.load_server(lab, rtrs=f"sess_queue_depth={QUEUE_DEPTH}")
    rnbd.load_client(lab)


def _begin(lab: Lab, disk: rnbd.Disk, command: str) -> Job:
    """Has the server's disk stand still, starts a request, and waits until that disk has it."""
    lab.server.run(f"dmsetup suspend --nolockfs --noflush {SUSPENDED}")
    job = lab.client.start_job(f"{command} status=none")
    until(lambda: _under_way(disk) == 1, 20, "the request is under way")
    paths.rest(1)
    return job


def _write_a(lab: Lab, disk: rnbd.Disk) -> Job:
    """The write of 'A' to BLOCK."""
    lab.client.run(f"tr '\\0' A < /dev/zero | head -c {BLOCK_BYTES} > /tmp/a")
    return _begin(lab, disk, f"dd if=/tmp/a of={disk.path} bs={BLOCK_BYTES} seek={BLOCK} oflag=direct")


def _under_way(disk: rnbd.Disk) -> int:
    return sum(map(int, disk.machine.read(f"/sys/block/{disk.name}/inflight").split()))


def _cut_all(lab: Lab) -> None:
    for wire in (0, 1):
        lab.defer(lab.mend, wire)
        lab.cut(wire)
    until(lambda: set(paths.states(lab)) == {"disconnected"}, 20, "both paths are lost")


def _back(lab: Lab, reached: Callable[[], bool], what: str) -> None:
    """Waits for what needs a path that connects again, also where a queue pair of rxe itself has died with the link."""
    paths.back_seconds(lab, reached, 60, what)


def _mend_until_one_path_is_back(lab: Lab, disk: rnbd.Disk) -> None:
    """The server holds the path back on which the write came, for its disk still has that."""
    for wire in (0, 1):
        lab.mend(wire)
    _back(lab, lambda: "connected" in paths.states(lab), "a path is back")
    until(lambda: disk.attribute("state") == "open", 30, "the disk is open again")


def _resume(lab: Lab, fill: rnbd.Fio) -> None:
    lab.server.run(f"dmsetup resume {SUSPENDED}")
    fill.clean(90)
    _back(lab, lambda: paths.states(lab) == ["connected", "connected"], "both paths are back")


def _bytes_of(machine: Machine, file: str, block: int, count: int) -> str:
    """The bytes that occur in blocks of a file, sorted; a zero is shown as 0."""
    return machine.run(f"echo 3 > /proc/sys/vm/drop_caches; dd if={file} bs={BLOCK_BYTES} skip={block} count={count} "
                       "status=none | tr '\\0' 0 | fold -w1 | sort -u | tr -d '\\n'").strip()


def _old_or_a(lab: Lab) -> None:
    found = _bytes_of(lab.server, "/dev/ram0", BLOCK, 1)
    ok(found in ("0", "A"), f"block {BLOCK} holds {found!r}: another request's data")


def _map(lab: Lab, options: str) -> rnbd.Disk:
    disk = rnbd.map_disk(lab, "dm-0", line=rnbd.request(lab, "dm-0", options=f"access_mode=rw {SETTINGS} {options}",
                                                        wires=2))
    eq(lab.client.write(f"/sys/block/{disk.name}/queue/nomerges", "2"), "")
    return disk


# Another end of the request; d29_a_request_that_is_given_back_keeps_its_chunk shows it in each run.
@needs(wires=2, timeout=240, tier=tier.ALL)
def test_d29_a_request_that_fails_unanswered_keeps_its_chunk(pair: Lab) -> None:
    """fast_io_fail_tmo=0: the write fails with the last path, and every chunk is used after that."""
    _two_disks(pair)
    disk = _map(pair, "fast_io_fail_tmo=0")
    write = _write_a(pair, disk)
    _cut_all(pair)
    ok(write.wait(60).code, "the write succeeded without a path")
    _mend_until_one_path_is_back(pair, disk)
    fill = disk.fio(FILL)
    until(lambda: _under_way(disk) >= IN_FLIGHT_LEAST, 30, "every chunk is asked for")
    paths.rest(3)
    ok("disconnected" in paths.states(pair), "the server let the path in while its disk had the write")
    _resume(pair, fill)
    _old_or_a(pair)
    disk.unmap()


@needs(wires=2, timeout=240)
def test_d29_a_request_that_is_given_back_keeps_its_chunk(pair: Lab) -> None:
    """With a scheduler a requeued request gets another tag: no other request may use its first chunk."""
    _two_disks(pair)
    pair.server.run(f"tr '\\0' C < /dev/zero | head -c {BLOCK_BYTES} | "
                    f"dd of=/dev/ram0 bs={BLOCK_BYTES} seek={BLOCK} conv=fsync status=none")
    disk = _map(pair, "fast_io_fail_tmo=600")
    eq(pair.client.write(f"/sys/block/{disk.name}/queue/scheduler", "mq-deadline"), "")
    # The server will put the block into the chunk, over what is in it by then.
    read = _begin(pair, disk, f"dd if={disk.path} of=/tmp/c bs={BLOCK_BYTES} skip={BLOCK} count=1 iflag=direct")
    _cut_all(pair)
    fill = disk.fio(FILL)
    # The scheduler has them, more than there are chunks.
    until(lambda: int(disk.machine.read(f"/sys/block/{disk.name}/stat").split()[8]) > QUEUE_DEPTH - 8, 60,
          "the writes wait")
    _mend_until_one_path_is_back(pair, disk)
    until(lambda: _under_way(disk) >= IN_FLIGHT_LEAST, 60, "every chunk is asked for")
    paths.rest(3)
    _resume(pair, fill)
    read.ok(60)
    eq(_bytes_of(pair.client, "/tmp/c", 0, 1), "C", "what was read")
    eq(_bytes_of(pair.server, "/dev/ram0", FILL_BLOCK, FILL_BLOCKS), "B", "what was written to the other blocks")
    disk.unmap()


@needs(wires=2, timeout=240)
def test_a_lost_request_is_not_merged(pair: Lab) -> None:
    """It is sent as it was. Without a scheduler it waits where the bios of its processor look for requests to join."""
    _two_disks(pair)
    disk = _map(pair, "fast_io_fail_tmo=600")
    eq(pair.client.write(f"/sys/block/{disk.name}/queue/scheduler", "none"), "")
    eq(pair.client.write(f"/sys/block/{disk.name}/queue/nomerges", "0"), "")
    read = f"taskset -c 0 dd if={disk.path} of=/dev/null bs={BLOCK_BYTES} count=1 iflag=direct skip={{}}"
    jobs = [_begin(pair, disk, read.format(BLOCK))]
    _cut_all(pair)
    for number, waiting in ((1, (0, 2)), (2, (1, 2))):
        jobs.append(pair.client.start_job(f"{read.format(BLOCK + number)} status=none"))
        until(lambda number=number: sum(_reads(disk)) == 1 + number, 20, "it waits, too")
        eq(_reads(disk), waiting, "reads that have joined another request, and requests that have not ended")
    pair.server.run(f"dmsetup resume {SUSPENDED}")
    _mend_until_one_path_is_back(pair, disk)
    for job in jobs:
        job.ok(60)
    disk.unmap()


def _reads(disk: rnbd.Disk) -> tuple[int, int]:
    """Numbers of reads that were merged with another one, and of requests that have not ended, also those that were not
    begun."""
    fields = disk.machine.read(f"/sys/block/{disk.name}/stat").split()
    return int(fields[1]), int(fields[8])


# Another end of the request; d29_a_request_that_is_given_back_keeps_its_chunk shows it in each run.
@needs(wires=2, timeout=240, tier=tier.ALL)
def test_d29_a_forced_unmap_keeps_the_chunks(pair: Lab) -> None:
    """The disk is unmapped by force in an outage; another disk of the session continues."""
    _two_disks(pair)
    disk = _map(pair, "fast_io_fail_tmo=600")
    other = rnbd.map_disk(pair, "ram1")
    write = _write_a(pair, disk)
    _cut_all(pair)
    disk.unmap("force")
    ok(write.wait(60).code, "the write succeeded on a disk that is gone")
    _mend_until_one_path_is_back(pair, other)
    fill = other.fio(FILL)
    paths.rest(4)
    _resume(pair, fill)
    _old_or_a(pair)
    other.unmap()


@needs(wires=2, timeout=300, waits=True)
def test_a_path_that_does_not_come_back_holds_no_chunk_for_ever(pair: Lab) -> None:
    """The path of the lost write does not reconnect: the session starts again, after its server has freed that path."""
    _two_disks(pair)
    disk = _map(pair, "fast_io_fail_tmo=0")
    write = _write_a(pair, disk)
    carrier = next(wire for wire in (0, 1) if paths.count(pair, "rdma", 4, wire))
    _cut_all(pair)
    ok(write.wait(60).code, "the write succeeded without a path")
    mark = pair.client.log_mark()
    pair.mend(1 - carrier)
    _back(pair, lambda: disk.attribute("state") == "open", "the disk is open again")
    pair.server.run(f"dmsetup resume {SUSPENDED}")
    fill = disk.fio(FILL)
    paths.rest(2)
    ok(fill.job.running, "a request went out in the held chunk")
    fill.clean(120)
    ok(pair.client.log_matches("the server has forgotten it", mark), "the server was not asked for the session")
    eq(paths.state(pair, carrier), "disconnected")
    _old_or_a(pair)
    pair.mend(carrier)
    _back(pair, lambda: paths.states(pair) == ["connected", "connected"], "both paths are back")
    disk.unmap()
