# SPDX-License-Identifier: GPL-2.0
"""Memory of one session on either side: what is gone from MemAvailable, and where it went.

Client and server are two machines, so that each has its own. A first session stays mapped during the
measurement: what a module allocates once is not counted. What is printed is the mean of the others.
"""
import dataclasses
from collections.abc import Callable

from vmlab.lab import Lab, Spec
from vmlab.machine import Machine

SESSIONS = 4
CHUNKS_KIB = 512 * 128      # the server's default: 512 chunks of 128 KiB
SETS = (("C", "c"), ("Rust", "ours"))

_READ = """
sync; echo 3 > /proc/sys/vm/drop_caches; sleep 1; echo 3 > /proc/sys/vm/drop_caches
awk '/^MemAvailable/ {print "total", $2}' /proc/meminfo
awk 'NR > 2 {n += $3 * $4} END {printf "slab %d\\n", n / 1024}' /proc/slabinfo
awk '/vmalloc/ {n += $2} END {printf "vmalloc %d\\n", n / 1024}' /proc/vmallocinfo
awk '/^Percpu/ {print "percpu", $2}' /proc/meminfo
"""


@dataclasses.dataclass(frozen=True)
class Use:
    """KiB a session: all of it, and the part in slab objects, in vmalloc areas and in per-CPU areas."""

    total: float
    slab: float
    vmalloc: float
    percpu: float


def _read(machine: Machine) -> dict[str, int]:
    return {key: int(value) for key, value in (line.split() for line in machine.run(_READ, 60).splitlines())}


def _map(lab: Lab, session: int) -> None:
    lab.client.run(f"echo 'sessname=m{session} path=ip:{lab.server_address} device_path=nullb0 access_mode=ro' "
                   "> /sys/class/rnbd-client/ctl/map_device", 120)


def _measure(lab: Lab, module_set: str, invalidate: str) -> tuple[Use, Use]:
    """(client, server) of one module set."""
    lab.server.run(f"mods {module_set} rtrs-server always_invalidate={invalidate}\n"
                   f"mods {module_set} rnbd-server dev_search_path=/dev", 120)
    lab.client.run(f"mods {module_set} rnbd-client", 120)
    _map(lab, 0)
    before = [_read(machine) for machine in lab.machines]
    for session in range(1, SESSIONS + 1):
        _map(lab, session)
    uses = []
    for machine, old in zip(lab.machines, before, strict=True):
        new = _read(machine)
        grown = {key: (new[key] - old[key]) / SESSIONS for key in old}
        uses.append(Use(-grown["total"], grown["slab"], grown["vmalloc"], grown["percpu"]))
    return uses[0], uses[1]


def measure(say: Callable[[str], None]) -> dict[tuple[str, str], tuple[Use, Use]]:
    """{(driver, always_invalidate): (client, server)}, KiB a session."""
    results = {}
    for invalidate in "YN":
        for name, module_set in SETS:
            say(f"memory of a session, {name} {invalidate}")
            # Fresh machines each time: what others have freed lies about in the slabs.
            with Lab(Spec(machines=2, smp=2, memory_mib=2048)) as lab:
                lab.server.run("modprobe null_blk nr_devices=1 memory_backed=0 queue_mode=2 gb=4")
                results[name, invalidate] = _measure(lab, module_set, invalidate)
    return results
