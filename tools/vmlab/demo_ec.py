# SPDX-License-Identifier: GPL-2.0
"""`make demo-ec`: one disk over three servers, of which one dies under load and is replaced, told as a story."""
from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from vmlab import ec, needs, oracle, rnbd, story
from vmlab.checks import eq, until
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.story import Story

DEVICE, MEMBER_MIB, AREA_MIB = "vda", 64, 48
FILES = "/usr/bin/bash /usr/bin/fio /usr/lib/python3.13/*.py"
FIO = f"--rw=randwrite --bs=4k --size={AREA_MIB}m --norandommap --refill_buffers --ioengine=io_uring"
# Behind the file system; slow enough that four machines on one host do not fall behind.
LOAD = "--rw=randwrite --bs=4k --iodepth=8 --size=8m --offset=64m --rate_iops=100 --time_based --runtime=20 " \
       "--verify=crc32c --verify_fatal=1 --allow_mounted_write=1"


@dataclass
class Demo:
    """The state that the chapters share."""

    lab: Lab
    story: Story
    disks: list[rnbd.Disk] = field(default_factory=list)

    def do(self, command: str, shown: bool = True) -> str:
        """Runs a command on the client and shows it."""
        return self.story.do(self.lab.client, command, shown)

    def load(self, machine: Machine) -> None:
        """The modules of a server, or of the client."""
        if machine is self.lab.client:
            rnbd.load_client(self.lab)
            machine.run("mods ours rnbd-ec")
        else:
            rnbd.load_server(self.lab, server=machine)

    def map(self, server: Machine, session: str) -> rnbd.Disk:
        """The disk of a server, on the client."""
        line = rnbd.request(self.lab, DEVICE, session, server=server)
        self.story.command("client", f"echo '{line}' > /sys/class/rnbd-client/ctl/map_device")
        return rnbd.map_disk(self.lab, DEVICE, session, line=line)

    def begin(self) -> None:
        """Modules everywhere, and a disk of each server."""
        with ThreadPoolExecutor(len(self.lab.machines)) as pool:
            list(pool.map(self.load, self.lab.machines))
        self.disks = [self.map(server, server.name) for server in self.lab.servers]

    def measure(self, device: str) -> dict[int, float]:
        """IOPS of random writes of 4 KiB, by how many are in flight."""
        disk = rnbd.Disk(self.lab.client, device, "", "")
        return {depth: disk.fio(f"{FIO} --iodepth={depth} --io_size={mib}m", 120).clean().iops("write")
                for depth, mib in ((1, 1), (32, 8))}

    def compare(self) -> None:
        """The same writes to md-raid5 and to the array, one after the other."""
        members = [disk.path for disk in self.disks]
        table = (f"0 {2 * AREA_MIB * 2048} raid raid5_ls 2 128 nosync 3 "
                 + " ".join(f"- {member}" for member in members))
        self.do(f"modprobe dm-raid; dmsetup create r5 --table '{table}'")
        name = self.lab.client.real_path("/dev/mapper/r5").rpartition("/")[2]
        raid = self.measure(name)
        self.do("dmsetup remove --retry r5")
        self.do(f"echo '{ec.line_of(members, options='codec=none')}' > {ec.ASSEMBLE}")
        array = ec.Array(self.lab.client)
        own = self.measure(array.name)
        array.stop()
        for depth, iops in own.items():
            self.story.tell(f"Random writes of 4 KiB, {depth} in flight: {iops:.0f} IOPS, md-raid5 over the same disks "
                            f"{raid[depth]:.0f}: {iops / raid[depth]:.1f} times.")
        self.story.tell("All machines are emulated on this host, so figures vary; `make bench` counts guest time. "
                        "md-raid5 has no journal here: power that fails leaves its write hole open.")

    def make(self) -> ec.Array:
        """The array, and a file system with real files."""
        line = ec.line_of([disk.path for disk in self.disks], options="force=1 member_timeout_ms=2000")
        self.story.command("client", f"echo '{line}' > {ec.ASSEMBLE}")
        array = ec.assemble(self.lab, line)
        self.do("mkfs.ext4 -q /dev/ec0 56m; modprobe ext4; mount /dev/ec0 /mnt")
        self.lab.defer(self.lab.client.try_run, "umount /mnt")
        self.do(f"cp -L {FILES} /mnt/ && sync", shown=False)
        self.lab.client.run("cd /mnt && find . -type f -exec md5sum {} + > /run/sums")
        stats = array.stats()
        self.story.tell(f"{array.sectors // 2048} MiB, {array.state()}. Of {stats['written_bytes'] >> 10} KiB written, "
                        f"{stats['stored_bytes'] >> 10} KiB are stored: LZ4 has made them "
                        f"{stats['written_bytes'] / stats['stored_bytes']:.1f} times smaller.")
        return array

    def lose(self, array: ec.Array) -> None:
        """A server dies while fio writes and verifies, and a new machine takes its place."""
        victim = self.lab.servers[1]
        mark = array.stats()["batches"]
        load = array.fio(LOAD)
        until(lambda: array.stats()["batches"] > mark + 50, 30, "IO is going on")
        self.story.tell(f"fio writes and verifies. {victim.name} loses its power for good.")
        victim.kill()
        array.becomes("degraded", 30)
        self.do(f"cat {array.control}/state")
        mark = array.stats()["batches"]
        until(lambda: array.stats()["batches"] > mark + 50, 30, "writes go on without it")
        self.story.command("client", f"echo force > {self.disks[1].control}/unmap_device")
        self.disks[1].unmap("force")
        self.lab.reboot(victim)
        victim.run(f"dd if=/dev/zero of=/dev/{DEVICE} bs=1M count={MEMBER_MIB} oflag=direct status=none", 60)
        self.load(victim)
        self.story.tell(f"A new machine with an empty disk has its address, {self.lab.address(victim, 0)}.")
        disk = self.map(victim, "new")
        self.disks.append(disk)
        self.do(f"echo {disk.path} > {array.control}/replace")
        array.becomes("clean", 120)
        self.do(f"cat {array.control}/members")
        load.clean()
        self.story.tell(f"fio has verified all that it has written, and no write has failed; "
                        f"{array.stats()['moved_bytes'] >> 10} KiB of live records were moved to the new disk.")

    def verify(self, array: ec.Array) -> None:
        """Another server dies: what the new one has is all that it must have."""
        other = self.lab.servers[0]
        rnbd.fail_fast(self.lab, 1, other.name)     # or the stop would wait for its requests
        self.story.tell(f"Now {other.name} dies, so each file needs what the new machine was given.")
        other.kill()
        self.do("echo 3 > /proc/sys/vm/drop_caches")
        wrong = self.lab.client.try_run("cd /mnt && md5sum -c /run/sums | grep -v ': OK$'", 180).out.split()
        eq(wrong, [], "files that came back different")
        self.story.tell(f"{self.lab.client.run('wc -l < /run/sums').strip()} checksums compared, all equal: nothing "
                        f"is lost. {array.stats()['recovered_reads']} records were rebuilt of two members.")
        self.do("umount /mnt")
        self.do(f"echo 1 > {array.control}/stop")
        until(lambda: not array.present, 20, "the array is gone")

    def part(self) -> None:
        """Unmaps what is left; nothing stays on the client."""
        for disk in self.disks:
            if disk.present:
                self.story.command("client", f"echo force > {disk.control}/unmap_device")
                disk.unmap("force")
        self.do("mods -r")


def chapters(demo: Demo, boot: Callable[[], object]) -> None:
    """The whole story in machines that `boot` brings up; raises at the first thing that is not as it should be."""
    told, lab = demo.story, demo.lab
    with told.chapter("Three servers and a client, one wire"):
        told.tell(f"Booting four machines: modules written in Rust, kernel {lab.assets.kernel_version} as the "
                  "distribution ships it.")
        boot()
        baseline = oracle.Baseline.take(lab.client)
        demo.begin()
    with told.chapter("Beside md-raid5"):
        demo.compare()
    with told.chapter("One disk over three servers, with real files on it"):
        array = demo.make()
    with told.chapter("A server dies under load, and is replaced"):
        demo.lose(array)
    with told.chapter("Is everything still there?"):
        demo.verify(array)
    with told.chapter("Taking everything down"):
        demo.part()
        told.part([baseline])
        told.tell("The client's kernel log is clean (no warning, no bug), and no module stayed.")


def tell(options: argparse.Namespace) -> None:
    """The story in machines of its own."""
    lab = Lab(needs.shape(machines=4, smp=1, accel=options.accel))
    story.tell(lab, lambda told: chapters(Demo(lab, told), lab.boot))


def closing(seconds: float) -> str:
    """The last line of a story that ended well."""
    return (f"\nDone in {seconds:.0f} s: a disk over three servers, two lost one after the other, one replaced, and "
            "no byte lost with them.\nYour own array: Documentation/ec.md. Speed in figures: make bench")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `demo-ec`."""
    parser.add_argument("--accel", help="kvm or tcg; default: what works")


def run(options: argparse.Namespace) -> int:
    """Returns 0 if the story ended well."""
    return story.perform(lambda: tell(options), closing)
