# SPDX-License-Identifier: GPL-2.0
"""Chooses the accelerator: KVM only where a real probe boot worked, emulation everywhere else.

/dev/kvm may exist, open, and still not run a guest. The verdict is kept until the host boots again.
"""
from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from vmlab.channel import MachineGone
from vmlab.image import Image
from vmlab.machine import Hardware, Machine
from vmlab.store import store

TCG = "tcg,thread=multi"
PROBE_SECONDS = 25.0


def _verdict_path() -> Path:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return store() / f"kvm-{boot}"


def _probe(image: Image) -> bool:
    """Boots a machine under KVM and asks it for a sum."""
    with tempfile.TemporaryDirectory(prefix="vmlab-probe-") as folder:
        machine = Machine("probe", Path(folder) / "m", image, Hardware(accel="kvm"), [])
        try:
            machine.start()
            return machine.channel.ready.wait(PROBE_SECONDS) and machine.run("echo $((6 * 7))").strip() == "42"
        except MachineGone:
            return False
        finally:
            machine.power_off()
            shutil.rmtree(folder, ignore_errors=True)


def choose(image: Image, wanted: str | None = None) -> str:
    """The argument of QEMU's -accel. `wanted` (kvm, tcg, or a full argument) is not questioned."""
    if wanted:
        return {"tcg": TCG}.get(wanted, wanted)
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return TCG
    path = _verdict_path()
    if not path.exists():
        for old in store().glob("kvm-*"):
            old.unlink(missing_ok=True)
        works = _probe(image)
        path.write_text("kvm\n" if works else "tcg\n", encoding="ascii")
    return "kvm" if path.read_text(encoding="ascii").strip() == "kvm" else TCG
