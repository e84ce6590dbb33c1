# SPDX-License-Identifier: GPL-2.0
"""The server of rioc: stores that come and go, and what a scripted client sees of them.

    scripted clients (user-space verbs) ── rxe0 ── rtrs-server + rioc-server      one machine
"""
from __future__ import annotations

from pathlib import Path

import pytest

from vmlab import seed
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests import hostile

PEER = Path(__file__).resolve().parents[1] / "peer"
FILES = ("scripted_peer.py", "messages.py", "client.py", "rioc_wire.py", "rioc_deeds.py")
CONTROL = "/sys/class/rioc-server/ctl"
# A line that is wrong, its errno, and what its line in the log says.
WRONG = (("colour=red", "EINVAL", "unknown or empty option 'colour=red'"),
         ("ram_mib=1", "EINVAL", "name missing"),
         ("name=bb", "EINVAL", "objects have no place"),
         (f"name={'n' * 33} ram_mib=1", "ENAMETOOLONG", "is not 1 to 32 letters"),
         ("name=bb ram_mib=900000", "ENOMEM", "bytes of memory, and"),
         ("name=bb ram_mib=1 backing=/mnt", "ENOTSUP", "backing= is not built"))
DEEDS = ("each_operation", "bytes_are_those_of_arrays", "leases_end_with_their_client",
         "a_copy_of_an_operation_is_answered_with_the_same", "a_store_is_full", "old_objects_make_room",
         "lies_are_refused")


def load(lab: Lab, *lines: str) -> None:
    """Loads the server anew, with stores. A scripted peer does not answer heartbeats."""
    lab.server.run("mods -r; mods ours rtrs-server heartbeat_interval_ms=60000 && mods ours rioc-server")
    for line in lines:
        eq(lab.server.write(f"{CONTROL}/add_store", line), "", line)
    if not lab.server.exists("/tmp/peer/rioc_deeds.py"):
        hostile.bring_peer(lab.server, FILES)


def deed(name: str, lab: Lab) -> str:
    """The command of a deed."""
    return f"cd /tmp/peer && python3 -S rioc_deeds.py {name} {lab.server_address} {seed.fresh().randrange(1 << 32)}"


def stats(lab: Lab, store: str = "bb") -> dict[str, int]:
    """What a store has and has done."""
    lines = lab.server.read(f"{CONTROL}/stores/{store}/stats").splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines)}


@needs(machines=1, own_modules=True)
def test_stores_come_and_go(vm: Lab) -> None:
    """Each wrong line has its errno and one line in the log; a store has its files; the module unloads with stores."""
    load(vm)
    for line, errno, says in WRONG:
        mark = vm.server.log_mark()
        eq(vm.server.write(f"{CONTROL}/add_store", line), errno, line)
        found = vm.server.log_matches("rioc_server", mark)
        ok(len(found) == 1 and says in found[0], f"{line}: {found}")
    for _ in range(2):
        eq(vm.server.write(f"{CONTROL}/add_store", "name=bb ram_mib=2"), "")
        eq(vm.server.write(f"{CONTROL}/add_store", "name=bb ram_mib=2"), "EEXIST")
        eq(vm.server.names(f"{CONTROL}/stores/bb"), ["clients", "state", "stats"])
        eq(stats(vm)["blocks_max"], 512)
        ok(vm.server.read(f"{CONTROL}/stores/bb/state").startswith("memory"), "the state")
        eq(vm.server.write(f"{CONTROL}/del_store", "bb"), "")
        eq(vm.server.write(f"{CONTROL}/del_store", "bb"), "ENOENT")
    eq(vm.server.write(f"{CONTROL}/add_store", "name=bb ram_mib=2"), "")
    vm.server.run("rmmod rioc_server")


@pytest.mark.parametrize("name", DEEDS)
@needs(machines=1, own_modules=True, timeout=240)
def test_deed(vm: Lab, name: str) -> None:
    """What the scripted client does, and judges: see tools/vmlab/peer/rioc_deeds.py."""
    load(vm, "name=bb ram_mib=8", "name=small ram_mib=1", "name=cache ram_mib=1 evict=objects")
    mark = vm.server.log_mark()
    out = vm.server.run(deed(name, vm), 200)
    eq(out.splitlines()[-1], "ok")
    lines = [line for line in vm.server.log_matches("rioc_server", mark) if "refused" in line]
    eq(bool(lines), name == "lies_are_refused", f"the log: {lines[:3]}")
    found = stats(vm)
    eq((found["objects"], found["blocks"], found["ranges"], found["extents"]), (0, 0, 0, 0), "all was deleted")


@needs(machines=1, own_modules=True)
def test_what_is_in_use_is_deleted_and_unloaded(vm: Lab) -> None:
    """A client of a store that is deleted gets ENODEV; one of a server that is unloaded loses its path."""
    load(vm, "name=bb ram_mib=8")
    for command in (f"echo bb > {CONTROL}/del_store", "rmmod rioc_server"):
        job = vm.server.start_job(f"{deed('hold', vm)} > /run/hold", 100)
        until(lambda: "holds" in vm.server.run("cat /run/hold 2>/dev/null || true"), 40, "it has begun")
        until(lambda: stats(vm)["writes"] > 3, 40, "it writes")
        vm.server.run(command, 60)
        eq(job.ok(60), "")
        eq(vm.server.run("tail -1 /run/hold").strip(), "ok")
        vm.server.run("rm /run/hold")
        if "del_store" in command:
            eq(vm.server.write(f"{CONTROL}/add_store", "name=bb ram_mib=8"), "")
