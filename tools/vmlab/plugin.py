# SPDX-License-Identifier: GPL-2.0
"""Plugins of QEMU, built for the host's."""
from __future__ import annotations

import re
import subprocess
from pathlib import Path

from vmlab.machine import QEMU

# Of QEMU before 8.2, and since.
INTERFACES = 1, 4


def compile_for(interface: int, source: Path, target: Path) -> None:
    """Compiles a plugin; its source looks at PLUGIN_VERSION."""
    subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", f"-DPLUGIN_VERSION={interface}",
                    "-o", target, source], check=True)


def build(source: Path, target: Path) -> None:
    """Compiles a plugin for the host's QEMU."""
    version = subprocess.run([QEMU, "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = map(int, re.findall(r"version (\d+)\.(\d+)", version)[0])
    compile_for(INTERFACES[(major, minor) >= (8, 2)], source, target)
