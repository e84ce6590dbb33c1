# SPDX-License-Identifier: GPL-2.0
"""Booted once, woken many times: the state of a machine right after its set-up, kept in the cache.

The memory of a machine that is to be saved is a file in the lab's folder. Saving copies that file, without the pages of
zeros, beside QEMU's migration stream, which then has the devices only. A machine that wakes maps the copy privately:
nothing is read but what the guest uses, and what it writes is its own. A state is named by everything that shaped the
machine, the rate of the host's counter too (ticks.py). It holds nothing of the modules under test, which are unpacked
into the running guest.
`VMLAB_COLD=1` in the environment boots for real.
"""
from __future__ import annotations

import os
import shlex
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vmlab.channel import MachineGone
from vmlab.machine import QEMU, Machine
from vmlab.patience import scaled
from vmlab.store import digest, prune, remove, store, use

KEPT_STATES = 20    # a complete run wakes 17
SAVE_SECONDS = 120.0
VOLATILE = ("-serial", "-qmp", "-chardev", "-netdev", "-blockdev")     # their arguments name this run's folder
# The guest gives back what it can read again, so that the state is small.
LEAN = "sync; echo 3 > /proc/sys/vm/drop_caches"


@cache
def _qemu_version() -> str:
    return subprocess.run([QEMU, "--version"], capture_output=True, text=True, check=True).stdout


def _path(machine: Machine, set_up: str) -> Path:
    """The name of the state of such a machine after `set_up` (a script)."""
    arguments = machine.arguments()
    stable = [word for word, before in zip(arguments, ["", *arguments], strict=False) if before not in VOLATILE]
    source = Path(__file__).read_bytes()
    return store() / f"saved-{digest(_qemu_version(), machine.image.identity, set_up, source, *stable)}"


def usable(machine: Machine) -> bool:
    """Emulation only: KVM boots fast, and instruction counting wants the same start every time. QEMU cannot save the
    state of NVMe."""
    hardware = machine.hardware
    return (hardware.has_the_hosts_ticks and not any(word.startswith("nvme,") for word in hardware.qemu_args)
            and not os.environ.get("VMLAB_COLD"))


def memory_args(machine: Machine, file: Path, shared: bool) -> tuple[str, ...]:
    """QEMU's arguments for memory that is a file: the machine's own (`shared`), or one that others use too."""
    backend = f"memory-backend-file,id=memory,size={machine.hardware.memory_mib}M,mem-path={file}"
    return ("-machine", "memory-backend=memory", "-object", f"{backend},share={'on' if shared else 'off'}")


@dataclass
class State:
    """The saved state of one machine: there, or to be made, or (no path) not wanted."""

    path: Path | None
    woken: bool = False

    @classmethod
    def of(cls, machine: Machine, set_up: str) -> State:
        """The state of such a machine after `set_up` (a script)."""
        return cls(_path(machine, set_up) if usable(machine) else None)

    @property
    def ready(self) -> bool:
        """Whether nothing is left to be saved."""
        return self.path is None or self.path.exists()

    def start(self, machine: Machine) -> None:
        """Wakes the machine, or boots it so that it can be saved."""
        own = machine.folder / "memory"
        self.woken = self.path is not None and self.path.exists()
        if self.path is None:
            machine.start()
        elif self.woken:
            use(self.path)
            machine.start((*memory_args(machine, self.path / "memory", False), "-incoming", "defer"))
            _without_memory(machine)
            machine.qmp("migrate-incoming", uri=f"exec:cat {shlex.quote(str(self.path / 'devices'))}")
        else:
            own.unlink(missing_ok=True)
            machine.start(memory_args(machine, own, True))

    def wait_awake(self, machine: Machine) -> None:
        """Waits for a woken machine; a state that does not wake is thrown away."""
        try:
            machine.wait_awake()
        except MachineGone:
            if self.path:
                remove(self.path)
            raise

    def save(self, machine: Machine) -> None:
        """Saves a machine that has just been set up. It stands still meanwhile."""
        if self.path is None or self.path.exists():
            return
        machine.run(LEAN)
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        fresh.mkdir()
        try:
            if _migrate(machine, fresh / "devices"):
                subprocess.run(["cp", "--sparse=always", machine.folder / "memory", fresh / "memory"], check=True)
                _keep(fresh, self.path)
        finally:
            remove(fresh)
        machine.qmp("cont")


def _keep(fresh: Path, path: Path) -> None:
    """Another run may have been faster; its state is as good."""
    try:
        fresh.rename(path)
    except OSError:
        if not path.exists():
            raise
    prune("saved-????????????????", KEPT_STATES)


def _without_memory(machine: Machine) -> None:
    """The stream leaves out memory that is a file."""
    machine.qmp("migrate-set-capabilities", capabilities=[{"capability": "x-ignore-shared", "state": True}])


def _migrate(machine: Machine, target: Path) -> bool:
    """Writes the devices of the machine, which stands still at the end; whether that went well."""
    _without_memory(machine)
    machine.qmp("migrate", uri=f"exec:cat > {shlex.quote(str(target))}")
    deadline = time.monotonic() + scaled(SAVE_SECONDS)
    while (status := machine.qmp("query-migrate").get("status")) not in ("completed", "failed", "cancelled"):
        if time.monotonic() > deadline:
            machine.qmp("migrate_cancel")
        time.sleep(0.02)
    return bool(status == "completed")
