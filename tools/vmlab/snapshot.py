# SPDX-License-Identifier: GPL-2.0
"""Booted once, woken many times: the state of a machine right after its set-up, kept in the cache.

An emulated boot costs ten seconds of processor time, waking a saved machine one. The state is QEMU's
migration stream in a file, named by everything that shaped the machine; it holds nothing of the modules
under test, which are unpacked into the running guest. `VMLAB_COLD=1` in the environment boots for real.
"""
from __future__ import annotations

import os
import shlex
import subprocess
import time
from functools import cache
from pathlib import Path

from vmlab import initramfs
from vmlab.machine import QEMU, Machine
from vmlab.patience import scaled
from vmlab.qmp import QmpError

KEPT_STATES = 8
SAVE_SECONDS = 120.0
VOLATILE = ("-serial", "-qmp", "-chardev", "-netdev", "-blockdev")     # their arguments name this run's folder


@cache
def _qemu_version() -> str:
    return subprocess.run([QEMU, "--version"], capture_output=True, text=True, check=True).stdout


def _path(machine: Machine, set_up: str) -> Path:
    """The name of the state of such a machine after `set_up` (a script)."""
    arguments = machine.arguments()
    stable = [word for word, before in zip(arguments, ["", *arguments], strict=False) if before not in VOLATILE]
    return initramfs.store() / f"state-{initramfs.digest(_qemu_version(), set_up, *stable)}"


def usable(machine: Machine) -> bool:
    """Emulation only: KVM boots fast, and instruction counting wants the same start every time."""
    return (machine.hardware.accel.startswith("tcg") and "-icount" not in machine.hardware.qemu_args
            and not os.environ.get("VMLAB_COLD"))


def find(machine: Machine, set_up: str) -> Path | None:
    """The saved state of such a machine, if there is one."""
    if not usable(machine):
        return None
    path = _path(machine, set_up)
    if not path.exists():
        return None
    os.utime(path)      # pruning goes by age of use
    return path


def save(machine: Machine, set_up: str) -> None:
    """Saves the state of a machine that has just been set up. It stands still meanwhile."""
    if not usable(machine):
        return
    path = _path(machine, set_up)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    machine.qmp("migrate", uri=f"exec:cat > {shlex.quote(str(fresh))}")
    deadline = time.monotonic() + scaled(SAVE_SECONDS)
    while (state := machine.qmp("query-migrate").get("status")) not in ("completed", "failed", "cancelled"):
        if time.monotonic() > deadline:
            machine.qmp("migrate_cancel")
        time.sleep(0.1)
    if state == "completed":
        fresh.rename(path)
        initramfs.prune("state-????????????????", KEPT_STATES)
    fresh.unlink(missing_ok=True)
    try:
        machine.qmp("cont")
    except QmpError:
        if state == "completed":
            raise       # a machine that was saved and does not go on is of no use


def forget(path: Path) -> None:
    """A state that does not wake is thrown away."""
    path.unlink(missing_ok=True)
