# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: replays what an array of rnbd_ec has written to its members up to many points, and looks at each.

    ec_replay.py '{"points": 200, "each": false, ...}'      as tests/ec_replay.py has them

    load     /dev/ec0 ── w0, w1, w2 (slices) ── dm-log-writes ── ram0, and ram1 for the log
    replay   /dev/ec0 ── r0, r1, r2 (slices) ── dm-snapshot ── ram2, which has the log up to a flush

One log has the writes of all members, in the order in which they become durable: a write is logged at the flush that
follows it, one with FUA at its end. So each beginning of the log is what a power failure of all members may leave. At
every other point each write behind the last flush in it may be missing as well, unless it had FUA. The load calls fsync
and sets a mark in the log; what was written before a mark has to be there wherever the log is cut behind it. What is
behind the last flush, and what recovery writes, goes to a snapshot, which is thrown away.

Prints JSON objects: the last one is the report, those before it tell what was wrong.
"""
import collections
import ctypes
import errno
import fcntl
import json
import mmap
import os
import random
import struct
import subprocess
import sys
import threading
import time
import zlib

BLOCK, SECTOR = 4096, 512
ASSEMBLE, NAME = "/sys/class/rnbd-ec/ctl/assemble", "ec0"
DISK, MOUNT = f"/dev/{NAME}", "/mnt"
DATA, LOG, BASE, COWS = "/dev/ram0", "/dev/ram1", "/dev/ram2", ("/dev/ram3", "/dev/ram4")
WAIT_SECONDS = 120.0
WRONG_MAX = 5
FAILS, CLEAN = "fails", "clean"     # marks; those of steps are s1, s2...
LIBC = ctypes.CDLL(None, use_errno=True)
BLKFLSBUF = 0x1261
# drivers/md/dm-log-writes.c
LOG_MAGIC, FLUSH, FUA, DISCARD, MARK = 0x6A736677736872, 1, 2, 4, 8
# include/uapi/linux/dm-ioctl.h
DM_HEAD = struct.Struct("=3I I I I i I I I Q 128s 129s 7x")
DM_TARGET = struct.Struct("=Q Q i I 16s")
DM_CREATE, DM_REMOVE, DM_RESUME, DM_LOAD, DM_MESSAGE = 3, 4, 6, 9, 14
DM_PARAMETERS_BYTES = 512


class Wrong(Exception):
    """Something is not as it has to be at a point."""


class Dm:
    """A device of the device mapper, without a process for each step."""

    control = None

    def __init__(self, name):
        self.name = name
        if Dm.control is None:
            Dm.control = os.open("/dev/mapper/control", os.O_RDWR)
        self.path = f"/dev/dm-{self._call(DM_CREATE)[10] & 0xff}"

    def _call(self, number, targets=0, data=b""):
        size = DM_HEAD.size + DM_PARAMETERS_BYTES
        head = DM_HEAD.pack(4, 0, 0, size, DM_HEAD.size, targets, 0, 0, 0, 0, 0, self.name.encode(), b"")
        buffer = bytearray(head + data.ljust(DM_PARAMETERS_BYTES, b"\0"))
        request = 3 << 30 | DM_HEAD.size << 16 | 0xFD << 8 | number
        fcntl.ioctl(Dm.control, request, buffer)
        return DM_HEAD.unpack_from(buffer)

    def become(self, sectors, kind, parameters):
        """Has another table from now on."""
        target = DM_TARGET.pack(0, sectors, 0, 0, kind.encode())
        self._call(DM_LOAD, 1, target + parameters.encode() + b"\0")
        self._call(DM_RESUME)

    def message(self, text):
        """Gives its target a message."""
        self._call(DM_MESSAGE, 0, struct.pack("=Q", 0) + text.encode() + b"\0")

    def remove(self):
        """Removes it."""
        patiently(lambda: self._call(DM_REMOVE), errno.EBUSY)


def patiently(deed, excused):
    """Does something that may fail for a while with one error."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return deed()
        except OSError as why:
            if why.errno != excused or time.monotonic() > end:
                raise
        time.sleep(0.02)


def read_file(path):
    """The text of a file."""
    with open(path, encoding="ascii") as file:
        return file.read()


def write_file(path, text):
    """One write(2)."""
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def assemble(text):
    """Writes a line to `assemble`, and waits for the disk."""
    write_file(ASSEMBLE, text)
    patiently(lambda: os.stat(DISK), errno.ENOENT)


def stop():
    """Stops the array; whoever looks at a new disk may have it open for a moment."""
    patiently(lambda: write_file(f"/sys/block/{NAME}/ec/stop", "1"), errno.EBUSY)
    end = time.monotonic() + WAIT_SECONDS
    while os.path.exists(f"/sys/block/{NAME}"):
        if time.monotonic() > end:
            raise Wrong("the disk did not go")
        time.sleep(0.005)


def mount(kind, options):
    """Mounts the array's file system."""
    if LIBC.mount(DISK.encode(), MOUNT.encode(), kind.encode(), 0, options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, f"mount: {os.strerror(number)}")


def unmount():
    """Unmounts it."""
    def once():
        if LIBC.umount2(MOUNT.encode(), 0):
            raise OSError(ctypes.get_errno(), "umount")
    patiently(once, errno.EBUSY)


def command(*words):
    """Runs a program; what it says if it fails is an error."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise Wrong(f"{' '.join(words)} ended with {done.returncode}: {done.stdout[-600:]}")


class Content:
    """What is in a block of a file: its place and its version, checked by a CRC; a part of it can be compressed."""

    HEAD = struct.Struct("=I I I I")

    def __init__(self, chance):
        self.pool = chance.randbytes(16 * BLOCK)

    def block(self, file, block, version):
        """The bytes of one."""
        at = (file * 31 + block * 7 + version * 13) * 61 % (15 * BLOCK)
        noise = self.pool[at:at + (BLOCK // 2, BLOCK, BLOCK, BLOCK)[(block + version) % 4] - self.HEAD.size]
        body = noise.ljust(BLOCK - self.HEAD.size, b"x")
        place = struct.pack("=I I I", file, block, version)
        return place + struct.pack("=I", zlib.crc32(body, zlib.crc32(place))) + body

    def version(self, data, file, block):
        """The version of what was read; an error if it is nothing that was written there."""
        found_file, found_block, version, crc = self.HEAD.unpack_from(data)
        is_whole = crc == zlib.crc32(data[self.HEAD.size:], zlib.crc32(data[:12]))
        if (found_file, found_block) != (file, block) or not is_whole:
            raise Wrong(f"file {file}, block {block}: not what was written: {data[:16].hex()}")
        return version


class Load:
    """Files of a file system, each change of which is followed by fsync and by a mark."""

    def __init__(self, options, chance, mark):
        self.files, self.blocks, self.replaced = options["files"], options["blocks"], options["replaced"]
        self.chance, self.mark, self.content = chance, mark, Content(chance)
        self.versions = {(file, block): 0 for file in range(self.files) for block in range(self.blocks)}
        self.steps = []         # of each step: the blocks that it has written
        self.noise = mmap.mmap(-1, options["noise_kib"] << 10)
        self.noise.write(chance.randbytes(len(self.noise)))

    def begin(self):
        """The files before the first step."""
        for file in range(self.files):
            self.replace(file, 0)
        with open(f"{MOUNT}/noise", "wb") as noise:
            noise.write(self.noise)
            os.fsync(noise.fileno())

    def fill(self, mib, rounds):
        """Writes again and again, until segments have been used before."""
        for _ in range(rounds):
            with open(f"{MOUNT}/fill", "wb") as file:
                for _ in range(16 * mib):
                    file.write(self.chance.randbytes(16 * BLOCK))
                file.flush()
                os.fsync(file.fileno())
        os.unlink(f"{MOUNT}/fill")

    def replace(self, file, version):
        """A new file takes the place of one."""
        with open(f"{MOUNT}/new", "wb") as new:
            for block in range(self.blocks):
                new.write(self.content.block(file, block, version))
            new.flush()
            os.fsync(new.fileno())
        os.rename(f"{MOUNT}/new", f"{MOUNT}/f{file}")
        folder = os.open(MOUNT, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def change(self, file, version, blocks):
        """Blocks of a file are written."""
        target = os.open(f"{MOUNT}/f{file}", os.O_WRONLY)
        for block in blocks:
            os.pwrite(target, self.content.block(file, block, version), block * BLOCK)
        os.fsync(target)
        os.close(target)

    def make_noise(self):
        """A write that no fsync of a step waits for is in flight meanwhile."""
        target = os.open(f"{MOUNT}/noise", os.O_WRONLY | os.O_DIRECT)
        at = self.chance.randrange(len(self.noise) // BLOCK - 8) * BLOCK
        os.pwrite(target, memoryview(self.noise)[at:at + 8 * BLOCK], at)
        os.close(target)

    def run(self, steps):
        """So many steps more; each is told by its number in a mark."""
        first = len(self.steps) + 1
        for step in range(first, first + steps):
            noise = threading.Thread(target=self.make_noise)
            noise.start()
            file = self.chance.randrange(self.files)
            if file < self.replaced:
                blocks = list(range(self.blocks))
                self.replace(file, step)
            else:
                blocks = self.chance.sample(range(self.blocks), self.chance.choice((1, 4, 10)))
                self.change(file, step, blocks)
            self.steps.append([(file, block) for block in blocks])
            self.mark(f"s{step}")
            noise.join()

    def forward(self, done, step):
        """The versions after `step`, from those after `done`."""
        for number in range(done + 1, step + 1):
            self.versions.update(dict.fromkeys(self.steps[number - 1], number))

    def check(self, step):
        """What `step` has written is there; what the next one has written may be. `forward` was called."""
        coming = set(self.steps[step]) if step < len(self.steps) else set()
        for file in range(self.files):
            try:
                with open(f"{MOUNT}/f{file}", "rb") as source:
                    data = source.read()
            except FileNotFoundError as why:
                raise Wrong(f"file {file} is not there, and fsync of its folder has returned") from why
            if len(data) != self.blocks * BLOCK:
                raise Wrong(f"file {file} has {len(data)} bytes")
            for block in range(self.blocks):
                version = self.content.version(data[block * BLOCK:(block + 1) * BLOCK], file, block)
                wanted = self.versions[file, block]
                if version != wanted and not ((file, block) in coming and version == step + 1):
                    raise Wrong(f"file {file}, block {block}: is that of step {version}; step {wanted} has written it, "
                                f"fsync has returned, and step {step} was done too")


class WriteLog:
    """What dm-log-writes has written."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY)
        magic, _version, count, size = struct.unpack("<QQQI", os.pread(self.file, 28, 0))
        if (magic, size) != (LOG_MAGIC, SECTOR):
            raise Wrong(f"no log of dm-log-writes: magic {magic:#x}, sectors of {size}")
        self.entries = []       # (sector, bytes, flags, text of a mark, where its data is)
        at = SECTOR
        for _ in range(count):
            sector, sectors, flags, length = struct.unpack("<QQQQ", os.pread(self.file, 32, at))
            text = os.pread(self.file, length, at + 32).decode() if flags & MARK else ""
            at += SECTOR
            self.entries.append((sector, sectors * SECTOR, flags, text, at))
            at += 0 if flags & DISCARD else sectors * SECTOR

    def apply(self, target, first, end, chance=None):
        """Writes what these entries have written; with `chance` some of those that were in caches are lost."""
        fcntl.ioctl(target, BLKFLSBUF)      # what was read of it before it was changed below
        for sector, length, flags, _text, at in self.entries[first:end]:
            is_lost = chance is not None and not flags & (FLUSH | FUA) and chance.random() < 0.5
            if length and not is_lost:
                data = bytes(length) if flags & DISCARD else os.pread(self.file, length, at)
                os.pwrite(target, data, sector * SECTOR)
        os.fsync(target)

    def weak(self, sectors):
        """Returns how many superblocks were not written with FUA, which what is written next relies on; each member has
        so many sectors."""
        slots = 2 * BLOCK // SECTOR
        return sum(bool(length) and sector % sectors < slots and not flags & FUA
                   for sector, length, flags, _text, _at in self.entries)

    def flushed(self, end):
        """Returns how many of its first `end` entries the newest flush among them ends."""
        return next((n for n in range(end, 0, -1) if self.entries[n - 1][2] & FLUSH), 0)

    def marks(self):
        """Of each beginning of the log by its length: the newest step that is marked in it, None before the first; and
        whether a member may lack something."""
        newest, lacks, steps, lacking = None, False, [None], [False]
        for _sector, _length, _flags, text, _at in self.entries:
            if text.startswith("s"):
                newest = int(text[1:])
            lacks = text == FAILS or (lacks and text != CLEAN)
            steps.append(newest)
            lacking.append(lacks)
        return steps, lacking


def slices(below, prefix, sectors):
    """Three devices that are one after the other on one, and their tables."""
    tables = [(sectors, "linear", f"{below} {member * sectors}") for member in range(3)]
    each = [Dm(f"{prefix}{member}") for member in range(3)]
    for device, table in zip(each, tables, strict=True):
        device.become(*table)
    return each, tables


def line(mode, members):
    """A line for `assemble`."""
    return f"mode={mode} name={NAME} members={','.join(member.path for member in members)}"


def session(load, steps, failing, members, tables):
    """Some steps; during a third of them a member answers with errors, if one is to fail, and then it returns."""
    if failing is None:
        load.run(steps)
        return
    load.run(steps // 3)
    load.mark(FAILS)
    members[failing].become(*tables[failing][:1], "error", "")
    load.run(steps // 3)
    members[failing].become(*tables[failing])
    load.run(steps // 3)
    end = time.monotonic() + WAIT_SECONDS
    while not read_file(f"/sys/block/{NAME}/ec/state").startswith("clean"):
        if time.monotonic() > end:
            raise Wrong("the member did not return")
        time.sleep(0.02)
    load.mark(CLEAN)


def record(options, chance):
    """Makes an array and a file system over a logged device, runs the load; returns it, and the array's counters."""
    sectors = options["member_kib"] * 2
    logged = Dm("logged")
    logged.become(3 * sectors, "log-writes", f"{DATA} {LOG}")
    members, tables = slices(logged.path, "w", sectors)
    assemble(line("create", members))
    command(*options["mkfs"], DISK)
    mount(options["fs"], options["mount"])
    load = Load(options, chance, lambda name: logged.message(f"mark {name}"))
    load.fill(*options["fill"])
    load.begin()
    load.mark("s0")
    stats = collections.Counter()
    for number, (steps, failing) in enumerate(options["sessions"]):
        if number:
            assemble(line("assemble", members))
            mount(options["fs"], options["mount"])
        session(load, steps, failing, members, tables)
        unmount()
        rows = read_file(f"/sys/block/{NAME}/ec/stats").splitlines()
        stats.update({name: int(value) for name, value in map(str.split, rows)})
        stop()
    for device in (*members, logged):
        device.remove()
    return load, stats


def points(options, chance, steps, entries):
    """The lengths of the beginnings of the log that are looked at: some end with a mark, some with what is durable by
    itself, as superblocks are, while what was written before it may not be; and the rest is anywhere between."""
    after = list(range(steps.index(0), len(steps)))
    count = options["points"]
    chosen = set()
    for flag, share in ((MARK, count // 4), (FUA, count // 4)):
        some = [n for n in after if entries[n - 1][2] & flag]
        chosen.update(chance.sample(some, min(len(some), share)))
    rest = [n for n in after if n not in chosen]
    return sorted(chosen.union(chance.sample(rest, min(len(rest), count - len(chosen)))))


def look(options, load, step, members, may_lack):
    """Assembles the array of these members; the file system has all that it must have, and is whole. Whether it could
    be assembled: if one member is not in sync (`may_lack`), the other two are needed."""
    try:
        assemble(line("assemble", members))
    except OSError as why:
        if why.errno == errno.ENODEV and may_lack:
            return False
        raise Wrong(f"not assembled: {why.strerror}") from why
    try:
        mount(options["fs"], options["look"])
        try:
            load.check(step)
        finally:
            unmount()
        if len(members) == 3 or options["each"]:
            command(*options["fsck"], DISK)
    finally:
        stop()
    return True


def choices(options, number):
    """The members that are missing, one after the other, at a point by its number; None for no member."""
    if options["each"]:
        return None, 0, 1, 2
    return (None, number % 3) if number % 4 in (1, 2) else (None,)


def replay(options, chance, load):
    """Looks at all points, with each choice of members; returns the figures."""
    log = WriteLog(LOG)
    steps, lacking = log.marks()
    base = os.open(BASE, os.O_RDWR)
    tail = random.Random(options["seed"])
    sectors = options["member_kib"] * 2
    snapshot = Dm("snap")
    snapshot.become(3 * sectors, "linear", f"{BASE} 0")
    top = os.open(snapshot.path, os.O_RDWR)
    members, _tables = slices(snapshot.path, "r", sectors)
    done, at, looks, refused, wrong = 0, 0, 0, 0, 0
    if weak := log.weak(sectors):
        wrong += 1
        print(json.dumps({"wrong": f"{weak} superblocks were written without FUA"}), flush=True)
    chosen = points(options, chance, steps, log.entries)
    for number, point in enumerate(chosen):
        flushed = log.flushed(point)
        log.apply(base, at, flushed)
        load.forward(done, steps[point])
        at, done = flushed, steps[point]
        for missing in choices(options, number):
            snapshot.become(3 * sectors, "snapshot", f"{BASE} {COWS[looks % 2]} N 8")
            log.apply(top, flushed, point, tail if number % 2 else None)
            looks += 1
            try:
                present = [device for n, device in enumerate(members) if n != missing]
                refused += not look(options, load, done, present, missing is not None and lacking[point])
            except (Wrong, OSError) as why:
                wrong += 1
                print(json.dumps({"point": point, "of": len(log.entries), "step": done, "missing": missing,
                                  "wrong": str(why)}), flush=True)
        if wrong >= WRONG_MAX:
            break
    os.close(top)
    for device in (*members, snapshot):
        device.remove()
    return {"entries": len(log.entries), "bytes": sum(length for _s, length, *_rest in log.entries),
            "points": len(chosen), "looks": looks, "refused": refused, "wrong": wrong}


def main(text):
    """Records, and replays."""
    options = json.loads(text)
    chance = random.Random(options["seed"])
    began = time.monotonic()
    load, stats = record(options, chance)
    middle = time.monotonic()
    report = replay(options, chance, load)
    end = time.monotonic()
    report |= {"stats": stats, "load_s": round(middle - began, 1), "replay_s": round(end - middle, 1)}
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])
