# SPDX-License-Identifier: GPL-2.0
"""The words in which tests of the product are written: export, map, disk.

Everything goes through the files and modules that a user has; the names are those of the C driver, so the
same test can be run against the C modules, which are the oracle (`run --modules c`).
"""
from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from vmlab import loaded, replay
from vmlab.checks import Failed, eq, ok, until
from vmlab.history import History
from vmlab.lab import Lab
from vmlab.machine import Job, Machine
from vmlab.patience import is_debug_kernel
from vmlab.phases import phase

CONTROL = "/sys/devices/virtual/rnbd-client/ctl"
SESSIONS = "/sys/class/rtrs-client"
UNMAP_SECONDS = 60.0
MAP_SECONDS = 60.0


# fio's options to submit eight requests by one call, when as many have ended.
TOGETHER = "--iodepth=16 --iodepth_batch_submit=8 --iodepth_batch_complete_min=8 --iodepth_batch_complete_max=16"

# Lines of the server's log that are shown where a disk is not mapped: it is the peer that has not answered.
SERVER_LINES = 10


class MapRefused(Exception):
    """map_device refused; `errno` is the error's name. Shown with what the client said, and the server's last lines."""

    def __init__(self, errno: str, request: str, log: list[str], server_log: list[str]) -> None:
        super().__init__(f"{errno} for `{request}`: {' / '.join(log)}; the server: {' / '.join(server_log)}")
        self.errno = errno


@dataclass
class FioResult:
    """The words of a run of fio about itself."""

    code: int
    out: str
    figures: dict[str, Any]

    @property
    def errors(self) -> int:
        """IO errors over all jobs."""
        return sum(int(job["error"] != 0) for job in self.figures.get("jobs", []))

    @property
    def worst_ms(self) -> float:
        """Longest time that any IO of any job took."""
        jobs = self.figures.get("jobs", [])
        return max((float(job[kind]["lat_ns"].get("max", 0)) for job in jobs for kind in ("read", "write")),
                   default=0.0) / 1e6

    @property
    def complaint(self) -> str:
        """The words of fio beside its figures, the end of them."""
        words = self.out[:self.out.index("{\n")] + self.out[self.out.rindex("}") + 1:] if self.figures else self.out
        return words.strip()[-1000:]

    def iops(self, kind: str) -> float:
        """Sum over all jobs; `kind` is read or write."""
        return sum(float(job[kind]["iops"]) for job in self.figures.get("jobs", []))

    def latency_us(self, kind: str) -> float:
        """Mean over all jobs."""
        jobs = self.figures.get("jobs", [])
        return sum(float(job[kind]["lat_ns"]["mean"]) for job in jobs) / 1000 / max(1, len(jobs))


class Fio:
    """A run of fio that goes on."""

    def __init__(self, machine: Machine, device: str, arguments: str, timeout: float) -> None:
        self.command = (f"fio --name=job --filename={device} --direct=1 --ioengine=io_uring --output-format=json "
                        f"{arguments}")
        self.job: Job = machine.start_job(self.command, timeout)

    def wait(self, seconds: float | None = None) -> FioResult:
        """Waits for its end, however it ends."""
        result = self.job.wait(seconds)
        try:
            figures = json.loads(result.out[result.out.index("{\n"):result.out.rindex("}") + 1])
        except ValueError:
            figures = {}
        return FioResult(result.code, result.out, figures)

    def clean(self, seconds: float | None = None) -> FioResult:
        """The same, but every error and every verify failure is a failure of the test."""
        result = self.wait(seconds)
        if result.code or not result.figures:
            raise Failed(f"fio ended with code {result.code}: {result.complaint}")
        eq(result.errors, 0, "IO errors")
        return result


class Disk:
    """A mapped device on the client."""

    def __init__(self, machine: Machine, name: str, session: str, remote: str) -> None:
        self.machine, self.name, self.session, self.remote = machine, name, session, remote

    @property
    def path(self) -> str:
        """The block device."""
        return f"/dev/{self.name}"

    @property
    def control(self) -> str:
        """The folder of its control files."""
        return f"/sys/block/{self.name}/rnbd"

    def attribute(self, name: str) -> str:
        """The text of one of its control files."""
        return self.machine.read(f"{self.control}/{name}")

    def queue(self, name: str) -> str:
        """The text of one of its queue's files."""
        return self.machine.read(f"/sys/block/{self.name}/queue/{name}")

    @property
    def sectors(self) -> int:
        """Size in units of 512 bytes."""
        return int(self.machine.read(f"/sys/block/{self.name}/size"))

    @property
    def requests(self) -> int:
        """Reads and writes that have ended."""
        numbers = self.machine.read(f"/sys/block/{self.name}/stat").split()
        return int(numbers[0]) + int(numbers[4])

    @property
    def present(self) -> bool:
        """Whether the device is there."""
        return self.machine.exists(f"/sys/block/{self.name}")

    def unmap(self, how: str = "normal") -> None:
        """Unmaps it and waits until it is gone. udev or a late close may hold it for a moment."""
        with phase("unmap"):
            until(lambda: self.machine.write(f"{self.control}/unmap_device", how, UNMAP_SECONDS) != "EBUSY",
                  20, f"{self.name} is not busy any more")
            until(lambda: not self.present, 20, f"{self.name} is gone", pause=0.02)

    def unmap_if_there(self) -> None:
        """Unmaps it for clean-up; the test may have done so already."""
        if self.machine.alive and self.present:
            self.unmap("force")

    def fio(self, arguments: str, timeout: float = 120.0) -> Fio:
        """Starts fio on it."""
        return Fio(self.machine, self.path, arguments, timeout)

    def history(self, timeout: float = 300.0, /, **options: int | str) -> History:
        """Starts a load that checks the history of every sector; see vmlab/history.py."""
        return History(self.machine, self.path, timeout, **options)

    def checksum(self, offset_mib: int = 0, size_mib: int = 0) -> str:
        """MD5 of (a piece of) the device, read past the page cache."""
        count = f"count={size_mib}" if size_mib else ""
        return self.machine.run(f"dd if={self.path} bs=1M skip={offset_mib} {count} iflag=direct status=none "
                                f"| md5sum").split()[0]


def load_server(lab: Lab, modules: str | None = None, rtrs: str = "", rnbd: str = "dev_search_path=/dev",
                server: Machine | None = None) -> None:
    """Loads the modules of a server (the first one) with these parameters, unless an earlier test has and the lab
    shares them."""
    loaded.of(lab).load(server or lab.server, "server", _server_line(modules or lab.modules, rtrs, rnbd))


def _server_line(modules: str, rtrs: str, rnbd: str) -> str:
    if is_debug_kernel() and "sess_queue_depth" not in rtrs:
        # With 512 chunks a path connects so late under emulation that tests fail by time.
        rtrs = f"{rtrs} sess_queue_depth=64"
    return f"mods {modules} rtrs-server {rtrs} && {replay.BEGIN} && mods {modules} rnbd-server {rnbd}"


def load_client(lab: Lab, modules: str | None = None) -> None:
    """Loads the client's modules, unless an earlier test has and the lab shares them. Ours record their steps."""
    loaded.of(lab).load(lab.client, "client", f"mods {modules or lab.modules} rnbd-client && {replay.BEGIN}")


READ_COPY_MAX = "/sys/module/rtrs_client/parameters/read_copy_max"
WRITE_COPY_MAX = "/sys/module/rtrs_server/parameters/write_copy_max"


def copy_reads(lab: Lab, most_bytes: int) -> None:
    """Has the client's next paths copy READs of up to so many bytes; with 0 each READ has a key of its own."""
    eq(lab.client.write(READ_COPY_MAX, str(most_bytes)), "")
    lab.defer(lab.client.run, f"[ ! -e {READ_COPY_MAX} ] || echo 4096 >{READ_COPY_MAX}")


def copy_writes(lab: Lab, most_bytes: int) -> None:
    """Has the server copy WRITEs of up to so many bytes in its next sessions; with 0 each WRITE takes the key away."""
    eq(lab.server.write(WRITE_COPY_MAX, str(most_bytes)), "")
    lab.defer(lab.server.run, f"[ ! -e {WRITE_COPY_MAX} ] || echo 4096 >{WRITE_COPY_MAX}")


def unload(lab: Lab, machine: Machine) -> None:
    """Unloads all modules under test of a machine."""
    loaded.of(lab).unload(machine)


def ram_disk(lab: Lab, mib: int = 64, count: int = 1) -> None:
    """Makes /dev/ram0... on the server, empty; removed after the test, or with modules that stay loaded."""
    with phase("load"):
        lab.server.run(_RAM_DISK.format(count=count, kib=mib * 1024))
    if not loaded.shared_in(lab.server):
        lab.defer(remove_module, lab.server, "brd")


# Disks of the same size that an earlier test has left are emptied.
_RAM_DISK = """
found=/sys/module/brd/parameters
if [ -e $found ] && [ "$(<$found/rd_nr) $(<$found/rd_size)" = "{count} {kib}" ]; then
	for ((i = 0; i < {count}; i++)); do blkdiscard -f /dev/ram$i || exit; done
else
	if [ -e $found ]; then rmmod brd || exit; fi
	modprobe brd rd_nr={count} rd_size={kib} max_part=0
fi
"""


def null_disk(lab: Lab, arguments: str = "gb=1 memory_backed=0") -> None:
    """Makes /dev/nullb0 on the server, removed at the end of the test."""
    lab.server.run(f"modprobe null_blk nr_devices=1 {arguments}")
    lab.defer(remove_module, lab.server, "null_blk")


def remove_module(machine: Machine, name: str) -> None:
    """Removes a backing device's module. It may take a moment to be closed; ours go first unless they stay loaded."""
    if machine.alive:
        if not loaded.shared_in(machine):
            machine.run("mods -r", 60)
        machine.run(f"for i in 1 2 3 4 5 6 7 8; do [ -e /sys/module/{name} ] || exit 0; rmmod {name} 2>/dev/null && "
                    f"exit; sleep 0.5; done; rmmod {name}")


def start(lab: Lab, rtrs: str = "", mib: int = 64, count: int = 1) -> None:
    """The usual beginning: ram disks, server modules, client modules, all of the set under test."""
    def serve() -> None:
        ram_disk(lab, mib, count)
        load_server(lab, rtrs=rtrs)
    if lab.client is lab.server:
        serve()
        load_client(lab)
        return
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve)
        load_client(lab)
        serving.result()


def request(lab: Lab, device: str = "ram0", session: str = "s1", options: str = "access_mode=rw",
            wires: int = 1, before: str = "", server: Machine | None = None) -> str:
    """A line for map_device, to the first server or another."""
    paths = " ".join(f"path=ip:{lab.address(server or lab.server, wire)}" for wire in range(wires))
    return " ".join(part for part in (before, f"sessname={session}", paths, f"device_path={device}", options) if part)


def try_map(lab: Lab, line: str) -> str:
    """Writes a line to map_device; answers the errno's name, "" for success."""
    return lab.client.write(f"{CONTROL}/map_device", line, MAP_SECONDS)


def map_disk(lab: Lab, device: str = "ram0", session: str = "s1", options: str = "access_mode=rw",
             line: str = "") -> Disk:
    """Maps a device; it is unmapped by force at the end of the test if it is still there."""
    with phase("map"):
        mark = lab.client.log_mark()
        line = line or request(lab, device, session, options)
        errno = try_map(lab, line)
        if errno:
            told = [text for _n, text in lab.server.kernel_log()][-SERVER_LINES:] if lab.server.alive else ["is off"]
            raise MapRefused(errno, line, [text for _n, text in lab.client.kernel_log(mark)], told)
        link = f"{CONTROL}/devices/{device.replace('/', '!')}@{session}"
        name = lab.client.real_path(link).rpartition("/")[2]
        ok(name.startswith("rnbd"), f"{link} leads to {name!r}")
        disk = Disk(lab.client, name, session, device)
        lab.defer(disk.unmap_if_there)
        until(lambda: lab.client.exists(disk.path), 10, f"{disk.path} appears", pause=0.02)
        return disk


def works(lab: Lab) -> None:
    """Maps the disk, writes and verifies, and unmaps it: the client still works."""
    disk = map_disk(lab)
    disk.fio("--rw=randwrite --bs=4k --iodepth=8 --size=2m --verify=crc32c --verify_fatal=1").clean()
    disk.unmap()


def session_file(name: str, session: str = "s1") -> str:
    """A file of the client's session."""
    return f"{SESSIONS}/{session}/{name}"


def fail_fast(lab: Lab, seconds: int | str, session: str = "s1") -> None:
    """Sets how long IO waits for a path. The C driver has no such file, and never waits."""
    file = session_file("fast_io_fail_tmo", session)
    if lab.client.exists(file):
        eq(lab.client.write(file, str(seconds)), "", "setting fast_io_fail_tmo")


def round_robin(lab: Lab, session: str = "s1") -> None:
    """The policy without defect D1: the C driver's default answers with spurious errors under load."""
    eq(lab.client.write(session_file("mpath_policy", session), "round-robin"), "", "setting the policy")
