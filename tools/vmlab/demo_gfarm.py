# SPDX-License-Identifier: GPL-2.0
"""`make demo-gfarm`: a Gfarm of real servers, mounted by the kernel and read, told as a story with figures."""
from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kdir import programs
from vmlab import demo_gfarm_nodes, gfarm_mount, gfarm_speed, needs, oracle, story
from vmlab import gfarm as rig
from vmlab.checks import eq, ge, ok, until
from vmlab.gfarm import ADDRESSES, FOLDER, GFMD, GFSDS, Gfarm
from vmlab.gfarm_mount import Mount
from vmlab.gfarm_speed import COLD_READ, WARM_READ, Figure, Job, Pair
from vmlab.lab import Lab
from vmlab.story import Story

BIG_MIB = 24
# Real files of the guest; gfreg is a process for each.
FILES, FILES_AT_A_TIME = 31, 10
SOURCE = "/usr/lib/python3.13"
HELPER = "/usr/sbin/mount.gfarm"
HOSTS = "+".join(f"{name}/{ADDRESSES[name]}" for name in GFSDS)
MOUNT_AT = f"mount -t gfarm {GFMD} {{at}} -o user=root,hosts={HOSTS}{{options}}"
MOUNT = MOUNT_AT.format(at=gfarm_mount.AT, options="")
# What a reader has of a file before its gfsd is killed.
READ_BEFORE_BYTES = 128 << 10
TURNS = 2
LIBRARY = Job("scan", f"attributes and contents of {FILES} files of Python's library by calls of 4 KiB, cold", True)


@dataclass
class Demo:
    """The state that the chapters share."""

    lab: Lab
    story: Story
    helper: Path
    _gfarm: list[Gfarm] = field(default_factory=list)

    @property
    def gfarm(self) -> Gfarm:
        """The servers, once they run."""
        return self._gfarm[0]

    @property
    def mount(self) -> Mount:
        """The kernel's mount."""
        return Mount(self.lab.server, gfarm_mount.AT)

    def do(self, command: str, shown: bool = True, timeout: float = 180.0) -> str:
        """Runs a command in the machine and shows it."""
        return self.story.do(self.lab.server, command, shown, timeout)

    def start(self) -> None:
        """Gfarm's servers."""
        self.story.tell("Starting a Gfarm of Debian's packages: gfmd, which knows the names, and two gfsds, which have "
                        "the contents. Each has an address of its own.")
        self._gfarm.append(rig.start(self.lab))
        self.do("gfhost -l")

    def fill(self) -> None:
        """Files go in by Gfarm's own programs, with two replicas of the big one."""
        names = self.lab.server.run(f"cd {SOURCE}; ls *.py | head -{FILES}").split()
        eq(len(names), FILES, "files to be registered")
        self.do("gfmkdir /lib")
        self.do(f"gfreg -h {GFSDS[0]} {SOURCE}/{names[0]} /lib/{names[0]}")
        for at in range(1, FILES, FILES_AT_A_TIME):
            part = names[at:at + FILES_AT_A_TIME]
            self.lab.server.run("set -e\n" + "\n".join(
                f"gfreg -h {GFSDS[number % 2]} {SOURCE}/{name} /lib/{name}" for number, name in enumerate(part)), 120)
            self.story.tell(f"{at + len(part)} of {FILES} files are registered.")
        self.do(f"head -c {BIG_MIB}M /dev/urandom > {FOLDER}/big")
        self.do(f"gfreg -h {GFSDS[0]} {FOLDER}/big /big && gfrep -q -D {GFSDS[1]} /big")
        eq(self.gfarm.replicas("/big"), list(GFSDS), "replicas")
        sums = f"{FOLDER}/sums"
        self.lab.server.run(f"cd {SOURCE} && sha256sum {' '.join(names)} | sed 's, , lib/,2' > {sums} && "
                            f"cd {FOLDER} && sha256sum big >> {sums} && rm big", 120)
        self.story.tell(f"/big has a replica at each gfsd. The SHA-256 of all {FILES + 1} files are noted, and /big "
                        "is removed here: only Gfarm has it now.")

    def install(self) -> None:
        """The module and the mount helper."""
        self.lab.server.push(self.helper, HELPER)
        self.lab.server.run(f"chmod 755 {HELPER}")
        self.lab.defer(self.lab.server.run, f"rm {HELPER}")
        self.do("mods ours gfarm_ra")
        self.do(f"mkdir -p {gfarm_mount.AT}; {MOUNT}")
        self.lab.defer(self.lab.server.try_run, f"umount -l {gfarm_mount.AT}; mods -r")
        self.do("grep -o 'gfarm ro,.*actimeo=[0-9]*' /proc/mounts")

    def read(self) -> None:
        """Lists files, compares their checksums, and counts the requests for a large one."""
        self.do(f"ls -lR {gfarm_mount.AT} | head -5")
        self.do(f"cd {gfarm_mount.AT} && sha256sum -c --quiet {FOLDER}/sums")
        self.story.tell(f"{FILES + 1} checksums compared, {FILES + 1} equal.")
        self.mount.forget()
        self.do(f"dd if={gfarm_mount.AT}/big of=/dev/null bs=1M 2>&1 | tail -1")
        counted = self.mount.stats()
        self.story.tell(f"{self.mount.folder}/stats: {counted['gfmd_requests']} questions to gfmd, "
                        f"{counted['gfsd_requests']} requests to gfsds, {counted['gfsd_bytes'] / 2**20:.1f} MiB from "
                        "them.")

    def lose_a_server(self) -> None:
        """A gfsd dies in the middle of a file, and the other one answers."""
        machine = self.lab.server
        self.do(f"umount {gfarm_mount.AT} && {MOUNT}")
        reader = self.mount.reader("big", READ_BEFORE_BYTES)
        until(lambda: reader.reads, 20, "it reads")
        self.do(f"cat {self.mount.folder}/status")
        (victim,) = gfarm_mount.serving(machine)
        self.story.tell(f"A program has read the beginning of /big, from {victim}. Killing {victim} with all its "
                        "processes.")
        self.gfarm.kill(self.lab, victim)
        reader.go_on()
        wanted = machine.run(f"grep ' big$' {FOLDER}/sums").split()[0]
        eq(reader.digest(), wanted, "what was read")
        (other,) = gfarm_mount.serving(machine)
        ok(other != victim, f"{other} has answered")
        retries = self.mount.stats()["gfsd_retries"]
        ge(retries, 1, "gfsd_retries")
        self.story.tell(f"The program has read all {BIG_MIB} MiB, and every byte is right: the rest came from {other}. "
                        f"The kernel has opened the file again (gfsd_retries {retries}).")
        self.gfarm.bring_up(victim)
        self.story.tell(f"{victim} is up again.")

    def compare(self) -> None:
        """The same files by gfarm2fs, in turns."""
        self.story.tell("gfarm2fs, the client in user space, mounts the same Gfarm with its defaults. Both read the "
                        f"same files in turns, {TURNS} each, and the page cache is dropped before a cold read.")
        self.story.command(self.lab.server.name, f"gfarm2fs {rig.FUSE}")
        with self.gfarm.fuse() as folder:
            pair = Pair(gfarm_mount.AT, folder)
            for job, name in ((COLD_READ, "big"), (WARM_READ, "big"), (LIBRARY, "lib")):
                self._tell_figure(gfarm_speed.compare(self.gfarm, pair, job, name, TURNS))
        self.story.tell("The machine is emulated on this host, and servers and clients share its processors: the "
                        "figures say that it runs, not how fast it is (see `make bench`).")

    def _tell_figure(self, figure: Figure) -> None:
        kernel, fuse = figure.medians
        self.story.tell(f"{figure.job.title}: {kernel:.0f} {figure.job.unit}, gfarm2fs {fuse:.0f} {figure.job.unit}: "
                        f"{figure.ratio:.1f} times")

    def share(self) -> None:
        """Eight readers of one file, and one copy."""
        for number in range(1, demo_gfarm_nodes.NODES + 1):
            self.lab.defer(self.lab.server.try_run, f"umount -l /mnt/node{number}; rmdir /mnt/node{number}")
        self.lab.defer(self.lab.server.run, f"rm -f {demo_gfarm_nodes.KEY}")
        demo_gfarm_nodes.tell(self.story, self.gfarm, MOUNT_AT).unmount()

    def part(self, baseline: oracle.Baseline) -> None:
        """Nothing stays."""
        self.do(f"umount {gfarm_mount.AT}")
        self.do("mods -r")
        ok(not self.lab.server.exists("/proc/fs/gfarm"), "/proc/fs/gfarm is still there")
        self.gfarm.stop()
        self.story.part([baseline])
        self.story.tell("The kernel's log is clean (no warning, no bug, no reference count), no module stayed, and "
                        "/proc/fs/gfarm is gone.")


def chapters(demo: Demo, boot: Callable[[], object]) -> None:
    """The whole story in a machine that `boot` brings up; raises at the first thing that is not as it should be."""
    told, lab = demo.story, demo.lab
    with told.chapter("A machine with a Gfarm in it"):
        told.tell(f"Booting a machine: modules written in Rust, kernel {lab.assets.kernel_version} as the distribution "
                  "ships it.")
        boot()
        told.tell(f"Up after {story.up_seconds(lab.server):.0f} s of its own time ({lab.accel.split(',')[0]}).")
        baseline = oracle.Baseline.take(lab.server)
        demo.start()
    with told.chapter("Files go in, by Gfarm's own programs"):
        demo.fill()
    with told.chapter("The kernel mounts it"):
        demo.install()
    with told.chapter("Reading"):
        demo.read()
    with told.chapter("A file server dies while a file is read from it"):
        demo.lose_a_server()
    with told.chapter("Beside gfarm2fs"):
        demo.compare()
    with told.chapter("Eight readers and one copy"):
        demo.share()
    with told.chapter("Taking everything down"):
        demo.part(baseline)


def tell(options: argparse.Namespace) -> None:
    """The story in a machine of its own."""
    program = programs.MOUNT_GFARM.build()
    lab = Lab(needs.shape(machines=1, smp=2, accel=options.accel))
    story.tell(lab, lambda told: chapters(Demo(lab, told, program), lab.boot))


def closing(seconds: float) -> str:
    """The last lines of a story that ended well."""
    return (f"\nDone in {seconds:.0f} s: a Gfarm mounted by the kernel, read, a dead server outlived, one copy for "
            "eight readers, and nothing left behind.\nYour own Gfarm: Documentation/gfarm.md. Speed in figures: make "
            "bench")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `demo-gfarm`."""
    parser.add_argument("--accel", help="kvm or tcg; default: what works")


def run(options: argparse.Namespace) -> int:
    """Returns 0 if the story ended well."""
    return story.perform(lambda: tell(options), closing)
