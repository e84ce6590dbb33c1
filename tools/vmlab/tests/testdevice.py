# SPDX-License-Identifier: GPL-2.0
"""The test device: an RDMA device in memory, under the same modules and the same checks."""
from __future__ import annotations

import re
import time
from collections.abc import Callable

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ge, in_time, ok, raises, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.testdevice import CONTROL, MODULE, add_fault, clear_faults, plug_in, queue_pairs
from vmlab.tests.hostile import PEER
from vmlab.tests.io import memory_anywhere

K, M, G = 1 << 10, 1 << 20, 1 << 30
# What adapters have room for, as their drivers in kernel 7.2 tell it (drivers/infiniband/hw). What a driver takes from
# the firmware is assumed, and named so.
ADAPTERS = {
    # main.c, mlx5_ib_query_device(): MLX5_MAX_SGE_RD, (512 - 16 - 16) / 16; mlx5_ib_calc_max_qp_wr(): 4 blocks each.
    # Firmware: 32768 blocks, 65536 pages, 16 reads, completion queues of 4194303.
    "mlx5": {"max_qp_wr": 32768 // 4, "max_sge": 30, "max_fast_reg_page_list_len": 65536, "max_cqe": 4194303,
             "max_qp_rd_atom": 16, "page_size_cap": (1 << 64) - 4 * K, "max_sq_blocks": 32768},
    # ctrl.c, IRDMA_MAX_QP_WRS(8), IRDMA_MAX_CQ_SIZE; user.h, IRDMA_MAX_WQ_FRAGMENT_COUNT; main.h,
    # IRDMA_MAX_PAGES_PER_FMR; icrdma_hw.c, page_size_cap, ICRDMA_MAX_IRD_SIZE
    "irdma": {"max_qp_wr": (32768 - 258) // 8, "max_sge": 13, "max_fast_reg_page_list_len": 262144,
              "max_cqe": 1048574, "max_qp_rd_atom": 127, "page_size_cap": 4 * K | 2 * M | G},
    # The first generation, but for iWARP, which the test device has not. i40iw_hw.h, I40IW_MAX_QP_WRS,
    # I40IW_MAX_WQ_FRAGMENT_COUNT, I40IW_MAX_CQ_SIZE, I40IW_MAX_IRD_SIZE
    "i40iw": {"max_qp_wr": (2048 - 258) // 2, "max_sge": 3, "max_fast_reg_page_list_len": 262144,
              "max_cqe": 1048574, "max_qp_rd_atom": 63, "page_size_cap": 4 * K | 2 * M},
    # qplib_sp.c, bnxt_qplib_get_dev_attr(), with work requests of variable size: BNXT_VAR_MAX_WQE - 1,
    # BNXT_VAR_MAX_SGE, BNXT_QPLIB_MAX_CQ_WQES, BNXT_QPLIB_MAX_OUT_RD_ATOM; qplib_res.h, MAX_PBL_LVL_1_PGS; bnxt_re.h,
    # BNXT_RE_PAGE_SIZE_SUPPORTED
    "bnxt_re": {"max_qp_wr": 4351, "max_sge": 13, "max_fast_reg_page_list_len": 512, "max_cqe": 0xfffff,
                "max_qp_rd_atom": 126, "page_size_cap": 0x7ffff000},
    # The same with work requests of fixed size, BNXT_STATIC_MAX_SGE. Firmware: 4096 work requests, of which older chips
    # keep BNXT_QPLIB_RESERVED_QP_WRS + 2.
    "bnxt_re_of_fixed_size": {"max_qp_wr": 4096 - 130, "max_sge": 6, "max_fast_reg_page_list_len": 512,
                              "max_cqe": 0xfffff, "max_qp_rd_atom": 126, "page_size_cap": 0x7ffff000},
}

IOS = 256


def _per_io(qps: list[dict[str, int]]) -> dict[str, int]:
    """The counts of a side by IO; heartbeats, which are few, are rounded away."""
    counts = {name: round(sum(qp[name] for qp in qps) / IOS) for name in qps[0] if name not in ("qp", "peer", "bytes")}
    return {name: count for name, count in counts.items() if count}


def _holds_what_was_written(vm: Lab, rtrs: str = "", deed: Callable[[rnbd.Disk], None] | None = None) -> None:
    rnbd.start(vm, rtrs=rtrs, mib=16)
    disk = rnbd.map_disk(vm)
    disk.fio("--rw=randwrite --bsrange=4k-512k --iodepth=16 --size=8m --verify=crc32c --verify_fatal=1").clean()
    if deed:
        deed(disk)
    there = vm.server.run("dd if=/dev/ram0 bs=1M iflag=direct status=none | md5sum").split()[0]
    eq(disk.checksum(), there, "what the disk holds, at both ends")
    disk.unmap()


# Rdma.every_part_passes_its_selftest runs in each run, on rxe.
@needs(machines=1, own_modules=True, tier=tier.ALL)
def test_the_selftest_of_rdma_passes_on_it(vm: Lab) -> None:
    """Queue pairs connect, carry messages, flush and drain as on rxe; one that is reset may take a while to be."""
    plug_in(vm)
    add_fault(vm, "fault=late_error times=3")
    mark = vm.server.log_mark()
    vm.server.run("mods ours rdma_test")
    bad = [line for line in vm.server.log_matches(r"rdma_test: ", mark) if not line.endswith(": ok")]
    eq((bad, vm.server.read(f"{CONTROL}/faults").split()[0]), ([], "3"), "lines that are not ok, early resets")


@needs(machines=1, own_modules=True)
def test_transfers_outlive_queue_pairs_that_are_given_up_and_drains_that_are_refused(vm: Lab) -> None:
    """What the device gives up between two transfers costs none; memory is kept until the device has drained."""
    plug_in(vm)
    mark = vm.server.log_mark()
    load = vm.server.start_job("mods ours rdma_test faults=1")
    vm.defer(clear_faults, vm)

    def asked(text: str, times: int) -> str:
        """The last match of what the selftest asks for, when it has done so often enough."""
        def found() -> list[str]:
            return [match[1] for line in vm.server.log_matches(text, mark) if (match := re.search(text, line))]
        until(lambda: len(found()) >= times, 20, text)
        return found()[-1]
    for times in (1, 2, 3):
        add_fault(vm, "give_up " + asked(r"queue pair (\d+) may be given up", times))
    add_fault(vm, "fault=refuse_error_state errno=5 qp=" + asked(r"queue pair (\d+) may not drain", 1))
    asked(r"(it may drain)", 1)
    clear_faults(vm)
    load.ok(30)
    eq(len(vm.server.log_matches(r"rdma_test: [\w ]+: ok$", mark)), 2, "parts")


@needs(machines=1, own_modules=True)
def test_a_disk_over_it_holds_what_was_written(vm: Lab) -> None:
    """Small and large requests arrive, in each direction, on a device that is both ends and takes turns."""
    plug_in(vm, "turn=1")
    _holds_what_was_written(vm, deed=memory_anywhere)


# Of the server. To i40iw, receives for the default depth of 512 are more than it has room for: a session is refused, as
# on `short_queues` below. From 1338 on, mlx5 has no room for send queues whose work requests have 17 segments.
SERVERS = {"i40iw": "sess_queue_depth=256", "mlx5": "sess_queue_depth=1400 max_chunk_size=65536"}


def _on(limits: dict[str, int], server: str, of_tier: str) -> Callable[[Lab], None]:
    @needs(machines=1, own_modules=True, tier=of_tier)
    def test(vm: Lab) -> None:
        """The modules keep to the limits of the device, all but i40iw at the default depth or more."""
        plug_in(vm, " ".join(f"{name}={value}" for name, value in limits.items()))
        _holds_what_was_written(vm, server)
    return test


# The tests of proto have what follows from limits; these two have the smallest ones, and one more than the others.
IN_CORE = ("i40iw", "mlx5")
for _name, _limits in ADAPTERS.items():
    globals()[f"test_a_disk_with_the_limits_of_{_name}"] = _on(
        _limits, SERVERS.get(_name, ""), tier.CORE if _name in IN_CORE else tier.LONG)


# The device, the server's parameters, and the line of the log. Management datagrams need 512 work requests.
REFUSALS = {
    "short_queues": ("max_qp_wr=700", "sess_queue_depth=1024",
                     r"device's \w+ queues have 700 entries, the queue depth needs \d+"),
    "short_completion_queues": ("max_cqe=1200", "sess_queue_depth=1024",
                                r"device's completion queues have 1200 entries, the queue depth needs \d+"),
    "small_regions": ("max_fast_reg_page_list_len=16 page_size_cap=4096", "",
                      r"device registers 16 pages at a time, a chunk has \d+"),
}


def _refused(parameters: str, rtrs: str, line: str) -> Callable[[Lab], None]:
    @needs(machines=1, own_modules=True)
    def test(vm: Lab) -> None:
        """The map fails, and a line says what the device lacks."""
        plug_in(vm, parameters)
        rnbd.start(vm, rtrs=rtrs)
        mark = vm.server.log_mark()
        raises(rnbd.MapRefused, lambda: rnbd.map_disk(vm), "the disk was mapped")
        eq(len(vm.server.log_matches(line, mark)), 1, f"lines in {vm.server.log_matches('rtrs', mark)}")
    return test


for _name, _refusal in REFUSALS.items():
    globals()[f"test_a_device_with_{_name}_is_refused"] = _refused(*_refusal)


# Of a region, of which a path has one for each of its 16 chunks: half a minute, if it does not end before.
SLOW_MS = 2000


@needs(machines=1, own_modules=True)
def test_a_path_whose_memory_comes_slowly_keeps_no_other_one_waiting(vm: Lab) -> None:
    """A server sets up a path of which each region takes long; a path of another session comes to its end meanwhile.
    (Connect requests wait for each other in the kernel's connection manager.)"""
    plug_in(vm)
    rnbd.start(vm, rtrs="sess_queue_depth=16 always_invalidate=Y", count=2)
    rnbd.map_disk(vm, "ram1")
    slow = f"/sys/module/{MODULE}/parameters/region_ms"
    eq(vm.server.write(slow, str(SLOW_MS)), "", "regions are slow")
    before = vm.server.read(f"{CONTROL}/counts")
    job = vm.client.start_job(f"echo '{rnbd.request(vm, 'ram0', 'slow')}' > {rnbd.CONTROL}/map_device", 60)
    vm.defer(vm.server.write, slow, "0")
    until(lambda: vm.server.read(f"{CONTROL}/counts") != before, 5, "the slow client connects")
    time.sleep(0.5)
    vm.server.run("echo 1 > /sys/class/rtrs-server/s1/paths/*/disconnect")
    # What tears it down, as the stacks of the kernel's workers show it.
    works = "grep -ls 'rtrs_server.*path4work' /proc/[0-9]*/stack | wc -l"
    until(lambda: not vm.server.names("/sys/class/rtrs-server") and vm.server.run(works).strip() == "0", 8,
          "the other path has come to its end")
    in_time(job.running, "the slow client was connected before")
    eq(vm.server.write(slow, "0"), "", "regions are quick again")
    eq(job.wait(60).code, 0, "the slow client is connected")
    link = f"{rnbd.CONTROL}/devices/ram0@slow"
    rnbd.Disk(vm.client, vm.client.real_path(link).rpartition("/")[2], "slow", "ram0").unmap()


# The server's chunks, and how many pages the adapter registers at a time: the largest request is limited by either.
HUGE_READS = {"chunks_of_512_k": (512 * K, 512), "chunks_of_1_m": (1024 * K, 512),
              "regions_of_128_pages": (1024 * K, 128), "regions_of_131_pages": (1024 * K, 131)}
# Limited by the chunks, as by those of 512 KiB.
MORE_HUGE_READS = tier.of({}, {"chunks_of_128_k": (128 * K, 512), "chunks_of_256_k": (256 * K, 512)})


@needs(machines=1, own_modules=True)
def test_the_largest_reads_into_huge_pages_succeed_wherever_they_begin(vm: Lab) -> None:
    """A piece of a huge page is one segment, which touches one page more than its size has."""
    vm.client.run("mkdir -p /tmp/peer && echo 4 > /proc/sys/vm/nr_hugepages")
    vm.defer(vm.client.run, "echo 0 > /proc/sys/vm/nr_hugepages")
    vm.client.push(PEER / "huge_reads.py", "/tmp/peer/huge_reads.py")
    plug_in(vm)
    for name, (chunk, pages) in (HUGE_READS | MORE_HUGE_READS).items():
        vm.server.run(f"mods -r && mods ours {MODULE} max_fast_reg_page_list_len={pages}")
        rnbd.start(vm, rtrs=f"max_chunk_size={chunk} sess_queue_depth=16", mib=4)
        vm.server.run("python3 - <<E\n"
                      "f = open('/dev/ram0', 'r+b')\n"
                      "for n in range(1, 257):\n f.write(n.to_bytes(8, 'little') + bytes(4088))\nE")
        disk = rnbd.map_disk(vm)
        largest = int(disk.queue("max_hw_sectors_kb")) * K
        eq(largest, min(chunk - 4 * K, 512 * K, (pages - 2) * 4 * K), f"largest request with {name}")
        for size in {largest, 512 * K}:
            vm.client.run(f"python3 -S /tmp/peer/huge_reads.py {disk.path} {size}")
        disk.unmap()


@needs(machines=1, own_modules=True)
def test_short_queues_suffice_for_a_small_depth(vm: Lab) -> None:
    """What the documents advise after such a refusal helps."""
    plug_in(vm, "max_qp_wr=700 max_cqe=1200")
    _holds_what_was_written(vm, "sess_queue_depth=128")


@needs(machines=1, own_modules=True)
def test_d13_a_write_whose_key_cannot_be_invalidated_is_not_done(vm: Lab) -> None:
    """The device refuses the invalidation: the path ends with a line, the write fails, the disk is as it was."""
    plug_in(vm)
    rnbd.start(vm, mib=8)
    disk = rnbd.map_disk(vm)
    rnbd.fail_fast(vm, 0)
    # One that is copied keeps its key.
    write = f"head -c 8192 /dev/zero | tr '\\0' {{}} | dd of={disk.path} bs=8k oflag=direct status=none"
    first = "dd if=/dev/ram0 bs=4k count=1 iflag=direct status=none | head -c 4"
    vm.client.run(write.format("a"))
    refuse = f"/sys/module/{MODULE}/parameters/refuse_invalidations"
    eq(vm.server.write(refuse, "1"), "")
    mark = vm.server.log_mark()
    answer = vm.client.try_run(write.format("b"))
    ok(answer.code and "Input/output error" in answer.out, f"the write: {answer.out or 'success'}")
    eq(vm.server.write(refuse, "0"), "")
    eq(vm.server.run(first), "aaaa", "what the server's disk holds")
    why = vm.server.log_matches("rtrs_server: .*memory bind operation error .*path closed", mark)
    eq(len(why), 1, "lines of the server that say why")
    until(lambda: paths.states(vm) == ["connected"], 20, "the path is back")
    until(lambda: disk.attribute("state") == "open", 20, "the disk is back")
    vm.client.run(write.format("c"))
    eq(vm.server.run(first), "cccc", "what the server's disk holds")
    disk.unmap()


@needs(machines=1, own_modules=True, smp=2)
def test_it_can_be_unplugged_under_load(vm: Lab) -> None:
    """The modules above it close what they have there, and the module unloads. It has fewer vectors than processors."""
    plug_in(vm, "vectors=1")
    rnbd.start(vm)
    disk = rnbd.map_disk(vm)
    load = disk.fio("--rw=randrw --bs=4k --iodepth=16 --size=32m --time_based --runtime=60")
    until(lambda: disk.requests > 200, 20, "the load runs")
    vm.server.run(f"rmmod {MODULE}")
    disk.unmap("force")
    ok(load.wait(30).code, "IO went on without a device")


SECOND = "10.0.9.1"         # of the server, on another device
IN_FLIGHT = 4


@needs(machines=1, own_modules=True)
def test_a_device_that_fails_is_left_at_once(vm: Lab) -> None:
    """Both ends of its path go by its event, long before a heartbeat; its driver ends what is in flight, which goes to
    the other path; then it can be removed."""
    plug_in(vm, "drains=1")
    rnbd.start(vm, rtrs="heartbeat_interval_ms=60000")
    disk = rnbd.map_disk(vm)
    paths.set_all(vm, heartbeat_interval_ms=60000)
    first = queue_pairs(vm)["client"]
    vm.server.run(f"ip link add eth9 mtu 9000 type dummy; ip addr add {SECOND}/24 dev eth9; ip link set eth9 up; "
                  "rdma link add rxe9 type rxe netdev eth9")
    vm.defer(vm.server.run, "mods -r; rdma link delete rxe9; ip link del eth9")
    eq(vm.client.write(rnbd.session_file("add_path"), f"ip:{SECOND}"), "")
    rnbd.round_robin(vm)
    for qp in first:
        add_fault(vm, f"fault=lose on=write times=1000000 qp={qp['qp']}")
    writes = disk.fio(f"--rw=randwrite --bs=4k --iodepth={IN_FLIGHT} --number_ios=64 --size=8m --verify=crc32c "
                      "--verify_fatal=1")
    until(lambda: sum(map(int, vm.client.read(f"/sys/block/{disk.name}/inflight").split())) == IN_FLIGHT, 20,
          "writes are under way")
    mark = vm.server.log_mark()
    add_fault(vm, "fault=device_fatal")
    until(lambda: sorted(paths.states(vm))[0] == "connected" and "disconnected" in paths.states(vm), 10, "it is left")
    writes.clean(20)
    eq(len(vm.server.log_matches("rtrs_client: .*device has failed", mark)), 1, "lines of the client")
    eq(len(vm.server.log_matches("rtrs_server: .*device has failed", mark)), 1, "lines of the server")
    left = [f"ip:{SECOND}@ip:{SECOND}"]
    until(lambda: vm.server.names("/sys/class/rtrs-server/s1/paths") == left, 10, "the server has the other one only")
    vm.server.run(f"rmmod {MODULE}", 20)
    disk.unmap()


# Clients of two paths, and what the device takes for each path of a server that has 16 chunks.
CLIENTS, PATH_SECONDS = 8, 0.6


@needs(machines=1, own_modules=True, waits=True)
def test_a_server_that_starts_serves_all_its_clients(vm: Lab) -> None:
    """It answers those that wait for it: in their order, it would answer requests that were given up, for ever."""
    plug_in(vm)
    start = "mods ours rtrs_server sess_queue_depth=16 always_invalidate=Y; mods ours rnbd_server dev_search_path=/dev"
    rnbd.start(vm, rtrs="sess_queue_depth=16 always_invalidate=Y", mib=8)
    vm.server.run("ip addr add 10.0.0.77/24 dev eth0")
    vm.defer(vm.server.run, "ip addr del 10.0.0.77/24 dev eth0")
    line = f"path=ip:{vm.address(vm.server, 0)} path=ip:10.0.0.77 access_mode=ro device_path=ram0"
    disks = [rnbd.map_disk(vm, session=f"s{n}", line=f"sessname=s{n} {line}") for n in range(CLIENTS)]
    vm.server.run("rmmod rnbd_server rtrs_server")
    # All of them wait for it, and none has just been refused.
    paths.rest(3)
    slow = f"/sys/module/{MODULE}/parameters/region_ms"
    eq(vm.server.write(slow, str(round(PATH_SECONDS * 1000 / 16))), "")
    vm.defer(vm.server.write, slow, "0")
    vm.server.run(start)
    began = paths.uptime(vm.client)
    back = "cat /sys/class/rtrs-client/s*/paths/*/state | grep -cx connected || true"
    until(lambda: vm.client.run(back).strip() == str(2 * CLIENTS), 40, "all paths are back", pause=1)
    paths.figure(f"{2 * CLIENTS} paths, {PATH_SECONDS} s each, are back in {paths.uptime(vm.client) - began:.1f} s")
    for disk in disks:
        disk.unmap()


# By always_invalidate, direction and side. Receives are posted in batches, so their doorbells are few.
_REQUEST = {"send_doorbells": 1, "writes_with_immediate": 1}
_READ = _REQUEST | {"receives": 1, "receive_completions": 1, "events": 1}
_LONG = _REQUEST | {"registrations": 1, "receives": 2, "receive_completions": 2, "events": 1}
_WRITE = _REQUEST | {"receives": 1, "send_completions": 1, "receive_completions": 1, "events": 1}
_ARRIVED = {"receives": 1, "receive_completions": 1, "events": 1, "send_doorbells": 1}
PER_IO = {
    ("Y", "read", "client"): _READ,
    ("N", "read", "client"): _READ,
    ("Y", "long read", "client"): _LONG,
    ("N", "long read", "client"): _LONG,
    ("Y", "write", "client"): _WRITE,
    ("N", "write", "client"): _WRITE,
    ("Y", "read", "server"): _ARRIVED | {"writes_with_immediate": 1},
    ("N", "read", "server"): _ARRIVED | {"writes_with_immediate": 1},
    ("Y", "long read", "server"): _ARRIVED | {"writes": 1, "sends_with_invalidate": 1, "sends": 1},
    ("N", "long read", "server"): _ARRIVED | {"writes": 1, "sends_with_invalidate": 1, "writes_with_immediate": 1},
    ("Y", "long write", "client"): _WRITE,
    ("N", "long write", "client"): _WRITE,
    ("Y", "write", "server"): _ARRIVED | {"sends": 1},
    ("N", "write", "server"): _ARRIVED | {"writes_with_immediate": 1},
    # The key is invalidated before the data are used, and the chunk registered again with the response.
    ("Y", "long write", "server"): _ARRIVED | {"send_doorbells": 2, "invalidations": 1, "send_completions": 1,
                                               "events": 2, "registrations": 1, "sends": 1},
    ("N", "long write", "server"): _ARRIVED | {"writes_with_immediate": 1},
}


def _counted(invalidate: str) -> Callable[[Lab], None]:
    @needs(machines=1, own_modules=True)
    def test(vm: Lab) -> None:
        """Doorbells, work requests and completions of a READ and of a WRITE of 4 KiB, one at a time, are so many; and
        those of 8 KiB, which are not copied."""
        plug_in(vm)
        rnbd.start(vm, rtrs=f"always_invalidate={invalidate}")
        disk = rnbd.map_disk(vm)
        for kind, options in (("read", "randread --bs=4k"), ("long read", "randread --bs=8k"),
                              ("write", "randwrite --bs=4k"), ("long write", "randwrite --bs=8k")):
            eq(vm.server.write(f"{CONTROL}/counts", "0"), "")
            disk.fio(f"--rw={options} --iodepth=1 --number_ios={IOS} --size=8m").clean()
            for side, qps in queue_pairs(vm).items():
                found, most = _per_io(qps), PER_IO[invalidate, kind, side]
                paths.figure(f"always_invalidate={invalidate}, {kind}, {side}: {found}")
                # A consumer that polls need not be notified.
                found["events"] = max(found.get("events", 0), most["events"])
                eq(found, most, f"{kind}, {side}")
        disk.unmap()
    return test


for _invalidate, _name in (("Y", "invalidated"), ("N", "kept")):
    globals()[f"test_the_work_requests_of_an_io_are_counted_keys_{_name}"] = _counted(_invalidate)


def _faulty(side: str, rule: str, options: str = "", why: str = "", depth: str = "--iodepth=8",
            of_tier: str = tier.CORE) -> Callable[[Lab], None]:
    @needs(machines=1, own_modules=True, tier=of_tier)
    def test(vm: Lab) -> None:
        """The path ends, connects again, and IO goes on without an error, each block as it was written."""
        plug_in(vm)
        rnbd.start(vm)
        if "register" in rule:
            rnbd.copy_reads(vm, 0)
        if "invalidate" in rule:
            rnbd.copy_writes(vm, 0)
        disk = rnbd.map_disk(vm, options=f"access_mode=rw {options}")
        before = paths.count(vm, "reconnects", 0)
        # On one processor: it stays with the queue pair that is chosen now.
        load = disk.fio(f"--rw=randwrite --bs=4k {depth} --size=8m --loops=2 --verify=crc32c --verify_fatal=1 "
                        "--cpus_allowed=0")
        until(lambda: disk.requests > 200, 20, "the load runs")
        # Each request is a receive of the server, and a write with an immediate of the client.
        requests = {"client": "writes_with_immediate", "server": "receive_completions"}[side]
        busy = max(queue_pairs(vm)[side], key=lambda qp: qp[requests])
        mark = vm.server.log_mark()
        add_fault(vm, f"{rule} nth=20 qp={busy['qp']}")
        until(lambda: vm.server.read(f"{CONTROL}/faults") == "1 0", 20, "the fault has happened")
        until(lambda: paths.count(vm, "reconnects", 0) > before, 30, "the path has ended and connected again")
        load.clean()
        eq(paths.states(vm), ["connected"])
        if why:
            ok(vm.server.log_matches(why, mark), f"the log says: {why}")
        disk.unmap()
    return test


FAULTS = {
    "a_request_that_fails": ("client", "fault=status status=12 on=write"),
    # The response to a write.
    "a_response_that_fails": ("server", "fault=status status=12 on=send"),
    "a_registration_that_fails": ("client", "fault=status status=6 on=register"),
    "a_request_that_cannot_be_posted": ("client", "fault=post errno=12 on=write"),
    "requests_that_cannot_be_posted_together": ("client", "fault=post errno=12 on=write", "", "", rnbd.TOGETHER),
    "one_of_several_requests_that_fails": ("client", "fault=status status=12 on=write", "", "", rnbd.TOGETHER),
    "a_response_that_cannot_be_posted": ("server", "fault=post errno=12 on=send"),
    "a_lost_request": ("client", "fault=lose on=write", "io_timeout_ms=2000"),
    "a_lost_response": ("server", "fault=lose on=send", "io_timeout_ms=2000"),
    "a_completion_queue_of_the_client_that_is_full": ("client", "fault=overrun on=write"),
    # Of what the server posts for a write, the invalidation completes.
    "a_completion_queue_of_the_server_that_is_full": ("server", "fault=overrun on=invalidate"),
    "a_queue_pair_of_the_client_that_is_given_up": ("client", "fault=fatal on=write", "",
                                                    "rtrs_client: .*device gave a queue pair up: QP fatal error"),
    "a_queue_pair_of_the_server_that_is_given_up": ("server", "fault=fatal on=invalidate", "",
                                                    "rtrs_server: .*connection [0-9]+: QP fatal error"),
}

# The path ends by a completion, as after a response that fails, or by time, as after a request that is lost.
FAULTS_LIKE_OTHERS = ("a_request_that_fails", "a_registration_that_fails", "a_lost_response",
                      "a_completion_queue_of_the_server_that_is_full", "a_queue_pair_of_the_server_that_is_given_up")

for _name, _fault in FAULTS.items():
    globals()[f"test_io_goes_on_after_{_name}"] = _faulty(
        *_fault, of_tier=tier.ALL if _name in FAULTS_LIKE_OTHERS else tier.CORE)


# Of an answer without an error to request 0 (rtrs/proto/imm.rs), and the bits behind the number of one of 512.
ANSWER, OFFSET_BITS = 1 << 28, 19


@needs(machines=1, smp=2, own_modules=True)
def test_no_memory_is_given_back_before_its_registration_is_posted(vm: Lab) -> None:
    """A server answers a read that is not posted yet, on an adapter that does not check invalidations: the memory would
    be registered after it was given back. The path ends when the true answer comes, and connects again."""
    plug_in(vm, "check_invalidations=0")
    rnbd.start(vm)
    rnbd.copy_reads(vm, 0)
    disk = rnbd.map_disk(vm)
    disk.fio("--rw=read --bs=4k --size=1m --verify=0").clean()
    before, mark = paths.count(vm, "reconnects", 0), vm.server.log_mark()
    add_fault(vm, f"fault=answer on=register imm={ANSWER} shift={OFFSET_BITS}")
    vm.client.run(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct status=none", 20)
    eq(vm.server.read(f"{CONTROL}/faults"), "1 0", "the answer came early")
    eq(vm.server.log_matches("is registered after its invalidation", mark), [])
    until(lambda: paths.count(vm, "reconnects", 0) > before, 30, "the path has ended and connected again")
    disk.fio("--rw=randrw --bs=4k --size=1m --verify=crc32c --verify_fatal=1").clean()
    disk.unmap()


def _reconnects(vm: Lab) -> int:
    folder = rnbd.session_file("paths")
    return sum(int(vm.client.read(f"{folder}/{name}/stats/reconnects").split()[0]) for name in paths.names(vm))


@needs(machines=1, own_modules=True)
def test_a_request_that_no_path_survives_leaves_time_to_the_others(vm: Lab) -> None:
    """The adapter fails the answer to each read of 12 KiB: that read is tried seldom, and ends well at last, or when
    its time is over."""
    plug_in(vm)
    rnbd.start(vm, count=2)
    vm.server.run("ip addr add 10.0.0.77/24 dev eth0")
    vm.defer(vm.server.run, "ip addr del 10.0.0.77/24 dev eth0")
    line = f"path=ip:{vm.address(vm.server, 0)} path=ip:10.0.0.77 access_mode=rw"
    disks = [rnbd.map_disk(vm, device, line=f"sessname=s1 device_path={device} {line}") for device in ("ram0", "ram1")]
    eq(paths.states(vm), ["connected", "connected"])
    add_fault(vm, f"fault=status status=10 on=write bytes={12 * K} times=1000000")
    vm.defer(clear_faults, vm)
    read = vm.client.start_job(f"dd if={disks[0].path} of=/dev/null bs=12k count=1 iflag=direct status=none", 100)
    until(lambda: _reconnects(vm) >= 2, 20, "the read has taken both paths with it")
    before, mark = _reconnects(vm), vm.server.log_mark()
    disks[1].fio("--rw=randread --bs=4k --iodepth=4 --size=8m --time_based --runtime=8").clean()
    lines = len(vm.server.log_matches("rtrs_|rnbd_", mark))
    paths.figure(f"{_reconnects(vm) - before} reconnects, {lines} lines, {disks[1].requests} reads")
    # Paths that are lost at once are connected some ten times a second; the other disk gets two reads.
    ok(_reconnects(vm) - before <= 30, f"{_reconnects(vm) - before} reconnects")
    ge(disks[1].requests, 10, "reads of the other disk")
    in_time(disks[1].requests >= 100, f"{disks[1].requests} reads of the other disk")
    ok(read.running, "the read has failed, or was not tried")
    clear_faults(vm)
    eq(read.wait(30).code, 0, "the read, when the adapter does not fail any more")
    # There is a path again and again, so it is the request's own time that is over.
    add_fault(vm, f"fault=status status=10 on=write bytes={12 * K} times=1000000")
    rnbd.fail_fast(vm, 2)
    ok(vm.client.try_run(f"dd if={disks[0].path} of=/dev/null bs=12k count=1 iflag=direct", 40).code, "it succeeds")
    clear_faults(vm)
    until(lambda: paths.states(vm) == ["connected", "connected"], 30, "the paths are back")
    for disk in disks:
        disk.unmap()
