# SPDX-License-Identifier: GPL-2.0
"""Building and installing on a host that is the kernel's own Debian: without a root, and with the apt line where a
package is missing.

The host is played by the programs of the Debian root, read-only in a mount namespace. The kernel tree of the cache is
there, but no root, and nothing that could make one. `check` is called outside; this file run as a program is the
inside.
"""
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

MISSING = "bindgen"
# What is built again there; the rest is as the build of the root has left it, for it is the same compiler.
AGAIN = ("rnbd-client", "rnbd-server")

# $1 to $6: an empty folder to build the host in, the root, the checkout, the cache, the kernel's folder in it, a folder
# with a copy of what is built. $8: where that is in the host.
ENTER = r"""
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount --make-rprivate / 2>/dev/null || true
mount -t tmpfs none "$1"
cd "$2"
for link in bin sbin lib lib64; do cp -P $link "$1/"; done
mkdir -p "$2/usr/lib/modules"
for folder in usr etc var/lib/dpkg var/lib/apt; do
	mkdir -p "$1/$folder"
	mount --bind "$2/$folder" "$1/$folder"
	mount -o remount,bind,ro "$1/$folder" 2>/dev/null || true
done
mount -t tmpfs none "$1/usr/lib/modules"
mkdir -p "$1/tmp" "$1/dev" "$1/proc" "$1/mnt" "$1/var/cache/apt/archives/partial" "$1$3" "$1$5"
mount --rbind /dev "$1/dev"
mount --rbind /proc "$1/proc"
mount --rbind "$3" "$1$3"
mount --rbind "$5" "$1$5"
cp "$4"/release-* "$1$4/"
mount --rbind "$6" "$1/mnt"
mount --bind "$6/build" "$1$8"
cd "$1$3"
exec chroot "$1" /usr/bin/env -C "$3" -i PATH=/usr/sbin:/usr/bin HOME=/tmp LC_ALL=C.UTF-8 \
	FERROFABRIC_CACHE="$4" KDIR_OUTPUT="$8" python3 -B tools/test/native.py "$7"
"""


def check(repository: pathlib.Path, kdir: list[str], enter: list[str]) -> tuple[int, list[str]]:
    """Runs the inside in a host made of the root; its exit status and its lines. `enter` makes a mount namespace."""
    paths = json.loads(subprocess.run([*kdir, "paths", "--json"], cwd=repository, capture_output=True, text=True,
                                      check=True).stdout)
    kernel = pathlib.Path(paths["tree"]).parent
    with tempfile.TemporaryDirectory() as host, tempfile.TemporaryDirectory(dir=kernel) as out:
        built = pathlib.Path(out) / "build"
        # Other checks of the same run keep files for a moment in folders of their own there.
        shutil.copytree(paths["modules"], built, symlinks=True, ignore=shutil.ignore_patterns("tmp*"))
        for file in (file for name in AGAIN for file in (*built.glob(f"{name}.*"), *built.glob(f".{name}.*"))):
            file.unlink()
        done = subprocess.run([*enter, "bash", "-c", ENTER, "enter", host, paths["root"], str(repository),
                               str(kernel.parents[1]), str(kernel), out, paths["kernel_version"],
                               paths["modules"]],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout.splitlines() or ["nothing was printed"]


# -- inside --------------------------------------------------------------------------------------------------

def _run(*command: str) -> tuple[int, str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def builds_without_a_root(_version: str) -> str:
    """`make modules` builds what is missing of the modules, and no root is made."""
    status, said = _run("make", "--no-print-directory", "modules")
    cache = pathlib.Path(os.environ["FERROFABRIC_CACHE"])
    roots = [path.name for path in cache.iterdir() if path.name.startswith(("root-", "guests-"))]
    names = {path.stem for path in pathlib.Path(os.environ["KDIR_OUTPUT"]).glob("*.ko")}
    if status or roots or not set(AGAIN) <= names or "a Debian root" in said:
        return f"status {status}, roots {roots}, modules {sorted(names)}: {said}"
    return ""


def another_running_kernel_is_named(version: str) -> str:
    """`make modules_install` says which kernel runs and which one is meant, unless they are the same."""
    status, said = _run("make", "--no-print-directory", "modules_install")
    if platform.release() == version or (status and f"the modules are for {version}" in said):
        return ""
    return f"status {status}: {said}"


def installs_for_the_running_kernel(version: str) -> str:
    """With this kernel running, modules_install makes modprobe find the modules and all that they need."""
    place = pathlib.Path("/usr/lib/modules") / version
    packages = pathlib.Path(os.environ["FERROFABRIC_CACHE"]) / "kernel" / version / "pkgs"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for item in (packages / "usr/lib/modules" / version).iterdir():
        (place / item.name).symlink_to(item)
    # The kernel that runs is the host's; the program is told another name, and has a note for that one.
    cache = pathlib.Path(os.environ["FERROFABRIC_CACHE"])
    for note in cache.glob("release-*"):
        shutil.copy(note, note.with_name(f"{note.name.partition('-for-')[0]}-for-{note.read_text().strip()}"))
    program = (f"import platform, sys; platform.release = lambda: {version!r}; sys.path.insert(0, 'tools'); "
               "from kdir import install; sys.exit(install.install())")
    status, said = _run(sys.executable, "-B", "-c", program)
    if status:
        return f"status {status}: {said}"
    for module in ("rnbd-client", "rnbd-server"):
        status, needed = _run("modprobe", "--dry-run", "--show-depends", "--set-version", version, module)
        names = re.findall(r"/([\w-]+)\.ko", needed)
        wanted = ["rdma_cm", "kernel_ext", "block_ext", "rdma_rust", "rtrs-core", module.replace("rnbd", "rtrs"),
                  module]
        if status or [name for name in names if name in wanted][-1:] != [module] or set(wanted) - set(names):
            return f"modprobe {module} would load {names}: {needed}"
    return ""


def names_the_missing_package(_version: str) -> str:
    """Without a package, the line that installs it is printed, and nothing else is in that line."""
    text = pathlib.Path("/var/lib/dpkg/status").read_text(encoding="utf-8")
    less = re.sub(rf"^(Package: {MISSING}\nStatus: ).*$", r"\1deinstall ok config-files", text, flags=re.M)
    database = pathlib.Path("/mnt/dpkg")
    for folder in (database, database / "updates", database / "info"):
        folder.mkdir()
    (database / "status").write_text(less, encoding="utf-8")
    os.environ["DPKG_ADMINDIR"] = str(database)
    status, said = _run(sys.executable, "-B", "tools/kdir", "native")
    if status == 0 or not re.search(rf"apt-get install {MISSING}$", said, re.M):
        return f"status {status}: {said}"
    return ""


def main() -> int:
    """Runs the inside; one line each, and the closing line."""
    checks = (builds_without_a_root, another_running_kernel_is_named, installs_for_the_running_kernel,
              names_the_missing_package)
    failed = 0
    for function in checks:
        wrong = function(sys.argv[1])
        for line in wrong.splitlines():
            print(f"#   {line}")
        failed += bool(wrong)
        print(f"{'not ok' if wrong else 'ok'} native.{function.__name__.replace('_', '-')}", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
