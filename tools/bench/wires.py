# SPDX-License-Identifier: GPL-2.0
"""The gain of a second path: throughput over one wire and over two, where the wires are what is scarce.

Client and server are two machines. Each wire is held to `WIRE_MBIT` in both directions by netem in the guests,
far below what the emulated processors can do: so wall-clock rates are those of the wires and not of the host.
"""
from collections.abc import Callable

from vmlab.lab import Lab, Spec

WIRE_MBIT = 2
SECONDS = 10
PATTERNS = ("read", "write")
SETS = (("C", "c", ("round-robin",)), ("Rust", "ours", ("round-robin", "min-inflight", "min-latency")))
SESSION = "/sys/class/rtrs-client/wires"

# What is in flight has to fit into the queue of a wire: a transport that has to repeat would be measured instead.
_SHAPE = f"tc qdisc replace dev {{dev}} root netem rate {WIRE_MBIT}mbit limit 4000"
_FIO = (f"fio --name=wires --filename=/dev/rnbd0 --direct=1 --ioengine=io_uring --rw={{pattern}} --bs=4k --iodepth=8 "
        f"--size=256m --time_based --runtime={SECONDS} --ramp_time=2 --output-format=terse --terse-version=3")
_KIB_PER_SECOND = {"read": 6, "write": 47}     # fields of fio's terse output


def _rate(lab: Lab, pattern: str) -> float:
    """MB/s of one run of fio."""
    fields = lab.client.run(_FIO.format(pattern=pattern), 180).strip().splitlines()[-1].split(";")
    return int(fields[_KIB_PER_SECOND[pattern]]) * 1024 / 1e6


def _measure(lab: Lab, module_set: str, policies: tuple[str, ...]) -> dict[tuple[str, int, str], float]:
    """{(policy, wires, pattern): MB/s} of one module set."""
    lab.server.run(f"mods {module_set} rtrs-server\nmods {module_set} rnbd-server dev_search_path=/dev", 120)
    lab.client.run(f"mods {module_set} rnbd-client", 120)
    rates = {}
    for wires in (1, 2):
        paths = " ".join(f"path=ip:{lab.address(lab.server, wire)}" for wire in range(wires))
        lab.client.run(f"echo 'sessname=wires {paths} device_path=nullb0 access_mode=rw' "
                       "> /sys/class/rnbd-client/ctl/map_device", 120)
        for policy in policies if wires > 1 else policies[:1]:
            lab.client.run(f"echo {policy} > {SESSION}/mpath_policy")
            for pattern in PATTERNS:
                rates[policy, wires, pattern] = _rate(lab, pattern)
        lab.client.run(f"echo normal > /sys/block/rnbd0/rnbd/unmap_device; "
                       f"while [ -e {SESSION} ]; do sleep 0.2; done", 60)
    return rates


def measure(say: Callable[[str], None]) -> dict[tuple[str, str, int, str], float]:
    """{(driver, policy, wires, pattern): MB/s}."""
    results = {}
    for name, module_set, policies in SETS:
        say(f"throughput over one wire and two, {name}")
        with Lab(Spec(machines=2, wires=2, smp=2, memory_mib=1024)) as lab:
            lab.server.run("modprobe null_blk nr_devices=1 memory_backed=0 queue_mode=2 gb=4")
            for machine in lab.machines:
                machine.run("modprobe sch_netem; " + "; ".join(_SHAPE.format(dev=f"eth{wire}") for wire in (0, 1)))
            for key, rate in _measure(lab, module_set, policies).items():
                results[name, *key] = rate
    return results
