# SPDX-License-Identifier: GPL-2.0
"""Nodes of the cooperative cache that read files while these are changed, and nodes that come and go meanwhile.

    gfarm2fs, one writer ──> gfmd, gfsds ──> four nodes, a reader on each ── checker

peer/gfarm_readers.py has the writer, the readers and the rules: each 16 bytes say of which file and version they are.
"""
from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import ExitStack

from vmlab import gfarm_mount, gfarm_node, loaded, seed, tier
from vmlab.checks import Failed, eq, ge, in_time, ok, until
from vmlab.gfarm import FOLDER
from vmlab.gfarm_mount import AT
from vmlab.lab import Lab
from vmlab.machine import Job
from vmlab.needs import needs
from vmlab.tests.gfarm_cache_readers import MIB, acquaint, nodes, put
from vmlab.tests.gfarm_readers import LEDGER, said

SMP = 2

SECONDS = tier.of(6.0, 300.0)
TIMEOUT_SECONDS = SECONDS + 300
READERS = 4
PAGE = 4096
# Reads pages of a file, and nothing around them; prints the first letter of each.
PEEK = """
import os, sys
path, *pages = sys.argv[1:]
file = os.open(path, os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
print("".join(os.pread(file, 4096, int(page) * 4096)[:1].decode() for page in pages))
"""
# Overwrites a file in its place, and has it open until it is told to close it.
OVERWRITE = """
import os, sys, time
path, size = sys.argv[1], int(sys.argv[2])
file = os.open(path, os.O_WRONLY)
os.write(file, b"B" * size)
os.fsync(file)
open("/run/written", "w").close()
while not os.path.exists("/run/close"):
    time.sleep(0.1)
os.close(file)
"""
# What a node is mounted, read from and unmounted again while others read.
COMINGS = tier.of(4, 40)
# Reads files again and again, each time anew, until there is a file; prints how often, and what was wrong.
AGAIN = r"""
import hashlib, json, os, sys
end, *pairs = sys.argv[1:]
count, wrong = 0, []
while not os.path.exists(end):
    for pair in pairs:
        path, digest = pair.rsplit("=", 1)
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                wrong.append(path)
        count += 1
print(json.dumps([count, wrong]))
"""


# All at once, by chance; in each run old_bytes_do_not_come_after_new_ones and gfarm_cache.a_file_that_was_replaced_*.
@needs(machines=1, timeout=TIMEOUT_SECONDS + 60, tier=tier.ALL)
def test_files_change_while_nodes_read_them_from_each_other(vm: Lab) -> None:
    """Files are replaced, removed, cut, extended, changed in place: an open sees what was closed, and one version."""
    servers, chance = gfarm_mount.start(vm), seed.fresh().randrange(1 << 30)
    program = f"exec python3 -I -S {servers.push('gfarm_readers.py')}"
    servers.run(f"rm -f {LEDGER} {LEDGER}.end")
    # With one thread gfarm2fs does one thing after the other, so the writer knows when a file is closed.
    with servers.fuse(options="-s") as folder, nodes(servers, READERS, "ib_mtu=1024") as found:
        servers.run(f"mkdir {folder}/history")
        writer = vm.server.start_job(f"{program} write {folder}/history {LEDGER} {chance}", TIMEOUT_SECONDS)
        until(lambda: vm.server.exists(LEDGER) or not writer.running, 60, "the first versions are there")
        readers = [vm.server.start_job(
            f"{program} read {node.at}/history {LEDGER} {chance + number} {SECONDS}", TIMEOUT_SECONDS)
            for number, node in enumerate(found)]
        told = [said(reader.ok()) for reader in readers]
        vm.server.push_bytes(b"", f"{LEDGER}.end")
        versions = said(writer.ok())["versions"]
        eq([fault for result in told for fault in result["faults"]], [], "faults")
        counts: Counter[str] = sum((Counter(result["counts"]) for result in told), Counter())
        pages = [node.ibstat()["peer_pages"] for node in found]
        misses = sum(node.ibstat()["said_miss"] for node in found)
        print(f"# {sum(versions.values())} versions, {counts.total()} reads, pages from other nodes: {pages}, "
              f"{misses} times another content was asked for", flush=True)
        ge(counts["changing rewrite"] + counts["changing update"], 1, "reads while the file was written")
        ge(sum(versions.values()), 2 * len(versions), "versions")
        servers.run(f"rm -r {folder}/history {LEDGER} {LEDGER}.end {FOLDER}/gfarm_readers.py")
        ok(any(pages), "no node has given a page")
        in_time(all(pages), f"pages from other nodes: {pages}")


@needs(machines=1, timeout=240)
def test_old_bytes_do_not_come_after_new_ones(vm: Lab) -> None:
    """A file is overwritten in its place, with the same size and generation: nodes with old pages have none of it."""
    servers = gfarm_mount.start(vm)
    vm.server.push_bytes(PEEK.encode(), "/run/peek.py")
    vm.server.push_bytes(OVERWRITE.encode(), "/run/overwrite.py")

    def peek(node: gfarm_node.Node, *pages: int) -> str:
        """The letters of these pages, read one after the other by one descriptor."""
        return vm.server.run(f"python3 -I -S /run/peek.py {node.at}/inplace {' '.join(map(str, pages))}").strip()

    with servers.fuse(options="-s") as folder, nodes(servers, 4, "ib_mtu=1024") as (holder, *readers):
        servers.run(f"head -c {200 * PAGE} /dev/zero | tr '\\0' A > {folder}/inplace; rm -f /run/written /run/close")
        eq(peek(holder, *range(100, 200)), "A" * 100, "the old pages")
        eq(peek(readers[2], 120), "A", "one of them at another node")
        given = readers[2].ibstat()["peer_pages"]
        writer = vm.server.start_job(f"exec python3 -I -S /run/overwrite.py {folder}/inplace {200 * PAGE}", 120)
        until(lambda: vm.server.exists("/run/written") or not writer.running, 60, "the file is overwritten")
        # The time of the last write differs, by which the holder says that it has nothing.
        misses = holder.ibstat()["said_miss"]
        eq(peek(readers[0], 0, 150, 151), "BBB", "a reader that has met the file server first")
        # Those that had no new one may see old ones: they are dropped with the first new one.
        said = peek(readers[1], 150, 0, 150, 151)
        ok(said[1:] == "BBB", f"a reader that has met a node first: {said}")
        said = peek(readers[2], 120, 0, 120, 121)
        ok(said[1:] == "BBB", f"a reader that had pages of a node: {said}")
        misses = holder.ibstat()["said_miss"] - misses
        print(f"# {given} pages of a node before, {misses} times the holder was asked for another state", flush=True)
        vm.server.push_bytes(b"", "/run/close")
        writer.ok(60)
        for node in (holder, *readers):
            until(lambda node=node: peek(node, 150, 0, 199) == "BBB", 20, "the new generation")
        in_time(given == 1, f"{given} pages of a node before")
        servers.run(f"rm {folder}/inplace")


def again(vm: Lab, end: str, wanted: dict[str, str]) -> Job:
    """Reads files again and again until there is a file `end`."""
    vm.server.push_bytes(AGAIN.encode(), "/run/again.py")
    pairs = " ".join(f"{path}={digest}" for path, digest in wanted.items())
    return vm.server.start_job(f"exec python3 -I -S /run/again.py {end} {pairs}", 240)


# All at once; in each run gfarm_cache.a_reader_whose_holder_has_gone_* and a_mount_with_a_key_*.
@needs(machines=1, timeout=400, tier=tier.ALL)
def test_nodes_come_and_go_while_others_read(vm: Lab) -> None:
    """Nodes are mounted, read, and unmounted, one goes while it reads: files are right; the module goes behind."""
    servers, end = gfarm_mount.start(vm), "/run/again.end"
    vm.server.run(f"rm -f {end}")
    names = [f"again{number}" for number in range(3)]
    digests = {name: put(servers, name, MIB + 5000) for name in names}
    with ExitStack() as stack:
        found = [stack.enter_context(gfarm_node.node(servers, "receive_timeout=20", f"{AT}{n}")) for n in range(3)]
        acquaint(found)
        jobs = [again(vm, end, {f"{node.at}/{name}": digests[name] for name in names}) for node in found]
        for _ in range(COMINGS):
            with gfarm_node.node(servers, "receive_timeout=20", f"{AT}9") as guest:
                eq(guest.add(found[0].address), "", "the error of ibaddr")
                until(lambda guest=guest: len(guest.peers()) >= 3, 20, "it knows the others", pause=0.05)
                eq(guest.sha256(names[0]), digests[names[0]], "a node that came")
        # The readers have no file open now and then.
        with gfarm_mount.held_open(found[0], names[0]):
            for what in f"umount {found[0].at}", "rmmod gfarm_ra":
                refused = vm.server.try_run(what, 20)
                ok(refused.code, f"{what} while it is in use: {refused.out}")
        # One goes while it reads, and while others read from it.
        jobs[0].kill()
        jobs[0].wait(20)
        began = time.monotonic()
        vm.server.run(f"umount {found[0].at}", 60)
        took = time.monotonic() - began
        time.sleep(1)
        vm.server.push_bytes(b"", end)
        for job, node in zip(jobs[1:], found[1:], strict=True):
            count, wrong = json.loads(job.ok(120))
            eq(wrong, [], f"files of {node.at}")
            ge(count, 1, f"reads at {node.at}")
        # All that is left goes at once, with reads under way, and the module behind it.
        jobs = [again(vm, "/run/never", {f"{node.at}/{name}": digests[name] for name in names}) for node in found[1:]]
        time.sleep(1)
        for job in jobs:
            job.kill()
        for job in jobs:
            job.wait(20)
        paths = " ".join(node.at for node in found[1:])
        vm.server.run(f"for at in {paths}; do umount $at & done; wait", 60)
        for node in found[1:]:
            if vm.server.try_run(f"mountpoint -q {node.at}").code == 0:
                raise Failed(f"{node.at} is still mounted")
        loaded.of(vm).unload(vm.server)
        in_time(took <= 10, f"the unmount of a node that others read from took {took:.1f} s")
