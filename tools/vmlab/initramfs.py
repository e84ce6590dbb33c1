# SPDX-License-Identifier: GPL-2.0
"""Builds the guest image: an initramfs of a Debian root's programs, the stock modules and the agent.

It changes rarely and is cached by its inputs. It is not compressed: under emulation the kernel unpacks a
plain archive several times faster, and the file never leaves this host. What is under test changes all the
time, so it travels in a second archive, the overlay, which a running guest unpacks.
"""
from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vmlab import kmods, programs
from vmlab.assets import Assets, cache_dir
from vmlab.cpio import Archive

HERE = Path(__file__).resolve().parent
GUEST_FILES = {"init": "guest/init", "usr/bin/mods": "guest/mods", "usr/lib/vmlab/agent.py": "guest/agent.py"}
KEPT_IMAGES = 4

# Stock modules that tests may load; what they need comes along.
STOCK_MODULES = (
    "rdma_rxe", "rdma_cm", "rdma_ucm", "ib_uverbs", "virtio_net", "virtio_blk", "dummy", "brd", "loop", "null_blk",
    "ext4", "scsi_debug", "sd_mod", "dm_mod", "dm_flakey", "dm_delay", "nvme_rdma", "nvmet_rdma", "configfs",
    "crc32c_cryptoapi", "sch_netem", "virtio_rng",
)
OPTIONAL_MODULES = frozenset({"crc32c_cryptoapi", "virtio_rng", "sch_netem"})


def store() -> Path:
    """The lab's folder in the cache."""
    folder = cache_dir() / "vmlab"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Only one process at a time makes a thing of this name."""
    with open(store() / f"{name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def digest(*parts: str | bytes) -> str:
    """One name for all these inputs."""
    total = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        total.update(len(raw).to_bytes(8, "little") + raw)
    return total.hexdigest()[:16]


def _base_key(assets: Assets) -> str:
    """Names the base archive by all that goes into it."""
    status = assets.root / "var/lib/dpkg/status"
    kernel = assets.kernel.stat()
    sources = [(HERE / name).read_bytes() for name in sorted(GUEST_FILES.values())]
    sources += [(HERE / name).read_bytes() for name in ("programs.py", "initramfs.py", "kmods.py", "cpio.py")]
    return digest(hashlib.sha256(status.read_bytes()).digest(), assets.kernel_version,
                   str((kernel.st_size, kernel.st_mtime_ns)), *sources)


def _add_stock_modules(archive: Archive, assets: Assets, stock: kmods.Distribution) -> None:
    """The stock modules with the three indexes that busybox's modprobe reads."""
    names = [name for name in STOCK_MODULES if name not in OPTIONAL_MODULES or stock.has(name)]
    base = f"usr/lib/modules/{assets.kernel_version}"
    depends, aliases = [], []
    places: dict[str, str] = {}
    for module in stock.closure(names):
        place = str(module.path.relative_to(stock.tree)).removesuffix(".xz")
        places[module.name] = place
        archive.file(f"{base}/{place}", module.image)
        below = stock.closure(module.depends)
        depends.append(f"{place}: {' '.join(places[m.name] for m in reversed(below))}\n")
        aliases += [f"alias {alias} {module.name}\n" for alias in module.aliases]
    archive.file(f"{base}/modules.dep", "".join(depends).encode())
    archive.file(f"{base}/modules.alias", "".join(aliases).encode())
    archive.file(f"{base}/modules.symbols", b"")
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        if (stock.tree / name).exists():
            archive.copy(f"{base}/{name}", stock.tree / name)


def _stripped(path: Path) -> bytes:
    """A module without its debug information, where a strip is at hand: it is most of the file."""
    strip = shutil.which("strip") or shutil.which("llvm-strip")
    if not strip:
        return path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/{path.name}"
        done = subprocess.run([strip, "-g", "-o", out, str(path)], check=False, stderr=subprocess.DEVNULL)
        return Path(out).read_bytes() if done.returncode == 0 else path.read_bytes()


def _add_set(archive: Archive, assets: Assets, name: str, stock: kmods.Distribution) -> None:
    """One set of modules with a load plan for each (see guest/mods)."""
    base = f"usr/lib/modules/{assets.kernel_version}/{name}"
    own = {m.name: m for m in (kmods.Module(p, _stripped(p)) for p in assets.module_set(name))}
    for module in own.values():
        archive.file(f"{base}/{module.path.name}", module.image)
        plan = []
        for step in kmods.in_order([module.name], lambda n: own.get(n) or stock.get(n)):
            kind = "own" if step.name in own else "stock"
            plan.append(f"{kind} {step.name} {step.path.name}\n")
        archive.file(f"{base}/{module.name}.load", "".join(plan).encode())
    archive.file(f"{base}/set.names", "".join(f"{module}\n" for module in own).encode())


def build(assets: Assets) -> Path:
    """The image, made if it is not there. Returns its path."""
    path = store() / f"base-{_base_key(assets)}.cpio"
    with locked("base"):
        if path.exists():
            os.utime(path)      # pruning goes by age of use
            return path
        fresh = path.with_suffix(".new")
        with open(fresh, "wb") as out:
            archive = Archive(out)
            programs.add_all(archive, assets.root)
            for place, name in GUEST_FILES.items():
                archive.file(place, (HERE / name).read_bytes(), 0o755)
            _add_stock_modules(archive, assets, kmods.Distribution(assets.module_tree))
            archive.close()
        fresh.rename(path)
        prune("base-*.cpio", KEPT_IMAGES)
    return path


def overlay(assets: Assets, sets: Iterable[str], extra: Iterable[Path]) -> bytes:
    """An archive of these module sets with their load plans, and of `extra` module files under /ko."""
    stock = kmods.Distribution(assets.module_tree)
    buffer = io.BytesIO()
    archive = Archive(buffer)
    for name in sets:
        _add_set(archive, assets, name, stock)
    archive.folder("ko")
    for path in extra:
        archive.file(f"ko/{path.name}", _stripped(path))
    archive.close()
    return buffer.getvalue()


def prune(pattern: str, kept: int) -> None:
    """Keeps the newest files of a kind."""
    found = sorted(store().glob(pattern), key=lambda p: p.stat().st_mtime, reverse=True)
    for path in found[kept:]:
        path.unlink(missing_ok=True)
