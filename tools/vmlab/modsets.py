# SPDX-License-Identifier: GPL-2.0
"""The sets of modules under test: an archive that is a disk of the machine, which a running guest unpacks.

In the guest, set NAME is the folder NAME beside the stock modules' own. It has indexes of its own (of depmod), so
that `modprobe -S RELEASE/NAME` finds what a module of the set needs, in the set and among the stock modules.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from vmlab.assets import AssetError, Assets
from vmlab.image import Image, canonical, depmod
from vmlab.store import digest, locked, prune, stamp, store, use

DISK_BYTES = 64 << 20       # of every archive: a saved machine knows the size of its disk
KEPT_ARCHIVES = 8


def strip(module: Path, target: Path) -> None:
    """A copy without debug information: it is nine parts of ten."""
    program = shutil.which("strip") or shutil.which("llvm-strip")
    if not program or subprocess.run([program, "--strip-debug", "-o", str(target), str(module)], check=False,
                                     stderr=subprocess.DEVNULL).returncode:
        shutil.copy(module, target)


def _stage(assets: Assets, image: Image, sets: Iterable[str], base: Path) -> None:
    """The folders of these sets below base/lib/modules/RELEASE."""
    (base / "lib/modules").mkdir(parents=True)
    for name in sets:
        folder = base / "lib/modules" / assets.kernel_version / name
        folder.mkdir(parents=True)
        modules = assets.module_set(name)
        for module in modules:
            strip(module, folder / module.name)
        (folder / "set.names").write_text("".join(f"{canonical(m.stem)}\n" for m in modules), encoding="ascii")
        for index in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
            (folder / index).touch()
        # depmod writes what it finds below `kernel` as kernel/..., and that is a link in the guest too.
        (folder / "kernel").symlink_to(image.stock / "kernel")
        depmod(base, f"{assets.kernel_version}/{name}")
        (folder / "kernel").unlink()
        (folder / "kernel").symlink_to("../kernel")


def _make(assets: Assets, image: Image, sets: Iterable[str], target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _stage(assets, image, sets, Path(folder))
        with tarfile.open(target, "w") as tar:
            tar.add(f"{folder}/lib/modules", "usr/lib/modules", filter=_of_root)
    if target.stat().st_size > DISK_BYTES:
        raise AssetError(f"the modules under test need {target.stat().st_size} bytes, more than the disk for them has")
    os.truncate(target, DISK_BYTES)


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def archive(assets: Assets, image: Image, sets: tuple[str, ...]) -> Path:
    """The archive of these sets as they are built now."""
    files = [f"{name} {stamp(module)}" for name in sets for module in assets.module_set(name)]
    path = store() / f"modules-{digest(image.identity, Path(__file__).read_bytes(), *sets, *files)}"
    with locked("modules"):
        if not path.exists():
            fresh = path.with_name(f"{path.name}.new")
            _make(assets, image, sets, fresh)
            fresh.rename(path)
            prune("modules-????????????????", KEPT_ARCHIVES)
        use(path)
    return path
