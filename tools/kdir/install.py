# SPDX-License-Identifier: GPL-2.0
"""Installs the built modules for the running kernel, or below another root (INSTALL_MOD_PATH, as the kernel's own)."""
import os
import pathlib
import platform
import shutil
import subprocess

from . import cache, config, modules, packages, programs

# An ordinary user's path lacks depmod.
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def obstacle(running: str, built: str, root: str, is_root: bool) -> str:
    """The reason why these modules cannot be installed, "" if they can. Below another root the running kernel does not
    matter."""
    if not root and running != built:
        return (f"this machine runs {running}, the modules are for {built}; boot that kernel "
                f"(apt-get install linux-image-{built}), or see Documentation/quickstart.md")
    if not root and not is_root:
        return "installing modules needs root: sudo make modules_install"
    if not (pathlib.Path(root or "/") / "lib/modules" / built / "modules.builtin").exists():
        return f"there is no kernel {built} in {root or ''}/lib/modules: its own modules must be there first"
    return ""


def is_test(module: pathlib.Path) -> bool:
    """Whether a module only tests others: built, loaded by the tests in virtual machines, never installed."""
    return "_test" in module.stem


def install() -> int:
    """Copies the modules to lib/modules/<kernel>/updates, runs depmod, installs the programs; returns 0 or 1."""
    config.use_cache_of_invoker()
    if not packages.pinned().exists():
        cache.say("nothing built yet: make modules")
        return 1
    built, root = packages.full_version(), os.environ.get("INSTALL_MOD_PATH", "")
    if why := obstacle(platform.release(), built, root, os.geteuid() == 0):
        cache.say(why)
        return 1
    files = sorted(file for file in modules.output().glob("*.ko") if not is_test(file))
    if not files:
        cache.say("nothing built yet: make modules")
        return 1
    target = pathlib.Path(root or "/") / "lib/modules" / built / "updates/ferrofabric"
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("*.ko"):     # a module that is no more
        old.unlink()
    for file in files:
        shutil.copy(file, target)
        subprocess.run(["strip", "--strip-debug", str(target / file.name)], check=True)
    subprocess.run(["depmod", *(["-b", root] if root else []), built], check=True, env=os.environ | {"PATH": PATH})
    programs.install(root)
    cache.say(f"{len(files)} modules are in {target}; next: modprobe rnbd-server, or modprobe rnbd-client")
    return 0
