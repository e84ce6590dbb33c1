# SPDX-License-Identifier: GPL-2.0
"""Plugins of QEMU, built for the host's."""
from __future__ import annotations

import re
import subprocess
from pathlib import Path

from vmlab.machine import QEMU


def build(source: Path, target: Path) -> None:
    """Compiles a plugin; its source looks at PLUGIN_VERSION."""
    version = subprocess.run([QEMU, "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = map(int, re.findall(r"version (\d+)\.(\d+)", version)[0])
    interface = 1 if (major, minor) < (8, 2) else 4
    subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", f"-DPLUGIN_VERSION={interface}",
                    "-o", target, source], check=True)
