# SPDX-License-Identifier: GPL-2.0
"""libioc: iocatcher's twelve functions, of a C program that is linked with them."""
from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kdir import programs
from vmlab import assets, tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests import rioc_tool

KDIR = Path(__file__).resolve().parents[2] / "kdir"
SOURCE = rioc_tool.PEER / "ioc_functions.c"
RUN = "LD_LIBRARY_PATH=/run /run/ioc_functions"


def program() -> Path:
    """The C program, compiled and linked in the Debian root with what is installed."""
    library = programs.LIBIOC.build()
    parts = SOURCE.read_bytes() + library.read_bytes()
    made = assets.cache_dir() / f"ioc_functions-{hashlib.sha256(parts).hexdigest()[:12]}"
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=assets.cache_dir()) as root:
            programs.LIBIOC.install(root)
            part = made.with_name(f".{made.name}.{os.getpid()}")     # another lab may be at it, too
            subprocess.run([sys.executable, "-B", str(KDIR), "run", "gcc-14", "-O2", "-Wall", "-Wextra", "-Werror",
                            "-pthread", f"-I{root}/usr/local/include", "-o", str(part), str(SOURCE),
                            f"-L{root}/usr/local/lib", "-lioc-client"], check=True)
            part.rename(made)
    return made


def bring(lab: Lab) -> None:
    """The program and the library, which it finds by the name that iocatcher's has."""
    lab.client.push(program(), "/run/ioc_functions")
    lab.client.push(programs.LIBIOC.build(), "/run/libioc-client.so")
    lab.client.run("chmod 755 /run/ioc_functions")


@needs(wires=1, own_modules=True)
def test_a_c_program_uses_all_functions(pair: Lab) -> None:
    """The values that are returned, the bytes that are read, and what is said where no session is the one."""
    run = pair.client.run
    rioc_tool.modules(pair)
    bring(pair)
    run("mods -r")
    said = run(f"{RUN} all 10.0.0.2 2>&1; echo $?")
    ok("modprobe rioc_client" in said and said.endswith("no client, errno 2\n3\n"), said)
    rioc_tool.begin(pair)
    said = run(f"{RUN} all 10.0.0.9 2>&1; echo $?")
    ok("path=ip:10.0.0.9" in said and said.endswith("errno 2\n3\n"), said)
    said = run(f"{RUN} all 10.0.0.2 2>/run/why")
    ok(said.startswith("Time: ") and said.endswith("\n0 failures\n"), said)
    ok("libioc: read 1:1: " in run("cat /run/why"), run("cat /run/why"))
    # What it has written is there for others.
    run("rioc get bb 1:1 --offset 8388607 | grep -qx xyz; test $(rioc ls bb | wc -l) = 7")
    eq(rioc_tool.connect(pair, "cc", "store=bb"), "")
    said = run(f"{RUN} all 10.0.0.2 2>&1; echo $?")
    ok("bb, cc" in said and "RIOC_SESSION" in said, said)
    run("rm -f /run/held")
    holder = pair.client.start_job(f"RIOC_SESSION=bb {RUN} hold - > /run/held 2>&1")
    until(lambda: "held" in run("cat /run/held 2>/dev/null; true"), 20, "the range is registered")
    eq(run(f"RIOC_SESSION=cc {RUN} excluded - 2>/run/why"), "0 failures\n")
    ok("busy" in run("cat /run/why"), run("cat /run/why"))
    run("pkill -9 -x ioc_functions")
    until(lambda: run(f"RIOC_SESSION=cc {RUN} hold - > /run/held 2>&1 & sleep 1; cat /run/held; "
                      "pkill -9 -x ioc_functions; true").startswith("held"), 20, "a killed program's range has ended")
    holder.kill()


@pytest.mark.tier(tier.ALL)
@needs(wires=1, own_modules=True)
def test_a_range_that_is_lost_is_told(pair: Lab) -> None:
    """The connection is lost while a program writes under its range: another one may have come between."""
    rioc_tool.begin(pair)
    bring(pair)
    run = pair.client.run
    run("rm -f /run/held")
    holder = pair.client.start_job(f"{RUN} hold 10.0.0.2 > /run/held 2>/run/why")
    until(lambda: "held" in run("cat /run/held 2>/dev/null; true"), 20, "the range is registered")
    pair.cut(0)
    until(lambda: pair.client.read(f"{rioc_tool.CONTROL}/sessions/bb/state") == "waiting", 40, "no path is left")
    pair.mend(0)
    rioc_tool.back(pair)
    holder.ok(60)
    eq(run("cat /run/held"), "held\nlost, errno 116\n0 failures\n")
    ok("Stale file handle" in run("cat /run/why"), run("cat /run/why"))


@pytest.mark.tier(tier.ALL)
@needs(wires=1, own_modules=True, timeout=240)
def test_a_copy_that_fails_takes_nothing_of_others(pair: Lab) -> None:
    """A copy to a new object fails again and again, as another session has its source for itself; who writes to that
    object meanwhile, and was told so, finds it."""
    rioc_tool.begin(pair)
    bring(pair)
    for name in ("cc", "dd"):
        eq(rioc_tool.connect(pair, name, "store=bb"), "")
    run = pair.client.run
    run("printf source | rioc put bb 7:1")
    holder = pair.client.start_job("rioc lease cc 7:1 --writer -- sleep 200")
    until(lambda: "lease" in run("rioc get bb 7:1 2>&1; true"), 20, "the source is busy")
    pair.defer(holder.kill)
    copies = pair.client.start_job(f"RIOC_SESSION=bb {RUN} fails_to_copy - 2>/dev/null")
    pair.defer(copies.kill)
    words = f"RIOC_SESSION=dd timeout 60 env {RUN} writes_there - 2>/run/why; echo $?"
    said = pair.client.start_job(words).wait(90).out
    ok(said.split()[-1] in ("0", "124") and "failures" not in said.replace("0 failures", ""), said)
