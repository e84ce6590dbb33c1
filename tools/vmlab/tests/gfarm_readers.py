# SPDX-License-Identifier: GPL-2.0
"""Readers of every kind, of files that are changed through gfarm2fs meanwhile.

    gfarm2fs, one writer ──> gfmd, gfsds ──> two mounts of the kernel, three readers ── checker

peer/gfarm_readers.py says what is checked. `make test-all` reads for seconds (Documentation/testing.md). For longer:

    VMLAB_GFARM_MINUTES=60 python3 tools/vmlab run --long 'gfarm_readers.*'
"""
from __future__ import annotations

import json
import os
import time
from collections import Counter
from typing import Any

from vmlab import gfarm_mount, paths, seed, tier
from vmlab.checks import eq, ge, until
from vmlab.gfarm import FOLDER, Gfarm
from vmlab.gfarm_mount import PATIENT, mounted
from vmlab.lab import Lab
from vmlab.machine import Job
from vmlab.needs import needs

SMP = 2
TIER = tier.ALL

MINUTES = float(os.environ.get("VMLAB_GFARM_MINUTES", tier.of(0.0, 10.0)))
SECONDS = max(6.0, 60 * MINUTES)
# Each reader reads each of seven files in each of eight ways, on a busy host too.
TIMEOUT_SECONDS = SECONDS + 300
WAYS = ("read", "pread", "mmap", "splice", "sendfile", "direct", "io_uring", "exec")
KINDS = ("replace", "remove", "rewrite", "update")
OTHER = "/mnt/gfarm-other"
LEDGER = "/run/versions"
BYTES = 5000
# Says so, and waits until it is told to go on.
SAY = """
import os, sys, time
path, number, said = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def say():
    open(said, "x").close()
    while not os.path.exists(said + ".go"):
        time.sleep(0.05)
"""
# Gives a file another size, and keeps it open.
RESIZE = SAY + f"""
file = os.open(path, os.O_RDWR)
if number < {BYTES}:
    os.ftruncate(file, number)
else:
    os.pwrite(file, b"x" * (number - {BYTES}), {BYTES})
os.fsync(file)
say()
"""
# Reads the first page of a file, and later what lies behind a position: how much it is, and which bytes.
READ_BEHIND = SAY + """
file = os.open(path, os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
os.pread(file, 100, 0)
os.stat(path)
say()
read = os.pread(file, 8192, number)
print(len(read), *sorted(set(read)))
"""


def said(output: str) -> dict[str, Any]:
    """The findings of a program."""
    found: dict[str, Any] = json.loads(output.strip().rpartition("\n")[2])
    return found


@needs(machines=1, timeout=TIMEOUT_SECONDS + 60)
def test_readers_of_every_kind_see_whole_versions(vm: Lab) -> None:
    """Eight ways to read files that are replaced, rewritten and changed in place: no byte of another version."""
    gfarm, chance = gfarm_mount.start(vm), seed.fresh().randrange(1 << 30)
    program = f"exec python3 -I -S {gfarm.push('gfarm_readers.py')}"
    gfarm.run(f"rm -f {LEDGER} {LEDGER}.end")
    # With one thread gfarm2fs does one thing after the other, so the writer knows when a file is closed.
    with gfarm.fuse(options="-s") as folder, mounted(gfarm) as mount, \
            mounted(gfarm, "readahead=2,connections=1,actimeo=0,ra_async=0", at=OTHER) as other:
        gfarm.run(f"mkdir {folder}/versions")
        writer = gfarm.machine.start_job(f"{program} write {folder}/versions {LEDGER} {chance}", TIMEOUT_SECONDS)
        until(lambda: gfarm.machine.exists(LEDGER) or not writer.running, 60, "the first versions are there")
        began = time.monotonic()
        readers = [gfarm.machine.start_job(
            f"{program} read {where.at}/versions {LEDGER} {chance + number} {SECONDS}", TIMEOUT_SECONDS)
            for number, where in enumerate((mount, mount, other))]
        found = [said(reader.ok()) for reader in readers]
        took = time.monotonic() - began
        gfarm.machine.push_bytes(b"", f"{LEDGER}.end")
        versions = said(writer.ok())["versions"]
        eq([fault for result in found for fault in result["faults"]], [], "faults")
        gfarm.run(f"rm -r {folder}/versions {LEDGER} {LEDGER}.end {FOLDER}/gfarm_readers.py")
    counts: Counter[str] = sum((Counter(result["counts"]) for result in found), Counter())
    paths.figure(f"{sum(versions.values())} versions, {counts.total()} reads in {took:.0f} s: {dict(counts)}")
    for way in WAYS:
        ge(counts[f"quiet {way}"] + counts[f"changing {way}"], 1, f"reads by {way}")
    for kind in KINDS:
        ge(counts[f"quiet {kind}"], 1, f"reads without a writer, {kind}")
    ge(counts["changing rewrite"] + counts["changing update"], 1, "reads while the file was written")
    ge(sum(versions.values()), 2 * len(versions), "versions")


def told(gfarm: Gfarm, program: str, path: str, number: int) -> tuple[Job, str]:
    """A program that has done its first part, and the file that lets it go on."""
    said = f"{FOLDER}/said.{path.replace('/', '.')}"
    gfarm.machine.push_bytes(program.encode(), f"{said}.py")
    job = gfarm.machine.start_job(f"exec python3 -I -S {said}.py {path} {number} {said}", 120)
    until(lambda: gfarm.machine.exists(said) or not job.running, 60, "the program has begun")
    return job, f"{said}.go"


@needs(machines=1, timeout=300)
def test_no_zeroes_lie_between_the_sizes_of_two_gfsds(vm: Lab) -> None:
    """A writer that has a file open cuts it at one gfsd, or appends to it: who reads from both reads what one of them
    has, and no zeroes up to where the other one ends."""
    gfarm = gfarm_mount.start(vm)
    for name in ("cut", "longer"):
        gfarm.put(b"y" * BYTES, f"/{name}", copies=2)
    with mounted(gfarm, f"actimeo=0,{PATIENT}") as mount:
        gfarm.kill(vm, "fs1")
        reader, read = told(gfarm, READ_BEHIND, f"{mount.at}/cut", 4096)
        gfarm.bring_up("fs1")
        gfarm.kill(vm, "fs2")
        with gfarm.fuse() as folder:
            cutter, cut = told(gfarm, RESIZE, f"{folder}/cut", 100)
            gfarm.machine.push_bytes(b"", read)
            eq(reader.ok(), "0\n", "behind the end of the file that was cut")
            gfarm.machine.push_bytes(b"", cut)
            cutter.ok()
            appender, appended = told(gfarm, RESIZE, f"{folder}/longer", 2 * BYTES)
            reader, read = told(gfarm, READ_BEHIND, f"{mount.at}/longer", BYTES)
            eq(gfarm.run(f"stat -c %s {mount.at}/longer"), f"{2 * BYTES}\n", "as the gfsd of the writer tells")
            gfarm.bring_up("fs2")
            gfarm.freeze(vm, "fs1")
            gfarm.machine.push_bytes(b"", read)
            eq(reader.ok(), "0\n", "behind the end of the replica that is not written")
            gfarm.thaw("fs1")
            gfarm.machine.push_bytes(b"", appended)
            appender.ok()
            gfarm.run(f"rm {folder}/cut {folder}/longer {FOLDER}/said.*")
