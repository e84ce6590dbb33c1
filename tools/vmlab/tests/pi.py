# SPDX-License-Identifier: GPL-2.0
"""Protection information: each block carries a tuple that both ends verify.

    client /dev/rnbd0 (makes tuples) ══ wire ══ server (verifies) ── /dev/ram0, or a disk that stores them
"""
from __future__ import annotations

import errno
import hashlib

from vmlab import docs, paths, rnbd, tier
from vmlab.checks import ByChance, Failed, TooSlow, eq, ge, matches, ok, until
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs
from vmlab.testdevice import add_fault, plug_in
from vmlab.tests.hostile import FILES, SMALL, bring_peer
from vmlab.tests.io import SIZES, memory_anywhere

PARAMETER = "/sys/module/rnbd_server/parameters/pi"


def stats(machine: Machine, file: str) -> dict[str, str]:
    """A pi_stats file."""
    return dict(line.split() for line in machine.read(file).splitlines())


def client_stats(disk: rnbd.Disk) -> dict[str, str]:
    """The counts of the client."""
    return stats(disk.machine, f"{disk.control}/pi_stats")


def server_stats(lab: Lab, device: str = "ram0", session: str = "s1") -> dict[str, str]:
    """The counts of the server."""
    return stats(lab.server, f"/sys/class/rnbd-server/ctl/devices/{device}/sessions/{session}/pi_stats")


def was_away(lab: Lab) -> bool:
    """Whether a path was lost, as rxe does on a busy host now and then: the server counts anew with a new session."""
    folder = rnbd.session_file("paths")
    return any(int(lab.client.read(f"{folder}/{name}/stats/reconnects").split()[0]) for name in paths.names(lab))


def map_with(lab: Lab, pi: str, device: str = "ram0") -> rnbd.Disk:
    """Maps a disk with this choice."""
    return rnbd.map_disk(lab, device, options=f"access_mode=rw pi={pi}")


def no_errors(lab: Lab, disk: rnbd.Disk, device: str = "ram0") -> None:
    """Neither side has seen anything wrong, and both have seen protected data."""
    for side, least in ((client_stats(disk), 1), (server_stats(lab, device), int(not was_away(lab)))):
        eq((side["write_errors"], side["read_errors"]), ("0", "0"), str(side))
        ge(int(side["written"]), least, "written intervals")
        ge(int(side["read"]), least, "read intervals")


# With a file system; every_size_comes_back_*, the_server_disk_holds_* and others show in each run what it needs.
@needs(tier=tier.ALL)
def test_a_disk_has_what_linux_tools_expect(pair: Lab) -> None:
    """The five commands of the user: map, look, make a file system, use it, look again."""
    rnbd.null_disk(pair, "gb=1 memory_backed=1 discard=1")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = map_with(pair, "crc64", "nullb0")
    folder = f"/sys/block/{disk.name}/integrity"
    names = ("format", "tag_size", "read_verify", "write_generate", "protection_interval_bytes",
             "device_is_integrity_capable")
    found = [pair.client.read(f"{folder}/{name}").strip() for name in names]
    eq(found, ["EXT-DIF-TYPE1-CRC64", "0", "0", "0", "4096", "0"])
    eq(disk.queue("logical_block_size").strip(), "4096")
    pair.client.run(f"modprobe xfs; mkfs.xfs -q {disk.path} && mount {disk.path} /mnt", 120)
    pair.defer(pair.client.try_run, "umount /mnt 2>/dev/null; rmmod xfs 2>/dev/null")
    pair.client.run("cp -r /usr/lib/python3.13/json /usr/bin/bash /mnt/ && sync && cd /mnt && "
                    "find . -type f -exec md5sum {} + > /run/sums && cd / && umount /mnt && "
                    f"mount {disk.path} /mnt && cd /mnt && md5sum --quiet -c /run/sums && cd / && umount /mnt", 120)
    eq((client_stats(disk)["mode"], client_stats(disk)["format"]), ("wire", "crc64"))
    no_errors(pair, disk, "nullb0")
    disk.unmap()


@needs(tier=tier.ALL)
def test_the_document_is_true(pair: Lab) -> None:
    """The commands of Documentation/protection.md, with the lab's address and disk."""
    rnbd.null_disk(pair, "gb=1 memory_backed=1 discard=1")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    (block,) = (block for block in docs.blocks("Documentation/protection.md") if block.place in docs.MACHINES)
    script = "\n".join(block.commands).replace("ip:10.0.0.1", "ip:10.0.0.2").replace("=vdb", "=nullb0")
    pair.defer(pair.client.try_run, "umount /mnt 2>/dev/null; rmmod xfs 2>/dev/null")
    done = pair.client.try_run(f"modprobe xfs; set -ex\n{script}", 120)
    pair.client.try_run("umount /mnt")
    rnbd.Disk(pair.client, "rnbd0", "s", "nullb0").unmap()
    if done.code:
        raise Failed(f"{block.where}, code {done.code}:\n{done.out[-1500:]}")
    matches(done.out, "(?m)^.*/integrity/format:EXT-DIF-TYPE1-CRC64$", "what Linux tools see")
    matches(done.out, "(?m)^written [1-9]", "what the client has counted")


@needs()
def test_every_size_comes_back_with_tuples_of_512_bytes(pair: Lab) -> None:
    """512 bytes to 1 MiB from memory that begins and ends anywhere in a page, split and merged."""
    rnbd.start(pair)
    disk = map_with(pair, "t10")
    eq(client_stats(disk)["interval_bytes"], "512")
    pair.client.push_bytes(SIZES.encode(), "/tmp/sizes.py")
    pair.client.run(f"python3 -I -S /tmp/sizes.py {disk.path}", 120)
    memory_anywhere(disk)
    rnbd.round_robin(pair)
    disk.fio("--rw=randwrite --bsrange=512-1m --bs_unaligned=0 --blockalign=512 --iodepth=16 --iomem_align=4096 "
             "--size=4m --verify=crc32c --verify_fatal=1", 180).clean()
    disk.fio("--rw=randwrite --bsrange=512-256k --blockalign=512 --iodepth=8 --iomem=malloc --mem_align=512 "
             "--size=4m --verify=crc32c --verify_fatal=1", 180).clean()
    for block in ("512", "1k"):
        disk.fio(f"--ioengine=libaio --rw=write --bs={block} --iodepth=120 --iodepth_batch=120 "
                 "--iodepth_batch_complete_min=120 --size=1m --verify=crc32c --verify_fatal=1", 120).clean()
    pair.client.run(f"modprobe ext4; mkfs.ext4 -q -b 1024 {disk.path} 32M && mount {disk.path} /mnt && "
                    "cp -r /usr/lib/python3.13/json /mnt && umount /mnt && fsck.ext4 -nf "
                    f"{disk.path}; rmmod ext4", 120)
    no_errors(pair, disk)
    disk.unmap()


@needs()
def test_the_server_disk_holds_the_data_alone(pair: Lab) -> None:
    """In mode wire the tuples end at the server: both ends read the same blocks, also raw."""
    rnbd.start(pair, mib=16)
    disk = map_with(pair, "crc64")
    rnbd.round_robin(pair)
    disk.fio("--rw=randwrite --bsrange=4k-512k --iodepth=16 --size=8m --verify=crc32c --verify_fatal=1", 120).clean()
    memory_anywhere(disk)
    raw = pair.server.run("dd if=/dev/ram0 bs=1M iflag=direct status=none | md5sum").split()[0]
    eq(disk.checksum(), raw, "both ends")
    # The server counts anew for each connection of the session, and rxe may have lost one since.
    pair.client.run(f"dd if=/dev/urandom of={disk.path} bs=64k count=1 oflag=direct status=none; "
                    f"dd if={disk.path} of=/dev/null bs=64k count=1 iflag=direct status=none")
    no_errors(pair, disk)
    eq((client_stats(disk)["not_protected"], server_stats(pair)["not_protected"]), ("0", "0"))
    # The answer to a request with tuples says that the server has closed the device, as to any other one.
    for direction in ("if=/dev/zero oflag=direct of", "of=/dev/null iflag=direct if"):
        eq(pair.server.write("/sys/class/rnbd-server/ctl/devices/ram0/sessions/s1/force_close", "1"), "")
        ok(pair.client.try_run(f"dd {direction}={disk.path} bs=4k count=1").code, f"{direction}: IO of a closed device")
        eq(disk.attribute("state"), "closed", direction)
        eq(pair.client.write(f"{disk.control}/remap_device", "1"), "")
    disk.unmap()


@needs()
def test_the_block_layer_may_make_them(pair: Lab) -> None:
    """read_verify and write_generate: the tuples are the block layer's or ours, and each end takes both for right."""
    rnbd.start(pair)
    for pi, interval in (("crc64", 4096), ("t10", 512)):
        disk = map_with(pair, pi)
        folder = f"/sys/block/{disk.name}/integrity"
        written = read = 0
        for number, (generate, verify) in enumerate(((0, 1), (1, 0), (1, 1), (0, 0))):
            pair.client.run(f"echo {generate} > {folder}/write_generate; echo {verify} > {folder}/read_verify; "
                            f"head -c 12288 /dev/urandom > /run/area; "
                            f"dd if=/run/area of={disk.path} bs=4096 seek={512 + number} oflag=direct status=none && "
                            f"dd if={disk.path} of=/run/back bs=4096 skip={512 + number} count=3 iflag=direct "
                            "status=none && cmp /run/area /run/back")
            seen = client_stats(disk)
            ge(int(seen["written"]) - written, 12288 // interval, f"{pi}: intervals written: {seen}")
            ge(int(seen["read"]) - read, 12288 // interval, f"{pi}: intervals read: {seen}")
            written, read = int(seen["written"]), int(seen["read"])
        no_errors(pair, disk)
        eq((client_stats(disk)["not_protected"], server_stats(pair)["not_protected"]), ("0", "0"))
        disk.unmap()


@needs()
def test_who_has_none_is_mapped_without_or_refused(pair: Lab) -> None:
    """pi=off|auto|require and a format, at a server with pi=off and at one that has it."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    eq(client_stats(disk), {"mode": "none"})
    ok(not pair.client.exists(f"/sys/block/{disk.name}/integrity/format")
       or pair.client.read(f"/sys/block/{disk.name}/integrity/format").strip() in ("none", "nop"), "a profile")
    disk.unmap()
    eq(pair.server.write(PARAMETER, "off"), "")
    eq(pair.server.write(PARAMETER, "sometimes"), "EINVAL")
    disk = map_with(pair, "auto")
    eq(client_stats(disk), {"mode": "none"})
    disk.unmap()
    for pi in ("require", "crc64", "t10"):
        mark = pair.client.log_mark()
        eq(rnbd.try_map(pair, rnbd.request(pair, options=f"pi={pi}")), "ENOTSUP", pi)
        ok(pair.client.log_matches("protection information for it", mark), "no reason in the log")
    eq(rnbd.try_map(pair, rnbd.request(pair, options="pi=store")), "EINVAL")
    eq(pair.server.write(PARAMETER, "auto"), "")
    for pi, format_ in (("auto", "crc64"), ("require", "crc64"), ("t10", "t10")):
        disk = map_with(pair, pi)
        eq(client_stats(disk)["format"], format_, pi)
        disk.unmap()


@needs(wires=2, timeout=240)
def test_paths_fail_and_every_block_is_right(pair: Lab) -> None:
    """A path is cut under load, and all of them: what is sent again has the same tuples, and nothing is wrong."""
    with paths.two_paths(pair, "access_mode=rw pi=t10") as disk:
        rnbd.round_robin(pair)
        rnbd.fail_fast(pair, "off")
        history = disk.history()
        paths.wait_busy(disk)
        pair.defer(pair.mend, 0)
        pair.cut(0)
        paths.rest(3)
        pair.defer(pair.mend, 1)
        pair.cut(1)
        until(lambda: disk.attribute("state") == "closed", 20, "the client has noticed")
        pair.mend(1)
        paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 60, "the disk is back")
        paths.wait_busy(disk, history=history)
        history.clean(120)
        pair.mend(0)
        no_errors(pair, disk)


@needs(wires=1)
def test_a_server_that_has_it_no_more_does_not_get_the_disk_back(pair: Lab) -> None:
    """After an outage the server has no protection information: requests wait until it has it again."""
    rnbd.ram_disk(pair, 16)
    rnbd.load_server(pair, rtrs="heartbeat_interval_ms=500")
    rnbd.load_client(pair)
    disk = map_with(pair, "crc64")
    mark = pair.client.log_mark()
    pair.defer(pair.mend, 0)
    pair.cut(0)
    until(lambda: disk.attribute("state") == "closed", 20, "the client has noticed")
    eq(pair.server.write(PARAMETER, "off"), "")
    pair.mend(0)
    paths.back_seconds(pair, lambda: bool(pair.client.log_matches("other protection information", mark)), 60,
                       "the client has asked")
    eq(disk.attribute("state"), "closed")
    eq(pair.server.write(PARAMETER, "auto"), "")
    until(lambda: disk.attribute("state") == "open", 60, "the disk is back")
    disk.fio("--rw=randwrite --bs=4k --iodepth=4 --size=1m --verify=crc32c --verify_fatal=1").clean()
    no_errors(pair, disk)
    disk.unmap()


# Writes a block of shared memory when it may go, and may change it before the write has ended; prints its errno.
SHARED = """
import mmap, os, sys, time
area, fd = mmap.mmap(-1, 4096), os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT)
area[:] = b"n" * 4096
open("/run/ready", "w").close()
while not os.path.exists("/run/go"):
    time.sleep(0.01)
writer = os.fork()
if not writer:
    try:
        os._exit(os.pwrite(fd, area, 9 * 4096) != 4096)
    except OSError as error:
        os._exit(error.errno)
while not os.path.exists("/run/sent"):
    time.sleep(0.01)
if sys.argv[2] == "change":
    area[100:101] = b"c"
open("/run/changed", "w").close()
print(os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]))
"""


def writes(lab: Lab) -> int:
    """The writes that the client has sent over its first path."""
    folder = paths.to_wire(lab, 0)
    return int(lab.client.read(f"{folder}/stats/rdma").split()[2])


@needs(wires=1)
def test_a_write_that_comes_again_has_the_same_tuples(pair: Lab) -> None:
    """Memory that changes while its write waits for the end of an outage gets no tuples that are right: EILSEQ."""
    rnbd.ram_disk(pair, 16)
    rnbd.load_server(pair, rtrs="heartbeat_interval_ms=500")
    rnbd.load_client(pair)
    disk = map_with(pair, "t10")
    rnbd.fail_fast(pair, "off")
    pair.client.push_bytes(SHARED.encode(), "/run/shared.py")
    old = b"o" * 4096
    for what, errno_, content in (("keep", 0, b"n" * 4096), ("change", errno.EILSEQ, old)):
        pair.client.push_bytes(old, "/run/old")
        pair.client.run("rm -f /run/ready /run/go /run/sent /run/changed; "
                        f"dd if=/run/old of={disk.path} bs=4096 seek=9 oflag=direct status=none")
        mark = pair.client.log_mark()
        job = pair.client.start_job(f"python3 -I -S /run/shared.py {disk.path} {what}", 120)
        until(lambda: pair.client.exists("/run/ready"), 20, "the program is ready")
        before = writes(pair)
        pair.defer(pair.mend, 0)
        # The client keeps its carrier, so the write is sent before the path is lost.
        pair.silence(0)
        pair.client.push_bytes(b"", "/run/go")
        until(lambda before=before: writes(pair) > before or disk.attribute("state") == "closed", 20, "it is sent")
        if writes(pair) == before:
            raise TooSlow("the path was lost before the write was sent")
        pair.client.push_bytes(b"", "/run/sent")
        until(lambda: pair.client.exists("/run/changed"), 20, "the memory is what it will be")
        until(lambda: disk.attribute("state") == "closed", 20, "the client has noticed")
        pair.mend(0)
        paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 60, "the disk is back")
        eq(job.ok().strip().rpartition("\n")[2], str(errno_), f"{what}: the errno of the write")
        eq(client_stats(disk)["write_errors"], str(int(bool(errno_))), f"{what}: counted")
        eq(len(pair.client.log_matches("has changed since it was sent first", mark)), int(bool(errno_)), what)
        found = pair.server.run("dd if=/dev/ram0 bs=4096 skip=9 count=1 iflag=direct status=none | md5sum").split()[0]
        eq(found, hashlib.md5(content).hexdigest(), f"{what}: the block on the disk")
    disk.unmap()


@needs(wires=1)
def test_a_write_whose_data_change_in_flight_is_sent_once_more(pair: Lab) -> None:
    """The adapter sends a packet again from memory that has changed since the tuples were made, which a direct write
    permits: the server refuses it, the client makes the tuples anew, and the write ends well."""
    rnbd.ram_disk(pair, 16)
    rnbd.load_server(pair, rtrs="heartbeat_interval_ms=60000")
    rnbd.load_client(pair)
    # The device repeats a packet for as long as the wire is silent, and no heartbeat is due.
    retries = "/sys/module/rtrs_client/parameters/retry_count"
    pair.defer(pair.client.run, f"[ ! -e {retries} ] || echo {pair.client.read(retries)} > {retries}")
    eq(pair.client.write(retries, "7"), "")
    disk = rnbd.map_disk(pair, options="access_mode=rw pi=t10 heartbeat_interval_ms=60000")
    pair.client.push_bytes(SHARED.encode(), "/run/shared.py")
    mark, lost = pair.client.log_mark(), paths.count(pair, "reconnects", 0)
    job = pair.client.start_job(f"python3 -I -S /run/shared.py {disk.path} change", 120)
    until(lambda: pair.client.exists("/run/ready"), 20, "the program is ready")
    before = writes(pair)
    pair.defer(pair.mend, 0)
    pair.silence(0)
    pair.client.run("touch /run/go")
    until(lambda: writes(pair) > before, 20, "it is sent")
    pair.client.run("touch /run/sent; while ! [ -e /run/changed ]; do sleep 0.01; done", 20)
    pair.mend(0)
    ended = job.ok().strip().rpartition("\n")[2]
    if paths.count(pair, "reconnects", 0) > lost:
        raise ByChance("the path was lost before the packet was sent again")
    eq(ended, "0", "the errno of the write")
    eq(len(pair.client.log_matches("have changed while it was sent", mark)), 1, "lines of the log")
    eq(client_stats(disk)["write_errors"], "0", "no error is counted")
    found = pair.server.run("dd if=/dev/ram0 bs=4096 skip=9 count=1 iflag=direct status=none | md5sum").split()[0]
    content = b"n" * 100 + b"c" + b"n" * 3995
    eq(found, hashlib.md5(content).hexdigest(), "the block on the disk")
    disk.unmap()


@needs(machines=1, timeout=240)
def test_a_hostile_client_is_refused(vm: Lab) -> None:
    """Lengths that lie, tuples and seals that are wrong, devices without: the errno that fits, and nothing else."""
    bring_peer(vm.server, (*FILES, "pi_attacks.py"))
    rnbd.ram_disk(vm, 16, 4)
    rnbd.load_server(vm, rtrs=SMALL)
    found = vm.server.try_run(f"cd /tmp/peer && python3 -S -m pi_attacks {vm.server_address}", 200).out
    eq(found.split("\n")[-2:], ["ok", ""], found)


def flip(vm: Lab, bit: int, size: int, kind: str = "write") -> None:
    """Flips a bit of the next message of so many bytes."""
    add_fault(vm, f"fault=flip bit={bit} on={kind} bytes={size}")


def direct(vm: Lab, disk: rnbd.Disk, way: str, block: int, count: int = 1) -> bool:
    """Blocks of 4096 bytes, written from or read to a file in one request; whether it succeeded."""
    ends = (f"if=/run/block of={disk.path} oflag=direct,seek_bytes seek" if way == "write"
            else f"if={disk.path} of=/run/back iflag=direct,skip_bytes skip")
    return vm.server.try_run(f"dd {ends}={block * 4096} bs={4096 * count} count=1 status=none").code == 0


# A WRITE of a block: data, tuple, io message, head. The answer to a READ: data, and a message with key and tuple.
WRITE_BYTES, READ_BYTES, KEY_BYTES = 4096 + 16 + 32 + 4, 4096, 8
# Five tuples are too long for that message: they are behind the data.
LONG_BYTES = 5 * (4096 + 16)
IN_WRITE = {"data": 0, "the end of the data": 4095, "guard": 4096, "application tag": 4105, "reference tag": 4111,
            "operation": 4112 + 16, "device": 4112 + 4, "sector": 4112 + 8, "size": 4112 + 21, "priority": 4112 + 25,
            "tuple length": 4112 + 26, "seal": 4112 + 28}
# In which message of a READ's answer, and how many blocks are read.
IN_READ = {"data": (1, "write", 1), "the end of the data": (4095, "write", 1),
           "guard": (KEY_BYTES, "send", 1), "reference tag": (KEY_BYTES + 15, "send", 1),
           "data of five": (4096 + 1, "write", 5), "guard of five": (5 * 4096, "write", 5),
           "last reference tag of five": (LONG_BYTES - 1, "write", 5)}
# Of one block that is copied, which comes in one message with its tuple.
IN_COPIED = {"data": 1, "the end of the data": 4095, "guard": 4096, "reference tag": 4111}
READ_MESSAGES = {("write", 1): READ_BYTES, ("send", 1): KEY_BYTES + 16, ("write", 5): LONG_BYTES}


@needs(machines=1, own_modules=True, timeout=240)
def test_each_flipped_bit_is_seen(vm: Lab) -> None:
    """One bit of data, tuple or message flips on its way: the IO fails and is counted, and the neighbours stay."""
    plug_in(vm)
    rnbd.start(vm, rtrs="sess_queue_depth=64")
    rnbd.copy_reads(vm, 0)
    disk = map_with(vm, "crc64")
    vm.server.run("head -c 4096 /dev/urandom > /run/block; head -c 12288 /dev/urandom > /run/area; "
                  f"dd if=/run/area of={disk.path} bs=4096 seek=8 oflag=direct status=none")
    before = vm.server.run("dd if=/dev/ram0 bs=4096 skip=8 count=3 iflag=direct status=none | md5sum")
    errors = 0
    mark = vm.server.log_mark()
    for place, byte in IN_WRITE.items():
        flip(vm, byte * 8, WRITE_BYTES)
        ok(not direct(vm, disk, "write", 9), f"a write with a flipped {place} succeeded")
        # Of the device that the flip names there is none: the server cannot know that there should be a seal.
        errors += place != "device"
        eq(client_stats(disk)["write_errors"], str(errors), f"write errors after a flipped {place}")
        after = vm.server.run("dd if=/dev/ram0 bs=4096 skip=8 count=3 iflag=direct status=none | md5sum")
        eq(after, before, f"the blocks after a flipped {place}")
    # Each has a line, up to a limit.
    for pattern in ("rnbd_server: .*write refused", "rnbd_client: .*Write failed: EILSEQ"):
        ge(len(vm.server.log_matches(pattern, mark)), 5, f"lines '{pattern}'")
    ok(direct(vm, disk, "read", 9, 5), "five blocks")
    for number, (place, (byte, kind, count)) in enumerate(IN_READ.items(), 1):
        flip(vm, byte * 8, READ_MESSAGES[kind, count], kind)
        ok(not direct(vm, disk, "read", 9, count), f"a read with a flipped {place} succeeded")
        eq(client_stats(disk)["read_errors"], str(number), f"read errors after a flipped {place}")
    for errors, count in enumerate((1, 5), len(IN_READ) + 1):
        add_fault(vm, f"fault=lose on=write bytes={READ_MESSAGES['write', count]}")
        ok(not direct(vm, disk, "read", 9, count), f"a read whose data never came succeeded: {count} blocks")
        eq(client_stats(disk)["read_errors"], str(errors), "read errors after data that never came")
    ok(direct(vm, disk, "write", 9) and direct(vm, disk, "read", 9), "a right block fails")
    vm.server.run("cmp /run/block /run/back")
    disk.unmap()
    rnbd.copy_reads(vm, 4096)
    rnbd.copy_writes(vm, 65536)
    disk = map_with(vm, "crc64")
    for errors, place in enumerate(("the end of the data", "guard", "seal"), 1):
        flip(vm, IN_WRITE[place] * 8, WRITE_BYTES)
        ok(not direct(vm, disk, "write", 9), f"a write that is copied with a flipped {place} succeeded")
        eq(client_stats(disk)["write_errors"], str(errors), f"write errors after a flipped {place}")
    for errors, (place, byte) in enumerate(IN_COPIED.items(), 1):
        flip(vm, byte * 8, READ_BYTES + 16)
        ok(not direct(vm, disk, "read", 9), f"a read that is copied with a flipped {place} succeeded")
        eq(client_stats(disk)["read_errors"], str(errors), f"read errors after a flipped {place}")
    ok(direct(vm, disk, "read", 9), "a right block fails")
    disk.unmap()


@needs(wires=1)
def test_tuples_reach_a_disk_that_stores_them(pair: Lab) -> None:
    """Mode pass: the client's tuples are those of the server's disk, which finds what is wrong on it."""
    pair.server.run("modprobe scsi_debug dev_size_mb=48 dif=1 dix=1 max_luns=1; modprobe sd_mod; udevadm settle "
                    "2>/dev/null; for i in $(seq 50); do [ -b /dev/sda ] && break; sleep 0.1; done; [ -b /dev/sda ]")
    pair.defer(rnbd.remove_module, pair.server, "scsi_debug")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    # The tuples of some are in the copies, those of longer ones in the chunks.
    rnbd.copy_writes(pair, 65536)
    disk = map_with(pair, "auto", "sda")
    eq((client_stats(disk)["mode"], client_stats(disk)["format"]), ("pass", "t10"))
    folder = f"/sys/block/{disk.name}/integrity"
    eq([pair.client.read(f"{folder}/{name}").strip() for name in ("format", "device_is_integrity_capable")],
       ["T10-DIF-TYPE1-CRC", "1"])
    eq(pair.server.write("/sys/module/rnbd_server/parameters/srv_verify", "both"), "")
    rnbd.round_robin(pair)
    disk.fio("--rw=randwrite --bsrange=512-512k --blockalign=512 --iodepth=16 --size=8m --verify=crc32c "
             "--verify_fatal=1", 120).clean()
    no_errors(pair, disk, "sda")
    raw = pair.server.run("dd if=/dev/sda bs=1M count=8 iflag=direct status=none | md5sum").split()[0]
    eq(disk.checksum(0, 8), raw, "both ends")
    # The disk says that a tuple of each read is wrong.
    debug = "/sys/bus/pseudo/drivers/scsi_debug"
    pair.server.run(f"echo 1 > {debug}/every_nth; echo 0x20 > {debug}/opts")
    code = pair.client.try_run(f"dd if={disk.path} of=/dev/null bs=4096 count=1 iflag=direct 2>&1").code
    pair.server.run(f"echo 0 > {debug}/every_nth; echo 0 > {debug}/opts")
    ok(code, "a read with a wrong tuple succeeded")
    ge(int(client_stats(disk)["read_errors"]), 1, "read errors")
    pair.client.run(f"dd if={disk.path} of=/dev/null bs=4096 count=1 iflag=direct status=none")
    disk.unmap()
    eq(pair.server.write(PARAMETER, "wire"), "")
    pair.defer(pair.server.write, PARAMETER, "auto")
    disk = map_with(pair, "t10", "sda")
    eq(client_stats(disk)["mode"], "wire")
    disk.unmap()
