# SPDX-License-Identifier: GPL-2.0
"""The cooperative cache of Gfarm mounts: a mount with cc_key= is a node on an RDMA device."""
from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from vmlab import gfarm_mount, tier
from vmlab.checks import Failed, TooSlow, eq, ge, in_time, matches, ok, until
from vmlab.gfarm import Gfarm
from vmlab.gfarm_mount import AT, put_random
from vmlab.gfarm_node import DESCRIPTION, KEY, Node, node, queue_pairs, try_mount
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.testdevice import MODULE, add_fault, plug_in

# A file server may be silent for as long as a busy host needs for all that is done meanwhile.
SILENCE = "connect_timeout=60,receive_timeout=60,reconnect_timeout=60"
# The same, and a node is waited for while the test does this and that.
LONG = f"{SILENCE},cc_wait_ms=30000"
# Of the times when a node is silent on a busy host, so many are allowed for.
SILENCES_MAX = 4
# The stack of a task that waits for pages.
WAITS = re.compile("netfs|folio|completion")
# Fails if there is anything in the last page of a file's mapping behind its end.
MAPPED_TAIL = r"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
file = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(file).st_size
end = -(-size // 4096) * 4096
at = libc.mmap(None, ctypes.c_size_t(end), 1, 1, file, ctypes.c_long(0))
assert at not in (None, ctypes.c_void_p(-1).value), ctypes.get_errno()
tail = ctypes.string_at(at + size, end - size)
assert tail == bytes(end - size), tail
"""


def _addresses(mount: Node) -> list[str]:
    """The node's own address, and those of its peers."""
    lines = mount.machine.read(f"{mount.folder}/ibaddr").splitlines()
    return [line.partition(" state=")[0] for line in lines]


@needs(machines=1, timeout=240)
def test_a_mount_with_a_key_is_a_node_until_its_unmount(vm: Lab) -> None:
    """It has queue pairs, reads files, and leaves nothing; without the option there are none."""
    servers = gfarm_mount.start(vm)
    wanted = put_random(servers, "node", 3_000_001, "fs1")
    for _ in range(3):
        with node(servers) as mount:
            ge(queue_pairs(vm.server), 2, "queue pairs")
            eq(mount.sha256("node"), wanted, "the file")
            ok(KEY not in vm.server.read("/proc/mounts"), "the key is shown")
        eq(queue_pairs(vm.server), 0, "queue pairs after the unmount")
    with gfarm_mount.mounted(servers) as mount:
        eq(mount.sha256("node"), wanted, "the file without a node")
        eq(queue_pairs(vm.server), 0, "queue pairs without the option")


@needs(machines=1, timeout=240)
def test_keys_of_the_cache_that_are_wrong_or_missing(vm: Lab) -> None:
    """The mount fails with a line that says why."""
    servers = gfarm_mount.start(vm)
    for key, words in ((None, "cc_key: no valid key"), (KEY[1:], "not 32 hexadecimal digits"),
                       (KEY[1:] + "x", "not 32 hexadecimal digits"), (KEY * 2, "not 32 hexadecimal digits")):
        mark = vm.server.log_mark()
        said = try_mount(servers, f"cc_key={DESCRIPTION}", key)
        lines = said.out + "\n".join(vm.server.log_matches("gfarm", mark))
        ok(said.code, f"mounted with {key!r}")
        matches(lines, words, f"{key!r}")
        ok(key is None or key not in lines, "the key is shown")
        eq(queue_pairs(vm.server), 0, "queue pairs")


@needs(machines=1, timeout=240)
def test_the_device_of_a_node_goes(vm: Lab) -> None:
    """Its removal does not wait for the unmount; the mount reads on from the file servers."""
    servers = gfarm_mount.start(vm)
    wanted = put_random(servers, "gone", 2_000_000, "fs1")
    with node(servers) as mount:
        vm.defer(vm.server.run, "rdma link show rxe0 > /dev/null 2>&1 || rdma link add rxe0 type rxe netdev eth0")
        mark = vm.server.log_mark()
        vm.server.run("rdma link delete rxe0", 30)
        eq(len(vm.server.log_matches("gfarm_ra: the device of a mount has gone", mark)), 1, "lines")
        eq(mount.sha256("gone"), wanted, "the file")
    said = try_mount(servers, f"cc_key={DESCRIPTION}")
    ok(said.code, "mounted without a device")


@needs(machines=1, timeout=240)
def test_nodes_find_each_other(vm: Lab) -> None:
    """One is told of another by hand, and both know each other; of a third one they hear. Another key is not heard."""
    servers = gfarm_mount.start(vm)
    with node(servers) as one, node(servers, at=AT + "2") as two, node(servers, at=AT + "3") as three:
        own = [_addresses(mount)[0] for mount in (one, two, three)]
        eq(len(set(own)), 3, "addresses")
        for to, line in ((one, own[1]), (two, own[2])):
            vm.server.write(f"{to.folder}/ibaddr", line + "\n")
        for mount in (one, two, three):
            until(lambda mount=mount: sorted(_addresses(mount)) == sorted(own), 30, "all know all")
        with node(servers, at=AT + "4", key=KEY[::-1]) as stranger:
            vm.server.write(f"{stranger.folder}/ibaddr", own[0] + "\n")
            time.sleep(3)
            eq(len(_addresses(one)), 3, "nodes, and none with another key")
        vm.server.write(f"{one.folder}/ibaddr", f"remove {own[1]}\n")
        ok(vm.server.write(f"{one.folder}/ibaddr", "lid=1 qpn=nonsense\n"), "nonsense was taken")


@contextmanager
def acquainted(servers: Gfarm, count: int, options: str = "") -> Iterator[list[Node]]:
    """Nodes that all know each other, for the body."""
    with ExitStack() as stack:
        mounts = [stack.enter_context(node(servers, options, f"{AT}{number}")) for number in range(count)]
        own = [_addresses(mount)[0] for mount in mounts]
        for mount, line in zip(mounts, own[1:], strict=False):
            servers.machine.write(f"{mount.folder}/ibaddr", line + "\n")
        for mount in mounts:
            others = dict.fromkeys(set(own) - {mount.address}, "alive")
            until(lambda mount=mount, others=others: mount.peers() == others, 30, "all know all")
        yield mounts


def waits_for_another(reader: Node, told: int) -> None:
    """Waits until a node has been told once more than `told` times to wait. On a busy host a node may be silent for too
    long to tell that."""
    try:
        until(lambda: reader.ibstat()["told_wait"] > told, 20, "it waits for another node")
    except Failed as why:
        raise TooSlow(f"{why}; {reader.ibstat()['timeouts']} silences") from None


def left_servers(mounts: list[Node], bytes_max: float) -> None:
    """Checks how many bytes the file servers have sent to nodes. On a busy host a node is silent for longer than others
    wait now and then, or a read waits for a worker for too long to ask: each time costs a part of 1 MiB at most. Not
    each is counted: a node that has missed probes, or was silent several times in a row, is not asked, and of one whose
    fragments have come the reply is not missed."""
    read = [mount.stats()["gfsd_bytes"] for mount in mounts]
    silences = sum(mount.ibstat()["timeouts"] + mount.ibstat()["not_asked"] for mount in mounts)
    ok(any(mount.ibstat()["peer_pages"] for mount in mounts), "no node has given a page")
    in_time(sum(read) <= bytes_max + (min(silences, SILENCES_MAX) << 20),
            f"{sum(read)} bytes from the file server, by node: {read}; {silences} silences, {bytes_max:.0f} may be")


@needs(machines=1, timeout=300)
def test_a_second_reader_reads_from_the_first(vm: Lab) -> None:
    """Each byte leaves the file server once; what the second and the third one read is the same. A worker changes the
    keys of queue pairs between two reads."""
    servers = gfarm_mount.start(vm)
    sizes = (1, 4096, 300_001, 1 << 20, 3_000_001)
    wanted = [put_random(servers, f"shared{size}", size, "fs1") for size in sizes]
    with acquainted(servers, 3) as mounts:
        for mount in mounts:
            eq([mount.sha256(f"shared{size}") for size in sizes], wanted, mount.at)
        left_servers(mounts, sum(sizes))
        ahead = [mount.ibstat()["keys_ahead"] for mount in mounts]
        print(f"# requests whose queue pair had a new key before: {ahead}")
        ge(ahead[1] + ahead[2], 1, "keys that a worker has changed")


@needs(machines=1, timeout=300)
def test_what_another_node_gives_ends_with_the_file(vm: Lab) -> None:
    """Its last page has bytes behind the end: they count neither with O_DIRECT nor in a mapping."""
    servers = gfarm_mount.start(vm)
    wanted = {size: put_random(servers, f"end{size}", size, "fs1") for size in (1, 4095, 4097, 1_300_001)}
    with acquainted(servers, 2) as (one, two):
        for size, digest in wanted.items():
            eq(one.sha256(f"end{size}"), digest, "the first one")
            direct = vm.server.run(f"dd if={two.at}/end{size} iflag=direct bs=1M status=none | sha256sum").split()[0]
            eq(direct, digest, f"{size} bytes with O_DIRECT")
            eq(two.sha256(f"end{size}"), digest, f"{size} bytes")
            vm.server.run(f"python3 -I -S - {two.at}/end{size} <<'EOF'\n{MAPPED_TAIL}EOF")
        left_servers([two], 0)


@needs(machines=1, timeout=400)
def test_readers_that_start_together_take_one_copy(vm: Lab) -> None:
    """Eight nodes read a file at the same time; what one of them is fetching the others wait for."""
    servers = gfarm_mount.start(vm)
    size = tier.of(3_000_001, 6_000_001)
    wanted = put_random(servers, "storm", size, "fs1")
    with acquainted(servers, 8) as mounts:
        said = vm.server.run("".join(f"sha256sum {mount.at}/storm & " for mount in mounts) + "wait", 240)
        eq([line.split()[0] for line in said.splitlines()], [wanted] * len(mounts), "digests")
        left_servers(mounts, size * 1.1)


@needs(machines=1, timeout=300)
def test_who_waits_for_another_node_can_leave(vm: Lab) -> None:
    """A reader waits at a node that waits for a silent file server: kill -9 and umount -f end it, and no other."""
    servers = gfarm_mount.start(vm)
    wanted = put_random(servers, "waits", 1_000_001, "fs1")
    with acquainted(servers, 2, LONG) as (one, two), gfarm_mount.held_open(two, "waits"):
        servers.freeze(vm, "fs1", "fs2")
        first = vm.server.start_job(f"sha256sum {one.at}/waits", 120)
        try:
            until(lambda: gfarm_mount.serving(vm.server), 20, "the first one asks a file server")
            # A read into the page cache that has failed is made once more, for the page that is wanted.
            for way, read in (("kill -9", f"sha256sum {two.at}/waits"),
                              ("umount -f", f"dd if={two.at}/waits of=/dev/null bs=1M iflag=direct")):
                told = two.ibstat()["told_wait"]
                job = vm.server.start_job(f"exec {read} 2>&1", 120)
                waits_for_another(two, told)
                # What a task that was killed has asked for is still waited for, and counts as well.
                stack = f"cat /proc/$(pidof -s {read.split()[0]})/stack"
                until(lambda stack=stack: WAITS.search(vm.server.try_run(stack).out), 20, "the task waits")
                began = time.monotonic()
                if way == "kill -9":
                    job.kill()
                else:
                    vm.server.try_run(f"umount -f {two.at}", 30)
                said = job.wait(30)
                ok(said.code, f"{way}: it has read the file: {said.out}")
                in_time((took := time.monotonic() - began) < 5, f"{way} took {took:.1f} s")
        finally:
            servers.thaw("fs1", "fs2")
            said = first.wait(60)
        eq(said.out.split()[0], wanted, "the first one")
        eq(two.sha256("waits"), wanted, "the second one")


@needs(machines=1, timeout=300)
def test_nobody_waits_for_pages_that_are_not_kept(vm: Lab) -> None:
    """A node reads with O_DIRECT from a silent file server: another one is told at once that it has nothing."""
    servers = gfarm_mount.start(vm)
    wanted = put_random(servers, "direct", 1_000_001, "fs1")
    with acquainted(servers, 2, LONG) as (one, two), gfarm_mount.held_open(two, "direct"):
        servers.freeze(vm, "fs1", "fs2")
        first = vm.server.start_job(f"dd if={one.at}/direct bs=1M iflag=direct status=none | sha256sum", 120)
        try:
            until(lambda: gfarm_mount.serving(vm.server), 20, "the first one asks a file server")
            second = vm.server.start_job(f"sha256sum {two.at}/direct", 120)
            try:
                until(lambda: two.ibstat()["told_miss"] or two.ibstat()["told_wait"], 20, "it is told something")
            except Failed as why:
                raise TooSlow(f"{why}; {two.ibstat()['timeouts']} silences") from None
            eq(two.ibstat()["told_wait"], 0, "answers that it is to wait")
        finally:
            servers.thaw("fs1", "fs2")
        for job in first, second:
            eq(job.ok(60).split()[0], wanted, "the file")


@needs(machines=1, timeout=300)
def test_the_device_goes_while_a_node_is_waited_for(vm: Lab) -> None:
    """A reader waits at a node that waits for a silent file server: the removal of the device does not wait for it."""
    servers = gfarm_mount.start(vm)
    wanted = put_random(servers, "removed", 1_000_001, "fs1")
    vm.defer(vm.server.run, "rdma link show rxe0 > /dev/null 2>&1 || rdma link add rxe0 type rxe netdev eth0")
    with acquainted(servers, 2, SILENCE) as (one, two):
        servers.freeze(vm, "fs1", "fs2")
        jobs = [vm.server.start_job(f"sha256sum {one.at}/removed", 120)]
        try:
            until(lambda: gfarm_mount.serving(vm.server), 20, "the first one asks a file server")
            jobs.append(vm.server.start_job(f"sha256sum {two.at}/removed", 120))
            waits_for_another(two, 0)
            vm.server.run("rdma link delete rxe0", 20)
        finally:
            servers.thaw("fs1", "fs2")
            said = [job.wait(60).out.split()[:1] for job in jobs]
        eq(said, [[wanted]] * 2, "both")


@needs(machines=1, own_modules=True, timeout=300, tier=tier.ALL)
def test_a_device_that_fails_is_waited_for_no_longer(vm: Lab) -> None:
    """A reader waits at a node that waits for a silent file server: the device's event ends that, for good."""
    plug_in(vm, "drains=1")
    servers = gfarm_mount.start(vm)
    wanted = put_random(servers, "fails", 1_000_001, "fs1")
    with acquainted(servers, 2, LONG) as (one, two):
        servers.freeze(vm, "fs1", "fs2")
        jobs = [vm.server.start_job(f"sha256sum {one.at}/fails", 120)]
        try:
            until(lambda: gfarm_mount.serving(vm.server), 20, "the first one asks a file server")
            jobs.append(vm.server.start_job(f"sha256sum {two.at}/fails", 120))
            waits_for_another(two, 0)
            mark = vm.server.log_mark()
            add_fault(vm, "fault=device_fatal")
            until(lambda: len(vm.server.log_matches("no node of the cache: the RDMA device has failed", mark)) == 2, 10,
                  "both nodes have heard of it")
        finally:
            servers.thaw("fs1", "fs2")
            said = [job.wait(60).out.split()[:1] for job in jobs]
        eq(said, [[wanted]] * 2, "both")
        not_asked, later = two.ibstat()["not_asked"], put_random(servers, "later", 1_000_001, "fs1")
        eq(two.sha256("later"), later, "a file that is read later")
        ge(two.ibstat()["not_asked"], not_asked + 1, "reads that asked no node")
        vm.server.run(f"rmmod {MODULE}", 30)


@needs(machines=1, timeout=300)
def test_a_reader_whose_holder_has_gone_reads_from_the_file_server(vm: Lab) -> None:
    """The other node is unmounted, and was the only one with the file."""
    servers = gfarm_mount.start(vm)
    wanted = put_random(servers, "left", 3_000_001, "fs1")
    with acquainted(servers, 2) as (one, two):
        eq(one.sha256("left"), wanted, "the first one")
        vm.server.run(f"umount {one.at}")
        eq(two.sha256("left"), wanted, "the second one")
        eq(two.stats()["gfsd_bytes"], 3_000_001, "bytes from the file server")


@needs(machines=1, timeout=300)
def test_a_file_that_was_replaced_is_not_read_from_another_node(vm: Lab) -> None:
    """The first node has the old file in its cache; the second one opens the new one, possibly with the same number."""
    servers = gfarm_mount.start(vm)
    with acquainted(servers, 2) as (one, two):
        for _ in range(3):
            old = put_random(servers, "replaced", 2_000_001, "fs1")
            eq(one.sha256("replaced"), old, "the first one")
            new = put_random(servers, "replaced", 2_000_001, "fs1")
            eq(two.sha256("replaced"), new, "the second one")
