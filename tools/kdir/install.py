# SPDX-License-Identifier: GPL-2.0
"""Installs the built modules for the running kernel."""
import os
import pathlib
import platform
import shutil
import subprocess

from . import cache, modules, packages


def install() -> int:
    """Copies the modules to /lib/modules/<running kernel>/updates and runs depmod; returns 0 or 1."""
    running, built = platform.release(), packages.full_version()
    if running != built:
        cache.say(f"this machine runs {running}, the modules are for {built}; boot that kernel "
                  f"(apt-get install linux-image-{built}), or see Documentation/quickstart.md")
        return 1
    if os.geteuid() != 0:
        cache.say("installing modules needs root: sudo make modules_install")
        return 1
    files = sorted(modules.output().glob("*.ko"))
    if not files:
        cache.say("nothing built yet: make modules")
        return 1
    target = pathlib.Path("/lib/modules") / running / "updates/ferrofabric"
    target.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file, target)
        subprocess.run(["strip", "--strip-debug", str(target / file.name)], check=True)
    subprocess.run(["depmod", running], check=True)
    cache.say(f"{len(files)} modules are in {target}; next: modprobe rnbd-server, or modprobe rnbd-client")
    return 0
