# SPDX-License-Identifier: GPL-2.0
"""Makes what a guest boots from: the stock kernel, a small initial RAM disk, and a read-only root image.

The root image has the files of some packages of a Debian root, the stock modules that tests load, and the agent
(guest/pack makes it). It is a disk of the machine, read as far as it is used; a tmpfs over it takes what is written.
What is under test changes all the time and travels apart, in the archive of the module sets (modsets.py).
"""
from __future__ import annotations

import hashlib
import lzma
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vmlab.assets import TOOLS, AssetError, Assets
from vmlab.store import digest, locked, prune, stamp, store, use

HERE = Path(__file__).resolve().parent
GUEST_FILES = {"initrd/init": "guest/initrd", "usr/lib/vmlab/init": "guest/init", "usr/bin/mods": "guest/mods",
               "usr/lib/vmlab/agent.py": "guest/agent.py"}
KEPT_IMAGES = 4

# Stock modules that tests may load; what they need comes along.
STOCK_MODULES = (
    "rdma_rxe", "rdma_cm", "rdma_ucm", "ib_uverbs", "virtio_net", "dummy", "brd", "loop", "null_blk", "ext4", "xfs",
    "scsi_debug", "sd_mod", "dm_mod", "dm_flakey", "dm_delay", "dm_log_writes", "dm_multipath", "dm_round_robin",
    "dm_raid", "dm_snapshot", "raid1", "bfq", "kyber_iosched", "nvme_rdma", "nvmet_rdma", "configfs",
    "crc32c_cryptoapi", "sch_netem", "virtio_rng", "netfs", "dns_resolver", "libmd5", "fuse", "nvme", "dm_integrity",
    "veth", "nfsd", "nfsv4", "rpcrdma", "lz4_compress", "lz4_decompress", "xor", "btrfs",
)
OPTIONAL_MODULES = frozenset({"nvme_rdma", "nvmet_rdma", "crc32c_cryptoapi", "virtio_rng", "sch_netem", "dm_multipath",
                              "dm_round_robin", "dm_raid", "raid1", "bfq", "kyber_iosched", "libmd5",
                              "fuse", "nvme", "dm_integrity", "nfsd", "nfsv4", "rpcrdma"})
# What the initial RAM disk loads to reach the root image, in this order.
BOOT_MODULES = ("virtio_blk", "erofs", "overlay")


@dataclass(frozen=True)
class Image:
    """The files that a machine is started with; `stock` is the folder of the modules in the root image."""

    kernel: Path
    initrd: Path
    root: Path
    stock: Path

    @property
    def identity(self) -> str:
        """Tells this making of the image from others: a saved machine fits one."""
        return f"{stamp(self.kernel)} {stamp(self.root)}"


def canonical(name: str) -> str:
    """The kernel's own spelling of a module name."""
    return name.replace("-", "_")


class StockModules:
    """The modules of the stock kernel: which others each needs, and where it is."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self._files = {canonical(path.name.partition(".ko")[0]): path for path in (tree / "kernel").rglob("*.ko*")}
        builtin = (tree / "modules.builtin").read_text(encoding="ascii").split()
        self._builtin = {canonical(Path(line).stem) for line in builtin}

    def closure(self, names: Iterable[str], optional: frozenset[str] = frozenset()) -> list[Path]:
        """The files of these modules and of all that they need, each after what it needs."""
        found: dict[str, Path] = {}
        for name in names:
            if canonical(name) in self._files or canonical(name) in self._builtin or name not in optional:
                self._add(canonical(name), found)
        return list(found.values())

    def _add(self, name: str, found: dict[str, Path]) -> None:
        if name in found or name in self._builtin:
            return
        if name not in self._files:
            raise AssetError(f"the kernel at {self.tree} has no module {name}")
        for needed in depends(self._files[name]):
            self._add(needed, found)
        found[name] = self._files[name]


def depends(module: Path) -> list[str]:
    """The modules whose symbols a module uses, by modinfo."""
    said = subprocess.run(["modinfo", "-F", "depends", str(module)], capture_output=True, text=True, check=True,
                          env=tool_environment())
    return [canonical(name) for name in said.stdout.strip().split(",") if name]


def tool_environment() -> dict[str, str]:
    """The variables for kmod's programs: an ordinary user's path lacks them."""
    return {"PATH": "/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def depmod(base: Path, version: str) -> None:
    """Writes the indexes of the modules in base/lib/modules/version."""
    done = subprocess.run(["depmod", "-b", str(base), version], capture_output=True, text=True, check=False,
                          env=tool_environment())
    if done.returncode:
        raise AssetError(f"depmod: {done.stderr}")


def unpack(module: Path, target: Path) -> None:
    """A module as the guest has it: not packed, for an emulated machine unpacks slowly."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if module.suffix == ".xz":
        target.write_bytes(lzma.decompress(module.read_bytes()))
    else:
        shutil.copy(module, target)


def _plain(module: Path) -> str:
    return module.name.removesuffix(".xz")


def _stage(assets: Assets, stage: Path) -> None:
    """Puts into a folder what the image holds beside the packages: the stock modules and the guest's own programs."""
    tree = assets.module_tree
    stock = StockModules(tree)
    place = stage / "usr/lib/modules" / assets.kernel_version
    for module in stock.closure((*STOCK_MODULES, *BOOT_MODULES), OPTIONAL_MODULES):
        unpack(module, place / module.parent.relative_to(tree) / _plain(module))
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        if (tree / name).exists():
            shutil.copy(tree / name, place)
    depmod(stage / "usr", assets.kernel_version)
    (stage / "lib").symlink_to("usr/lib")
    for number, module in enumerate(stock.closure(BOOT_MODULES)):
        unpack(module, stage / f"initrd/modules/{number:02}-{_plain(module)}")
    for target, source in GUEST_FILES.items():
        (stage / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / source, stage / target)
        (stage / target).chmod(0o755)


def _key(assets: Assets) -> str:
    """Names the image by all that goes into it."""
    status = hashlib.sha256((assets.root / "var/lib/dpkg/status").read_bytes()).digest()
    sources = [(HERE / name).read_bytes() for name in (*sorted(GUEST_FILES.values()), "guest/pack", "image.py")]
    return digest(status, assets.kernel_version, stamp(assets.kernel), *assets.guest_packages, *sources)


def _make(assets: Assets, folder: Path) -> None:
    stage = folder / "stage"
    stage.mkdir()
    _stage(assets, stage)
    command = [sys.executable, "-B", str(TOOLS / "kdir"), "guests-run", str(HERE / "guest/pack"), str(stage),
               str(folder / "root"), str(folder / "initrd"), *assets.guest_packages]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise AssetError(f"making the guests' root image failed: {done.stdout[-2000:]}")
    (stage / "usr/lib/modules").rename(folder / "stock")
    shutil.rmtree(stage)


def build(assets: Assets) -> Image:
    """The image, made if it is not there."""
    folder = store() / f"image-{_key(assets)}"
    with locked("image"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=store(), prefix="image.new-", ignore_cleanup_errors=True) as fresh:
                made = Path(fresh) / "made"
                made.mkdir()
                _make(assets, made)
                made.rename(folder)
        use(folder)
        prune("image-????????????????", KEPT_IMAGES)
    return Image(assets.kernel, folder / "initrd", folder / "root", folder / "stock" / assets.kernel_version)
