# SPDX-License-Identifier: GPL-2.0
"""The parts of a lab: the Debian root, the kernel's packages, the modules under test.

All of it comes from tools/kdir, asked once a process. Every location can be overridden in the
environment, so that the lab also runs against a tree which kdir did not make.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent

# Key of `kdir paths --json`, and the environment variable that overrides it.
OVERRIDES = {
    "root": "VMLAB_ROOT",
    "kernel_version": "VMLAB_KERNEL_VERSION",
    "packages": "VMLAB_PACKAGES",
    "modules": "VMLAB_MODULES",
    "cmodules": "VMLAB_CMODULES",
    "guest_packages": "VMLAB_GUEST_PACKAGES",
}


class AssetError(Exception):
    """A part that a lab needs is not there; the text says which and how to get it."""


@dataclass(frozen=True)
class Assets:
    """Locations on the host. `sets` are the module folders by their short names, `guest_packages` what of the root the
    guests have."""

    root: Path
    kernel_version: str
    packages: Path
    sets: tuple[tuple[str, Path], ...]
    guest_packages: tuple[str, ...] = ()

    @property
    def kernel(self) -> Path:
        """The stock kernel image."""
        return self.module_tree / "vmlinuz.unsigned"

    @property
    def module_tree(self) -> Path:
        """The stock kernel's own modules (xz) with modules.builtin beside them."""
        return self.packages / "usr/lib/modules" / self.kernel_version

    def module_set(self, name: str) -> list[Path]:
        """The .ko files of one set (`ours` or `c`), none when it was not built."""
        folder = dict(self.sets)[name]
        return sorted(folder.rglob("*.ko")) if folder.is_dir() else []


def cache_dir() -> Path:
    """The folder of everything that can be made again; the same one as kdir's."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("FERROFABRIC_CACHE") or os.path.join(base, "ferrofabric"))


def _ask_kdir() -> dict[str, str]:
    """The paths that kdir knows; empty when it cannot answer, for the overrides may do."""
    asked = subprocess.run([sys.executable, str(TOOLS / "kdir"), "paths", "--json"],
                           stdout=subprocess.PIPE, text=True, check=False)
    if asked.returncode:
        return {}
    answer: dict[str, str] = json.loads(asked.stdout)
    return answer


@cache
def find() -> Assets:
    """The assets of this host, checked for existence."""
    said = {key: os.environ[name] for key, name in OVERRIDES.items() if name in os.environ}
    if said.keys() != OVERRIDES.keys():
        said = _ask_kdir() | said
    missing = [key for key in OVERRIDES if key not in said]
    if missing:
        raise AssetError(f"tools/kdir names no {', '.join(missing)}; run `make modules` first")
    assets = Assets(root=Path(said["root"]), kernel_version=said["kernel_version"],
                    packages=Path(said["packages"]),
                    sets=(("ours", Path(said["modules"])), ("c", Path(said["cmodules"]))),
                    guest_packages=tuple(said["guest_packages"].split()))
    if not assets.root.exists():    # a host that builds without a root may lack the guests' programs
        subprocess.run([sys.executable, "-B", str(TOOLS / "kdir"), "guests"], stdout=subprocess.DEVNULL, check=False)
    for what, path in (("Debian root", assets.root), ("kernel image", assets.kernel),
                       ("kernel modules", assets.module_tree / "kernel")):
        if not path.exists():
            raise AssetError(f"{what} is not at {path}; run `make modules` first")
    return assets
