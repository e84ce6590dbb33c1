# SPDX-License-Identifier: GPL-2.0
"""`make demo`: a disk served over RDMA between two machines, told as a story with figures."""
from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

from vmlab import oracle, rnbd, story
from vmlab.checks import eq, ok
from vmlab.lab import Lab, Spec
from vmlab.machine import Machine
from vmlab.story import Story

DISK_MIB = 96
# Real files of the guest: programs, libraries, modules.
FILES = "/usr/bin/bash /usr/bin/fio /usr/bin/python3 /usr/lib/x86_64-linux-gnu/lib[a-f]*.so.* /usr/lib/python3.13/*.py"
FIO = "--rw=randrw --bssplit=4k/60:16k/20:64k/20 --iodepth=16 --size=48m --time_based --runtime=8"


@dataclass
class Demo:
    """The state that the chapters share."""

    lab: Lab
    story: Story
    modules: str
    invalidate: str

    def do(self, machine: Machine, command: str, shown: bool = True, timeout: float = 180.0) -> str:
        """Runs a command and shows it."""
        return self.story.do(machine, command, shown, timeout)

    def load(self) -> None:
        """Modules and a backing disk."""
        server, client = self.lab.server, self.lab.client
        self.do(server, f"modprobe brd rd_nr=1 rd_size={DISK_MIB * 1024}")
        self.do(server, f"mods {self.modules} rtrs-server always_invalidate={self.invalidate}")
        self.do(server, f"mods {self.modules} rnbd-server dev_search_path=/dev")
        self.do(client, f"mods {self.modules} rnbd-client")
        for machine in self.lab.machines:
            names = machine.run("mods -l").split()
            self.story.tell(f"{machine.name}: {', '.join(sorted(names))}")
        self.story.tell("always_invalidate=Y: the server copies a short write, or takes back the remote key of its "
                        "buffer, before it looks at it.")

    def map(self) -> rnbd.Disk:
        """The one line that makes the disk appear."""
        line = rnbd.request(self.lab)
        self.story.command("client", f"echo '{line}' > /sys/class/rnbd-client/ctl/map_device")
        began = time.monotonic()
        disk = rnbd.map_disk(self.lab)
        took = time.monotonic() - began
        state = self.lab.client.run(f"cat {rnbd.SESSIONS}/s1/paths/*/state; ls {rnbd.SESSIONS}/s1/paths").split()
        self.story.tell(f"{disk.path}: {disk.sectors // 2048} MiB, {disk.attribute('state')}, mapped in {took:.1f} s; "
                        f"path {state[1]} is {state[0]}; largest IO {disk.queue('max_hw_sectors_kb')} KiB.")
        return disk

    def fill(self, disk: rnbd.Disk) -> None:
        """A file system with real files."""
        self.do(self.lab.client, f"mkfs.ext4 -q -L ferrofabric {disk.path}")
        self.do(self.lab.client, f"modprobe ext4; mount {disk.path} /mnt")
        began = time.monotonic()
        self.do(self.lab.client, f"cp -L {FILES} /mnt/ && sync", shown=False)
        took = time.monotonic() - began
        count, kib = self.lab.client.run("ls /mnt | wc -l; du -sk /mnt | cut -f1").split()
        self.lab.client.run("cd /mnt && find . -type f -exec md5sum {} + > /run/sums")
        self.story.tell(f"{count} files, {int(kib) / 1024:.1f} MiB, {int(kib) / 1024 / took:.1f} MiB/s (emulated).")

    def let_go(self, disk: rnbd.Disk) -> None:
        """Unmounts and unmaps; nothing of the disk is left on the client."""
        self.do(self.lab.client, "umount /mnt")
        self.story.command("client", f"echo normal > {disk.control}/unmap_device")
        disk.unmap()
        ok(not self.lab.client.exists(disk.path), f"{disk.path} is still there")
        self.story.tell(f"{disk.path} is gone from the client.")

    def verify(self, disk: rnbd.Disk) -> None:
        """The same bytes after a second mapping."""
        self.do(self.lab.client, f"mount {disk.path} /mnt")
        wrong = self.lab.client.try_run("cd /mnt && md5sum -c /run/sums | grep -v ': OK$'", 180).out.split()
        good = int(self.lab.client.run("wc -l < /run/sums"))
        eq(wrong, [], "files that came back different")
        self.story.tell(f"{good} checksums compared, {good} equal.")
        self.do(self.lab.client, "umount /mnt")
        self.do(self.lab.client, f"e2fsck -fn {disk.path} 2>/dev/null | tail -1")

    def fio(self, disk: rnbd.Disk) -> None:
        """A short measurement with verification."""
        rnbd.round_robin(self.lab)
        self.story.command("client", f"fio --filename={disk.path} {FIO} --verify=crc32c")
        result = disk.fio(f"{FIO} --verify=crc32c", 120).clean()
        for kind in ("read", "write"):
            self.story.tell(f"{kind:5}: {result.iops(kind):7.0f} IOPS, {result.latency_us(kind) / 1000:6.1f} ms mean")
        self.story.tell("Every block that was read back carried the checksum that was written. Both machines are "
                        "emulated on this host: the figures say that it runs, not how fast it is (see `make bench`).")
        counters = self.lab.client.run(f"cat {rnbd.SESSIONS}/s1/paths/*/stats/rdma").split()
        self.story.tell(f"Over the path in all: {counters[0]} reads, {int(counters[1]) >> 20} MiB; "
                        f"{counters[2]} writes, {int(counters[3]) >> 20} MiB.")

    def part(self, baselines: list[oracle.Baseline]) -> None:
        """Unloads everything and asks the kernels."""
        for machine in self.lab.machines:
            self.do(machine, "mods -r")
        self.lab.server.run("rmmod brd")
        self.story.part(baselines)
        self.story.tell("Both kernel logs are clean (no warning, no bug, no reference count), no module stayed, and "
                        "no RDMA object was left behind.")


def _origin(lab: Lab, modules: str) -> str:
    what = "written in Rust" if modules == "ours" else "of the C driver (for comparison)"
    return f"modules {what}, kernel {lab.assets.kernel_version} as the distribution ships it"


def chapters(demo: Demo, boot: Callable[[], object]) -> None:
    """The whole story in machines that `boot` brings up; raises at the first thing that is not as it should be."""
    told, lab = demo.story, demo.lab
    with told.chapter("Two machines, one wire"):
        told.tell(f"Booting a client and a server: {_origin(lab, demo.modules)}.")
        boot()
        clock = [story.up_seconds(machine) for machine in lab.machines]
        told.tell(f"Up after {max(clock):.0f} s of their own time ({lab.accel.split(',')[0]}). Soft RDMA (rxe) on "
                   f"the wire between them: 10.0.0.1 and 10.0.0.2, RDMA MTU 4096.")
        baselines = [oracle.Baseline.take(machine) for machine in lab.machines]
    with told.chapter("Modules"):
        demo.load()
    with told.chapter(f"A disk of the server, {DISK_MIB} MiB of its memory, appears on the client"):
        disk = demo.map()
    with told.chapter("A file system with real files on it"):
        demo.fill(disk)
    with told.chapter("Letting go"):
        demo.let_go(disk)
    with told.chapter("The same disk again: is everything still there?"):
        disk = demo.map()
        demo.verify(disk)
    with told.chapter("A short load"):
        demo.fio(disk)
        disk.unmap()
    with told.chapter("Taking everything down"):
        demo.part(baselines)


def tell(options: argparse.Namespace) -> None:
    """The story in machines of its own."""
    lab = Lab(Spec(accel=options.accel))
    story.tell(lab, lambda told: chapters(Demo(lab, told, options.modules, options.always_invalidate), lab.boot))


def closing(seconds: float) -> str:
    """The last line of a story that ended well."""
    return f"\nDone in {seconds:.0f} s: a disk over RDMA, verified, and nothing left behind."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `demo`."""
    parser.add_argument("--modules", choices=("ours", "c"), default="ours", help="whose modules (default: %(default)s)")
    parser.add_argument("--always-invalidate", choices=("Y", "N"), default="Y", help="default: %(default)s")
    parser.add_argument("--accel", help="kvm or tcg; default: what works")


def run(options: argparse.Namespace) -> int:
    """Returns 0 if the story ended well."""
    return story.perform(lambda: tell(options), closing)
