# SPDX-License-Identifier: GPL-2.0
"""A hostile client: every lie is answered with an error or a closed path, and others are still served.

    liar (user-space verbs) ──┐
    bystander (the same) ─────┴── rxe0 ── rtrs-server + rnbd-server      one machine
"""
from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from vmlab import assets
from vmlab.checks import eq, ok
from vmlab.lab import Lab
from vmlab.needs import needs

PEER = Path(__file__).resolve().parents[1] / "peer"
KDIR = PEER.parents[1] / "kdir"
FILES = ("puppet.py", "messages.py", "client.py", "attacks.py", "strangers.py")
# A lie costs one line, or two where the request was refused first and the path closed then.
LOG_LINES_MAX = 2

sys.path.insert(0, str(PEER))
import attacks  # noqa: E402
import strangers  # noqa: E402


def puppet_program() -> Path:
    """The puppet, compiled in the Debian root against its own verbs libraries."""
    source = PEER / "puppet.c"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    program = assets.cache_dir() / f"puppet-{digest}"
    if not program.exists():
        subprocess.run([sys.executable, "-B", str(KDIR), "run", "gcc-14", "-O2", "-Wall", "-Wextra", "-Werror",
                        "-Wno-unused-parameter", "-o", str(program), str(source), "-lrdmacm", "-libverbs"],
                       check=True)
    return program


def _prepare(lab: Lab) -> None:
    """Loads the server once; the tests of this file share it."""
    vm = lab.server
    if vm.exists("/tmp/peer/attacks.py") and "rnbd_server" in vm.run("lsmod"):
        return
    vm.run("mkdir -p /tmp/peer; modprobe ib_uverbs; modprobe rdma_ucm; "
           "modprobe brd rd_nr=4 rd_size=16384 2>/dev/null; true")
    for name in FILES:
        vm.push(PEER / name, f"/tmp/peer/{name}")
    vm.push(puppet_program(), "/tmp/peer/puppet")
    vm.run("chmod 755 /tmp/peer/puppet")
    vm.run(f"mods {lab.modules} rtrs-server always_invalidate=Y; mods {lab.modules} rnbd-server dev_search_path=/dev")


def _make(script: str, name: str, title: str, silent: bool) -> Callable[[Lab], None]:
    @needs(machines=1, unloads=False, timeout=240)
    def test(lab: Lab) -> None:
        _prepare(lab)
        vm = lab.server
        mark = vm.log_mark()
        eq(vm.try_run(f"python3 /tmp/peer/{script}.py {name} {lab.server_address}", 200).out.strip(), "ok")
        lines = [line for line in vm.log_matches("rtrs_server|rnbd_server|beyond end of device", mark) if not _is_routine(line)]
        if not silent:
            ok(lines, "the kernel log does not say what happened")
            ok(len(lines) <= LOG_LINES_MAX, f"{len(lines)} lines in the kernel log: {lines}")
    test.__doc__ = title
    return test


def _is_routine(line: str) -> bool:
    """Lines about honest sessions coming and going."""
    return bool(re.search(r"(opened as \w+|\) closed|ended|connected|proto(col)? 2\.0.*)$", line))


for _name, (_expected, _function) in attacks.ATTACKS.items():
    globals()[f"test_{_name}"] = _make("attacks", _name, _function.__doc__ or "", _expected == 0)
for _name, (_expected, _function) in strangers.STRANGERS.items():
    globals()[f"test_{_name}"] = _make("strangers", _name, _function.__doc__ or "", _expected is None)


@needs(machines=1)
def test_nothing_is_left_of_the_attackers(lab: Lab) -> None:
    """After all of them: no session, and the modules unload (the harness looks for leaks)."""
    _prepare(lab)
    eq(lab.server.run("ls /sys/class/rtrs-server").split(), [], "sessions that are left")
