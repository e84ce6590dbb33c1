# SPDX-License-Identifier: GPL-2.0
"""Runs in a guest: writes to every file that both drivers have in sysfs, reads all of them, and does IO on all disks
but the one that the test watches. The last line of its output is JSON: how often each file was written, by errno.

    python3 sysfs_fuzzer.py '{"seed": 1, "seconds": 10, "keep": "s1", "disks": [...], "addresses": [...]}'

The session `keep` has a disk `disks[0]` whose IO must go on: what an administrator may write to end that IO (unmap it
by force, make it smaller, close it at the server, have IO fail, give lost paths no attempts, map it elsewhere while it
is disconnected) is not written. All else is.
"""
from __future__ import annotations

import collections
import errno
import glob
import json
import mmap
import os
import random
import re
import string
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

PAGE = 4096
WRITERS = 3
LISTED_SECONDS = 0.5
WRITES_MIN = 200
IOS_MIN = 8
LONGER = 4
GRACE_SECONDS = 60.0        # a path to nobody is given up after 30
LOG = "/run/sysfs_fuzzer.log"
# A `*` does not follow the many links of sysfs; what is below is walked.
ROOTS = ("/sys/class/rtrs-client/*", "/sys/class/rtrs-server/*", "/sys/class/rnbd-client/ctl",
         "/sys/class/rnbd-server/ctl", "/sys/block/rnbd*/rnbd", "/sys/module/rtrs_*/parameters",
         "/sys/module/rnbd_*/parameters")
MAP = "/sys/class/rnbd-client/ctl/map_device"
# Names of sessions, paths and devices, which are no part of a file's kind.
KINDS = ((r"/paths/[^/]+", "/paths/*"), (r"/(rtrs-\w+|sessions)/[^/]+", r"/\1/*"), (r"/rnbd\d+", "/rnbd*"),
         (r"/devices/ram\d+", "/devices/*"))
POLICIES = ("0", "1", "2", "rr", "MI", "min-latency", "round-robin", "min-inflight")
NUMBERS = ("0", "1", "-1", "2", "8", "99", "100", "101", "128", "255", "256", "1000", "9999", "10000", "60000", "65535",
           "65536", "2147483647", "2147483648", "-2147483648", "4294967295", "4294967296", "9223372036854775807",
           "9223372036854775808", "18446744073709551615", "18446744073709551616", "1" * 40, "0x10", "010", "+1", "1.5",
           "1e3")
# What each file takes; a file that is not named here takes 1.
WORDS = {
    "unmap_device": ("normal", "force"), "remap_device": ("1", "force"), "resize": ("16384", "8", "32768"),
    "mpath_policy": POLICIES, "mp_policy": POLICIES, "max_reconnect_attempts": ("-1", "3", "0"),
    "reconnect_delay_ms": ("100", "1000"), "fast_io_fail_tmo": ("off", "0", "1", "600"),
    "heartbeat_interval_ms": ("100", "1000"), "heartbeat_missed_max": ("1", "3"), "max_memory_mib": ("0", "1", "400"),
    "retry_count": ("0", "2", "7"), "read_copy_max": ("0", "4096", "65536"), "write_copy_max": ("0", "4096", "65536"),
}
# Written to the watched disk or its session these end its IO: (a pattern of the file, of the text).
ENDS_IO = ((r"/rnbd/unmap_device$", "force"), (r"/rnbd/resize$", r"\d"), (r"/force_close$", "1"),
           (r"/fast_io_fail_tmo$", r"\d"), (r"/max_reconnect_attempts$", r"(?<!-)\d|-\d\d"))
# A number outside of these must be refused, and so must a line for map_device in which this is found.
RANGES = {
    "heartbeat_interval_ms": (100, 60_000), "heartbeat_missed_max": (1, 100), "reconnect_delay_ms": (100, 600_000),
    "max_reconnect_attempts": (-1, 9999), "fast_io_fail_tmo": (-1, 86_400), "retry_count": (0, 7),
    "max_memory_mib": (0, 2**32 - 2), "read_copy_max": (0, 65_536), "write_copy_max": (0, 65_536),
}
WRONG_WORDS = ("colour=red", "sessname=", "=", "device_path=../x", f"sessname={'s' * 255}", f"device_path={'d' * 256}",
               "access_mode=w", "nr_poll_queues=99", "nr_io_queues=0", "nr_io_queues=9999", "io_timeout_ms=999")


class Chance(random.Random):
    """The choice of what a writer writes next."""

    def __init__(self, seed: str, job: dict[str, Any]) -> None:
        super().__init__(seed)
        self.job = job

    def address(self) -> str:
        """An address as map_device and add_path take it, or nearly."""
        words = [*self.job["addresses"], "", "10.0.0.999", "::1", "1.2.3", ":::", "a" * 60]
        one = f"{self.choice(('ip:', 'ip:', 'ip:', 'ip:', 'gid:', '', 'IP:', 'ip:ip:'))}{self.choice(words)}"
        return f"{one}{self.choice('@,')}{self.choice(words)}" if self.random() < 0.2 else one

    def path(self) -> str:
        """An address at which the server is."""
        one = f"ip:{self.choice(self.job['addresses'])}"
        return f"{one}@{one}" if self.random() < 0.2 else one

    def right_words(self) -> list[str]:
        """Words that a line for map_device has to have."""
        return [f"sessname={self.choice(self.job['sessions'])}", f"path={self.path()}",
                f"device_path={self.choice(self.job['disks'][1:])}",
                f"access_mode={self.choice(('rw', 'ro', 'migration'))}"]

    def right_line(self) -> str:
        """A line that map_device takes."""
        return " ".join(self.right_words())

    def line(self) -> str:
        """A line for map_device: right, or with one thing that is wrong."""
        words = self.right_words()
        more = (f"path={self.address()}", "dest_port=1", f"nr_poll_queues={self.choice(('0', '1', '-1'))}",
                f"io_timeout_ms={self.choice(NUMBERS)}", f"fast_io_fail_tmo={self.choice(('off', *NUMBERS))}",
                f"heartbeat_interval_ms={self.choice(NUMBERS)}", f"nr_io_queues={self.choice(('1', '2'))}",
                *WRONG_WORDS)
        if self.random() < 0.5:
            words += self.sample(more, self.randrange(1, 3))
        if self.random() < 0.2:
            self.shuffle(words)
        return self.choice((" ", "  ", "\t", " \n")).join(words)

    def right(self, file: str) -> str:
        """A word that the file takes."""
        name = os.path.basename(file)
        if name == "map_device":
            return self.line()
        return self.path() if name == "add_path" else self.choice(WORDS.get(name, ("1",)))

    def noise(self) -> bytes:
        """Bytes that no file takes; also a page, a byte more, a byte less."""
        length = self.choice((0, 1, 2, 7, 64, 255, 256, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE))
        kind = self.randrange(4)
        if kind == 0:
            return self.randbytes(length)
        if kind == 1:
            return bytes(length)
        if kind == 2:
            return b" " * length
        return "".join(self.choices(string.printable, k=length)).encode()

    def text(self, file: str) -> bytes:
        """Bytes to write to a file."""
        right = self.right(file)
        kind = self.randrange(10)
        if kind < 4:
            return right.encode()
        if kind == 4:
            return self.choice(("{}\n", " {}", "{} ", "\t{}\n\n", "{}\0", " \n{}\n ", "\n{}")).format(right).encode()
        if kind == 5:
            return self.choice((right.upper(), right[:-1], right + right, f"{right},{right}", f"0{right}", f"-{right}",
                                f"{right} {right}", f"{right}%s%n", f"\0{right}")).encode()
        if kind == 6:
            return self.choice(NUMBERS).encode()
        if kind == 7:
            return (right + self.choice((" ", "\n", "x", "0", "\0")) * (PAGE - len(right) - self.randrange(2))).encode()
        if kind == 8:
            return (self.address() if self.random() < 0.5 else self.line()).encode()
        return self.noise()


def files(roots: tuple[str, ...] = ROOTS) -> Iterator[str]:
    """All files of the drivers that are there just now. Links lead to files that are found by their own names."""
    for pattern in roots:
        for root in glob.glob(pattern):
            for folder, _folders, names in os.walk(os.path.realpath(root)):
                yield from (f"{folder}/{name}" for name in names if name != "uevent" and "/power" not in folder)


def is_writable(file: str) -> bool:
    """Whether the mode says so; to root all files are."""
    try:
        return bool(os.stat(file).st_mode & 0o200)
    except OSError:
        return False


def kind_of(file: str, kinds: tuple[tuple[str, str], ...] = KINDS) -> str:
    """A name for all files of a kind: without the names of sessions, paths and devices."""
    for pattern, name in kinds:
        file = re.sub(pattern, name, file)
    return file


class Fuzzer:
    """The state that all threads share, and the threads."""

    ROOTS = ROOTS
    KINDS: tuple[tuple[str, str], ...] = KINDS
    DEVICES = "/dev/rnbd*"
    # Takes lines that make a device of DEVICES; one with such a word has to be refused.
    CONTROL = MAP
    WRONG_WORDS = WRONG_WORDS
    RANGES = RANGES
    CHANCE: type[Chance] = Chance

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.began = time.monotonic()
        self.writes = 0
        self.swept = False
        self.counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.reads = self.ios = 0
        self.doing: dict[str, str] = {}
        self.lock = threading.Lock()
        self.log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.failures: list[str] = []
        self.listed = 0.0
        self.all: list[str] = []
        self.writable: list[str] = []

    @property
    def over(self) -> bool:
        """Whether the time is up; on a busy host it is longer, so that enough is written, and IO is done beside it."""
        seconds = time.monotonic() - self.began
        enough = self.writes > WRITES_MIN and self.ios > IOS_MIN
        longest = LONGER * self.job["seconds"] * (1 if self.swept else 3)
        return seconds > self.job["seconds"] and ((self.swept and enough) or seconds > longest)

    def is_wrong(self, file: str, text: bytes) -> bool:
        """Whether the file must refuse this. (Of what is not said here, the file may take or refuse it.)"""
        name = os.path.basename(file)
        if name == os.path.basename(self.CONTROL):
            return bool(set(self.WRONG_WORDS) & set(text.decode("latin1").split()))
        number = re.fullmatch(rb"\s*([+-]?\d{1,40})\s*", text)
        if name not in self.RANGES or not number:
            return False
        least, most = self.RANGES[name]
        return not least <= int(number[1]) <= most

    def ends_io(self, file: str, text: bytes) -> bool:
        """Whether this may end the IO of the watched disk."""
        what = next((word for pattern, word in ENDS_IO if re.search(pattern, file)), None)
        if what is None or self.is_wrong(file, text) or not re.search(what, text.decode("latin1").lower()):
            return False
        keep, disk = self.job["keep"], self.job["disks"][0]
        if "/rnbd/" in file and "/sessions/" not in file:
            return self.of_disk(os.path.dirname(file)) in (None, (keep, disk))
        return f"/{keep}/" in file

    @staticmethod
    def of_disk(folder: str) -> tuple[str, str] | None:
        """A disk's session and its name at the server; None if it is gone, or will be another one."""
        try:
            with open(f"{folder}/session", encoding="ascii") as session, \
                    open(f"{folder}/mapping_path", encoding="ascii") as path:
                return session.read().strip(), path.read().strip()
        except OSError:
            return None

    def write(self, file: str, text: bytes) -> None:
        """One write(2), noted with what came of it."""
        if self.ends_io(file, text):
            return
        who = threading.current_thread().name
        self.doing[who] = f"{file} <- {text[:200]!r}"
        os.write(self.log, f"{time.monotonic():.3f} {who} {self.doing[who]}\n".encode())
        try:
            handle = os.open(file, os.O_WRONLY)
            try:
                if self.ends_io(file, text):
                    return      # the number of a disk that went may have been given to the watched one's
                os.write(handle, text)
            finally:
                os.close(handle)
            said = "ok"
            if self.is_wrong(file, text):
                self.failures.append(f"{self.doing[who]} was not refused")
        except OSError as why:
            said = errno.errorcode.get(why.errno or 0, str(why.errno))
        with self.lock:
            self.counts[kind_of(file, self.KINDS)][said] += 1
            self.writes += 1
        self.doing.pop(who)

    def known(self, writable: bool) -> list[str]:
        """The files that there were half a second ago; `writable`: those that can be written, by their mode."""
        if time.monotonic() > self.listed + LISTED_SECONDS:
            self.listed = time.monotonic()
            self.all = list(files(self.ROOTS))
            self.writable = [name for name in self.all if is_writable(name)]
        return self.writable if writable else self.all

    # -- the threads -------------------------------------------------------------------------------------------

    def sweep(self, chance: Chance) -> None:
        """Before the rest: a line with each of the wrong words, the numbers just out of range, a second path to where a
        lost one leads; then each file that was there with a page of text, nothing, what is right among blanks, a long
        text, and all bytes."""
        forms: tuple[Callable[[bytes], bytes], ...] = (
            lambda right: b"x" * PAGE, lambda right: b"", lambda right: right.ljust(PAGE),
            lambda right: b" " + right + b" \n", lambda right: b"9" * 20 * PAGE, lambda right: bytes(range(256)))
        known = [name for name in files(self.ROOTS) if is_writable(name)]
        for word in self.WRONG_WORDS:
            self.write(self.CONTROL, f"{chance.right_line()} {word}".encode())
        for file in known:
            least, most = self.RANGES.get(os.path.basename(file), (0, -1))
            for number in (least - 1, most + 1) if least <= most else ():
                self.write(file, str(number).encode())
        for file in (name for name in known if re.search(r"client/.*/paths/.*/disconnect$", name)):
            folder = os.path.dirname(file)
            self.write(file, b"1")
            self.write(f"{os.path.dirname(os.path.dirname(folder))}/add_path", folder.rpartition("@")[2].encode())
            self.write(f"{folder}/reconnect", b"1")
        for form in forms:
            for file in known:
                self.write(file, form(chance.right(file).encode()))
            self.swept = True

    def writer(self, number: int) -> None:
        """Writes; what brings sessions and paths back as often as what ends them."""
        chance = self.CHANCE(f"{self.job['seed']} {number}", self.job)
        if number == 0:
            self.sweep(chance)
        while not self.over:
            if chance.random() < 0.25:
                self.write(self.CONTROL, chance.line().encode())
            known = self.known(chance.random() < 0.95)
            for file in chance.sample(known, min(len(known), 12)):
                self.write(file, chance.text(file))
            back = [name for name in known if self.brings_back(name)]
            for file in chance.sample(back, min(len(back), 2)):
                self.write(file, chance.right(file).encode())

    def brings_back(self, name: str) -> bool:
        """Whether the file undoes what others end."""
        return name.endswith(("/reconnect", "/add_path"))

    def reader(self) -> None:
        """Reads all files, whole and from odd positions, and some that were opened long before."""
        chance = self.CHANCE(f"{self.job['seed']} reader", self.job)
        held: list[int] = []
        while not self.over:
            for name in self.known(False):
                if self.over:
                    break
                try:
                    held.append(os.open(name, os.O_RDONLY))
                    os.pread(held[-1], chance.choice((1, 7, PAGE, 2 * PAGE)), chance.choice((0, 0, 0, 3, PAGE)))
                    self.reads += 1
                except OSError:
                    pass
                if len(held) > 50:
                    os.close(held.pop(chance.randrange(len(held))))
            for handle in chance.sample(held, min(len(held), 10)):
                try:
                    os.pread(handle, PAGE, 0)
                except OSError:
                    pass
        for handle in held:
            os.close(handle)

    def disks(self) -> None:
        """Reads and writes blocks of all disks but the watched one, and maps one if there is no other. An error is no
        surprise."""
        chance = self.CHANCE(f"{self.job['seed']} disks", self.job)
        block = mmap.mmap(-1, PAGE)
        while not self.over:
            devices = glob.glob(self.DEVICES)
            if len(devices) < 2:
                self.write(self.CONTROL, chance.right_line().encode())
            for device in devices:
                try:
                    handle = os.open(device, os.O_RDWR | os.O_DIRECT | os.O_NONBLOCK)
                except OSError:
                    continue
                if self.is_others(handle):
                    self.move(handle, block, chance)
                os.close(handle)
            time.sleep(0.01)

    def is_others(self, handle: int) -> bool:
        """Whether an open device is not the watched one."""
        number = os.fstat(handle).st_rdev
        found = self.of_disk(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/rnbd")
        return found is not None and found[1] != self.job["disks"][0]

    def move(self, handle: int, block: mmap.mmap, chance: Chance) -> None:
        """A few blocks of one disk."""
        for _ in range(4):
            try:
                if chance.random() < 0.5:
                    os.pwritev(handle, [block], PAGE * chance.randrange(64))
                else:
                    os.preadv(handle, [block], PAGE * chance.randrange(64))
                self.ios += 1
            except OSError:
                return

    def end_others(self) -> None:
        """Unmaps all disks by force, which ends IO that waits for its server; that may have given the device to another
        session."""
        for folder in glob.glob("/sys/block/rnbd*/rnbd"):
            self.write(f"{os.path.realpath(folder)}/unmap_device", b"force")

    def guard(self, deed: Callable[..., None], *arguments: Any) -> None:
        """Runs a thread's function; what it does not expect is reported."""
        try:
            deed(*arguments)
        except Exception as why:  # its report must come through
            self.failures.append(f"{threading.current_thread().name}: {type(why).__name__}: {why}")

    def run(self) -> dict[str, Any]:
        """Starts all threads, waits for them, and returns the report."""
        deeds: list[tuple[Any, ...]] = [(self.writer, number) for number in range(WRITERS)]
        deeds += [(self.reader,), (self.disks,)]
        threads = [threading.Thread(target=self.guard, args=deed, daemon=True,
                                    name=f"{deed[0].__name__}{deed[1] if deed[1:] else ''}") for deed in deeds]
        for thread in threads:
            thread.start()
        while not self.over:
            time.sleep(0.1)
        self.end_others()
        last = time.monotonic() + GRACE_SECONDS
        for thread in threads:
            thread.join(max(0.1, last - time.monotonic()))
        stuck = [f"{thread.name}: {self.doing.get(thread.name, '')}" for thread in threads if thread.is_alive()]
        if not stuck:
            # What was made by the last writes.
            self.end_others()
        return {"counts": self.counts, "reads": self.reads, "ios": self.ios, "stuck": stuck, "failures": self.failures}


if __name__ == "__main__":
    print(json.dumps(Fuzzer(json.loads(sys.argv[1])).run()), flush=True)
    os._exit(0)     # a thread that is stuck in the kernel must not keep the report
