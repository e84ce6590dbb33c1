# SPDX-License-Identifier: GPL-2.0
"""Protection information: what it costs on a disk that has no room for it (mode wire) and on one that has (mode pass).

    fio ── /dev/rnbd0 or nvme-rdma ══ server ── brd, or an NVMe disk that stores tuples

All in one guest, under -icount, and counted is everything in its kernel. The NVMe disk is QEMU's: what it does itself
is not in the guest. Without protection information its controller inserts and strips the tuples.
"""
import dataclasses
import re
from collections.abc import Callable, Sequence

import counting
import setups
from counting import Counts
from rates import ICOUNT
from tables import VECTORS, checksums, markdown

from vmlab.machine import Machine

# Namespaces of the disk: tuples of 16 bytes for 4096, and of 8 for 512.
NAMESPACES = ("ms=16,pi=1,pif=2,logical_block_size=4096,physical_block_size=4096", "ms=8,pi=1,logical_block_size=512")
DISK_MIB = 16
# The memory of fio is the same in all runs, so that data lies in as many pieces: pages of a file that were written in
# such an order that none lies behind the one before it.
MEMORY = "/dev/shm/memory"
_LAY_OUT = f"""
for n in $(seq 0 2 254) $(seq 1 2 255); do
    dd if=/dev/zero of={MEMORY} bs=4096 count=1 seek=$n conv=notrunc status=none
done
"""
# The kernel saves the registers of user space when the first checksum uses them, and restores them; and each checksum
# switches softirqs off and on.
_CALLED = (*VECTORS, "save_fpregs_to_fpstate", "xfd_validate_state", "switch_fpu_return",
           "restore_fpregs_from_fpstate", "__local_bh_enable_ip")
# Functions of the kernel that run because time passes or another task does: the scheduler's, and those of timers.
_SCHEDULER = re.compile(
    r"sched|load_avg|_fair\b|entit(y|ies)|vruntime|eevdf|update_(curr|se|rq)|psi_|cpuacct|ttwu|try_to_wake_up|_task_|"
    r"switch|timer|tick|clock(?!_)|clockevents|ktime|timekeeping|vsyscall|apic|idle|_dl_|dl_server|cfs")
_OURS = (*setups.OURS, *setups.C)
_MODULES = ("rnbd_client", "rnbd_server", "rtrs_client", "rtrs_server", "nvme_rdma", "nvme_core", "nvmet_rdma",
            "nvmet", "ib_core", "rdma_rxe")


def _nvme(name: str, namespace: int, options: str) -> setups.Setup:
    base = setups.rnbd(name, "ours", "Y", _OURS, device="$disk", options=options)
    up = f"""
modprobe nvme
for i in $(seq 100); do [ -b /dev/nvme0n{len(NAMESPACES)} ] && break; sleep 0.1; done
for disk in $(cd /sys/block; echo nvme0n*); do [ $(cat /sys/block/$disk/nsid) = {namespace} ] && break; done
echo 0 > /sys/block/$disk/integrity/write_generate
echo 0 > /sys/block/$disk/integrity/read_verify
"""
    fill = f"dd if=/dev/zero of={base.device} bs=1M oflag=direct status=none || true"
    return dataclasses.replace(base, up=f"{up}{base.up}\n{fill}", down=f"{base.down}; rmmod nvme")


# On brd, beside the same disk over nvme-rdma: rxe offers that no protection information.
BESIDE = dataclasses.replace(
    setups.NVME, up=f"modprobe brd rd_nr=1 rd_size={DISK_MIB * 1024}\n{setups.NVME.up.replace('nullb0', 'ram0')}\n"
    f"dd if=/dev/zero of={setups.NVME.device} bs=1M oflag=direct status=none || true",
    down=f"{setups.NVME.down}\nmodprobe -r nvme-rdma nvmet-rdma; rmmod brd")
# Each after the same disk without.
GROUPS = ((*setups.PROTECTION, BESIDE),
          (_nvme("NVMe 16/4096, off", 1, ""), _nvme("pass, crc64", 1, "pi=require")),
          (_nvme("NVMe 8/512, off", 2, ""), _nvme("pass, t10", 2, "pi=require")))
SETUPS = tuple(setup for group in GROUPS for setup in group)


def measure(say: Callable[[str], None], wanted: Sequence[setups.Setup], cases: Sequence[tuple[str, str]]) -> Counts:
    """Instructions per IO by function, of everything."""
    def lay_out(machine: Machine) -> None:
        machine.run(_LAY_OUT)

    return counting.measure(say, wanted, cases or counting.PROTECTION_CASES, ICOUNT,
                            f"--iodepth=1 --mem=mmapshared:{MEMORY}", lay_out, nvme=NAMESPACES, disk_mib=DISK_MIB)


def _without(name: str) -> str:
    return next(group[0].name for group in GROUPS if name in (setup.name for setup in group))


def _crc(counts: dict[tuple[str, str], float]) -> float:
    """Instructions in the kernel's checksums, and in what they call."""
    called = sum(counts.get(("kernel", name), 0) for name in _CALLED if name not in VECTORS)
    return checksums(counts) + called


def _all(counts: dict[tuple[str, str], float]) -> float:
    return sum(value for (module, _), value in counts.items() if module != "user")


def _of(counts: dict[tuple[str, str], float], *modules: str) -> float:
    return sum(value for (module, _), value in counts.items() if module in modules)


def _scheduler(counts: dict[tuple[str, str], float]) -> float:
    return sum(value for (module, name), value in counts.items()
               if module == "kernel" and name not in _CALLED and _SCHEDULER.search(name))


def more(results: Counts) -> str:
    """Instructions per IO beside those of the same disk without tuples."""
    rows = []
    for (name, pattern, size), counts in results.items():
        base = results.get((_without(name), pattern, size))
        if base is None or name == _without(name) or name == BESIDE.name:
            continue
        before, after = _all(base), _all(counts)
        crc, scheduler = _crc(counts) - _crc(base), _scheduler(counts) - _scheduler(base)
        ours, rxe = _of(counts, *_OURS) - _of(base, *_OURS), _of(counts, "rdma_rxe") - _of(base, "rdma_rxe")
        rest = after - before - crc
        figures = (before, after, crc, ours, rxe, rest - ours - rxe - scheduler, scheduler)
        shares = (after / before - 1, rest / before, (rest - scheduler) / before)
        rows.append([f"{name}, {pattern} {size}", *(f"{figure:.0f}" for figure in figures),
                     *(f"{share:.1%}" for share in shares)])
    return markdown(["instructions per IO", "without", "with", "more: checksums", "our modules", "rdma_rxe",
                     "other kernel", "scheduler and timers", "more", "beyond checksums", "and scheduler"], rows)


def by_module(results: Counts) -> str:
    """The same by module, without and with, and of nvme-rdma."""
    rows = []
    for pattern, size in dict.fromkeys((pattern, size) for _, pattern, size in results):
        for (name, *case), counts in results.items():
            if case == [pattern, size]:
                each = [_of(counts, *setups.OURS), *(_of(counts, module) for module in _MODULES)]
                crc, all_ = _crc(counts), _all(counts)
                figures = (*each, crc, all_ - crc - sum(each), all_)
                rows.append([f"{pattern} {size}, {name}", *(f"{figure:.0f}" if figure else "" for figure in figures)])
    return markdown(["instructions per IO", "ours below", *_MODULES, "checksums", "other kernel", "all"], rows)


def hottest(results: Counts, setup: setups.Setup, pattern: str, size: str, most: int = 30) -> str:
    """The functions, of everything, in which a setup has most more instructions than without tuples."""
    base = results.get((_without(setup.name), pattern, size), {})
    counts = [(value - base.get(key, 0), *key) for key, value in results[setup.name, pattern, size].items()]
    rows = [[f"{value:.1f}", module, name] for value, module, name in sorted(counts, reverse=True)[:most]]
    return markdown([f"{setup.name} {pattern} {size}: more", "module", "function"], rows)
