# SPDX-License-Identifier: GPL-2.0
"""A kernel that finds bugs: the same source with KASAN, lockdep, kmemleak and fault injection, and modules for it.

Nothing of the stock kernel's tree is used or changed. KASAN and Rust together need clang.
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
from typing import TextIO

from . import cache, config, modules, packages, root

FRAGMENT = pathlib.Path(__file__).with_name("debug.config")
C_MODULES = ("rtrs-core", "rtrs-client", "rtrs-server", "rnbd-client", "rnbd-server")


# DEBUG_KOBJECT_RELEASE gives kobjects back late, by seconds. The block layer of 7.2 is not made for it: with a disk it
# frees the kobjects of its queue that lie in it (bdev_free_inode), and reads the operations of a driver that is gone
# (disk_release of a brd disk). Nor is ext4, whose last kobject is read after its module has gone (ext4_exit_sysfs).
# Hence only kobjects whose type is in a module from outside the kernel's tree are late, which ours are.
LATE_FILE = "lib/kobject.c"
LATE_BEFORE = "\tunsigned long delay = HZ + HZ * get_random_u32_below(4);\n"
LATE_AFTER = f"""{LATE_BEFORE}\tstruct module *module;
\tbool is_late;

\trcu_read_lock();
\tmodule = __module_address((unsigned long)kobj->ktype);
\tis_late = module && test_bit(TAINT_OOT_MODULE, &module->taints);
\trcu_read_unlock();
\tif (!is_late) {{
\t\tkobject_cleanup(kobj);
\t\treturn;
\t}}
"""
LATE_HEADER = "#include <linux/module.h>\n"


def folder() -> pathlib.Path:
    """The folder of everything that belongs to this debug kernel, named by its configuration."""
    key = hashlib.sha256(FRAGMENT.read_bytes() + LATE_AFTER.encode()).hexdigest()[:8]
    return packages.folder() / f"debug-{key}"


def _kernel_make() -> list[str]:
    return ["make", "-C", str(folder() / "tree"), "ARCH=x86_64", "LLVM=1"]


def _settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if line.startswith("CONFIG_"))


def lost(wanted: str, got: str) -> list[str]:
    """Lines of a configuration that did not come to be: allnoconfig drops what cannot be had without a word."""
    have = _settings(got)
    return [f"{key}={value}" for key, value in _settings(wanted).items()
            if have.get(key, "n") != value and (value, have.get(key)) != ("m", "y")]


def _configure(tree: pathlib.Path, log: TextIO) -> None:
    # The build reads it inside the root, where the checkout is at its own path.
    root.run(["env", f"KCONFIG_ALLCONFIG={FRAGMENT}", *_kernel_make(), "allnoconfig"],
             stdout=log, stderr=subprocess.STDOUT)
    missing = lost(FRAGMENT.read_text(), (tree / ".config").read_text())
    if missing:
        raise SystemExit(f"kdir: the debug kernel cannot have {', '.join(missing)}; see {tree}/.config")


def _delay_our_kobjects(tree: pathlib.Path) -> None:
    source = tree / LATE_FILE
    text = source.read_text()
    if text.count(LATE_BEFORE) != 1:
        raise SystemExit(f"kdir: {source} does not have the line that is to be changed")
    head, name, rest = text.replace(LATE_BEFORE, LATE_AFTER).partition("#include <linux/kobject.h>\n")
    source.write_text(head + name + LATE_HEADER + rest)


def _unpack() -> None:
    """Unpacks and configures the source, once: a build that was interrupted goes on where it was."""
    tree, stamp = folder() / "tree", folder() / "configured"
    if stamp.exists():
        return
    cache.remove(tree)
    tree.mkdir(parents=True)
    series = config.load_kernel_conf()["SERIES"]
    archive = packages.ensure() / f"usr/src/linux-source-{series}.tar.xz"
    root.run(["tar", "-xJf", str(archive), "-C", str(tree), "--strip-components=1"])
    _delay_our_kobjects(tree)
    with (folder() / "tree.log").open("w") as log:
        _configure(tree, log)
    stamp.touch()


def _make_tree() -> None:
    _unpack()
    with (folder() / "tree.log").open("a") as log:
        install = [f"INSTALL_MOD_PATH={folder() / 'install/usr'}", "modules_install"]
        for what, targets in (("the debug kernel (10 to 25 min)", ["bzImage", "modules"]),
                              ("its modules' folder", install)):
            cache.say(f"making {what}")
            made = root.run([*_kernel_make(), f"-j{os.cpu_count()}", *targets], check=False,
                            stdout=log, stderr=subprocess.STDOUT)
            if made.returncode:
                raise SystemExit(f"kdir: `make {targets[-1]}` failed; the end of {log.name} says why")


def release() -> str:
    """The release of the debug kernel, as its `uname -r` says it."""
    return (folder() / "tree/include/config/kernel.release").read_text().strip()


def _arrange() -> None:
    """Puts the image where the lab looks for it, and the C modules apart from the kernel's own."""
    installed = folder() / "install/usr/lib/modules" / release()
    shutil.copy(folder() / "tree/arch/x86/boot/bzImage", installed / "vmlinuz.unsigned")
    peers = folder() / "cmodules"
    peers.mkdir(exist_ok=True)
    for file in [f for f in installed.rglob("*.ko") if f.stem in C_MODULES]:
        file.rename(peers / file.name)


def ensure() -> pathlib.Path:
    """Makes the debug kernel if it is not there; returns its folder."""
    stamp = folder() / "ok"
    with cache.locked(folder().with_name(f".{folder().name}.lock")):
        if not stamp.exists():
            _make_tree()
            _arrange()
            stamp.touch()
    return folder()


def output() -> pathlib.Path:
    """The folder of this checkout's modules for the debug kernel."""
    return folder() / modules.output().name


def build() -> int:
    """Builds this checkout's modules for the debug kernel."""
    ensure()
    return modules.compile_into(output(), _kernel_make(), "the modules for the debug kernel", ["modules"])


def environment() -> dict[str, str]:
    """The variables that make the lab run in the debug kernel, where everything takes several times as long."""
    return {"VMLAB_DEBUG": "1", "VMLAB_PATIENCE": os.environ.get("VMLAB_PATIENCE", "6"),
            "VMLAB_KERNEL_VERSION": release(), "VMLAB_PACKAGES": str(folder() / "install"),
            "VMLAB_MODULES": str(output()), "VMLAB_CMODULES": str(folder() / "cmodules")}
