# SPDX-License-Identifier: GPL-2.0
"""The kernel that is built for (tools/kernel.conf), and the places where things are kept."""
import os
import pathlib
import pwd

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

# The toolchain of the kernel's own build.
BUILD_PACKAGES = (
    "make gcc-14 libc6-dev flex bison bc libelf-dev libssl-dev rustc rust-src rustfmt rust-clippy bindgen "
    "libclang-19-dev clang-19 lld-19 llvm-19 kmod cpio xz-utils zstd python3-minimal pahole patch perl rsync "
    "cargo ca-certificates"
).split()
# What is in the guests' root image, with all that these depend on.
GUEST_PACKAGES = (
    "bash btrfs-progs busybox-static coreutils dash dmsetup e2fsprogs fdisk fio fuse3 gfarm-client gfarm2fs gfmd gfsd "
    "ibverbs-providers ibverbs-utils iproute2 keyutils kmod librdmacm1t64 mount netbase nvme-cli postgresql python3 "
    "rdma-core tar udev util-linux xfsprogs"
).split()
# What makes that image, and the programs of tests that are compiled against the guests' libraries.
LAB_PACKAGES = "cpio erofs-utils libibverbs-dev librdmacm-dev".split()


def load_kernel_conf() -> dict[str, str]:
    """Reads tools/kernel.conf; KEY=VALUE lines, the environment variable KERNEL_<KEY> overrides."""
    values = {}
    for line in (REPOSITORY / "tools/kernel.conf").read_text().splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.partition("=")
            values[key] = os.environ.get(f"KERNEL_{key}", value)
    return values


def cache_dir() -> pathlib.Path:
    """The folder outside the work tree that everything slow to make is kept in."""
    named = os.environ.get("FERROFABRIC_CACHE")
    if named:
        return pathlib.Path(named).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base).resolve() / "ferrofabric"


def use_cache_of_invoker() -> None:
    """Under sudo, what the ordinary user has made is in that user's cache, not in root's."""
    user = os.environ.get("SUDO_USER")
    if user and os.geteuid() == 0 and not (os.environ.get("FERROFABRIC_CACHE") or os.environ.get("XDG_CACHE_HOME")):
        os.environ["FERROFABRIC_CACHE"] = f"{pwd.getpwnam(user).pw_dir}/.cache/ferrofabric"
