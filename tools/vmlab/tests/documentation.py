# SPDX-License-Identifier: GPL-2.0
"""The commands of the documents are executed, and their promised output is checked.

    client ══ wire 0 ══ server
           ══ wire 1 ══

Which blocks there are, and which are commands of the host, is checked without machines (unit/test_docs.py).
"""
from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kdir import cargo, programs
from vmlab import demo, docs, ec, rnbd, shell, story, tier
from vmlab.checks import Failed, eq, ok, until
from vmlab.docs import REPOSITORY, Block
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs
from vmlab.tests import rioc_tool
from vmlab.tests.pi_store import format_disk

TIER = tier.ALL

BLOCK_SECONDS = 120
TRANSCRIPTS = ("README.md", "Documentation/quickstart.md")
# Commands that take hours as they stand in the documents, and what is run of them.
SHORTENED = {"--seeds 1000000": "--seeds 10",
             "storm compare waiting pattern fault members": "storm fault --nodes 1,8 --size 8"}


def _run(lab: Lab, block: Block) -> None:
    """Runs a block as one script on its machines; the first command that fails ends it."""
    for machine in {"client": [lab.client], "server": [lab.server], "both": lab.machines}[block.place]:
        done = machine.try_run("set -ex\n" + "\n".join(block.commands), BLOCK_SECONDS)
        if done.code:
            raise Failed(f"{block.where} on the {machine.name}, code {done.code}:\n{done.out[-1500:]}")


def _machine_blocks(file: str) -> list[Block]:
    return [block for block in docs.blocks(file) if block.place in docs.MACHINES]


# -- the quickstart ------------------------------------------------------------------------------------------

def _install(lab: Lab, folder: Path) -> None:
    """`make modules_install` below `folder`, over the stock modules, and its outcome in each machine."""
    version = lab.assets.kernel_version
    place = folder / "lib/modules" / version
    place.mkdir(parents=True)
    for name in ("kernel", "modules.builtin", "modules.builtin.modinfo", "modules.order"):
        (place / name).symlink_to(lab.image.stock / name)
    done = subprocess.run(["make", "--no-print-directory", "modules_install"], cwd=REPOSITORY, capture_output=True,
                          text=True, check=False, env=os.environ | {"INSTALL_MOD_PATH": str(folder)})
    ok(done.returncode == 0, f"make modules_install: {done.stderr}")
    base = f"/usr/lib/modules/{version}"
    for machine in lab.machines:
        machine.run(f"mkdir -p {base}/updates/ferrofabric /run/indexes; cp {base}/modules.* /run/indexes/")
        lab.defer(machine.run, f"mods -r; cp /run/indexes/* {base}/; rm -r {base}/updates /run/indexes")
        for file in place.glob("modules.*"):
            machine.push(file, f"{base}/{file.name}")
        for file in (place / "updates/ferrofabric").glob("*.ko"):
            machine.push(file, f"{base}/updates/ferrofabric/{file.name}")


def _loaded(machine: Machine) -> set[str]:
    return set(machine.run("mods -l").split())


def _disk_is_there(lab: Lab) -> None:
    ok(lab.client.exists("/dev/rnbd0"), "/dev/rnbd0 is not there when the line has returned")
    eq(lab.client.read("/sys/block/rnbd0/rnbd/state"), "open")
    eq(lab.client.read("/sys/block/rnbd0/size"), lab.server.read("/sys/block/ram0/size"), "size")


def _file_system_is_on_the_server(lab: Lab) -> None:
    lab.client.run("echo kept > /mnt/file && sync")
    ok("ext4" in lab.server.run("blkid /dev/ram0"), "the server's disk has no ext4")


def _disk_is_gone(lab: Lab) -> None:
    until(lambda: not lab.client.exists("/sys/block/rnbd0"), 10, "rnbd0 is gone")
    eq(_loaded(lab.client), set(), "modules on the client")


def _server_is_empty(lab: Lab) -> None:
    eq(_loaded(lab.server), set(), "modules on the server")


def _loaded_by_hand(lab: Lab, machine: Machine, side: str) -> None:
    eq(_loaded(machine), {"kernel_ext", "block_ext", "rdma_rust", "rtrs_core", f"rtrs_{side}", f"rnbd_{side}"},
       f"on the {side}")
    machine.run("mods -r")


# What a block promises, by a command in it; each is looked for, and none may be without its block.
PROMISES: dict[str, Callable[[Lab], None]] = {
    r"rdma link add": lambda lab: ok(all("rxe0/1 state ACTIVE" in m.run("rdma link") for m in lab.machines), "no link"),
    r"modprobe rnbd-server": lambda lab: ok("rnbd_server" in _loaded(lab.server), "the server has no modules"),
    r"> \S*/map_device": _disk_is_there,
    r"mkfs": _file_system_is_on_the_server,
    r"unmap_device": _disk_is_gone,
    r"modprobe -r rnbd-server": _server_is_empty,
    r"rtrs-client rnbd-client; do": lambda lab: _loaded_by_hand(lab, lab.client, "client"),
    r"rtrs-server rnbd-server; do": lambda lab: _loaded_by_hand(lab, lab.server, "server"),
}


@needs(wires=2, own_modules=True, timeout=240)
def test_the_quickstart_works_as_it_is_written(pair: Lab) -> None:
    """Each block is run on its machine, in order, from modules_install to the last line, with its promised output."""
    with tempfile.TemporaryDirectory() as folder:
        _install(pair, Path(folder))
    rnbd.ram_disk(pair, 32)
    pair.client.run("modprobe ext4")        # a whole Debian does that by itself
    pair.server.run("cp -a /dev/ram0 /dev/vdb")
    pair.defer(pair.server.run, "rm /dev/vdb")
    for machine in pair.machines:       # the reader makes it
        machine.run("rdma link delete rxe0")
        pair.defer(machine.run, "rdma link show rxe0/1 >/dev/null || rdma link add rxe0 type rxe netdev eth0")
    pair.defer(pair.client.run, "umount /mnt 2>/dev/null; true")
    kept = set()
    for block in _machine_blocks("Documentation/quickstart.md"):
        _run(pair, block)
        for pattern, promise in PROMISES.items():
            if re.search(pattern, "\n".join(block.commands)):
                promise(pair)
                kept.add(pattern)
    eq(set(PROMISES) - kept, set(), "promises of which the quickstart has no command")


@needs(wires=2)
def test_the_paths_of_the_failover_page(pair: Lab) -> None:
    """Its commands give three paths and the policy; then every file of /sys that any document names is there."""
    rnbd.start(pair, count=3)
    for machine, address in ((pair.client, "10.0.2.1"), (pair.server, "10.0.2.2")):
        machine.run(f"ip addr add {address}/24 dev eth0")
        pair.defer(machine.run, f"ip addr del {address}/24 dev eth0")
    (block,) = _machine_blocks("Documentation/failover.md")
    _run(pair, block)
    pair.defer(pair.client.run, "echo force > /sys/block/rnbd0/rnbd/unmap_device")
    eq(pair.client.run("cat /sys/class/rtrs-client/s/paths/*/state").split(), ["connected"] * 3, "paths")
    eq(pair.client.read("/sys/class/rtrs-client/s/mpath_policy"), "min-latency (ML: 2)")
    # Files of the samples, which have a document of their own.
    pair.defer(pair.server.run, "rmmod crc32_umr_initiator crc32_umr_target")
    pair.server.run("mods ours crc32_umr_target device=/dev/ram1")
    pair.server.run("mods ours crc32_umr_initiator addr=10.0.0.2 blocks=1")
    # Files of a device with a sidecar.
    format_disk(pair, "ram2")
    pair.defer(rnbd.map_disk(pair, "ram2", options="pi=require").unmap)
    # Files of an array.
    pair.server.run("mods ours rnbd-ec; modprobe loop max_loop=3; for n in 0 1 2; do truncate -s 16m /run/m$n; "
                    "losetup /dev/loop$n /run/m$n; done")
    pair.defer(pair.server.run, "rmmod rnbd_ec seglog; losetup -D; rm /run/m?")
    eq(pair.server.write(ec.ASSEMBLE, "mode=create name=ec0 members=/dev/loop0,/dev/loop1,/dev/loop2", ec.SECONDS), "")
    pair.defer(ec.Array(pair.server).stop)
    # Files of a store and of a session with it.
    pair.server.run("mods ours rioc-server")
    pair.defer(pair.server.run, "rmmod rioc_server")
    eq(pair.server.write(rioc_tool.ADD, "name=bb ram_mib=1", rioc_tool.SECONDS), "")
    pair.client.run("mods ours rioc-client")
    pair.defer(pair.client.run, "rmmod rioc_client")
    eq(rioc_tool.connect(pair), "")
    abi = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "Documentation/ABI").rglob("sysfs-*"))
    named = {file: docs.sysfs_paths((REPOSITORY / file).read_text(encoding="utf-8"))
             for file in (*docs.documents(), *abi)}
    # The device's own name on the server, and N or <N> on the client, are patterns.
    look = "\n".join(f"compgen -G {shlex.quote(path)} > /dev/null || echo {shlex.quote(path)}"
                     for path in sorted(set().union(*named.values())))
    absent = set.intersection(*(set(machine.run(look).splitlines()) for machine in pair.machines))
    eq([f"{file}: {path}" for file, paths in named.items() for path in sorted(paths & absent)], [],
       "files that documents name")


# -- the host's commands that need machines, or a compiler ---------------------------------------------------

@needs(wires=2, own_modules=True, timeout=240)
def test_the_demo_prints_what_the_documents_show(pair: Lab) -> None:
    """`make demo` in these machines; every piece of its transcripts is in what it prints, but for the figures."""
    began, said = time.monotonic(), io.StringIO()
    with contextlib.redirect_stdout(said):
        demo.chapters(demo.Demo(pair, story.Story(), pair.modules, "Y"), lambda: None)
        print(demo.closing(time.monotonic() - began))
    for file in TRANSCRIPTS:
        shown = [block for block in docs.blocks(file) if block.place == "printed"]
        eq(len(shown), 1, f"transcripts in {file}")
        eq(docs.transcript_errors("\n".join(shown[0].lines), said.getvalue()), [], f"{file} shows, and nothing prints")


@needs(wires=2, own_modules=True)
def test_the_shell_has_a_disk_and_obeys(pair: Lab) -> None:
    """`make shell`: the disk is mapped, a line runs on the client or where it says, wires are cut and mended."""
    lines = "cat /sys/block/rnbd0/rnbd/state\n" \
            "@server cat /sys/class/rnbd-server/ctl/devices/ram0/sessions/s1/mapping_path\n" \
            "!cut 1\nip -br link show eth1\n!mend 1\n@nobody true\nfalse\n!help\nexit\n"
    said = io.StringIO()
    before, sys.stdin = sys.stdin, io.StringIO(lines)
    try:
        with contextlib.redirect_stdout(said):
            shell.receive(pair)
    finally:
        sys.stdin = before
        pair.mend(1)
    for words in ("mapped here as /dev/rnbd0", "open\n", "ram0\n", "NO-CARRIER", "no machine nobody", "[code 1]"):
        ok(words in said.getvalue(), f"the shell does not say {words!r}: {said.getvalue()}")
    eq(said.getvalue().count("!push FILE"), 2, "times that the help is shown")


@needs(timeout=400, tier=tier.LONG)
def test_the_simulation_runs_as_it_is_written() -> None:
    """The lines with cargo, in tools/, with fewer seeds where a document asks for hours."""
    commands = [command for file in docs.documents() for block in docs.blocks(file) if block.place == "host"
                for command in block.commands if command.startswith("cargo ")]
    ok(len(commands) >= 2, f"only {len(commands)} commands with cargo are found")
    for command in commands:
        line = command
        for long, short in SHORTENED.items():
            line = line.replace(long, short)
        words = [*cargo.command(), *line.split()[1:]]
        at = words.index("--") if "--" in words else len(words)
        words[at:at] = ["--manifest-path", str(REPOSITORY / "tools/Cargo.toml"), "--locked", "--quiet"]
        done = subprocess.run(words, cwd=REPOSITORY / "tools", capture_output=True, text=True, check=False,
                              env=os.environ | cargo.environment())
        ok(done.returncode == 0, f"{command}: {done.stdout[-500:]} {done.stderr[-1000:]}")


@needs(wires=1, own_modules=True)
def test_an_array_is_made_as_it_is_written(pair: Lab) -> None:
    """The commands of ec.md, over three disks of one server."""
    rnbd.ram_disk(pair, 64, 3)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    pair.client.push(programs.RNBD_EC.build(), "/usr/bin/rnbd-ec")
    pair.client.run("chmod 755 /usr/bin/rnbd-ec; mods ours rnbd-ec; modprobe ext4")
    for block in docs.blocks("Documentation/ec.md"):
        if block.place == "client":
            pair.client.run("\n".join(block.commands), 120)
    array = ec.Array(pair.client)
    eq(array.state(), "clean")
    array.stop()
    for number in range(3):
        rnbd.Disk(pair.client, f"rnbd{number}", "s1", f"ram{number}").unmap()


@needs(wires=1, own_modules=True)
def test_objects_are_kept_as_it_is_written(pair: Lab) -> None:
    """The commands of rioc.md, with those of rioc-client.md between them."""
    rnbd.ram_disk(pair, 16)
    rioc_tool.modules(pair)
    begin, *end = _machine_blocks("Documentation/rioc.md")
    for block in (begin, *_machine_blocks("Documentation/rioc-client.md"), *end):
        _run(pair, block)
    eq(pair.server.names("/sys/class/rioc-server/ctl/stores"), ["safe"])
