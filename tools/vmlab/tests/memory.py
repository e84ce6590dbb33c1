# SPDX-License-Identifier: GPL-2.0
"""Sessions without memory: map_device gets ENOMEM, the log has the reason, and nothing is left behind.

The kernel serves small allocations at any price: it ends programs, or panics when none is left. So the
drivers ask for what is free before they take much (rtrs/proto/budget.rs), and the two ways in which they
are refused have tests of their own here: by that question, and by an allocation that really fails, which only large
blocks do. Whichever it is, the OOM killer must not have been at work.

    one machine of 640 MiB: client, server, and a RAM disk that is in the way
"""
from __future__ import annotations

from vmlab import rnbd, tier
from vmlab.checks import Failed, TooSlow, eq, ge, ok, until
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs

TIER = tier.ALL

MEMORY_MIB = 640
OOM = r"[Oo]ut of memory|invoked oom-killer|oom-kill"
SERVER = "max_memory_mib=0"
SLACK_MIB = 24
# What is free goes up and down by some MiB by itself.
NEARLY_MIB = 8
# A RAM disk's pages stay where they are. With one left in each 64 KiB of it there is no larger block in
# what is freed around them, and no compaction makes one.
PERFORATE = """
import fcntl, os, struct, sys
BLKDISCARD, PAGE, PIECE = 0x1277, 4096, 65536
disk = os.open(sys.argv[1], os.O_WRONLY)
for at in range(0, int(sys.argv[2]) << 20, PIECE):
    fcntl.ioctl(disk, BLKDISCARD, struct.pack("QQ", at + PAGE, PIECE - PAGE))
"""


def _meminfo(vm: Machine, field: str = "MemAvailable") -> int:
    vm.run("sync; echo 3 > /proc/sys/vm/drop_caches")
    return int(vm.run(f"awk '/^{field}:/ {{print int($2 / 1024)}}' /proc/meminfo"))


def _prepare(lab: Lab, rtrs: str) -> None:
    """ram0 is to be mapped, ram1 takes memory away."""
    lab.server.run(f"modprobe brd rd_nr=2 rd_size={MEMORY_MIB * 1024} max_part=0")
    lab.defer(rnbd.remove_module, lab.server, "brd")
    rnbd.load_server(lab, rtrs=f"{SERVER} {rtrs}")
    rnbd.load_client(lab)
    # The first session makes what stays until the module goes. Its own memory is back when the server has ended it.
    rnbd.map_disk(lab).unmap()
    _ended(lab)


def _fill(vm: Machine, mib: int) -> None:
    vm.run(f"dd if=/dev/zero of=/dev/ram1 bs=1M count={mib} oflag=direct status=none")


def _leave(vm: Machine, mib: int) -> None:
    """Takes memory until so much is left. What the session before has freed may be given back a second later, so what
    is left has to stay for two seconds."""
    filled = looks = 0
    for _ in range(12):
        more = _meminfo(vm) - mib
        if more > NEARLY_MIB:
            filled += more
            _fill(vm, filled)
            looks = 0
            continue
        looks += 1
        if looks == 3:
            return
        vm.run("sleep 1")
    ge(mib + NEARLY_MIB, _meminfo(vm), "MiB that are left, at most")


def _ended(lab: Lab) -> None:
    """No session is left on either side."""
    for place in (rnbd.SESSIONS, "/sys/class/rtrs-server"):
        until(lambda place=place: lab.client.names(place) in ([], ["ctl"]), 10, f"{place} is empty")


def _empty(vm: Machine) -> None:
    vm.run("blkdiscard /dev/ram1")


def _refused(lab: Lab, reason: str) -> None:
    """A mapping fails with ENOMEM for this reason; its memory is freed, and no process was killed."""
    mark, before = lab.client.log_mark(), _meminfo(lab.client)
    eq(rnbd.try_map(lab, rnbd.request(lab)), "ENOMEM", "mapping")
    ok(lab.client.log_matches(reason, mark), f"the kernel log does not say {reason!r}")
    eq(lab.client.log_matches(OOM, mark), [], "the OOM killer's words")
    _ended(lab)
    until(lambda: _meminfo(lab.client) > before - SLACK_MIB, 20, "the memory is back")


@needs(machines=1, own_modules=True, memory_mib=MEMORY_MIB, timeout=240)
def test_chunks_for_which_memory_is_in_pieces(vm: Lab) -> None:
    """Enough is free, but not in blocks of a chunk: the allocation fails in the middle of the session's set-up."""
    _prepare(vm, "sess_queue_depth=1024 max_chunk_size=131072")
    eq(rnbd.try_map(vm, rnbd.request(vm)), "", "mapping with all memory free")
    vm.client.write("/sys/block/rnbd0/rnbd/unmap_device", "normal")
    filled = _meminfo(vm.server, "MemFree") - 60
    _fill(vm.server, filled)
    vm.server.push_bytes(PERFORATE.encode(), "/tmp/perforate.py")
    vm.server.run(f"python3 -I -S /tmp/perforate.py /dev/ram1 {filled}", 120)
    ge(_meminfo(vm.server), 128 + MEMORY_MIB // 16 + 64, "MiB that are free, more than the session wants")
    for _ in range(2):
        _refused(vm, "rejected: no memory")
    _empty(vm.server)
    rnbd.works(vm)


@needs(machines=1, own_modules=True, memory_mib=MEMORY_MIB, timeout=240)
def test_a_server_that_grants_more_requests_than_the_client_can_hold(vm: Lab) -> None:
    """The server grants the number of requests; a client without memory for them logs that and does not connect."""
    # The greatest power of two for which rxe has completion queues.
    _prepare(vm, "sess_queue_depth=4096 max_chunk_size=8192 write_copy_max=0")
    # The server takes about 48 MiB of it, and may with 85. Then the client asks for 55 and for the 16th that stays
    # free, 92 in all, and is refused with less than 140. What the first attempt has freed may come back late
    # (SLACK_MIB), so this is the middle.
    _leave(vm.client, 110)
    for _ in range(2):
        _refused(vm, "memory for the requests could not be made")
    _empty(vm.client)
    rnbd.works(vm)


@needs(machines=1, own_modules=True, memory_mib=MEMORY_MIB, timeout=300)
def test_sessions_until_memory_ends(vm: Lab) -> None:
    """One session after the other, until ENOMEM: the existing ones continue, and all their memory is freed."""
    _prepare(vm, "sess_queue_depth=512 max_chunk_size=8192")
    _leave(vm.client, 110)
    before, mark = _meminfo(vm.client), vm.client.log_mark()
    disks: list[rnbd.Disk] = []
    while len(disks) < 40:
        try:
            disks.append(rnbd.map_disk(vm, session=f"s{len(disks)}", options="access_mode=ro"))
        except rnbd.MapRefused as why:
            eq(why.errno, "ENOMEM", f"after {len(disks)} sessions")
            break
    else:
        raise Failed("40 sessions fit into 160 MiB")
    ge(len(disks), 2, "sessions that fit")
    for disk in disks:
        vm.client.run(f"dd if={disk.path} of=/dev/null bs=64k count=4 iflag=direct status=none")
    for disk in disks:
        disk.unmap()
    eq(vm.client.log_matches(OOM, mark), [], "the OOM killer's words")
    until(lambda: _meminfo(vm.client) > before - SLACK_MIB, 20, "the memory is back")
    rnbd.works(vm)
    print(f"# {len(disks)} sessions fitted", flush=True)


@needs(wires=1)
def test_a_session_waits_for_the_memory_of_one_that_ends(pair: Lab) -> None:
    """The server has memory for one session. A second is refused with ENOMEM and one log line of the client; while it
    is asked for again the first one ends, and it is mapped."""
    rnbd.ram_disk(pair, 8, 2)
    rnbd.load_server(pair, rtrs="max_memory_mib=100")
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, session="s1")
    mark = pair.client.log_mark()
    eq(rnbd.try_map(pair, rnbd.request(pair, "ram1", session="s2")), "ENOMEM")
    eq(len(pair.client.log_matches("cannot connect", mark)), 1, "lines of the client about the refusal")
    mark = pair.server.log_mark()
    request = rnbd.request(pair, "ram1", session="s2")
    mapping = pair.client.start_job(f"echo '{request}' 2>&1 > {rnbd.CONTROL}/map_device", 60)
    until(lambda: pair.server.log_matches("max_memory_mib", mark), 20, "the server has refused it")
    disk.unmap()
    said = mapping.wait()
    if said.code and "Cannot allocate memory" in said.out:
        # It is asked for for three seconds.
        raise TooSlow("the memory of the first session was not there in time")
    eq((said.code, said.out), (0, ""), "the second session")
    name = pair.client.run(f"basename $(readlink -f {rnbd.CONTROL}/devices/ram1@s2)").strip()
    rnbd.Disk(pair.client, name, "s2", "ram1").unmap()
