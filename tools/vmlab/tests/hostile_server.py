# SPDX-License-Identifier: GPL-2.0
"""A hostile server: mapping fails with a clear error, or the violation fails the IO; the client stays usable.

    rnbd-client + rtrs-client ── rxe0 ── hostile server (user-space verbs)      one machine
"""
from __future__ import annotations

import errno

import hostile_servers
import messages
import pytest

from vmlab import rnbd
from vmlab.checks import ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests.hostile import PEER, peer_program

FILES = ("scripted_peer.py", "messages.py", "server.py", "hostile_servers.py")
SECOND_DISK = "a_bad_second_disk_under_the_number_of_the_first"
SECONDS = 25
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


@pytest.mark.parametrize(("name", "expected", "title"), [
    pytest.param(name, expected, function.__doc__ or "", id=name)
    for name, (expected, function) in hostile_servers.HOSTILE_SERVERS.items()])
@needs(machines=1, timeout=180)
def test_lies(lab: Lab, name: str, expected: tuple[int, ...], title: str) -> None:
    """One violation by a server: the client logs it or its IO fails, and the client stays usable."""
    del title       # for the list of tests
    _prepare(lab)
    vm = lab.client
    mark = vm.log_mark()
    vm.run(f"rm -f {hostile_servers.READY} {hostile_servers.OPERATIONS}")
    server = vm.start_job(f"cd /tmp/peer && python3 -S -m hostile_servers {name} {SECONDS}", SECONDS + 30)
    lab.defer(server.kill)
    lab.defer(vm.run, "for d in /sys/block/rnbd*; do [ -e $d ] && echo force > $d/rnbd/unmap_device; done; true")
    until(lambda: vm.exists(hostile_servers.READY), 20, "the hostile server listens")
    line = MAP.format(address=lab.server_address)
    if lab.modules == "ours":
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
        elif lab.modules == "ours" and name not in hostile_servers.HARMLESS:
            ok(vm.log_matches("rtrs_client.*closing the path", mark), "no line says that the path was closed")
            ok(read.code, "a read succeeded over a path that was to be closed")
        if lab.modules == "ours" and name == SECOND_DISK:
            other = MAP.format(address=lab.server_address).replace("ram0", "ram1")
            found = vm.write("/sys/class/rnbd-client/ctl/map_device", other, 90)
            ok(found == "EINVAL", f"the second disk's map_device answered {found or 'success'}, expected EINVAL")
            vm.run("timeout 20 dd if=/dev/rnbd0 of=/dev/null bs=4k count=1 skip=1 iflag=direct", 40)
            told = vm.read(hostile_servers.OPERATIONS)
            ok("close" not in told, f"the client closed the number of the first disk, which is in use: {told}")
        if name == "one_that_erases_for_good":
            vm.run("blkdiscard --secure -o 64K -l 32K /dev/rnbd0")
            ok(f"{messages.OP_SECURE_ERASE} 128 32768" in vm.read(hostile_servers.OPERATIONS).splitlines(),
               "the server was not asked to erase")
