# SPDX-License-Identifier: GPL-2.0
"""Protection information on disks of every kind, by users with tuples of their own, and what the server verifies.

    client: io_uring with tuples ══ rnbd ══ server: brd, SCSI with DIX, dm-linear, NVMe with tuples, dm-integrity
"""
from __future__ import annotations

import struct

from vmlab import rnbd, tier
from vmlab.checks import eq, ge, ok, until
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs
from vmlab.tests.hostile import PEER
from vmlab.tests.pi import client_stats, direct, map_with, server_stats

VERIFY = "/sys/module/rnbd_server/parameters/srv_verify"
DISK_MIB = 16
SECTORS = DISK_MIB * 2048
BLOCKS_4096 = "logical_block_size=4096,physical_block_size=4096"


def scsi_disk(machine: Machine, lab: Lab, dif: int = 1, mib: int = DISK_MIB) -> None:
    """Makes /dev/sda, which stores tuples; with `dif=0` it does not verify them when it is read."""
    machine.run(f"modprobe scsi_debug dev_size_mb={mib} dif={dif} dix=1 delay=0 max_luns=1; modprobe sd_mod; "
                "for i in $(seq 50); do [ -b /dev/sda ] && break; sleep 0.1; done; [ -b /dev/sda ]")
    lab.defer(rnbd.remove_module, machine, "scsi_debug")


def mapped(machine: Machine, lab: Lab, name: str, table: str) -> None:
    """Makes a device of the device mapper; it has the next number."""
    machine.run(f"modprobe dm_mod; dmsetup create {name} --table '{table}' && dmsetup mknodes {name}")
    lab.defer(machine.run, f"for i in 1 2 3 4 5 6 7 8; do dmsetup remove --retry {name} && exit; sleep 0.5; done; "
              "exit 1")


def all_right(lab: Lab, disk: rnbd.Disk, device: str) -> None:
    """Neither side has seen anything wrong. The server's counts begin anew with each session, and in mode pass it may
    verify nothing, so that there was protected data is asked of the client."""
    ends = (client_stats(disk), server_stats(lab, device))
    eq([(end["write_errors"], end["read_errors"]) for end in ends], [("0", "0")] * 2, f"{device}: {ends}")
    ge(min(int(ends[0][name]) for name in ("written", "read")), 1, f"intervals at the client of {device}: {ends}")


def own_tuples(lab: Lab, disk: rnbd.Disk) -> None:
    """Runs peer/uring_pi.py on a disk, and on the same disk shifted by a MiB."""
    vm = lab.client
    vm.run("mkdir -p /run/uring")
    for name in ("gfarm_readers.py", "uring_pi.py"):
        vm.push(PEER / name, f"/run/uring/{name}")
    vm.run(f"modprobe dm_mod; dmsetup create shifted --table '0 {disk.sectors - 2048} linear {disk.path} 2048' && "
           "dmsetup mknodes shifted")
    lab.defer(vm.try_run, "dmsetup remove --retry shifted")
    stats = client_stats(disk)
    stored = "stored" if stats["mode"] == "pass" else "made"
    found = vm.try_run(f"cd /run/uring && python3 -S -m uring_pi {disk.path} /dev/mapper/shifted {stats['format']} "
                       f"{stats['interval_bytes']} {stored}", 200)
    eq(found.out.strip().rpartition("\n")[2], "ok", f"{stats['mode']} {stats['format']}: {found.out}")
    vm.run("dmsetup remove --retry shifted")
    # Each of the program's wrong writes, and no read.
    seen = client_stats(disk)
    eq((seen["write_errors"], seen["read_errors"]), ("20", "0"), f"what the client has counted: {seen}")


@needs(timeout=300)
def test_users_bring_tuples_of_their_own(pair: Lab) -> None:
    """io_uring with tuples: right ones come back, a wrong one is EILSEQ and nothing is written; what the disk can."""
    rnbd.ram_disk(pair, DISK_MIB)
    scsi_disk(pair.server, pair)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    for pi, device in (("crc64", "ram0"), ("t10", "ram0"), ("require", "sda")):
        disk = map_with(pair, pi, device)
        own_tuples(pair, disk)
        seen = server_stats(pair, device)
        eq(seen["write_errors"], "20", "writes that the server has refused")
        eq(int(seen["not_protected"]) > 0, device == "ram0", f"{device}: escapes that were written: {seen}")
        disk.unmap()


def written_behind(machine: Machine, device: str, block: int) -> None:
    """Changes a block of 4096 bytes on the medium, and not its tuples."""
    generate = f"/sys/block/{device}/integrity/write_generate"
    machine.run(f"echo 0 > {generate}; dd if=/dev/urandom of=/dev/{device} bs=4096 seek={block} count=1 oflag=direct "
                f"status=none; echo 1 > {generate}")


@needs(machines=1, timeout=240)
def test_what_the_server_verifies_is_chosen(vm: Lab) -> None:
    """srv_verify: who finds a block that has changed on a disk that does not look at its tuples, and who counts it."""
    scsi_disk(vm.server, vm, dif=0)
    rnbd.load_server(vm)
    vm.defer(vm.server.write, VERIFY, "write")
    rnbd.load_client(vm)
    vm.server.run("head -c 4096 /dev/urandom > /run/block; head -c 12288 /dev/urandom > /run/area")
    for verify in ("none", "write", "read", "both"):
        eq(vm.server.write(VERIFY, verify), "")
        eq(vm.server.read(VERIFY).strip(), verify)
        disk = map_with(vm, "require", "sda")
        eq(client_stats(disk)["mode"], "pass")
        vm.server.run(f"dd if=/run/area of={disk.path} bs=4096 seek=8 oflag=direct status=none && "
                      f"dd if={disk.path} of=/run/back bs=4096 skip=8 count=3 iflag=direct status=none && "
                      "cmp /run/area /run/back")
        server = server_stats(vm, "sda")
        eq(server["written"] == "24", verify in ("write", "both"), f"{verify}: verified writes: {server}")
        eq(int(server["read"]) >= 24, verify in ("read", "both"), f"{verify}: verified reads: {server}")
        mark = vm.server.log_mark()
        written_behind(vm.server, "sda", 9)
        ok(not direct(vm, disk, "read", 9), f"{verify}: a changed block was read")
        ok(direct(vm, disk, "read", 8) and direct(vm, disk, "read", 10), f"{verify}: its neighbours are right")
        by_server = verify in ("read", "both")
        eq(server_stats(vm, "sda")["read_errors"], str(int(by_server)), f"{verify}: counted by the server")
        eq(client_stats(disk)["read_errors"], "1", f"{verify}: counted by the client")
        for line, is_there in (("rnbd_server: .*read refused: interval .* wrong checksum", by_server),
                               ("rnbd_client: .*wrong data from the server: interval", not by_server)):
            eq(bool(vm.server.log_matches(line, mark)), is_there, f"{verify}: log lines {line}")
        disk.unmap()


def read_fails(disk: rnbd.Disk, part: str) -> None:
    """Reading a part of the disk is EILSEQ, and counted."""
    found = disk.machine.try_run(f"dd if={disk.path} of=/dev/null {part} iflag=direct").out
    ok("Invalid or incomplete multibyte" in found, f"the medium has changed: {found}")
    ge(int(client_stats(disk)["read_errors"]), 1, "read errors")


@needs(timeout=240)
def test_disks_of_each_kind_that_store_tuples(pair: Lab) -> None:
    """dm-linear passes tuples, a changed medium is EILSEQ; dm-integrity has checksums of its own."""
    scsi_disk(pair.server, pair, mib=2 * DISK_MIB)
    mapped(pair.server, pair, "part", f"0 {SECTORS} linear /dev/sda {SECTORS}")
    rnbd.ram_disk(pair, DISK_MIB)
    pair.server.run("modprobe dm_integrity")
    features = "1 internal_hash:crc32c"
    pair.server.run(f"dd if=/dev/zero of=/dev/ram0 bs=4096 count=1 oflag=direct status=none; "
                    f"dmsetup create sized --table '0 8 integrity /dev/ram0 0 4 J {features}' && "
                    "dmsetup remove --retry sized")
    sectors = struct.unpack("<Q", bytes.fromhex(pair.server.run(
        "dd if=/dev/ram0 bs=1 skip=16 count=8 status=none | od -An -v -tx1").replace(" ", "").strip()))[0]
    mapped(pair.server, pair, "checked", f"0 {sectors} integrity /dev/ram0 0 4 J {features}")
    # What was never written has no checksum that fits.
    pair.server.try_run("dd if=/dev/zero of=/dev/mapper/checked bs=1M oflag=direct status=none; sync")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = map_with(pair, "require", "dm-0")
    eq((client_stats(disk)["mode"], client_stats(disk)["format"]), ("pass", "t10"))
    rnbd.round_robin(pair)
    disk.fio("--rw=randwrite --bsrange=512-256k --blockalign=512 --iodepth=8 --size=8m --verify=crc32c "
             "--verify_fatal=1", 120).clean()
    all_right(pair, disk, "dm-0")
    written_behind(pair.server, "sda", SECTORS // 8 + 9)
    pair.client.run(f"dd if={disk.path} of=/dev/null bs=4096 skip=8 count=1 iflag=direct status=none")
    read_fails(disk, "bs=4096 skip=9 count=1")
    disk.unmap()
    disk = map_with(pair, "auto", "dm-1")
    eq((client_stats(disk)["mode"], client_stats(disk)["format"]), ("wire", "crc64"))
    disk.fio("--rw=randwrite --bsrange=4k-256k --blockalign=4k --iodepth=8 --size=4m --verify=crc32c --verify_fatal=1",
             120).clean()
    all_right(pair, disk, "dm-1")
    pair.server.run("dd if=/dev/urandom of=/dev/ram0 bs=1M seek=12 count=1 oflag=direct status=none")
    read_fails(disk, "bs=256k skip=40")
    disk.unmap()


@needs(machines=1, timeout=240, nvme=(f"ms=16,pi=1,pif=2,{BLOCKS_4096}", "ms=8,pi=1,logical_block_size=512",
                                      f"ms=64,pi=1,{BLOCKS_4096}"), tier=tier.ALL)
def test_nvme_disks_get_the_tuples(vm: Lab) -> None:
    """NVMe with tuples of 16 and of 8 bytes is mapped in mode pass, one with more than tuples in mode wire."""
    machine = vm.server
    machine.run("modprobe nvme; for i in $(seq 100); do [ -b /dev/nvme0n3 ] && break; sleep 0.1; done; "
                "[ -b /dev/nvme0n3 ]")
    vm.defer(rnbd.remove_module, machine, "nvme")
    rnbd.load_server(vm)
    rnbd.load_client(vm)
    # The kernel finds them in any order.
    names = {int(machine.read(f"/sys/block/nvme0n{n}/nsid")): f"nvme0n{n}" for n in (1, 2, 3)}
    for number, mode, format_ in ((1, "pass", "crc64"), (2, "pass", "t10"), (3, "wire", "crc64")):
        device = names[number]
        disk = map_with(vm, "require", device)
        eq((client_stats(disk)["mode"], client_stats(disk)["format"]), (mode, format_), device)
        disk.fio("--rw=randwrite --bsrange=4k-256k --blockalign=4k --iodepth=8 --size=4m --verify=crc32c "
                 "--verify_fatal=1", 120).clean()
        all_right(vm, disk, device)
        raw = machine.run(f"dd if=/dev/{device} bs=1M count=4 iflag=direct status=none | md5sum").split()[0]
        eq(disk.checksum(0, 4), raw, f"both ends of {device}")
        if mode == "pass":
            own_tuples(vm, disk)
        disk.unmap()
    until(lambda: not machine.names("/sys/class/rnbd-client/ctl/devices"), 10, "all are unmapped")
