# SPDX-License-Identifier: GPL-2.0
"""The CRC32/UMR sample: its two modules, what is on the medium, and peers that lie.

    crc32_umr_initiator ── rxe0 ── crc32_umr_target ── /dev/ram0      one machine
"""
from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from kdir import programs
from vmlab import docs, loaded, rnbd, tier
from vmlab.checks import Failed, eq, matches, ok, until
from vmlab.lab import Lab
from vmlab.machine import Job, Machine
from vmlab.needs import needs
from vmlab.tests.hostile import bring_peer

PEER = Path(__file__).resolve().parents[1] / "peer"
FILES = ("scripted_peer.py", "crc32_umr_wire.py", "crc32_umr_lies.py")
FIGURES = "/sys/class/crc32_umr_target/store"
DISK, CHUNKS, DATA = "/dev/ram0", 4096, 4048
LIAR_PORT = 4049
LIAR_SAID = "/tmp/peer/liar.out"
LOG_LIMIT_SECONDS = 5       # the target writes 20 lines about peers in that time
BLOCKS_OF_COMMANDS = 3

sys.path.insert(0, str(PEER))
import crc32_umr_lies
import crc32_umr_wire as wire

TIER = tier.ALL

# Runs in the guest: changes the disk behind the target's back.
EDIT = """
import os, sys
disk = os.open("/dev/ram0", os.O_RDWR)
os.posix_fadvise(disk, 0, 0, os.POSIX_FADV_DONTNEED)
os.pwrite(disk, bytes.fromhex(sys.argv[2]), int(sys.argv[1]))
os.fsync(disk)
"""
LOOK = """
import os, sys
disk = os.open("/dev/ram0", os.O_RDONLY)
os.posix_fadvise(disk, 0, 0, os.POSIX_FADV_DONTNEED)
print(os.pread(disk, int(sys.argv[2]), int(sys.argv[1])).hex())
"""


def _disk(vm: Lab) -> Machine:
    """An empty disk of 4096 chunks, and chunk4kfsck."""
    machine = vm.server
    rnbd.ram_disk(vm, CHUNKS * 4096 >> 20)
    if not machine.exists("/usr/bin/chunk4kfsck"):
        machine.push(programs.CHUNK4KFSCK.build(), "/usr/bin/chunk4kfsck")
        machine.run("chmod 755 /usr/bin/chunk4kfsck")
    return machine


def _target(vm: Lab, parameters: str = "") -> Machine:
    """The target over such a disk."""
    machine = _disk(vm)
    vm.defer(machine.try_run, "mods -r")
    machine.run(f"mods -r; mods ours crc32_umr_target device={DISK} {parameters}")
    return machine


def _initiate(machine: Machine, parameters: str, address: str = "10.0.0.1") -> None:
    """Loads the initiator, which does its work meanwhile, and unloads it."""
    machine.run(f"mods ours crc32_umr_initiator addr={address} {parameters} && rmmod crc32_umr_initiator")


def _fails(machine: Machine, parameters: str, why: str, address: str = "10.0.0.1") -> None:
    """The initiator is not loaded, and says why."""
    mark = machine.log_mark()
    ok(machine.try_run(f"mods ours crc32_umr_initiator addr={address} {parameters}", 60).code, "it is loaded")
    ok(machine.log_matches(f"crc32_umr_initiator: .*{why}", mark),
       f"the log says not '{why}' but {machine.log_matches('crc32_umr', mark)}")


def _fsck(machine: Machine) -> dict[str, object]:
    """The findings of chunk4kfsck on the disk; its exit status must fit."""
    done = machine.try_run(f"chunk4kfsck -o json {DISK}")
    report: dict[str, object] = json.loads(done.out)
    eq(done.code, 0 if report["clean"] else 4, "exit status")
    return report


def _counts(machine: Machine) -> tuple[object, object, object]:
    report = _fsck(machine)
    return report["good"], report["blank"], report["bad"]


def _edit(machine: Machine, at: int, data: bytes) -> None:
    machine.push_bytes(EDIT.encode(), "/tmp/edit.py")
    machine.run(f"python3 -S /tmp/edit.py {at} {data.hex()}")


def _look(machine: Machine, at: int, size: int) -> bytes:
    machine.push_bytes(LOOK.encode(), "/tmp/look.py")
    return bytes.fromhex(machine.run(f"python3 -S /tmp/look.py {at} {size}"))


def _figure(machine: Machine, name: str) -> int:
    return int(machine.read(f"{FIGURES}/{name}"))


@pytest.mark.parametrize("elements", [pytest.param(n, id=f"gather_lists_of_{n}") for n in (32, 5, 1)])
@needs(machines=1, own_modules=True)
def test_blocks_come_back(vm: Lab, elements: int) -> None:
    """Written inlined and by RDMA, read back, and as chunks on the disk, whatever gather lists the adapter has."""
    machine = _target(vm, f"elements_max={elements}")
    for turn, mode in enumerate(("inline", "rdma")):
        machine.run(f"mods ours crc32_umr_initiator addr=10.0.0.1 mode={mode} blocks=40 first={turn * 50} seed={turn}")
        base = "/sys/class/crc32_umr_initiator/last"
        eq([machine.read(f"{base}/{name}") for name in ("result", "written_bytes", "read_bytes", "requests")],
           ["ok", str(40 * DATA), str(40 * DATA), "6"])
        machine.run("rmmod crc32_umr_initiator")
    eq(_counts(machine), (80, CHUNKS - 80, 0), "good, blank, bad")
    eq((_figure(machine, "written_chunks"), _figure(machine, "read_chunks")), (80, 80))
    # The other seed's data is not there.
    _fails(machine, "steps=read first=50 blocks=1 seed=0", "block 50: byte 0 is not the one")


@needs(machines=1, own_modules=True)
def test_odd_sizes(vm: Lab) -> None:
    """Sizes from one byte to the largest request do, in both modes; what is behind the data in its last chunk is
    zero."""
    machine = _target(vm)
    sizes = (1, 4047, 4048, 4049, 8096, 64769, 65535)
    for first, size in enumerate(sizes):
        for mode in ("inline", "rdma"):
            _initiate(machine, f"mode={mode} first={first * 20} bytes={size} request_bytes=65535 seed={size}")
    eq(_counts(machine)[::2], (sum(-(-size // DATA) for size in sizes), 0), "good and bad")
    last = _look(machine, (2 * 20 + 20 + 1) * 4096, DATA)
    ok(last[0:1] != b"\0" and not any(last[1:]), "the second chunk of 4049 bytes is not one byte and zeros")


@needs(machines=1, own_modules=True)
def test_the_specifications_bytes_are_on_the_disk(vm: Lab) -> None:
    """A chunk that another program made is read; its reserved bytes are kept when its data is replaced."""
    machine = _target(vm)
    _initiate(machine, "blocks=2 seed=3")
    data, reserved = _look(machine, 4096, DATA), bytes(range(1, 37))
    eq(_look(machine, 4096, 4096), wire.chunk(1, data))
    _edit(machine, 4096, wire.chunk(1, data, reserved))
    _initiate(machine, "steps=read blocks=2 seed=3")
    _initiate(machine, "blocks=2 seed=4")
    new = _look(machine, 4096, 4096)
    ok(new[:DATA] != data, "the data was not replaced")
    eq(new, wire.chunk(1, new[:DATA], reserved))
    # Of a chunk that is bad they are worth nothing.
    _edit(machine, 4096 + 4060, b"\xff")
    _initiate(machine, "blocks=2 seed=4")
    eq(_look(machine, 4096, 4096), wire.chunk(1, new[:DATA]))


@needs(machines=1, own_modules=True)
def test_a_bad_chunk_is_never_read(vm: Lab) -> None:
    """A flipped bit and a chunk at the wrong place: the read fails, fsck names them, the neighbours are right."""
    machine = _target(vm)
    _initiate(machine, "blocks=8")
    _edit(machine, 3 * 4096 + 77, bytes([_look(machine, 3 * 4096 + 77, 1)[0] ^ 4]))
    _edit(machine, 6 * 4096, _look(machine, 5 * 4096, 4096))
    mark = machine.log_mark()
    _fails(machine, "steps=read blocks=8", "block 0: a chunk on the target's medium is bad")
    _fails(machine, "steps=read first=3 blocks=1", "block 3: a chunk on the target's medium is bad")
    _fails(machine, "steps=read first=5 blocks=2", "block 5: a chunk on the target's medium is that of another place")
    ok(machine.log_matches("chunk 3 is bad: its checksum is", mark), "the target does not name chunk 3")
    ok(machine.log_matches("chunk 6 is bad: it is chunk 5, and not 6", mark), "the target does not name chunk 6")
    eq(_figure(machine, "bad_chunks"), 3)
    report = _fsck(machine)
    listed = report["listed"]
    assert isinstance(listed, list)
    eq([(row["chunk"], row["defect"]) for row in listed], [(3, "crc"), (6, "id")])
    for first, blocks in ((0, 3), (4, 2), (7, 1)):
        _initiate(machine, f"steps=read first={first} blocks={blocks}")
    _initiate(machine, "blocks=8")
    eq(_counts(machine), (8, CHUNKS - 8, 0), "good, blank, bad after they were written again")


# The tests of proto have each bit of a message: that of the checksum shows that the target asks them.
OF_PROTO = ("bit_of_the_number", "bit_of_the_size", "bit_of_the_type", "bit_of_the_key")


@pytest.mark.parametrize("lie", [
    pytest.param(lie, id=f"initiator_{lie}", marks=pytest.mark.tier(tier.LONG if lie in OF_PROTO else tier.ALL))
    for lie in crc32_umr_lies.LIES])
@needs(machines=1)
def test_lie(vm: Lab, lie: str) -> None:
    """An initiator lies: it is answered or its connection ends, the disk is right, others are served."""
    machine = vm.server
    if not machine.exists("/tmp/peer/crc32_umr_lies.py"):
        bring_peer(machine, FILES)
    _disk(vm)
    loaded.of(vm).load(machine, "crc32_umr", f"mods ours crc32_umr_target device={DISK}")
    mark = machine.log_mark()
    logged = crc32_umr_lies.LIES[lie][0]
    # The lies before may have used up the lines that the target writes in that time: then once more.
    for pause_seconds in (0.0, LOG_LIMIT_SECONDS + 1):
        time.sleep(pause_seconds)
        done = machine.try_run(f"cd /tmp/peer && python3 -S -m crc32_umr_lies initiator {lie} 10.0.0.1", 100)
        eq(done.out.splitlines()[-1:], ["ok"], done.out)
        if not logged or machine.log_matches(f"crc32_umr_target: .*{logged}", mark):
            break
    else:
        raise Failed(f"the log says not '{logged}' but {machine.log_matches('crc32_umr', mark)}")
    until(lambda: _figure(machine, "connections") == 0, 20, "the connections have gone")
    eq(_fsck(machine)["bad"], 0)


def _liar(machine: Machine, lie: str) -> Job:
    """A target that lies, and listens."""
    machine.run(f"rm -f {LIAR_SAID}")
    job = machine.start_job(f"cd /tmp/peer && exec python3 -S -u -m crc32_umr_lies target {lie} {LIAR_PORT} "
                            f"> {LIAR_SAID} 2>&1")
    until(lambda: machine.exists(LIAR_SAID) and "ready" in machine.read(LIAR_SAID), 20, "it listens")
    return job


@pytest.mark.parametrize("lie", [pytest.param(lie, id=f"target_{lie}") for lie in crc32_umr_lies.TARGETS])
@needs(machines=1)
def test_target_lies(vm: Lab, lie: str) -> None:
    """A target lies: the initiator is not loaded, says why, and leaves nothing."""
    machine = vm.server
    if not machine.exists("/tmp/peer/crc32_umr_lies.py"):
        bring_peer(machine, FILES)
    job = _liar(machine, lie)
    _fails(machine, f"port={LIAR_PORT} steps=read blocks=1", crc32_umr_lies.TARGETS[lie][0])
    job.wait(60)
    text = machine.read(LIAR_SAID)
    eq(text.split()[-1:], ["ok"], text)


@needs(machines=1, own_modules=True)
def test_it_unloads_in_every_state(vm: Lab) -> None:
    """The target goes while an initiator is connected, and while a response is not taken; an initiator is killed."""
    machine = vm.server
    bring_peer(machine, FILES)
    for held in ("connected(p, '10.0.0.1')", "no_receive(p, '10.0.0.1')"):
        _target(vm)
        job = machine.start_job(f"cd /tmp/peer && python3 -S -c \"from crc32_umr_lies import *; p = ScriptedPeer(); "
                                f"{held}; print(p.event(60000))\"")
        until(lambda: _figure(machine, "connections") == 1, 20, "it is connected")
        machine.run("rmmod crc32_umr_target", 40)
        ok(job.running or job.wait(60), "the peer")
        job.kill()
    job = _liar(machine, "says_nothing")
    mark = machine.log_mark()
    load = machine.start_job(f"exec mods ours crc32_umr_initiator addr=10.0.0.1 port={LIAR_PORT}")
    until(lambda: machine.log_matches("crc32_umr_initiator: .* requests at a time", mark), 20, "it is connected")
    machine.run("pkill -KILL modprobe")
    load.wait(30)
    job.wait(30)
    until(lambda: "crc32_umr_initiator" not in machine.run("mods -l"), 10, "it is not loaded")
    machine.run("mods -r")


@needs(machines=1, own_modules=True)
def test_parameters_that_make_no_sense(vm: Lab) -> None:
    """Neither module is loaded with them, and the log says why."""
    machine = _target(vm)
    for parameters, why in (("mode=both", "mode is rdma or inline"), ("steps=none", "steps is write, read or both"),
                            ("blocks=0", "there is nothing to do"), ("request_bytes=4000", "no multiple of 4048"),
                            ("first=4095 blocks=2", "target has not all of these chunks"), ("port=1", "no connection")):
        _fails(machine, parameters, why)
    _fails(machine, "", "is no IPv4 address", address="nonsense")
    machine.run("rmmod crc32_umr_target")
    for parameters, why in (("", "device= is missing"), ("device=/dev/null", "device /dev/null"),
                            (f"device={DISK} elements_max=0", "elements_max is 1 to 32"),
                            (f"device={DISK} port=0", "port is not 0")):
        mark = machine.log_mark()
        ok(machine.try_run(f"mods ours crc32_umr_target {parameters}").code, f"it is loaded with '{parameters}'")
        ok(machine.log_matches(f"crc32_umr_target: .*{why}", mark), f"the log does not say '{why}'")


@needs(own_modules=True, timeout=200)
def test_the_document_is_true(pair: Lab) -> None:
    """The commands of Documentation/crc32-umr.md, on two machines."""
    rnbd.ram_disk(pair, 16)
    for machine in pair.machines:
        machine.push(programs.CHUNK4KFSCK.build(), "/usr/bin/chunk4kfsck")
        machine.run("chmod 755 /usr/bin/chunk4kfsck")
        pair.defer(machine.try_run, "mods -r")
    blocks = [block for block in docs.blocks("Documentation/crc32-umr.md") if block.place in docs.MACHINES]
    eq(len(blocks), BLOCKS_OF_COMMANDS, "blocks of commands")
    for block in blocks:
        machine = pair.client if block.place == "client" else pair.server
        script = "\n".join(block.commands).replace("modprobe crc32", "mods ours crc32")
        done = machine.try_run(f"set -ex\n{script}", 60)
        if done.code:
            raise Failed(f"{block.where}, code {done.code}:\n{done.out[-1500:]}")
        if block.place == "client":
            matches(done.out, "(?m)^ok$", "the result")
