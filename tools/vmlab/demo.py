# SPDX-License-Identifier: GPL-2.0
"""`make demo`: a disk served over RDMA between two machines, told as a story with figures."""
from __future__ import annotations

import argparse
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vmlab import oracle, rnbd
from vmlab.checks import Failed, eq, ok
from vmlab.lab import Lab, Spec
from vmlab.machine import Machine

DISK_MIB = 96
WIDTH = 100
INDENT = "    "
# Real files of the guest: programs, libraries, modules.
FILES = "/usr/bin/bash /usr/bin/fio /usr/bin/python3 /usr/lib/x86_64-linux-gnu/lib[a-f]*.so.* /usr/lib/python3.13/*.py"
FIO = "--rw=randrw --bssplit=4k/60:16k/20:64k/20 --iodepth=16 --size=48m --time_based --runtime=8"


class Story:
    """Prints numbered chapters, each with its time, on a terminal in colour."""

    def __init__(self) -> None:
        self._number = 0
        self._bold, self._dim, self._plain = (("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty()
                                              else ("", "", ""))

    @contextmanager
    def chapter(self, title: str) -> Iterator[None]:
        """One step; says how long it took."""
        self._number += 1
        print(f"\n{self._bold}{self._number}. {title}{self._plain}", flush=True)
        began = time.monotonic()
        yield
        print(f"{INDENT}{self._dim}({time.monotonic() - began:.1f} s){self._plain}", flush=True)

    def tell(self, text: str) -> None:
        """A sentence of the story."""
        print(textwrap.fill(text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT,
                            break_long_words=False, break_on_hyphens=False), flush=True)

    def show(self, prompt: str, command: str, out: str = "") -> None:
        """A command as the user would type it, with what it answered."""
        print(f"{INDENT}{self._dim}{prompt}#{self._plain} {command}")
        for line in out.strip().splitlines():
            print(f"{INDENT}  {line}")
        sys.stdout.flush()


@dataclass
class Demo:
    """The state that the chapters share."""

    lab: Lab
    story: Story
    modules: str
    invalidate: str

    def do(self, machine: Machine, command: str, shown: bool = True, timeout: float = 180.0) -> str:
        """Runs a command and shows it."""
        out = machine.run(command, timeout)
        self.story.show(machine.name, command, out if shown else "")
        return out

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
        self.story.tell("always_invalidate=Y: the server takes back the remote key of a buffer before it looks at what "
                        "a client wrote there.")

    def map(self) -> rnbd.Disk:
        """The one line that makes the disk appear."""
        line = rnbd.request(self.lab)
        began = time.monotonic()
        disk = rnbd.map_disk(self.lab)
        took = time.monotonic() - began
        self.story.show("client", f"echo '{line}' > /sys/class/rnbd-client/ctl/map_device")
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
        self.story.show("client", f"echo normal > {disk.control}/unmap_device")
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
        result = disk.fio(f"{FIO} --verify=crc32c", 120).clean()
        self.story.show("client", f"fio --filename={disk.path} {FIO} --verify=crc32c")
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
        wrong = [text for baseline in baselines
                 for text in (*oracle.unload(baseline), *oracle.examine(baseline, -1, None).wrong)]
        for text in wrong:
            self.story.tell(text)
        if wrong:
            raise Failed("the machines are not clean")
        self.story.tell("Both kernel logs are clean (no warning, no bug, no reference count), no module stayed, and "
                        "no RDMA object was left behind.")


def _origin(lab: Lab, modules: str) -> str:
    what = "written in Rust" if modules == "ours" else "of the C driver (for comparison)"
    return f"modules {what}, kernel {lab.assets.kernel_version} as the distribution ships it"


def chapters(demo: Demo, boot: Callable[[], object]) -> None:
    """The whole story in machines that `boot` brings up; raises at the first thing that is not as it should be."""
    story, lab = demo.story, demo.lab
    with story.chapter("Two machines, one wire"):
        story.tell(f"Booting a client and a server: {_origin(lab, demo.modules)}.")
        boot()
        clock = [float(re.split(r"\s", machine.read("/proc/uptime"))[0]) for machine in lab.machines]
        story.tell(f"Up after {max(clock):.0f} s of their own time ({lab.accel.split(',')[0]}). Soft RDMA (rxe) on "
                   f"the wire between them: 10.0.0.1 and 10.0.0.2, RDMA MTU 4096.")
        baselines = [oracle.Baseline.take(machine) for machine in lab.machines]
    with story.chapter("Modules"):
        demo.load()
    with story.chapter(f"A disk of the server, {DISK_MIB} MiB of its memory, appears on the client"):
        disk = demo.map()
    with story.chapter("A file system with real files on it"):
        demo.fill(disk)
    with story.chapter("Letting go"):
        demo.let_go(disk)
    with story.chapter("The same disk again: is everything still there?"):
        disk = demo.map()
        demo.verify(disk)
    with story.chapter("A short load"):
        demo.fio(disk)
        disk.unmap()
    with story.chapter("Taking everything down"):
        demo.part(baselines)


def tell(options: argparse.Namespace) -> None:
    """The story in machines of its own; what their kernels said follows if it ends badly."""
    story = Story()
    lab = Lab(Spec(accel=options.accel))
    try:
        chapters(Demo(lab, story, options.modules, options.always_invalidate), lab.boot)
        lab.take_cleanups()
    except BaseException:
        for machine in lab.machines:
            if machine.alive:
                for text in oracle.complaints(machine, -1):
                    story.tell(f"{machine.name}: {text}")
                print("\n".join(f"#   {text}" for _n, text in machine.kernel_log()[-25:]))
        raise
    finally:
        lab.close()
    lab.forget()


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
    began = time.monotonic()
    try:
        tell(options)
    except Exception as why:    # the last line of the demo says what went wrong, for every error
        print(f"\nThe demo failed after {time.monotonic() - began:.0f} s: {why}", flush=True)
        return 1
    print(closing(time.monotonic() - began), flush=True)
    return 0
