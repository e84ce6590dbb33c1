# SPDX-License-Identifier: GPL-2.0
"""rnbd_ec beside md-raid5, and a plain disk, over the same three disks of rnbd.

    fio ── ec0 or md-raid5 ── /dev/rnbd0, 1, 2 ══ server ── /dev/ram0, 1, 2

All in one guest, under -icount: what is compared is the processor. Each run ends with an fsync.
"""
import dataclasses
import json
import statistics
from collections.abc import Callable, Sequence

import setups
from rates import ICOUNT
from tables import markdown

from vmlab.lab import Lab, Spec
from vmlab.machine import Machine

MEMBER_MIB = 64
AREA_MIB = 32
MEMBERS = ("/dev/rnbd0", "/dev/rnbd1", "/dev/rnbd2")
_DISKS = f"""
modprobe brd rd_nr=3 rd_size={MEMBER_MIB * 1024} max_part=0
mods ours rtrs-server
mods ours rnbd-server dev_search_path=/dev
mods ours rnbd-client
for disk in ram0 ram1 ram2; do
	echo "sessname=s path=ip:{setups.ADDRESS} device_path=$disk access_mode=rw" > /sys/class/rnbd-client/ctl/map_device
done
mods ours rnbd-ec
modprobe dm_raid; modprobe raid456
find /usr/lib/python3* /etc -type f | sort | head -300 | xargs cat 2>/dev/null | head -c 262144 > /tmp/text
"""


@dataclasses.dataclass(frozen=True)
class Array:
    """A way to use the three disks; `data` are the arguments of fio that say what is written."""

    name: str
    up: str
    down: str
    device: str
    data: str = "--refill_buffers"


@dataclasses.dataclass(frozen=True)
class Cell:
    """A pattern, a block size, a queue depth, and how much is written or read."""

    pattern: str
    size: str
    depth: int
    mib: int

    @property
    def title(self) -> str:
        """The name in the table."""
        return f"{self.pattern} {self.size} qd {self.depth}"


@dataclasses.dataclass(frozen=True)
class Rate:
    """IOPS and the 99th percentile of the latency, in guest time."""

    iops: float
    p99_us: float


# The first one writes all of the area, so that what is read has been written.
CELLS = (Cell("write", "128k", 16, AREA_MIB), Cell("write", "1m", 4, AREA_MIB), Cell("randwrite", "4k", 1, 4),
         Cell("randwrite", "4k", 32, 16), Cell("randread", "4k", 1, 4), Cell("randread", "4k", 32, 8))
Rates = dict[tuple[str, Cell], Rate]


def _ec(name: str, options: str, data: str = "--refill_buffers") -> Array:
    line = f"mode=create force=1 name=ec0 {options} members={','.join(MEMBERS)}"
    return Array(name, f"echo '{line}' > /sys/class/rnbd-ec/ctl/assemble",
                 "cat /sys/block/ec0/ec/stats; echo 1 > /sys/block/ec0/ec/stop", "/dev/ec0", data)


_RAID = (f"0 {2 * MEMBER_MIB * 2048} raid raid5_ls 2 128 nosync 3 "
         + " ".join(f"- {member}" for member in MEMBERS))
_ZERO = "; ".join(f"dd if=/dev/zero of={member} bs=1M count=4 oflag=direct status=none" for member in MEMBERS)
ARRAYS = (Array("rnbd", "true", "true", MEMBERS[0]),
          Array("md-raid5", f"{_ZERO}; dmsetup create r5 --table '{_RAID}'", "dmsetup remove --retry r5", "/dev/dm-0"),
          _ec("ec none", "codec=none"), _ec("ec lz4 text", "codec=lz4", "--buffer_pattern=\"'/tmp/text'\""))


def _run(machine: Machine, array: Array, cell: Cell) -> Rate:
    text = machine.run(
        f"fio --name=x --filename={array.device} --rw={cell.pattern} --bs={cell.size} --iodepth={cell.depth} "
        f"--direct=1 --size={AREA_MIB}m --io_size={cell.mib}m --end_fsync=1 --norandommap --randrepeat=1 "
        f"--ioengine=io_uring {array.data} --output-format=json", 900)
    job = json.loads(text[text.index("{"):])["jobs"][0]
    if job["error"]:
        raise RuntimeError(f"fio on {array.name}, {cell.title}: error {job['error']}")
    figures = job["read" if "read" in cell.pattern else "write"]
    return Rate(float(figures["iops"]), float(figures["clat_ns"]["percentile"]["99.000000"]) / 1000)


def measure(say: Callable[[str], None], arrays: Sequence[Array] = ARRAYS) -> Rates:
    """{(array, cell): rate in guest time}; what an array says of itself is said at its end."""
    results = {}
    with Lab(Spec(machines=1, smp=2, memory_mib=2048, icount=ICOUNT)) as lab:
        machine = lab.client
        machine.run(f"set -e\n{_DISKS}", 300)
        for array in arrays:
            machine.run(array.up, 120)
            for cell in CELLS:
                rate = results[array.name, cell] = _run(machine, array, cell)
                say(f"{array.name:12} {cell.title:20} {rate.iops:8.0f} IOPS, p99 {rate.p99_us:8.0f} us (guest time)")
            for line in machine.run(array.down, 120).splitlines():
                say(f"{array.name:12} {line}")
    return results


def table(rates: Rates) -> str:
    """IOPS, p99, and the shares of what the others do."""
    names = list(dict.fromkeys(name for name, _ in rates))
    rows = []
    for cell in dict.fromkeys(cell for _, cell in rates):
        each = {name: rates[name, cell] for name in names}
        iops = [f"{rate.iops:.0f}" for rate in each.values()]
        slow = [f"{rate.p99_us:.0f}" for rate in each.values()]
        base = each.get("md-raid5")
        shares = [f"{each[name].iops / base.iops:.2f}" for name in names if name.startswith("ec") and base]
        rows.append([cell.title, *iops, *slow, *shares])
    heads = [*(f"{name}, IOPS" for name in names), *(f"{name}, p99 us" for name in names),
             *(f"{name}/md-raid5" for name in names if name.startswith("ec") and "md-raid5" in names)]
    return markdown(["guest time", *heads], rows)


def median(rounds: Sequence[Rates]) -> Rates:
    """The median of several rounds."""
    return {key: Rate(statistics.median(one[key].iops for one in rounds),
                      statistics.median(one[key].p99_us for one in rounds)) for key in rounds[0]}
