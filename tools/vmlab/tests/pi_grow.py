# SPDX-License-Identifier: GPL-2.0
"""A device that keeps tuples in a sidecar grows while clients use it.

    client /dev/rnbd0 ══ rnbd-server ── /dev/dm-0, which an administrator enlarges
                              └── ctl/devices/dm-0/sidecar/grow
"""
from __future__ import annotations

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ge, matches, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.people import Verifier
from vmlab.tests import power
from vmlab.tests.pi import map_with, no_errors
from vmlab.tests.pi_devices import mapped
from vmlab.tests.pi_scrub import command as scrub_command
from vmlab.tests.pi_scrub import counts, found
from vmlab.tests.pi_store import DATA, DEVICES, TOOL, block, bring_tool, format_disk, scrub

SMP = 2
TIER = tier.ALL

NAME, DEVICE = "volume", "dm-0"
FILE = f"{DEVICES}/{DEVICE}/sidecar/grow"
MIB = 256       # blocks


def data_blocks(*segments: tuple[int, int]) -> int:
    """The data blocks of segments from a block on, up to another one: whole groups with their PI blocks."""
    return sum((end - start) // 257 * 256 for start, end in segments)


# Of a device of 16 MiB, and when it has grown to 32 MiB. The last block is that of the copy of the superblock.
SMALL = data_blocks((DATA, 16 * MIB - 1))
LARGE = SMALL + data_blocks((16 * MIB, 32 * MIB - 1))
# The PI blocks of the new space, which ends before its last block.
PI_BLOCKS = 16 * MIB + LARGE - SMALL
COPY = 32 * MIB - 1


def linear(blocks: int, below: str = "/dev/ram0") -> str:
    """A table of so many blocks."""
    return f"0 {blocks * 8} linear {below} 0"


def become(lab: Lab, *table: str) -> None:
    """Gives the server's disk another table while it is in use."""
    lines = "\\n".join(table)
    lab.server.run(f"printf '{lines}\\n' | dmsetup load {NAME} && dmsetup resume {NAME}")


def slow_from(start: int, end: int, delay_ms: int, below: str = "/dev/ram0") -> tuple[str, str]:
    """A table whose writes are slow from a block on."""
    first, rest = start * 8, (end - start) * 8
    return (f"0 {first} linear {below} 0", f"{first} {rest} delay {below} {first} 0 {below} {first} {delay_ms}")


def command(lab: Lab, word: str) -> str:
    """Writes to the file; the error's name."""
    return lab.server.write(FILE, word)


def shown(lab: Lab) -> dict[str, str]:
    """The words of the file; `next` is a sentence."""
    lines = lab.server.read(FILE).splitlines()
    return {name: value for name, _, value in (line.partition(" ") for line in lines)}


def grown(lab: Lab, blocks: int) -> str:
    """Waits for the end of a growth; the number of sectors that clients are told."""
    until(lambda: shown(lab)["state"] != "running", 60, "the growth has ended")
    says = shown(lab)
    eq((says["state"], says["blocks"], says["written"]), ("finished", str(blocks), says["tuple_blocks"]), str(says))
    ok(f"next at each client: echo {blocks * 8} > " in lab.server.read(FILE), str(says))
    return str(blocks * 8)


def refused(lab: Lab, errno: str, line: str) -> None:
    """The command fails, and the log says why."""
    mark = lab.server.log_mark()
    eq(command(lab, "start"), errno, line)
    ok(lab.server.log_matches(f"{DEVICE}: it does not grow: .*{line}", mark), f"no line: {line}")


def begin(lab: Lab, blocks: int = 16 * MIB) -> rnbd.Disk:
    """A formatted device of so many blocks, of 64 MiB that there are below; mapped."""
    rnbd.ram_disk(lab, 64)
    lab.server.run("modprobe dm_delay; modprobe dm_flakey")
    mapped(lab.server, lab, NAME, linear(blocks))
    format_disk(lab, DEVICE)
    rnbd.load_server(lab)
    rnbd.load_client(lab)
    return map_with(lab, "require", device=DEVICE)


@needs(wires=1, timeout=240)
def test_a_device_grows_under_load(pair: Lab) -> None:
    """While fio writes and verifies: the new space is usable at once, and protected as the old one is."""
    disk = begin(pair)
    eq(disk.sectors, SMALL * 8)
    load = Verifier(disk, 600)
    refused(pair, "ENOSPC", "has 4096 blocks of 4096 bytes, as before: enlarge the device first")
    ok("enlarge the device first" in shown(pair)["next"], str(shown(pair)))
    become(pair, linear(32 * MIB))
    says = shown(pair)
    eq((says["state"], says["blocks"], says["device_blocks"], says["device_has"]),
       ("idle", str(SMALL), "4096", "8192"), str(says))
    eq(says["next"], f"echo start > grow, for {LARGE - SMALL} blocks more")
    mark = pair.server.log_mark()
    eq(command(pair, "start"), "")
    sectors = grown(pair, LARGE)
    ok(pair.server.log_matches(f"{DEVICE}: grown from {SMALL} to {LARGE} data blocks", mark), "no line")
    # A client that opens it sees its new size; one that has it open is told by its administrator, as of any device.
    eq(rnbd.try_map(pair, rnbd.request(pair, DEVICE, "s2", "access_mode=ro pi=crc64")), "")
    other = rnbd.Disk(pair.client, pair.client.real_path(
        f"/sys/class/rnbd-client/ctl/devices/{DEVICE}@s2").rpartition("/")[2], "s2", DEVICE)
    pair.defer(other.unmap_if_there)
    eq((other.sectors, disk.sectors), (LARGE * 8, SMALL * 8))
    eq(pair.client.write(f"{disk.control}/resize", sectors), "")
    eq(disk.sectors, LARGE * 8)
    # Over the border of the segments, and all of the new space.
    border = SMALL * 4096 - (1 << 20)
    disk.fio(f"--rw=randwrite --bsrange=4k-512k --iodepth=8 --offset={border} --size={tier.of(3, 8)}m --verify=crc32c "
             "--verify_fatal=1", 120).clean()
    pair.client.run(f"dd if=/dev/urandom of={disk.path} bs=64k seek={SMALL // 16} count={(LARGE - SMALL) // 16} "
                    f"oflag=direct status=none && cmp {disk.path} {other.path} {SMALL * 4096} {SMALL * 4096}", 120)
    ok(load.running, "the load has ended")
    load.end()
    no_errors(pair, disk, DEVICE)
    other.unmap()
    # What the medium changes in the new space is found: a bit of the last block.
    flip = ("python3 -S -c 'b = bytearray(open(\"/run/bad\", \"rb\").read()); b[99] ^= 1; "
            "open(\"/run/bad\", \"wb\").write(b)'")
    at = PI_BLOCKS - 1
    pair.server.run(f"dd if=/dev/ram0 of=/run/bad bs=4096 skip={at} count=1 iflag=direct status=none && {flip} && "
                    f"dd if=/run/bad of=/dev/ram0 bs=4096 seek={at} count=1 oflag=direct conv=notrunc status=none")
    mark = pair.server.log_mark()
    eq([block(pair, disk, number) for number in (LARGE - 2, LARGE - 1)], [True, False], "the last two blocks")
    ok(pair.server.log_matches(f"data block {LARGE - 1}: its data do not fit its guard", mark), "no line")
    disk.unmap()
    ok(not pair.server.exists(FILE), "the file is still there")
    eq(scrub(pair, DEVICE)["bad"], 1)


@needs(wires=1)
def test_a_scrub_and_a_growth_run_at_the_same_time(pair: Lab) -> None:
    """A scrub ends with the blocks that it began with, one that begins later has all; an outage shows the size."""
    disk = begin(pair)
    become(pair, *slow_from(16 * MIB, 32 * MIB, 1000))
    pair.client.run(f"dd if=/dev/urandom of={disk.path} bs=1M count=8 oflag=direct status=none")
    eq(command(pair, "start"), "")
    eq((command(pair, "start"), shown(pair)["next"]), ("EBUSY", "wait, or: echo stop > grow"))
    eq(scrub_command(pair, "start", DEVICE), "")
    grown(pair, LARGE)
    numbers = counts(pair, DEVICE)
    eq((numbers["blocks"], numbers["good"], numbers["bad"]), (SMALL, 8 * MIB, 0), str(numbers))
    become(pair, linear(32 * MIB))
    eq(scrub_command(pair, "start", DEVICE), "")
    numbers = counts(pair, DEVICE)
    eq((numbers["blocks"], numbers["good"], numbers["bad"]), (LARGE, 8 * MIB, 0), str(numbers))
    # The client opens the device again after an outage, and sees its size then.
    eq(disk.sectors, SMALL * 8)
    pair.defer(pair.mend, 0)
    pair.cut(0)
    until(lambda: disk.attribute("state") == "closed", 30, "the client has noticed")
    pair.mend(0)
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 60, "the disk is back")
    eq(disk.sectors, LARGE * 8)
    eq(found(pair, DEVICE)["bad"], "0")
    disk.unmap()


@needs(wires=1, timeout=240)
def test_what_cannot_grow_is_refused(pair: Lab) -> None:
    """Too small, truncated, grown 15 times, unknown words: an error and a line; the device goes on as it is."""
    disk = begin(pair, 4 * MIB)
    for word in ("1", "Start", "grow", "start now"):
        eq(command(pair, word), "EINVAL", word)
    eq(command(pair, "stop"), "ENOENT", "none runs")
    become(pair, linear(4 * MIB + 257))
    refused(pair, "ENOSPC", "has 1281 blocks of 4096 bytes, and needs 1282")
    become(pair, linear(4 * MIB - 1))
    refused(pair, "EUCLEAN", "had 1024 blocks of 4096 bytes, and has 1023")
    eq(shown(pair)["state"], "idle")
    size = 4 * MIB
    for _ in range(15):
        size = -(-size // 256) * 256 + 258
        become(pair, linear(size))
        eq(command(pair, "start"), "")
        until(lambda: shown(pair)["state"] == "finished", 30, "it has grown")
    blocks = int(shown(pair)["blocks"])
    eq(blocks, data_blocks((DATA, 4 * MIB - 1)) + 15 * 256)
    become(pair, linear(64 * MIB))
    refused(pair, "EFBIG", "has grown 15 times, and cannot grow again")
    eq(pair.client.write(f"{disk.control}/resize", str(blocks * 8)), "")
    disk.fio("--rw=randwrite --bsrange=4k-512k --iodepth=8 --verify=crc32c --verify_fatal=1", 120).clean()
    disk.unmap()
    disk = map_with(pair, "require", device=DEVICE)
    eq(disk.sectors, blocks * 8)
    disk.unmap()
    eq(scrub(pair, DEVICE)["bad"], 0)


@needs(wires=1)
def test_a_larger_device_whose_superblock_is_lost_is_no_plain_one(pair: Lab) -> None:
    """Its first block cannot be read, and the copy is not in the last one: no client sees it without its sidecar, and
    the program finds the copy."""
    disk = begin(pair)
    pair.client.run("head -c 1048576 /dev/urandom > /run/area && "
                    f"dd if=/run/area of={disk.path} bs=64k oflag=direct status=none")
    disk.unmap()
    become(pair, "0 8 error", f"8 {(32 * MIB - 1) * 8} linear /dev/ram0 8")
    mark = pair.server.log_mark()
    for pi in ("off", "auto", "crc64"):
        eq(rnbd.try_map(pair, rnbd.request(pair, DEVICE, options=f"access_mode=rw pi={pi}")), "EUCLEAN", pi)
    ok(pair.server.log_matches("its superblock is damaged: .pi-sidecar fsck --repair", mark), "no cure in the log")
    become(pair, linear(32 * MIB))
    pair.server.run(f"dd if=/dev/urandom of=/dev/{DEVICE} bs=4096 count=1 oflag=direct status=none && "
                    f"{TOOL} fsck --repair /dev/{DEVICE}")
    disk = map_with(pair, "require", device=DEVICE)
    pair.client.run(f"dd if={disk.path} bs=64k count=16 iflag=direct status=none | cmp - /run/area")
    eq(command(pair, "start"), "")
    grown(pair, LARGE)
    disk.unmap()


@needs(wires=1)
def test_a_growth_that_does_not_end_changes_nothing(pair: Lab) -> None:
    """A step that fails, a stop, the last unmap while it runs: the device has its old size, and can grow later."""
    disk = begin(pair)
    write = f"dd if=/dev/urandom of={disk.path} bs=64k count=16 oflag=direct status=none"
    large = f"{32 * MIB * 8 - PI_BLOCKS * 8 - 8} linear /dev/ram0 {PI_BLOCKS * 8 + 8}"
    holes = {
        "the tuples of the new blocks": (f"0 {PI_BLOCKS * 8} linear /dev/ram0 0", f"{PI_BLOCKS * 8} 8 error",
                                         f"{PI_BLOCKS * 8 + 8} {large}"),
        "the new copy of the superblock": (f"0 {COPY * 8} linear /dev/ram0 0", f"{COPY * 8} 8 error"),
        "the superblock": ("0 8 error", f"8 {32 * MIB * 8 - 8} linear /dev/ram0 8")}
    for step, table in holes.items():
        become(pair, *table)
        mark = pair.server.log_mark()
        eq(command(pair, "start"), "")
        until(lambda: shown(pair)["state"] == "failed", 30, step)
        ok(pair.server.log_matches(f"{DEVICE}: growth failed at {step}: EIO", mark), f"no line: {step}")
        eq(shown(pair)["blocks"], str(SMALL))
        # Without block 0, which has the mark of use too, the device is used for some seconds only.
        become(pair, linear(32 * MIB))
        until(lambda: pair.client.try_run(write).code == 0, 20, f"writes go on: {step}")
    become(pair, *slow_from(16 * MIB, 32 * MIB, 3000))
    eq(command(pair, "start"), "")
    eq(command(pair, "stop"), "")
    eq(shown(pair)["state"], "stopped")
    eq(command(pair, "start"), "EBUSY", "its last step has not ended")
    until(lambda: command(pair, "start") == "", 30, "it begins anew")
    mark = pair.server.log_mark()
    disk.unmap()
    eq(len(pair.server.log_matches(f"{DEVICE}: growth stopped by the last unmap", mark)), 1)
    ok(not pair.server.exists(FILE), "the file is still there")
    become(pair, linear(32 * MIB))
    disk = map_with(pair, "require", device=DEVICE)
    eq((disk.sectors, shown(pair)["state"]), (SMALL * 8, "idle"))
    # Without journal the device takes no writes, and does not grow.
    become(pair, f"0 {32 * MIB * 8} flakey /dev/ram0 0 0 3600 1 error_writes")
    ok(pair.client.try_run(write).code, "a write without journal succeeded")
    become(pair, linear(32 * MIB))
    mark = pair.server.log_mark()
    eq(command(pair, "start"), "")
    until(lambda: shown(pair)["state"] == "failed", 30, "it does not grow")
    ok(pair.server.log_matches(f"{DEVICE}: growth failed: the device takes no writes until", mark), "no line")
    disk.unmap()
    disk = map_with(pair, "require", device=DEVICE)
    eq(command(pair, "start"), "")
    grown(pair, LARGE)
    disk.unmap()
    found_ = scrub(pair, DEVICE)
    eq((found_["bad"], sum(found_.values())), (0, LARGE), str(found_))


@needs(wires=1)
def test_a_growth_is_stopped_while_the_disk_stands_still(pair: Lab) -> None:
    """The mark of use, which this disk takes with the superblock, is on its way: the file answers, and takes a stop."""
    disk = begin(pair)
    eq(pair.server.read(f"/sys/block/{DEVICE}/queue/physical_block_size"), "4096")
    become(pair, *slow_from(16 * MIB, 32 * MIB, 1000))
    eq(command(pair, "start"), "")
    pair.defer(pair.server.try_run, f"dmsetup resume {NAME}")
    pair.server.run(f"dmsetup suspend --nolockfs {NAME}")
    paths.rest(2.5)     # The mark is written anew each second and a half.
    jobs = [pair.server.start_job(f"cat {FILE}"), pair.server.start_job(f"echo stop > {FILE} && cat {FILE}")]
    until(lambda: not any(job.running for job in jobs), 10, "the file answers")
    matches(jobs[0].ok(), "state (running|stopped)")
    matches(jobs[1].ok(), "state stopped")
    become(pair, linear(32 * MIB))
    until(lambda: command(pair, "start") == "", 30, "it begins anew")
    grown(pair, LARGE)
    disk.unmap()
    eq(scrub(pair, DEVICE)["bad"], 0)


@needs(wires=1, disk_mib=64, disruptive=True)
def test_a_flush_that_fails_ends_writes(pair: Lab) -> None:
    """That of a growth is one of all data in the device's cache, of whose loss the device may tell once: what clients
    have written is not said to be durable afterwards."""
    below = "/dev/loop0"
    pair.server.run(f"{power.CACHE} modprobe dm_flakey")
    mapped(pair.server, pair, NAME, linear(16 * MIB, below))
    format_disk(pair, DEVICE)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = map_with(pair, "require", device=DEVICE)
    write = f"dd if=/dev/urandom of={disk.path} bs=64k count=4 oflag=direct status=none"
    pair.client.run(write)
    # Of the last blocks, which the growth would write after its flush, a flush fails.
    size, bad = 32 * MIB * 8, 64
    become(pair, f"0 {size - bad} linear {below} 0",
           f"{size - bad} {bad} flakey {below} {size - bad} 0 3600 1 error_writes")
    mark = pair.server.log_mark()
    eq(command(pair, "start"), "")
    until(lambda: shown(pair)["state"] == "failed", 30, "the growth has failed")
    ok(pair.server.log_matches(f"{DEVICE}: growth failed at the flush of the tuples: EIO", mark), "no line")
    become(pair, linear(32 * MIB, below))
    ok(pair.client.try_run(power.SYNC.format(disk.path)).code, "a flush succeeds after one that has failed")
    ok(pair.client.try_run(write).code, "a write succeeds after a flush that has failed")
    ok(pair.server.log_matches("no more writes until the device is closed", mark), "no line about writes")
    disk.unmap()
    disk = map_with(pair, "require", device=DEVICE)
    pair.client.run(f"{write} conv=fsync")
    eq(command(pair, "start"), "")
    grown(pair, LARGE)
    disk.unmap()
    eq(scrub(pair, DEVICE)["bad"], 0)


def serve_grown(lab: Lab, *table: str) -> None:
    """The server's device on one with a volatile cache, and its modules, after each boot."""
    lines = "\\n".join(table)
    lab.server.run(f"{power.CACHE} modprobe dm_mod; modprobe dm_delay; "
                   f"printf '{lines}\\n' | dmsetup create {NAME}; dmsetup mknodes {NAME}")
    rnbd.load_server(lab)


@needs(wires=1, disk_mib=64, disruptive=True, timeout=500)
def test_a_power_failure_leaves_the_old_size_or_the_new_one(pair: Lab) -> None:
    """The server's machine dies while the device grows, and when it has grown: it is used on, with what was flushed."""
    below = "/dev/loop0"
    serve_grown(pair, linear(16 * MIB, below))
    rnbd.load_client(pair)
    format_disk(pair, DEVICE)
    pair.server.run("sync")
    disk = map_with(pair, "crc64", DEVICE)
    history = disk.history(size="4m", floor="flushed", flush_ms=20, flushes=20)
    history.reached("flushed", 60)
    become(pair, *slow_from(16 * MIB, 32 * MIB, 3000, below))
    eq(command(pair, "start"), "")
    paths.wait_busy(disk, 20)
    eq(shown(pair)["state"], "running")
    pair.reboot(pair.server)
    serve_grown(pair, linear(32 * MIB, below))
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 60, "the disk is back")
    says = shown(pair)
    eq((says["state"], says["blocks"], disk.sectors), ("idle", str(SMALL), SMALL * 8), str(says))
    # That acknowledged writes are gone is told once (decision 0012); the history has made no promise about them.
    ok(pair.client.try_run(power.SYNC.format(disk.path)).code, "the first flush after the power failure")
    eq(command(pair, "start"), "")
    eq(pair.client.write(f"{disk.control}/resize", grown(pair, LARGE)), "")
    pair.client.run(f"head -c 1048576 /dev/urandom > /run/area && dd if=/run/area of={disk.path} bs=64k "
                    f"seek={SMALL * 4096} oflag=direct,seek_bytes conv=fsync status=none")
    paths.wait_busy(disk, 20, history=history)
    pair.reboot(pair.server)
    mark = pair.server.log_mark()
    serve_grown(pair, linear(32 * MIB, below))
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 60, "the disk is back")
    ok(pair.server.log_matches("journal replayed", mark), "nothing was replayed")
    eq((shown(pair)["blocks"], disk.sectors), (str(LARGE), LARGE * 8))
    pair.client.run(f"dd if={disk.path} bs=64k skip={SMALL * 4096} count=16 iflag=direct,skip_bytes status=none | "
                    "cmp - /run/area")
    history.clean(120)
    disk.unmap()
    bring_tool(pair.server)
    found_ = scrub(pair, DEVICE)
    eq(found_["bad"], 0, str(found_))
    ge(found_["good"], MIB, str(found_))
