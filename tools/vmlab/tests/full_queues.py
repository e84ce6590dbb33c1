# SPDX-License-Identifier: GPL-2.0
"""Disks of a server that take no more requests: who submits to them sleeps. The other disks of their session, its
heartbeats and its messages go on."""
from __future__ import annotations

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.machine import Job
from vmlab.needs import needs
from vmlab.tests.administration import read_block
from vmlab.tests.paths import SUSPENDED, dm_disk
from vmlab.tests.pi import map_with, no_errors

TAGS = 2                # of the disk on the server
REQUESTS = 8            # more than it has tags
FLOOD = "for i in {numbers}; do {one} || echo failed & done; wait"
READ = "dd if={path} of=/dev/null bs=4k count=1 skip=$i iflag=direct status=none"
WRITE = "dd if=/dev/zero of={path} bs=4k count=1 seek=$i oflag=direct status=none"
VERIFIED = "--rw=randrw --bs=4k --iodepth=32 --size=1m --verify=crc32c --verify_fatal=1"


def loop_disk(lab: Lab, queue: str = "") -> str:
    """/dev/loop0 on the server, which has two tags, over a disk that can be suspended; answers its name."""
    dm_disk(lab, 8, count=2)
    lab.server.run(f"rmmod loop; set -e; modprobe loop hw_queue_depth={TAGS}; losetup --direct-io=on /dev/loop0 "
                   f"/dev/dm-0; {queue}")
    lab.defer(lab.server.run, f"dmsetup resume {SUSPENDED}; mods -r; losetup -D; for i in 1 2 3 4 5; do rmmod loop && "
                              "exit; sleep 0.3; done; exit 1", 60)
    return "loop0"


def flood(lab: Lab, disk: rnbd.Disk, kind: str) -> Job:
    """The server's disk answers no more, and has more requests than it takes."""
    lab.server.run(f"dmsetup suspend --nolockfs --noflush {SUSPENDED}")
    # Apart from each other, so that a scheduler does not merge them.
    numbers = " ".join(str(64 * number) for number in range(REQUESTS))
    job = lab.client.start_job(FLOOD.format(numbers=numbers, one=kind.format(path=disk.path)), 200)
    in_flight = f"awk '{{print $1 + $2}}' /sys/block/{disk.name}/inflight"
    until(lambda: int(lab.client.run(in_flight)) >= REQUESTS, 20, "all requests are under way")
    paths.rest(0.5)
    return job


def others_go_on(lab: Lab, disk: rnbd.Disk, other: rnbd.Disk, kind: str = READ) -> None:
    """While the disk takes no more: another one of the session, what its clients ask for, and its path."""
    waiting = flood(lab, disk, kind)
    before = lab.client.log_mark()
    read = lab.client.start_job(f"dd if={other.path} of=/dev/null bs=4k count=1 iflag=direct status=none", 100)
    until(lambda: not read.running, 4, "another disk of the session is read")
    eq(read.wait(5).code, 0, "a read of another disk")
    line = rnbd.request(lab, other.remote)
    eq(lab.client.write(f"{other.control}/unmap_device", "normal"), "")
    eq(rnbd.try_map(lab, line), "")
    until(lambda: lab.client.exists(other.path), 10, "it is there again", pause=0.02)
    eq(read_block(other), 0, "a read of the disk that was mapped meanwhile")
    # The time in which a path is lost whose heartbeats are not answered.
    paths.rest(6)
    eq(lab.client.log_matches("closing the path", before), [], "the path was lost")
    ok(waiting.running, "the disk has answered")
    lab.server.run(f"dmsetup resume {SUSPENDED}")
    eq(waiting.ok(60).strip(), "", "requests of the disk when it takes them again")


@needs(wires=1, own_modules=True, timeout=240)
def test_a_disk_whose_tags_are_used_keeps_no_other_waiting(pair: Lab) -> None:
    """A disk with two tags does not answer, and a client has eight requests for it. Afterwards they are carried out,
    and all later ones, of which most have to wait for a tag."""
    name = loop_disk(pair)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk, other = rnbd.map_disk(pair, name), rnbd.map_disk(pair, "ram1")
    others_go_on(pair, disk, other)
    disk.fio(VERIFIED).clean()
    disk.unmap()


@needs(wires=1, own_modules=True, tier=tier.ALL)
def test_a_disk_that_cannot_refuse_any_more_is_used(pair: Lab) -> None:
    """A disk of device-mapper gets a table that knows no REQ_NOWAIT, while a client has it."""
    dm_disk(pair, 8)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, "dm-0")
    pair.server.run(f"set -e; dmsetup suspend {SUSPENDED}; dmsetup load {SUSPENDED} --table '0 {8 * 2048} delay "
                    f"/dev/ram0 0 0'; dmsetup resume {SUSPENDED}")
    disk.fio(VERIFIED).clean()
    disk.unmap()


@needs(wires=1, own_modules=True, timeout=240, tier=tier.ALL)
def test_a_disk_that_throttles_writes_keeps_no_other_waiting(pair: Lab) -> None:
    """The same with as many writes as blk-wbt allows: who submits another one sleeps, but for those of tasks."""
    name = loop_disk(pair, "echo 75000 > /sys/block/loop0/queue/wbt_lat_usec")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk, other = rnbd.map_disk(pair, name), rnbd.map_disk(pair, "ram1")
    others_go_on(pair, disk, other, WRITE)
    disk.unmap()


@needs(wires=1, own_modules=True, timeout=240, tier=tier.ALL)
def test_a_full_disk_with_protected_requests_keeps_no_other_waiting(pair: Lab) -> None:
    """The same with protection information for the way to the server."""
    name = loop_disk(pair)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk, other = map_with(pair, "crc64", name), rnbd.map_disk(pair, "ram1")
    others_go_on(pair, disk, other)
    disk.fio(VERIFIED).clean()
    no_errors(pair, disk, name)
    disk.unmap()


@needs(wires=1, own_modules=True, timeout=240, tier=tier.ALL)
def test_a_full_disk_is_closed_when_its_requests_have_ended(pair: Lab) -> None:
    """The session of a disk that takes no more ends, with requests that wait: the disk is open until it answers."""
    name = loop_disk(pair)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, name)
    waiting = flood(pair, disk, WRITE)
    mark = pair.server.log_mark()
    eq(pair.client.write(f"{disk.control}/unmap_device", "force"), "")
    waiting.wait(60)
    paths.rest(2)
    eq(pair.server.log_matches("'loop0'.* closed", mark), [], "it was closed with requests")
    pair.server.run(f"dmsetup resume {SUSPENDED}")
    until(lambda: pair.server.log_matches("'loop0'.* closed", mark), 30, "the server has closed the disk")
    disk = rnbd.map_disk(pair, name)
    eq(read_block(disk), 0, "a read of the disk that was mapped again")
    disk.unmap()
