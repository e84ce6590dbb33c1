# SPDX-License-Identifier: GPL-2.0
"""Builds modules against the tree: ours, and the C rtrs and rnbd as reference peers."""
import os
import pathlib
import shutil
import subprocess
import time

from . import cache, checkouts, config, packages, root, tree

C_KBUILD = "obj-y += rtrs/\nobj-y += rnbd/\n"
C_CONFIG = ["CONFIG_INFINIBAND_RTRS=m", "CONFIG_INFINIBAND_RTRS_CLIENT=m", "CONFIG_INFINIBAND_RTRS_SERVER=m",
            "CONFIG_BLK_DEV_RNBD=y", "CONFIG_BLK_DEV_RNBD_CLIENT=m", "CONFIG_BLK_DEV_RNBD_SERVER=m"]


def output() -> pathlib.Path:
    """The folder of our objects and modules of this checkout: those of several must not meet. KDIR_OUTPUT overrides
    it."""
    named = os.environ.get("KDIR_OUTPUT")
    return pathlib.Path(named).resolve() if named else packages.folder() / f"build-{checkouts.name()}"


def _turn() -> pathlib.Path:
    """One build at a time on a machine: several at once would each take longer than all in a row."""
    return packages.folder() / ".build.lock"


def build(arguments: list[str]) -> int:
    """Builds the repository's modules (or other targets of its Kbuild) into `output()`."""
    kernel, out = tree.ensure(), output()
    out.mkdir(parents=True, exist_ok=True)
    with cache.locked(_turn()), cache.locked(out.with_name(f".{out.name}.lock")):
        return root.run(_make_line(tree.kernel_make(kernel), out, arguments or ["modules"]), check=False,
                        extra_binds=(out,)).returncode


def build_quietly(what: str = "the kernel modules", arguments: list[str] | None = None) -> int:
    """Builds with one line of progress; on failure the compiler's words follow."""
    return compile_into(output(), tree.kernel_make(tree.ensure()), f"{what} for {packages.full_version()}",
                        arguments or ["modules"])


def compile_into(out: pathlib.Path, make: list[str], what: str, arguments: list[str]) -> int:
    """Has the `make` of a kernel tree build this checkout into `out`, with one line of progress."""
    out.mkdir(parents=True, exist_ok=True)
    log = out / "build.log"
    began = time.monotonic()
    cache.say(f"building {what} ...")
    with cache.locked(_turn()), cache.locked(out.with_name(f".{out.name}.lock")), log.open("w") as sink:
        checkouts.use([config.cache_dir(), packages.folder()])
        status = root.run(_make_line(make, out, arguments), check=False, extra_binds=(out,),
                          stdout=sink, stderr=subprocess.STDOUT).returncode
    if status:
        tree.fail_with_log(log)
        cache.say(f"building {what} failed; the whole log is {log}")
        return 1
    cache.say(f"building {what}: done in {time.monotonic() - began:.0f} s")
    return 0


def _make_line(make: list[str], out: pathlib.Path, arguments: list[str]) -> list[str]:
    return [*make, f"M={config.REPOSITORY}", f"MO={out}", f"-j{os.cpu_count()}", *arguments]


def c_output() -> pathlib.Path:
    """The folder of the C reference modules."""
    return packages.folder() / "cmodules"


def _make_c(part: pathlib.Path) -> None:
    kernel = tree.ensure()
    part.mkdir(parents=True)
    for source, name in (("drivers/infiniband/ulp/rtrs", "rtrs"), ("drivers/block/rnbd", "rnbd")):
        shutil.copytree(kernel / source, part / name)
    makefile = part / "rnbd/Makefile"
    makefile.write_text(makefile.read_text().replace("$(srctree)/drivers/infiniband/ulp/rtrs", str(part / "rtrs")))
    (part / "Kbuild").write_text(C_KBUILD)
    root.run([*tree.kernel_make(kernel), f"M={part}", f"-j{os.cpu_count()}", *C_CONFIG, "modules"],
             stdout=subprocess.DEVNULL)


def ensure_c() -> pathlib.Path:
    """Builds the C rtrs and rnbd of the same kernel once."""
    return cache.made_once(c_output(), "building the C rtrs and rnbd as reference peers", _make_c)
