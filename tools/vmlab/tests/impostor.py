# SPDX-License-Identifier: GPL-2.0
"""A hostile server: mapping fails with a clear error, or the violation fails the IO; the client stays usable.

    rnbd-client + rtrs-client ── rxe0 ── impostor (user-space verbs)      one machine
"""
from __future__ import annotations

import errno

import impostors
import pytest

from vmlab import rnbd
from vmlab.checks import ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests.hostile import PEER, puppet_program

FILES = ("puppet.py", "messages.py", "server.py", "impostors.py")
SECONDS = 25
MAP = "sessname=impostor path=ip:{address} device_path=ram0"


def _prepare(lab: Lab) -> None:
    vm = lab.client
    if not vm.exists("/tmp/peer/impostors.py"):
        vm.run("mkdir -p /tmp/peer; modprobe ib_uverbs; modprobe rdma_ucm")
        for name in FILES:
            vm.push(PEER / name, f"/tmp/peer/{name}")
        vm.push(puppet_program(), "/tmp/peer/puppet")
        vm.run("chmod 755 /tmp/peer/puppet")
    rnbd.load_client(lab)


@pytest.mark.parametrize(("name", "expected", "title"), [
    pytest.param(name, expected, function.__doc__ or "", id=name)
    for name, (expected, function) in impostors.IMPOSTORS.items()])
@needs(machines=1, timeout=180)
def test_impostor(lab: Lab, name: str, expected: tuple[int, ...], title: str) -> None:
    """One violation by a server: the client logs it or its IO fails, and the client stays usable."""
    del title       # for the list of tests
    _prepare(lab)
    vm = lab.client
    mark = vm.log_mark()
    vm.run(f"rm -f {impostors.READY}")
    server = vm.start_job(f"cd /tmp/peer && python3 -S -m impostors {name} {SECONDS}", SECONDS + 30)
    lab.defer(server.kill)
    lab.defer(vm.run, "for d in /sys/block/rnbd*; do [ -e $d ] && echo force > $d/rnbd/unmap_device; done; true")
    until(lambda: vm.exists(impostors.READY), 20, "the impostor listens")
    line = MAP.format(address=lab.server_address)
    if lab.modules == "ours":
        # A lie in an answer ends the path. IO waits for a better one, here not for long.
        line += " fast_io_fail_tmo=3"
    found = vm.write("/sys/class/rnbd-client/ctl/map_device", line, 90)
    names = [errno.errorcode.get(number, "") for number in expected]
    ok(found in names, f"map_device answered {found or 'success'}, expected one of {names}")
    if found:
        ok(vm.log_matches("rtrs_client|rnbd_client", mark), "the kernel log does not say why mapping failed")
    else:
        read = vm.try_run("timeout 20 dd if=/dev/rnbd0 of=/dev/null bs=4k count=1 iflag=direct 2>&1", 40)
        ok(read.code != 124, "a read hangs")
        if name in impostors.HONEST:
            ok(read.code == 0, f"the honest server's data was not read: {read.out}")
            if lab.modules == "ours":
                told = vm.run("cat /sys/block/rnbd0/wwid 2>/dev/null || true").strip()
                ok(told == impostors.HONEST[name], f"the disk's identity is '{told}'")
