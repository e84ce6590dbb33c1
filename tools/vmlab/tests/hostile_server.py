# SPDX-License-Identifier: GPL-2.0
"""A hostile server: mapping fails with a clear error, or the violation fails the IO; the client stays usable.

    rnbd-client + rtrs-client ── rxe0 ── hostile server (user-space verbs)      one machine
"""
from __future__ import annotations

import errno

import fencing_server
import hostile_servers
import messages
import pytest
import server as scripted

from vmlab import paths, rnbd, tier
from vmlab.checks import ByChance, eq, ok, until
from vmlab.lab import Lab
from vmlab.machine import CommandFailed, Machine
from vmlab.needs import needs
from vmlab.tests.hostile import PEER, peer_program

FILES = ("scripted_peer.py", "messages.py", "server.py", "hostile_servers.py", "fencing_server.py")
SECOND_DISK = "a_bad_second_disk_under_the_number_of_the_first"
SAME_NUMBER = "a_second_disk_under_the_number_of_the_first"
SECONDS, SECONDS_OF_MANY = 25, 120
SCRIBBLES = "one_that_writes_into_buffers_at_any_time"
# Several readers at once use more than one buffer.
SIDE_BY_SIDE = """for n in 1 2 3; do
    dd if=/dev/rnbd0 bs=4k count=8 iflag=direct status=none | cmp -n 32768 - /dev/zero & pids+=($!)
done
for pid in ${pids[@]}; do wait $pid || exit; done"""
# IBV_WC_REM_ACCESS_ERR, or IBV_WC_RETRY_EXC_ERR: with the error the client ends the queue pair, which may be earlier
# than the word of it.
REFUSED = ("10", "12")
MAP = "sessname=hostile path=ip:{address} device_path=ram0"


def _prepare(lab: Lab) -> None:
    vm = lab.client
    if not vm.exists("/tmp/peer/hostile_servers.py"):
        vm.run("mkdir -p /tmp/peer; modprobe ib_uverbs; modprobe rdma_ucm")
        for name in FILES:
            vm.push(PEER / name, f"/tmp/peer/{name}")
        vm.push(peer_program(), "/tmp/peer/scripted_peer")
        vm.run("chmod 755 /tmp/peer/scripted_peer")
    rnbd.load_client(lab)


def _read_until_the_key_is_the_same(vm: Machine) -> None:
    """The 256th read after the one whose invalidation was kept is a polled one, of the same place: one processor."""
    vm.run(f"touch {hostile_servers.READY}.keep")
    vm.run("taskset -c 0 dd if=/dev/rnbd0 of=/dev/null bs=512 count=256 iflag=direct", 100)
    mark = vm.log_mark()
    try:
        vm.run("taskset -c 0 fio --name=polled --filename=/dev/rnbd0 --ioengine=io_uring --hipri --direct=1 --rw=read "
               "--bs=512 --size=512 --number_ios=1", 60)
    except CommandFailed:
        # Seen twice, on a busy host: rxe at the peer takes a request for an invalid one (IB_WC_REM_INV_REQ_ERR), before
        # there is the same key. The client may hear of what is flushed first.
        if vm.log_matches("remote invalid request error|do_complete: non-flush error status = 9$", mark) \
                and not vm.exists(hostile_servers.OPERATIONS):
            raise ByChance("rxe has refused a request of the client") from None
        raise
    eq(vm.read(hostile_servers.OPERATIONS), "the same key", "what the server saw")


def _write_late(vm: Machine, name: str, mark: int) -> None:
    """The server writes under the key of a read that has ended: it is refused."""
    if name == hostile_servers.KEPT:
        _read_until_the_key_is_the_same(vm)
    vm.run(f"touch {scripted.GO}")
    until(lambda: vm.exists(hostile_servers.WRITTEN), 20, "the server has written under the old key")
    status = vm.read(hostile_servers.WRITTEN)
    ok(status in REFUSED, f"a write under the key of a read that has ended: status {status}")
    if name in hostile_servers.HARMLESS:
        ok(vm.log_matches("QP access error", mark), "the client's adapter has not refused that write")


def _read_more(vm: Machine, name: str, mark: int) -> None:
    """Reads what else an honest server is asked for."""
    if name == SCRIBBLES:
        vm.run(SIDE_BY_SIDE, 60)
    if name == hostile_servers.SMALL:
        vm.run("timeout 20 dd if=/dev/rnbd0 of=/dev/null bs=512 count=2 skip=8 iflag=direct", 40)
    if name == hostile_servers.STALE:
        vm.run(f"touch {scripted.GO}")
        read = vm.try_run("timeout 20 dd if=/dev/rnbd0 of=/dev/null bs=4k count=1 iflag=direct 2>&1", 40)
        ok(read.code and vm.log_matches("interval 0 has", mark), f"no data came, and the read said: {read.out}")


def _open_more(vm: Machine, line: str, mark: int) -> None:
    """Opens more disks than the server answers: of eight chunks two are for OPEN, and killed writers have those."""
    control = "/sys/class/rnbd-client/ctl/map_device"
    for name in ("ram1", "ram1", "ram2"):
        vm.try_run(f"timeout -s KILL 2 sh -c \"echo '{line.replace('ram0', name)}' > {control}\"", 20)
    eq(vm.read(hostile_servers.OPERATIONS).split().count("open"), 2, "messages that stay on their way")
    eq(len(vm.log_matches("no device can be opened", mark)), 0, "lines before")
    eq(vm.write(control, line.replace("ram0", "ram3"), 90), "ETIMEDOUT", "map_device of one more disk")
    eq(len(vm.log_matches("no device can be opened, as the server has not answered for 2 others", mark)), 1, "lines")
    vm.run("timeout 20 dd if=/dev/rnbd0 of=/dev/null bs=4k count=1 skip=1 iflag=direct", 40)


def _map_second(vm: Machine, line: str, name: str) -> None:
    """Maps a second disk, which gets the number of the first: that goes on only if the second cannot be used."""
    found = vm.write("/sys/class/rnbd-client/ctl/map_device", line, 90)
    ok(found == "EINVAL", f"the second disk's map_device answered {found or 'success'}, expected EINVAL")
    read = vm.try_run("timeout 20 dd if=/dev/rnbd0 of=/dev/null bs=4k count=1 skip=1 iflag=direct", 40)
    eq(read.code == 0, name == SECOND_DISK, "whether the first disk is used still")
    told = vm.read(hostile_servers.OPERATIONS)
    eq("close" in told, name == SAME_NUMBER, f"whether the number is closed, in {told}")


# What proto judges, whose tests on the host have each of these lies; of the accept, the info and the OPEN's answer
# another one is in each run.
OF_PROTO = ("a_rejection_that_says_nothing", "answer_of_an_unknown_type",
            "depth_and_chunk_that_do_not_fit_the_immediate", "info_of_another_type",
            "info_that_promises_more_than_it_holds", "info_with_regions_of_the_wrong_size", "info_without_regions",
            "no_io_size", "no_room_for_heads", "open_response_of_a_disk_without_end", "open_response_of_another_type",
            "open_response_with_an_odd_block_size", "protection_information_that_does_not_exist",
            "protection_information_unasked", "wrong_magic_in_the_accept")


def _tier(name: str) -> str:
    """A minute is what a writer of map_device waits for."""
    return tier.ALL if name == hostile_servers.OPENS_ONE or name in OF_PROTO else tier.CORE


@pytest.mark.parametrize(("name", "expected", "title"), [
    pytest.param(name, expected, function.__doc__ or "", id=name, marks=pytest.mark.tier(_tier(name)))
    for name, (expected, function) in hostile_servers.HOSTILE_SERVERS.items()])
@needs(machines=1, timeout=180)
def test_lies(lab: Lab, name: str, expected: tuple[int, ...], title: str) -> None:
    """One violation by a server: the client logs it or its IO fails, and the client stays usable."""
    del title       # for the list of tests
    _prepare(lab)
    vm = lab.client
    mark = vm.log_mark()
    vm.run(f"rm -f {hostile_servers.READY} {hostile_servers.OPERATIONS} {hostile_servers.WRITTEN} {scripted.GO}")
    seconds = SECONDS_OF_MANY if name in (hostile_servers.KEPT, hostile_servers.OPENS_ONE) else SECONDS
    server = vm.start_job(f"cd /tmp/peer && python3 -S -m hostile_servers {name} {seconds}", seconds + 30)
    lab.defer(server.kill)
    lab.defer(vm.run, "for d in /sys/block/rnbd*; do [ -e $d ] && echo force > $d/rnbd/unmap_device; done; true")
    until(lambda: vm.exists(hostile_servers.READY), 20, "the hostile server listens")
    line = MAP.format(address=lab.server_address)
    if lab.modules == "ours":
        rnbd.copy_reads(lab, 0 if name in hostile_servers.OF_KEYS else 4096)
        # A lie in an answer ends the path. IO waits for a better one, here not for long.
        line += f" fast_io_fail_tmo=3{hostile_servers.ASKED.get(name, '')}"
    found = vm.write("/sys/class/rnbd-client/ctl/map_device", line, 90)
    names = [errno.errorcode.get(number, "") for number in expected]
    ok(found in names, f"map_device answered {found or 'success'}, expected one of {names}")
    if found:
        ok(vm.log_matches("rtrs_client|rnbd_client", mark), "the kernel log does not say why mapping failed")
    else:
        read = vm.try_run("timeout 20 dd if=/dev/rnbd0 of=/dev/null bs=4k count=1 iflag=direct 2>&1", 40)
        ok(read.code != 124, "a read hangs")
        if name in hostile_servers.HONEST:
            ok(read.code == 0, f"the honest server's data was not read: {read.out}")
            if lab.modules == "ours":
                told = vm.run("cat /sys/block/rnbd0/wwid 2>/dev/null || true").strip()
                ok(told == hostile_servers.HONEST[name], f"the disk's identity is '{told}'")
            _read_more(vm, name, mark)
        elif lab.modules == "ours" and name not in hostile_servers.HARMLESS:
            words = hostile_servers.CLOSED_FOR.get(name, "")
            ok(vm.log_matches(f"rtrs_client.*{words}.*closing the path", mark), f"no path was closed for: {words}")
            ok(read.code, "a read succeeded over a path that was to be closed")
        if lab.modules == "ours" and name == hostile_servers.OPENS_ONE:
            _open_more(vm, MAP.format(address=lab.server_address), mark)
        if lab.modules == "ours" and name in (SECOND_DISK, SAME_NUMBER):
            _map_second(vm, MAP.format(address=lab.server_address).replace("ram0", "ram1"), name)
        if name in hostile_servers.WRITES_LATE and lab.modules == "ours":
            _write_late(vm, name, mark)
        if name == "one_that_erases_for_good":
            vm.run("blkdiscard --secure -o 64K -l 32K /dev/rnbd0")
            ok(f"{messages.OP_SECURE_ERASE} 128 32768" in vm.read(hostile_servers.OPERATIONS).splitlines(),
               "the server was not asked to erase")


OTHER = "10.0.0.77"
UNASKED = "unknown immediate 0xb"      # an answer to a fence message that was not sent
READ = "timeout 60 dd if=/dev/rnbd0 of=/dev/null bs=4k count=1 skip={block} iflag=direct status=none"


def _story(vm: Machine) -> list[str]:
    return vm.read(fencing_server.STORY).splitlines()


def _heard(vm: Machine, start: str) -> bool:
    return any(line.startswith(start) for line in _story(vm))


def _arm(vm: Machine) -> None:
    """The server loses the path of the next request."""
    vm.run(f"touch {fencing_server.ARMED}")
    until(lambda: not vm.exists(fencing_server.ARMED), 10, "the server is armed")


def _two_paths_to(lab: Lab, name: str) -> None:
    """Starts the server and maps its disk over two paths."""
    _prepare(lab)
    vm = lab.client
    vm.run(f"rm -f {fencing_server.READY} {fencing_server.STORY} {fencing_server.ARMED} {scripted.GO}; "
           f"ip addr add {OTHER}/24 dev eth0")
    lab.defer(vm.run, f"ip addr del {OTHER}/24 dev eth0")
    server = vm.start_job(f"cd /tmp/peer && python3 -S -m fencing_server {name} 100 2>&1", 130)
    lab.defer(server.kill)
    lab.defer(vm.run, "for d in /sys/block/rnbd*; do [ -e $d ] && echo force > $d/rnbd/unmap_device; done; true")
    until(lambda: vm.exists(fencing_server.READY), 20, "the server listens")
    line = MAP.format(address=f"{lab.server_address} path=ip:{OTHER}") + " fast_io_fail_tmo=30"
    eq(vm.write("/sys/class/rnbd-client/ctl/map_device", line, 90), "", "map_device")
    eq(paths.states(lab, "hostile"), ["connected", "connected"])


# Of the answers to a fence message, what `never` and `another` show in each run.
FENCED_MORE = ("late", "twice")


@pytest.mark.parametrize(("name", "title"), [
    pytest.param(name, function.__doc__ or "", id=name,
                 marks=pytest.mark.tier(tier.ALL if name in FENCED_MORE else tier.CORE))
    for name, function in fencing_server.ANSWERS.items()])
@needs(machines=1, timeout=180)
def test_fence_message_answered(lab: Lab, name: str, title: str) -> None:
    """A path is lost with a request: that is sent again when the server has said that it drained the path."""
    del title       # for the list of tests
    _two_paths_to(lab, name)
    vm, mark = lab.client, lab.client.log_mark()
    _arm(vm)
    read = vm.start_job(READ.format(block=8), 80)
    until(lambda: _heard(vm, "asked"), 20, "the client asks about the path")
    if name == "never":
        eq(vm.try_run(READ.format(block=16), 80).code, 0, "another read, over the other path")
        ok(read.running, "the read was sent again, or failed, without an answer")
        vm.run(f"touch {scripted.GO}")
    elif name == "validated":
        until(lambda: _heard(vm, "validating"), 20, "the lost path is back, and the client asks about its server")
        _arm(vm)
        eq(vm.try_run(READ.format(block=16), 80).code, 0, "a read whose path is lost meanwhile")
    eq(read.wait(70).code, 0, "the read")
    until(lambda: paths.states(lab, "hostile") == ["connected", "connected"], 30,
          f"both paths are up after {_story(vm)}")
    story = _story(vm)
    served = [line for line in story if line.startswith("served") and " 64 4096 " in line]
    ok(served and all(line.endswith("before []") for line in served), f"sent again too early: {story}")
    told = vm.log_matches("rtrs_client.*closing the path", mark)
    ok(bool([line for line in told if UNASKED in line]) == (name in ("another", "twice")),
       f"paths that were closed: {told}")
    if name == "validated":
        eq(len([line for line in story if line.startswith("connect")]), 4, f"each path connects twice: {story}")


@needs(machines=1, timeout=180)
def test_an_open_whose_writer_was_killed_is_not_sent_again(lab: Lab) -> None:
    """The server keeps an OPEN, its writer is killed, and the path is lost. An OPEN of the same disk for writing waits
    for the first one's end, which is that of its path: a copy on the other path would close the disk in use."""
    _two_paths_to(lab, "opens")
    vm = lab.client
    control = "/sys/class/rnbd-client/ctl/map_device"
    line = MAP.format(address=lab.server_address).replace("ram0", "ram1")
    vm.try_run(f"timeout -s KILL 2 sh -c \"echo '{line} access_mode=ro' > {control}\"", 20)
    until(lambda: len(_opens(vm)) == 2, 10, "the server has kept an OPEN")
    writer = vm.start_job(f"echo '{line}' > {control}", 80)
    vm.run("sleep 3")
    eq(len(_opens(vm)), 2, "OPENs beside the one that is under way")
    _arm(vm)
    eq(writer.wait(70).code, 0, "map_device")
    until(lambda: paths.states(lab, "hostile") == ["connected", "connected"], 30, "both paths are up")
    # After these the client asks whether the path that is back leads to the same server.
    told = _opens(vm)
    eq(told[:3], ["open ram0 1", "open ram1 0", "open ram1 1"], "OPENs that the server has got, and their modes")
    ok("open ram1 0" not in told[2:], f"an OPEN was sent again: {told}")
    eq(vm.try_run(READ.format(block=8).replace("rnbd0", "rnbd1"), 80).code, 0, "a read")


def _validated(lab: Lab) -> None:
    """Maps two disks over two paths, and has the client validate one, whose server keeps the OPEN of the first disk."""
    _two_paths_to(lab, "validates_late")
    vm = lab.client
    line = MAP.format(address=lab.server_address).replace("ram0", "ram1")
    eq(vm.write("/sys/class/rnbd-client/ctl/map_device", line, 60), "", "map_device")
    _arm(vm)
    eq(vm.try_run(READ.format(block=8), 80).code, 0, "a read whose path is lost")
    until(lambda: len(_opens(vm)) == 3, 30, "the path is back, and its server has kept an OPEN")
    eq(_opens(vm)[-1], "open ram0 1")


def _closed_once(vm: Machine) -> None:
    """The server has closed the first disk once, and has not opened it since."""
    paths.rest(4)
    story = _story(vm)
    closed = [at for at, line in enumerate(story) if " close 0 " in line]
    eq(len(closed), 1, f"times that the disk was closed: {story}")
    ok("open ram0 1" not in story[closed[0]:], f"the disk was opened again: {story}")


@needs(machines=1, timeout=180)
def test_an_unmapped_disk_is_not_opened_again(lab: Lab) -> None:
    """A path comes back, and while its server opens the disks of the session again, one of them is unmapped. Another
    OPEN would keep the disk from other clients after unmap_device has returned."""
    _validated(lab)
    vm = lab.client
    unmap = vm.start_job("echo normal > /sys/block/rnbd0/rnbd/unmap_device", 60)
    until(lambda: not vm.exists("/sys/block/rnbd0"), 10, "the disk is gone")
    vm.run(f"touch {scripted.GO}")
    eq(unmap.wait(60).code, 0, "unmap_device")
    _closed_once(vm)


@needs(machines=1, timeout=180, tier=tier.ALL)
def test_a_path_that_does_not_come_back_leaves_no_doubt(lab: Lab) -> None:
    """A path is removed while its server opens a disk. The client asks over the other path what has become of that, and
    not hours later, when the disk is unmapped."""
    _validated(lab)
    vm = lab.client
    states = vm.run("grep -H . /sys/class/rtrs-client/hostile/paths/*/state").splitlines()
    lost = [line for line in states if not line.endswith(":connected")]
    eq(len(lost), 1, f"paths that are validated: {states}")
    folder = lost[0].rpartition("/state:")[0]
    eq(vm.write(f"{folder}/remove_path", "1", 60), "")
    until(lambda: _opens(vm)[3:] == ["open ram0 1"], 20, "the client asks over the other path")
    eq(vm.write("/sys/block/rnbd0/rnbd/unmap_device", "normal", 60), "")
    _closed_once(vm)


def _opens(vm: Machine) -> list[str]:
    return [line for line in _story(vm) if line.startswith("open")]
