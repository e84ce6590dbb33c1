# SPDX-License-Identifier: GPL-2.0
"""The build tree of the stock kernel: linux-source, the distribution's config and Module.symvers.

The headers package has no Rust metadata (rust/*.rmeta), so out-of-tree Rust modules cannot be
built against it; this tree has them, made by the distribution's own rustc.
"""
import os
import pathlib
import shutil
import subprocess
import sys

from . import cache, config, packages, root


def path() -> pathlib.Path:
    """The place where the tree is, or will be."""
    return packages.folder() / "tree"


def kernel_make(tree: pathlib.Path) -> list[str]:
    """The make command that agrees with how Debian built its kernel."""
    return ["make", "-C", str(tree), "ARCH=x86_64", "CC=x86_64-linux-gnu-gcc-14", "HOSTCC=gcc-14",
            "CROSS_COMPILE=x86_64-linux-gnu-", f"KERNELRELEASE={packages.full_version()}"]


# What may differ: where a signing key lies, and what the build machine's OpenSSL can do. Neither
# touches a layout or a symbol.
MAY_DIFFER = ("CONFIG_MODULE_SIG_KEY=", "CONFIG_OPENSSL_SUPPORTS_")


def _same_config(mine: pathlib.Path, theirs: pathlib.Path) -> bool:
    def settings(file: pathlib.Path) -> list[str]:
        return [line for line in file.read_text().splitlines()
                if line.startswith("CONFIG_") and not line.startswith(MAY_DIFFER)]
    return settings(mine) == settings(theirs)


def _make(part: pathlib.Path) -> None:
    series, full, pkgs = config.load_kernel_conf()["SERIES"], packages.full_version(), packages.ensure()
    headers = pkgs / f"usr/src/linux-headers-{full}"
    part.mkdir(parents=True)
    cache.say("unpacking the kernel source")
    root.run(["tar", "-xJf", str(pkgs / f"usr/src/linux-source-{series}.tar.xz"), "-C", str(part),
              "--strip-components=1"])
    shutil.copy(headers / ".config", part / ".config")
    make = kernel_make(part)
    log = part.with_name("tree.log").open("w")

    def step(what: str, *targets: str) -> None:
        cache.say(what)
        done = root.run([*make, *targets], check=False, stdout=log, stderr=subprocess.STDOUT)
        if done.returncode:
            raise SystemExit(f"kdir: `make {' '.join(targets)}` failed; the end of {log.name} says why")
    step("checking the Rust toolchain", "rustavailable")
    step("taking over the distribution's config", "olddefconfig")
    if not _same_config(part / ".config", headers / ".config"):
        raise SystemExit("kdir: the config differs from the distribution's after olddefconfig: wrong toolchain?")
    step("making the Rust crates of the kernel (about a minute)", f"-j{os.cpu_count()}", "modules_prepare")
    shutil.copy(headers / "Module.symvers", part / "Module.symvers")
    shutil.copy(headers / "include/config/kernel.release", part / "include/config/kernel.release")


def ensure() -> pathlib.Path:
    """Makes the build tree if it is not there; returns its path."""
    packages.ensure()
    # The tree knows its own path (generated makefiles), so it is made in place and stamped at the
    # end instead of being renamed.
    target, stamp = path(), path().with_name("tree.ok")
    if stamp.exists():
        return target
    with cache.locked(target.with_name(".tree.lock")):
        if not stamp.exists():
            cache.remove(target)
            cache.say(f"making the build tree of kernel {packages.full_version()}")
            _make(target)
            stamp.touch()
    return target


def fail_with_log(log: pathlib.Path) -> None:
    """Shows the end of a log on standard error."""
    sys.stderr.write("".join(log.read_text(errors="replace").splitlines(keepends=True)[-30:]))
