# SPDX-License-Identifier: GPL-2.0
"""Mode store, the sidecar of rnbd-server, beside dm-integrity: what it costs to keep checksums on a plain medium.

    fio ── [dm-integrity] ── /dev/rnbd0 or nvme-rdma ══ server ── [sidecar or dm-integrity] ── null_blk that keeps data

All in one guest, under -icount. Each run ends with an fsync, so that what was written is durable in each setup, and
those of 4 KiB write so much that both journals are emptied meanwhile.
"""
import concurrent.futures
import dataclasses
import json
import os
from collections.abc import Callable, Sequence

import setups
from counting import Counts
from counting import measure as count
from rates import ICOUNT

from kdir import programs
from vmlab.lab import Lab, Spec
from vmlab.machine import Machine

MEDIUM_MIB = 256
# What is written and read of it: the tuples of all of it are in the memory of each.
AREA_MIB = 32
TOOL = "/usr/bin/pi-sidecar"
NODE = "/dev/medium"


@dataclasses.dataclass(frozen=True)
class Medium:
    """A null_blk that keeps its data; `limits` are attributes of it."""

    name: str
    limits: str

    @property
    def up(self) -> str:
        """Makes it anew, with the memory of what is used in place."""
        return f"""
modprobe null_blk nr_devices=0
grep -q configfs /proc/mounts || mount -t configfs none /sys/kernel/config
mkdir /sys/kernel/config/nullb/medium && cd /sys/kernel/config/nullb/medium
echo {MEDIUM_MIB} > size; echo 1 > memory_backed; echo 2 > submit_queues; {self.limits}; echo 1 > power; cd /
dd if=/dev/zero of={NODE} bs=1M count={2 * AREA_MIB} oflag=direct status=none
"""

    down = "rmdir /sys/kernel/config/nullb/medium; modprobe -r null_blk"


# As fast as the processor, and one of half the bandwidth that the emulated network has in writes of 4 KiB.
MEDIA = (Medium("memory", "echo 0 > irqmode"),
         Medium("8 MiB/s", "echo 2 > irqmode; echo 50000 > completion_nsec; echo 8 > mbps"))


@dataclasses.dataclass(frozen=True)
class Cell:
    """A pattern, a block size, a queue depth, and how much is written or read."""

    pattern: str
    size: str
    depth: int
    mib: int

    @property
    def title(self) -> str:
        """The name in the tables."""
        return f"{self.pattern} {self.size} qd {self.depth}"


# The first one writes all of the area, so that what is read has been written. Where requests share records, the journal
# has room for more of them.
CELLS = (Cell("write", "128k", 16, AREA_MIB), Cell("write", "4k", 1, 16), Cell("write", "4k", 32, 96),
         Cell("randwrite", "4k", 1, 16), Cell("randwrite", "4k", 32, 96), Cell("read", "128k", 16, AREA_MIB),
         Cell("randread", "4k", 1, 8), Cell("randread", "4k", 32, 8))


def _integrity(name: str, below: str) -> str:
    """A device of dm-integrity on another: its defaults, but for blocks and a checksum as ours has them."""
    table = f"integrity {below} 0 4 J 2 internal_hash:crc32c block_size:4096"
    return f"""
modprobe dm_integrity
dd if=/dev/zero of={below} bs=4096 count=1 oflag=direct status=none
dmsetup create {name} --table "0 8 {table}" && dmsetup remove --retry {name}
dmsetup create {name} --table "0 $(od -An -tu8 -j16 -N8 {below} | tr -d ' ') {table}"
"""


def _rnbd(name: str, options: str = "", device: str = "medium") -> setups.Setup:
    return setups.rnbd(name, "ours", "Y", (*setups.OURS, *setups.C), device=device, options=options)


def _checked(base: setups.Setup, name: str) -> setups.Setup:
    """dm-integrity on the client, over the disk of a setup."""
    return dataclasses.replace(base, name=name, up=f"{base.up}\n{_integrity('top', base.device)}",
                               down=f"dmsetup remove --retry top; {base.down}", device="/dev/dm-0")


def _below() -> setups.Setup:
    """dm-integrity on the server, below rnbd."""
    base = _rnbd("rnbd on dm-integrity", device="dm-0")
    return dataclasses.replace(base, up=f"{_integrity('low', NODE)}\n{base.up}",
                               down=f"{base.down}; dmsetup remove --retry low")


def _sidecar() -> setups.Setup:
    base = _rnbd("store", "pi=crc64")
    return dataclasses.replace(base, up=f"{TOOL} format --force {NODE}\n{base.up}")


_OFF = _rnbd("off")
_NVME = dataclasses.replace(setups.NVME, up=setups.NVME.up.replace("/dev/nullb0", NODE))
SETUPS = (_OFF, _rnbd("wire", "pi=crc64"), _sidecar(), _checked(_OFF, "dm-integrity on rnbd"), _below(), _NVME,
          _checked(_NVME, "dm-integrity on nvme-rdma"))

Rates = dict[tuple[str, str, Cell], list[float]]


def bring_tool(machine: Machine) -> None:
    """The program that formats a medium with a sidecar."""
    machine.push(programs.PI_SIDECAR.build(), TOOL)
    machine.run(f"chmod 755 {TOOL}")


def run(machine: Machine, device: str, cell: Cell) -> float:
    """IOPS in guest time, with the fsync at the end."""
    text = machine.run(
        f"fio --name=x --filename={device} --rw={cell.pattern} --bs={cell.size} --iodepth={cell.depth} --direct=1 "
        f"--size={AREA_MIB}m --io_size={cell.mib}m --end_fsync=1 --norandommap --randrepeat=1 --ioengine=io_uring "
        "--output-format=json", 900)
    job = json.loads(text[text.index("{"):])["jobs"][0]
    if job["error"]:
        raise RuntimeError(f"fio on {device}, {cell.title}: error {job['error']}")
    return float(job["read" if "read" in cell.pattern else "write"]["iops"])


def _round(say: Callable[[str], None], wanted: Sequence[setups.Setup], media: Sequence[Medium],
           cells: Sequence[Cell]) -> dict[tuple[str, str, Cell], float]:
    results = {}
    with Lab(Spec(machines=1, smp=2, memory_mib=2048, icount=ICOUNT)) as lab:
        machine = lab.client
        bring_tool(machine)
        for medium in media:
            for setup in wanted:
                machine.run(f"set -e\n{medium.up}", 300)
                setups.bring_up(machine, setup)
                for cell in cells:
                    results[medium.name, setup.name, cell] = run(machine, setup.device, cell)
                    say(f"{medium.name}, {setup.name:25} {cell.title:20} "
                        f"{results[medium.name, setup.name, cell]:8.0f} IOPS (guest time)")
                setups.take_down(machine, setup)
                machine.run(medium.down, 120)
    return results


def measure(say: Callable[[str], None], wanted: Sequence[setups.Setup], repeat: int,
            media: Sequence[Medium] = MEDIA, cells: Sequence[Cell] = CELLS) -> Rates:
    """{(medium, setup, cell): IOPS in guest time, of each round}; every other round goes backwards."""
    def one(number: int) -> dict[tuple[str, str, Cell], float]:
        return _round(say, list(wanted)[::-1 if number % 2 else 1], media, cells)

    with concurrent.futures.ThreadPoolExecutor(min(repeat, os.cpu_count() or 1)) as pool:
        rounds = list(pool.map(one, range(repeat)))
    return {key: [one[key] for one in rounds] for key in rounds[0]}


COUNTED = ("off", "wire", "store")
COUNTED_CASES = (("randwrite", "4k"), ("randread", "4k"), ("write", "128k"))
COUNTED_DEPTHS = (1, 32)


def counts(say: Callable[[str], None]) -> dict[int, Counts]:
    """Guest instructions per IO on the fast medium, by queue depth."""
    medium = MEDIA[0]
    wanted = [dataclasses.replace(setup, up=f"{medium.up}\n{setup.up}", down=f"{setup.down}\n{medium.down}")
              for setup in SETUPS if setup.name in COUNTED]
    return {depth: count(say, wanted, COUNTED_CASES, ICOUNT, f"--iodepth={depth} --size={AREA_MIB}m", bring_tool)
            for depth in COUNTED_DEPTHS}
