# SPDX-License-Identifier: GPL-2.0
"""The memory that mounts of a real Gfarm take, and that the kernel gets it back.

The bounds are those of Documentation/gfarm.md. What is counted is the kernel's memory without the page cache: slabs,
virtually contiguous memory with the stacks of threads, memory of each processor, and packets.
"""
from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from vmlab import gfarm_mount, gfarm_rows, paths, tier
from vmlab.checks import Skip, eq, ge, ok, until
from vmlab.gfarm import FOLDER, GROUPS
from vmlab.gfarm_mount import Mount, mounted
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs

TIER = tier.ALL

# Of Documentation/gfarm.md, in KiB.
MOUNT_KIB, FILE_KIB, READERS_KIB, INODE_BYTES = 192, 16, 10 << 10, 2560
MOUNTS, READERS, FILE_BYTES, TURNS = 6, 64, tier.of(1, 2) << 20, 3
INODES = tier.of(20_000, 100_000)
# What a walk of all inodes may use: less than half of what they take, and Python.
WALK_MIB = 10 + INODES // 4000
BIG_MIB, READ_MIB = tier.of(64, 96), 32

# Kernel memory in KiB; VmallocUsed has the stacks.
KERNEL = r"""
def kernel():
    rows = dict(line.split(":") for line in open("/proc/meminfo"))
    packets = sum(int(line.split()[line.split().index("mem") + 1]) for line in open("/proc/net/sockstat")
                  if " mem " in line)
    return sum(int(rows[name].split()[0]) for name in ("Slab", "VmallocUsed", "Percpu")) + 4 * packets
"""
# Opens files, and reads all of them at once; nothing of them stays in the page cache. Threads, which the kernel has
# stacks for, are there from the beginning.
MANY = KERNEL + r"""
import json, os, sys, threading, time
paths = sys.argv[1:]
go, wrong = threading.Event(), []
def read(number):
    go.wait()
    while part := os.read(files[number], 1 << 17):
        if part != bytes(len(part)):
            wrong.append(number)
    os.posix_fadvise(files[number], 0, 0, os.POSIX_FADV_DONTNEED)
threads = [threading.Thread(target=read, args=(number,)) for number in range(len(paths))]
for thread in threads:
    thread.start()
before = kernel()
files = [os.open(path, os.O_RDONLY) for path in paths]
opened = kernel()
go.set()
most = 0
while any(thread.is_alive() for thread in threads):
    most = max(most, kernel())
    time.sleep(0.02)
print(json.dumps([opened - before, most - before, len(wrong)]))
"""
# Looks at all names of a folder.
WALK = r"""
import os, sys
names = wrong = 0
with os.scandir(sys.argv[1]) as found:
    for entry in found:
        names += 1
        wrong += entry.stat(follow_symlinks=False).st_ino != int(entry.name)
print(names, wrong)
"""
# Takes more and more memory, and keeps it. The kernel kills it if there is nothing that it can take back.
SQUEEZE = r"""
import mmap, os, sys, time
with open("/proc/self/oom_score_adj", "w") as file:
    file.write("1000")
blocks = []
while not os.path.exists(sys.argv[1]):
    blocks.append(mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))
    time.sleep(0.01)
print(len(blocks))
"""
# Looks for the end of a file in a mapping of it.
FIND = """
import mmap, sys
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
    print(mapped.find(b"end"))
"""


def kernel_kib(machine: Machine) -> int:
    """The kernel's memory without the page cache."""
    return int(machine.run(f"python3 -I -S - <<'END'\n{KERNEL}\nprint(kernel())\nEND"))


def inodes(machine: Machine) -> int:
    """The inodes of all mounts that the kernel has memory for."""
    rows = (line.split() for line in machine.read("/proc/slabinfo").splitlines())
    return next((int(row[1]) for row in rows if row[0] == "gfarm"), 0)


@contextmanager
def limited(machine: Machine, mib: int) -> Iterator[str]:
    """A control group for the body with so little memory, and what enters it; nothing may be killed in it."""
    if "memory" not in machine.read(f"{GROUPS}/cgroup.controllers").split():
        raise Skip("the debug kernel has no control groups of memory")
    group = f"{GROUPS}/limited"
    machine.run(f"echo +memory > {GROUPS}/cgroup.subtree_control; mkdir -p {group}; echo {mib}M > {group}/memory.max")
    try:
        yield f"echo $BASHPID > {group}/cgroup.procs;"
        events = dict(line.split() for line in machine.read(f"{group}/memory.events").splitlines())
        eq(events["oom_kill"], "0", "processes that were killed")
        ok(int(events["max"]), "the limit was never reached")
    finally:
        until(lambda: machine.try_run(f"rmdir {group}").code == 0, 20, "the control group is gone")


def forget_all(mount: Mount) -> None:
    """Drops all inodes, which a directory keeps until its own are gone."""
    for _ in range(2):
        mount.forget()


@needs(machines=1, timeout=400)
def test_mounts_open_files_and_readers_take_little(vm: Lab) -> None:
    """Six idle mounts, 64 open files, and 64 readers of them: each below its documented bound."""
    gfarm = gfarm_mount.start(vm)
    with gfarm.fuse() as folder:
        gfarm.run(f"mkdir {folder}/sparse && cd {folder}/sparse && truncate -s {FILE_BYTES} $(seq {READERS})", 120)
    # What the first mount makes stays for the others.
    with mounted(gfarm) as mount:
        mount.forget()
    idles = []
    for _turn in range(TURNS):
        before = kernel_kib(vm.server)
        with ExitStack() as held:
            for number in range(MOUNTS):
                held.enter_context(mounted(gfarm, at=f"/mnt/idle{number}"))
            idles.append((kernel_kib(vm.server) - before) // MOUNTS)
    with mounted(gfarm) as mount:
        vm.server.push_bytes(MANY.encode(), f"{FOLDER}/many.py")
        said = []
        for _turn in range(TURNS):
            forget_all(mount)
            line = gfarm.run(f"cd {mount.at}/sparse; python3 -I -S {FOLDER}/many.py $(seq {READERS})", 120)
            said.append(json.loads(line))
    gfarm.run("gfrm -r /sparse")
    # The rest of the kernel takes and gives back some hundred KiB meanwhile, the stack of a worker for instance.
    opened, most = (statistics.median(row[number] for row in said) for number in range(2))
    idle, wrong = statistics.median(idles), sum(row[2] for row in said)
    paths.figure(f"an idle mount {idle} KiB, an open file {opened / READERS:.1f} KiB, {READERS} readers {most} KiB")
    eq(wrong, 0, "files that were read wrongly")
    ge(MOUNT_KIB, idle, "KiB of an idle mount")
    ge(FILE_KIB * READERS, opened, f"KiB of {READERS} open files")
    ge(READERS_KIB, most, f"KiB of {READERS} readers")


@needs(machines=1, timeout=300)
def test_a_file_larger_than_the_memory_of_its_reader(vm: Lab) -> None:
    """64 MiB (96 in make test-long) read and mapped in a control group of 32: pages go, and nothing is killed."""
    gfarm = gfarm_mount.start(vm)
    size = BIG_MIB << 20
    with gfarm.fuse() as folder:
        gfarm.run(f"truncate -s {size} {folder}/larger; printf end >> {folder}/larger")
    vm.server.push_bytes(FIND.encode(), f"{FOLDER}/find.py")
    with mounted(gfarm) as mount:
        name = f"{mount.at}/larger"
        for command, wanted in ((f"cmp -n {size} {name} /dev/zero && tail -c 3 {name}", "end"),
                                (f"python3 -I -S {FOLDER}/find.py {name}", f"{size}\n")):
            with limited(vm.server, READ_MIB) as enter:
                eq(gfarm.run(f"{enter} {command}", 120), wanted, command)
            mount.forget()
    gfarm.run("gfrm /larger")


def squeezed(machine: Machine) -> None:
    """A program takes all memory of the machine, until the kernel has taken back half of the inodes for it."""
    over = "/run/squeeze.over"
    machine.run(f"rm -f {over}")
    machine.push_bytes(SQUEEZE.encode(), "/run/squeeze.py")
    hog = machine.start_job(f"exec python3 -I -S /run/squeeze.py {over}", 240)
    until(lambda: inodes(machine) <= INODES // 2 or not hog.running, 180, "inodes go when memory is short", pause=0.2)
    left = inodes(machine)
    machine.push_bytes(b"", over)       # by the agent, which is there: no process could be started
    paths.figure(f"{left} inodes are left when a program has taken {hog.ok(60).strip()} MiB")
    ge(INODES // 2, left, "inodes that a machine without memory keeps")


@needs(machines=1, timeout=600, own_modules=True)
def test_inodes_are_reclaimed(vm: Lab) -> None:
    """20,000 inodes (100,000 in make test-long): what each takes; they go when asked to, and when memory is short, that
    of the whole machine or that of a control group."""
    gfarm = gfarm_mount.start(vm, persistent=True)
    gfarm_rows.make_inodes(vm, gfarm, INODES)
    vm.server.push_bytes(WALK.encode(), f"{FOLDER}/walk.py")
    with mounted(gfarm, "actimeo=600") as mount:
        walk = f"exec python3 -I -S {FOLDER}/walk.py {mount.at}/many"
        before = kernel_kib(vm.server)
        eq(gfarm.run(walk, 300), f"{INODES} 0\n", "names")
        each = (kernel_kib(vm.server) - before) * 1024 // INODES
        paths.figure(f"{each} bytes an inode, {inodes(vm.server)} inodes")
        ge(inodes(vm.server), INODES, "inodes in memory")
        squeezed(vm.server)
        forget_all(mount)
        # Their memory is given back when RCU allows it.
        until(lambda: inodes(vm.server) <= INODES // 50, 20, "inodes go when asked to")
        left, kept = inodes(vm.server), kernel_kib(vm.server) - before
        paths.figure(f"{left} inodes and {kept} KiB are left")
        ge(INODES * each // 1024 // 5, kept, "KiB that drop_caches leaves")
        with limited(vm.server, WALK_MIB) as enter:
            eq(gfarm.run(f"{enter} {walk}", 300), f"{INODES} 0\n", "names, with little memory")
        left = inodes(vm.server)
        paths.figure(f"{left} inodes are in memory after a walk with {WALK_MIB} MiB")
        ge(INODES * 3 // 4, left, "inodes that were not reclaimed")
        forget_all(mount)
    ge(INODE_BYTES, each, "bytes of an inode with its name")
