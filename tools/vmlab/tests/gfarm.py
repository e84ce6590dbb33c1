# SPDX-License-Identifier: GPL-2.0
"""The kernel's mount of a real Gfarm shows what gfarm2fs and Gfarm's own programs show."""
from __future__ import annotations

from vmlab import gfarm_mount, tier
from vmlab.checks import eq, ge, in_time, ok, until
from vmlab.gfarm import ADDRESSES, FOLDER, Gfarm
from vmlab.gfarm_mount import mounted, put_random
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests.vfs import WAYS

# Making an entry through FUSE takes an emulated machine 50 ms, a look at it as long.
ENTRIES, ENTRIES_SECONDS = tier.of((150, 400), (5000, 1200))
BIG_BYTES = 8 << 20
# Reads, one after the other.
ANSWERS = 60
LARGE_BYTES = tier.of(8 << 20, 64 << 20)
# The machine has 1 GiB of memory for all: of a larger file there are only a few bytes in each 16 MiB.
GIBIBYTE, ISLAND_BYTES = tier.of(64 << 20, 1 << 30), 10_007
SPARSE_BYTES = (5 << 30) + 4097
# Makes a file with some bytes in each part of it, and at its end.
ISLANDS = """
import os, sys
size, count = map(int, sys.argv[2:])
with open(sys.argv[1], "xb", buffering=0) as file:
    for at in [*range(1, size, 16 << 20), size - count]:
        file.seek(at)
        file.write(os.urandom(count))
"""
# Reads some bytes of a mapping, far from each other and from where a page ends that was read ahead.
FAULTS = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    print(sum(view[at] >= 0 for at in range(1 << 20, len(view), 2 << 20)))
    file.seek(0)
    print(sum(map(len, iter(lambda: file.read(1 << 17), b""))) == len(view))
"""
# Compares a file with what comes from the standard input.
COMPARE = """
import sys
size = data = 0
with open(sys.argv[1], "rb") as file:
    while part := sys.stdin.buffer.read(1 << 20):
        if file.read(len(part)) != part:
            sys.exit(f"other bytes behind {size}")
        size += len(part)
        data += part != bytes(len(part))
    print(size, data, len(file.read(1)))
"""
READERS, MANY = 8, tier.of(32, 64)
# Each chooses a gfsd anew.
OPENS = 12
# Changes of a file that the kernel reads again.
TURNS = tier.of(12, 200)


def tree(gfarm: Gfarm) -> str:
    """The tree of odd names in Gfarm, which the first test makes that needs it."""
    if gfarm.try_run("gfls -d /tree").code:
        program = gfarm.push("gfarm_tree.py")
        with gfarm.fuse() as folder:
            gfarm.run(f"mkdir {folder}/tree && python3 {program} make {folder}/tree {ENTRIES}", ENTRIES_SECONDS)
    return "tree"


@needs(machines=1, timeout=4 * ENTRIES_SECONDS)
def test_a_tree_of_odd_names_is_the_same_as_through_fuse(vm: Lab) -> None:
    """150 entries (5,000 in make test-long): names, kinds, modes, sizes, times, targets of links, contents."""
    gfarm = gfarm_mount.start(vm)
    name = tree(gfarm)
    program = gfarm.push("gfarm_tree.py")
    with gfarm.fuse() as folder, mounted(gfarm) as mount:
        found = gfarm.run(f"python3 {program} compare {mount.at}/{name} {folder}/{name}", ENTRIES_SECONDS).split()
        eq(int(found[0]), ENTRIES, "entries")
        mount.forget()
        again = gfarm.run(f"python3 {program} digest {mount.at}/{name}", ENTRIES_SECONDS).split()
        eq(again, found, "with an empty cache")


@needs(machines=1, timeout=400)
def test_files_of_each_size_have_their_bytes(vm: Lab) -> None:
    """Empty, one byte, around a page, odd, large with two replicas, and sparse above 4 GiB."""
    gfarm = gfarm_mount.start(vm)
    wanted = {f"size{size}": put_random(gfarm, f"size{size}", size) for size in (0, 1, 4095, 4096, 4097, 1_000_003)}
    wanted["large"] = put_random(gfarm, "large", LARGE_BYTES, copies=2)
    with gfarm.fuse() as folder, mounted(gfarm) as mount:
        for name, digest in wanted.items():
            eq(mount.sha256(name), digest, name)
            eq(gfarm.run(f"gfexport /{name} | sha256sum", 120).split()[0], digest, f"{name} by gfexport")
        gfarm.run(f"truncate -s {SPARSE_BYTES - 3} {folder}/sparse && printf end >> {folder}/sparse")
        eq(gfarm.run(f"stat -c %s {mount.at}/sparse").strip(), str(SPARSE_BYTES), "size")
        eq(gfarm.run(f"tail -c 4099 {mount.at}/sparse | tr -d '\\0'"), "end", "its end")
        eq(gfarm.run(f"head -c 8192 {mount.at}/sparse | tr -d '\\0' | wc -c").strip(), "0", "its hole")
        # gfmd subtracts the size of a sparse file from what its gfsd uses.
        gfarm.run("gfrm /sparse /large")
        ge(int(gfarm.run(f"stat -f -c %b {mount.at}")), 1, "blocks of a file system that uses less than nothing")


# Files_of_each_size_have_their_bytes has files of each kind in each run.
@needs(machines=1, timeout=tier.of(240, 900), tier=tier.ALL)
def test_a_large_file_is_the_same_as_by_gfexport(vm: Lab) -> None:
    """64 MiB (1 GiB in make test-long), with some bytes in each 16 MiB and zeroes between."""
    gfarm = gfarm_mount.start(vm)
    for name, script in (("islands", ISLANDS), ("compare", COMPARE)):
        vm.server.push_bytes(script.encode(), f"{FOLDER}/{name}.py")
    with gfarm.fuse() as folder:
        gfarm.run(f"python3 -I -S {FOLDER}/islands.py {folder}/islands {GIBIBYTE} {ISLAND_BYTES}")
    with mounted(gfarm) as mount:
        found = gfarm.run(f"gfexport /islands | python3 -I -S {FOLDER}/compare.py {mount.at}/islands", 600)
    eq(found, f"{GIBIBYTE} {(GIBIBYTE >> 24) + 1} 0\n", "bytes, MiB that are not empty, bytes behind the end")
    gfarm.run("gfrm /islands")


# Vfs.every_way_to_read_gives_the_bytes shows it in each run, of the same file system over another one.
@needs(machines=1, timeout=240, tier=tier.ALL)
def test_every_way_to_read_gives_the_bytes(vm: Lab) -> None:
    """read, pread, mmap, sendfile, splice and O_DIRECT; several values of readahead=; ra_async=0."""
    gfarm = gfarm_mount.start(vm)
    wanted = {name: put_random(gfarm, name, size) for name, size in (("ways", 400_003), ("ways_empty", 0))}
    for options in ("", "readahead=1", "readahead=1024,connections=2", "ra_async=0"):
        with mounted(gfarm, options) as mount:
            for name, digest in wanted.items():
                found = gfarm.run(f"python3 - {mount.at}/{name} <<'END'\n{WAYS}\nEND", 180).split()
                eq(len(found), 12, f"ways in {found}")
                for way, value in zip(found[::2], found[1::2], strict=True):
                    eq(value, digest, f"{name} by {way} with {options!r}")


@needs(machines=1, timeout=240)
def test_a_fault_reads_what_is_around_it(vm: Lab) -> None:
    """128 KiB for each byte of a mapping that is far from the others, and what is read then is read ahead as ever."""
    gfarm = gfarm_mount.start(vm)
    put_random(gfarm, "faults", BIG_BYTES)
    with mounted(gfarm) as mount:
        script = f"python3 -I -S - {mount.at}/faults <<'END'\n{FAULTS}\nEND"
        eq(gfarm.run(script.replace("file.seek(0)", "sys.exit()")), "4\n")
        ok((found := mount.stats()["gfsd_bytes"]) <= 4 << 17, f"{found} bytes for 4 of a mapping")
        # What is in memory already has no faults.
        gfarm.run("echo 3 > /proc/sys/vm/drop_caches")
        before = mount.stats()
        eq(gfarm.run(script), "4\nTrue\n")
        reads = mount.stats()["gfsd_read"] - before["gfsd_read"]
        ok(reads <= 16, f"{reads} reads of {BIG_BYTES >> 20} MiB")
    gfarm.run("gfrm /faults")


@needs(machines=1, timeout=240)
def test_links_directories_and_space(vm: Lab) -> None:
    """Links are followed and read, names that are not there are not there, statfs shows the gfsds."""
    gfarm = gfarm_mount.start(vm)
    gfarm.run("gfmkdir -p /dir/sub; echo text > /run/t; gfreg /run/t /dir/sub/file; gfln -s sub/file /dir/link; "
              "gfln -s /nowhere/at/all /dir/dangling; gfln -s ../dir /dir/up")
    with mounted(gfarm) as mount:
        eq(gfarm.run(f"cd {mount.at}/dir; cat link up/up/link; readlink link dangling up"),
           "text\ntext\nsub/file\n/nowhere/at/all\n../dir\n")
        mount.fails("cat dir/dangling", "No such file or directory")
        mount.fails("stat dir/sub/nothing", "No such file or directory")
        mount.fails("cat dir/sub", "Is a directory")
        mount.fails("ls dir/sub/file/below", "Not a directory")
        mount.fails(f"stat {'x' * 256}", "File name too long")
        blocks, files = map(int, gfarm.run(f"stat -f -c '%b %c' {mount.at}").split())
        ge(blocks, 1, "blocks")
        ge(files, 1, "files")
        number = "stat -f -c %i"
        with mounted(gfarm, at="/mnt/gfarm2") as other:
            found = gfarm.run(f"{number} {mount.at}; {number} {mount.at}/dir; {number} {other.at}").split()
        ok(len(set(found)) == 1 and int(found[0], 16), f"the number of the file system: {found}")
        # A name that appears elsewhere is seen after actimeo= at the latest.
        gfarm.run("gfreg /run/t /dir/sub/nothing")
        until(lambda: not gfarm.machine.try_run(f"stat {mount.at}/dir/sub/nothing").code, 10, "a new name is seen")
        gfarm.run("gfrm /dir/sub/nothing")
        until(lambda: gfarm.machine.try_run(f"stat {mount.at}/dir/sub/nothing").code, 10, "a removed name is gone")
    gfarm.run("gfrm -r /dir; rm /run/t")


@needs(machines=1, timeout=240)
def test_a_gfsd_on_the_own_machine_is_preferred(vm: Lab) -> None:
    """Of two with the file one has an address of another machine, where nobody answers: it is not even tried."""
    gfarm = gfarm_mount.start(vm)
    wanted = put_random(gfarm, "near", 3000, copies=2)
    far = f"hosts=fs1/{ADDRESSES['fs1']}+fs2/192.0.2.9"
    with mounted(gfarm, hosts=far) as mount:
        for _turn in range(OPENS):
            eq(mount.sha256("near"), wanted, "the file")
            mount.forget()
        eq(mount.stats()["gfsd_retries"], 0, "attempts with the other one")
    gfarm.run("gfrm /near")


def acknowledged_late(gfarm: Gfarm) -> int:
    """Counts the acknowledgements that a timer has sent (TcpExtDelayedACKs)."""
    names, values = (line.split() for line in gfarm.machine.read("/proc/net/netstat").splitlines()[:2])
    return int(values[names.index("DelayedACKs")])


@needs(machines=1, timeout=240)
def test_the_beginning_of_an_answer_is_acknowledged_at_once(vm: Lab) -> None:
    """A gfsd holds the end of an answer back until then: it does not wait for a timer at each read."""
    gfarm = gfarm_mount.start(vm)
    put_random(gfarm, "answers", 2 * ANSWERS << 15)
    with mounted(gfarm, "actimeo=600") as mount:
        for kib in (16, 32):
            read = f"dd if={mount.at}/answers of=/dev/null bs={kib}k iflag=direct count={{}} 2>&1"
            gfarm.run(read.format(1))
            before, requests = acknowledged_late(gfarm), mount.stats()["gfsd_read"]
            gfarm.run(read.format(ANSWERS))
            requests = mount.stats()["gfsd_read"] - requests
            ge(requests, ANSWERS, "reads of the gfsd")
            late = acknowledged_late(gfarm) - before
            in_time(late < ANSWERS // 4, f"{late} late acknowledgements for {requests} reads of {kib} KiB")
    gfarm.run("gfrm /answers")


# Vfs.nothing_is_written shows it in each run.
@needs(machines=1, timeout=240, tier=tier.ALL)
def test_nothing_is_written(vm: Lab) -> None:
    """Each change is refused with EROFS, before and after a remount that asks for it."""
    gfarm = gfarm_mount.start(vm)
    gfarm.put(b"text", "/kept")
    gfarm.run("gfmkdir /kept_dir")
    with mounted(gfarm) as mount:
        for remount in ("", f"mount -i -o remount,rw {mount.at}"):
            gfarm.machine.try_run(remount)
            for deed in ("touch new", "mkdir new", "rm kept", "rmdir kept_dir", "mv kept new", "ln kept new",
                         "ln -s x new", "chmod 600 kept", "chown 0 kept", "truncate -s 0 kept", "echo > kept",
                         "touch kept"):
                mount.fails(deed, "Read-only file system")
        eq(gfarm.run(f"cat {mount.at}/kept"), "text")


@needs(machines=1, timeout=300)
def test_what_is_rewritten_elsewhere_is_seen_at_the_next_open(vm: Lab) -> None:
    """Longer, shorter and of the same length; never a mixture of two."""
    gfarm = gfarm_mount.start(vm)
    with gfarm.fuse() as folder, mounted(gfarm) as mount:
        for turn in range(TURNS):
            size = (70_000, 70_000, 1, 300_001, 4096, 0)[turn % 6]
            written = gfarm.run(f"head -c {size} /dev/urandom > /run/new; cat /run/new > {folder}/rewritten; "
                                "sha256sum < /run/new").split()[0]
            # gfarm2fs closes the file at gfmd after close(2) has returned.
            until(lambda size=size: gfarm.run("gfls -l /rewritten").split()[4] == str(size), 10, "it is written")
            eq(mount.sha256("rewritten"), written, f"turn {turn}, {size} bytes")
            eq(gfarm.run(f"stat -c %s {mount.at}/rewritten").strip(), str(size), "size")
        gfarm.run(f"rm /run/new {folder}/rewritten")


@needs(machines=1, timeout=240, tier=tier.ALL)
def test_readers_share_pages_and_connections(vm: Lab) -> None:
    """Several readers of a file have it fetched once; readers of many files share a few connections."""
    gfarm = gfarm_mount.start(vm)
    wanted = put_random(gfarm, "shared", BIG_BYTES, copies=2)
    digests = gfarm.run(
        f"mkdir {FOLDER}/many; cd {FOLDER}/many; for i in $(seq {MANY}); do head -c 100000 /dev/urandom > $i; done; "
        "gfmkdir /many; ls | while read i; do gfreg -h fs$((i % 2 + 1)) $i /many/$i; done; "
        f"for i in $(seq {MANY}); do sha256sum < $i; done; rm -r {FOLDER}/many", 240)
    with mounted(gfarm, "connections=3") as mount:
        found = gfarm.run(f"for i in $(seq {READERS}); do sha256sum < {mount.at}/shared & done; wait", 120).split()
        eq({word for word in found if word != "-"}, {wanted}, "digests")
        fetched = mount.stats()["gfsd_bytes"]
        ok(BIG_BYTES <= fetched <= BIG_BYTES * 5 // 4, f"{READERS} readers of {BIG_BYTES} bytes fetched {fetched}")
        # All wait at one pipe, and begin together.
        job = gfarm.machine.start_job(
            f"cd {mount.at}/many; for i in $(seq {MANY}); do sha256sum < $i > /run/sum$i & done; wait; "
            f"for i in $(seq {MANY}); do cat /run/sum$i; rm /run/sum$i; done", 120)
        most = 0
        while job.running:
            most = max(most, gfarm_mount.connections(gfarm.machine))
        eq(job.ok(), digests, "digests of many")
        ok(1 <= most <= 6, f"{most} connections with two gfsds")
    gfarm.run("gfrm -r /many")
