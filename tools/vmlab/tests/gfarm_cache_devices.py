# SPDX-License-Identifier: GPL-2.0
"""Nodes of the cooperative cache on two RDMA devices of one kernel.

    a mount ── left ── veth0 ====== veth1 ── right ── a mount
              the machine's network │ network namespace `far`

Both mounts are in the machine's own network namespace, where the servers are: only the devices are apart. In one
namespace rxe takes every address of the machine for its own device's, so two devices of one do not hear each other.
"""
from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from vmlab import gfarm_mount, gfarm_node, tier
from vmlab.checks import ByChance, eq, ge, in_time, ok, until
from vmlab.gfarm import Gfarm
from vmlab.gfarm_mount import AT
from vmlab.gfarm_node import Node
from vmlab.lab import MTU, Lab
from vmlab.machine import Machine
from vmlab.needs import needs
from vmlab.tests.gfarm_cache_machines import BACK_SECONDS, LATE_SECONDS, alive, gid_index, shares
from vmlab.tests.gfarm_cache_readers import MIB, acquaint, end, put, start
from vmlab.trace import FOLDER, MOUNT

SMP = 2
TIER = tier.ALL

LEFT, RIGHT = "left", "right"
JOIN = f"""set -e
modprobe veth
ip netns add far
ip link add veth0 mtu {MTU} type veth peer name veth1 mtu {MTU} netns far
ip addr add 10.0.7.1/24 dev veth0; ip -6 addr add fd00:0:0:7::1/64 dev veth0 nodad
ip -n far addr add 10.0.7.2/24 dev veth1; ip -n far -6 addr add fd00:0:0:7::2/64 dev veth1 nodad
ip link set veth0 up; ip -n far link set veth1 up
rdma link add {LEFT} type rxe netdev veth0
ip netns exec far rdma link add {RIGHT} type rxe netdev veth1
"""
PART = f"""for device in {LEFT} {RIGHT}; do
    [ ! -e /sys/class/infiniband/$device ] || rdma link delete $device
done
ip link delete veth0; ip netns delete far"""


@contextmanager
def nodes(servers: Gfarm, *devices: tuple[str, str]) -> Iterator[list[Node]]:
    """Mounts, each on the device and with the options that are named."""
    with ExitStack() as stack:
        yield [stack.enter_context(gfarm_node.node(servers, f"ib_devname={device}{more}", f"{AT}-{device}"))
               for device, more in devices]


def join(vm: Lab) -> Gfarm:
    """Makes the two devices, which go after the test; answers the servers."""
    servers = gfarm_mount.start(vm)
    vm.defer(vm.server.run, PART, 60)
    vm.server.run(JOIN, 60)
    return servers


def counted(machine: Machine, device: str, counter: str) -> int:
    """The count of a device."""
    return int(machine.read(f"/sys/class/infiniband/{device}/ports/1/hw_counters/{counter}"))


@needs(machines=1, timeout=300)
def test_two_devices_of_one_kernel_give_each_other_pages(vm: Lab) -> None:
    """With fragments of 4096 bytes over IPv4 and of 1024 over IPv6: one copy leaves the file server."""
    servers = join(vm)
    size = 4 * MIB + 1
    for begins, fragment in (("::ffff:", 4096), ("fd00:", 1024)):
        more = [f",ib_mtu={fragment},ib_gid={gid_index(vm.server, device, begins)}" for device in (LEFT, RIGHT)]
        with nodes(servers, (LEFT, more[0]), (RIGHT, more[1])) as found:
            for node in found:
                ok(f"gid={begins}" in node.address, node.address)
            acquaint(found)
            for holder, reader, device in zip(found, found[::-1], (LEFT, RIGHT), strict=True):
                name = f"from-{device}-{fragment}"
                digest = put(servers, name, size)
                eq(holder.sha256(name), digest, f"{name}, the first reader")
                packets = counted(vm.server, device, "sent_pkts")
                share = shares(reader, name, digest, size)
                packets = counted(vm.server, device, "sent_pkts") - packets
                print(f"# {name}: {share:.2f} from the file server, {packets} packets of the holder's device",
                      flush=True)
                ok(share < 1, f"{name}: the other node has given no page")
                in_time(not share, f"{name}: {share:.2f} came from the file server")
                ge(packets, (1 - share) * size // fragment, f"{name}: packets of the holder's device")


def during(found: Sequence[Node], name: str, deed: str) -> list[dict[str, Any]]:
    """Both nodes read a file, each in an order of its own and much of it from the other; meanwhile it happens."""
    before = [node.ibstat()["peer_pages"] for node in found]
    job = start(found, name, "random")
    until(lambda: not job.running or all(node.ibstat()["peer_pages"] > was
                                         for node, was in zip(found, before, strict=True)), 60, "both give pages")
    if not job.running:
        end(job, found, name)
        raise ByChance("they have read all before it happened")
    found[0].machine.run(deed, 30)
    return end(job, found, name)


@needs(machines=1, timeout=300)
def test_a_node_whose_machine_has_another_ip_address_tells_the_others(vm: Lab) -> None:
    """The log has a line, the other node knows the new address at once, and pages go both ways as before."""
    servers = join(vm)
    vm.server.run("sysctl -qw net.ipv4.conf.veth0.promote_secondaries=1")
    with nodes(servers, (LEFT, ""), (RIGHT, "")) as found:
        left, right = found
        acquaint(found)
        mark = vm.server.log_mark()
        vm.server.run("ip addr add 10.0.7.9/24 dev veth0; ip addr del 10.0.7.1/24 dev veth0")
        until(lambda: " gid=::ffff:10.0.7.9" in left.address, 10, "it has the new address")
        until(lambda: alive(left, right) and alive(right, left), 10, "both are known")
        eq(list(right.peers()), [left.address], "what the other one knows")
        for holder, reader in (found, found[::-1]):
            name = f"moved{reader.at[-4:]}"
            digest = put(servers, name, MIB)
            eq(holder.sha256(name), digest, f"{name}, the first reader")
            in_time(shares(reader, name, digest, MIB) < 0.5, f"{name}: from the file server: {reader.ibstat()}")
        lines = vm.server.log_matches("the address of a node is another one now", mark)
        ok(len(lines) == 1 and ": lid=0 " in lines[0], f"{lines}")


# What the device is asked for: the flow label and the traffic class of an address (struct rdma_ah_attr).
PROBE = "p:ah rxe_create_ah label=+24(+0(%si)):u32 class=+30(+0(%si)):u8"
# What comes and goes by RoCE v2: source, and byte 1 of the IP header.
LISTEN = """
import socket, sys, time
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.bind((sys.argv[1], 0))
link.settimeout(0.2)
end, seen = time.monotonic() + 6, set()
while time.monotonic() < end:
    try:
        packet = link.recv(256)[14:]
    except TimeoutError:
        continue
    if packet[0] == 0x45 and packet[9] == 17 and packet[22:24] == (4791).to_bytes(2, "big"):
        seen.add((socket.inet_ntoa(packet[12:16]), packet[1]))
print(sorted(seen))
"""


@needs(machines=1, timeout=300)
def test_what_is_sent_has_a_traffic_class_and_a_flow_label(vm: Lab) -> None:
    """All packets of a node have the class of its option; each pair of ports has a label of its own, and none is 0."""
    servers = join(vm)
    vm.server.run(f"{MOUNT}; cd {FOLDER}; echo '{PROBE}' >> kprobe_events; echo 1 > events/kprobes/ah/enable")
    vm.defer(vm.server.run, f"cd {FOLDER}; echo 0 > events/kprobes/ah/enable; echo > kprobe_events; echo > trace")
    with nodes(servers, (LEFT, ",ib_tclass=104"), (RIGHT, "")) as found:
        acquaint(found)
        digest = put(servers, "classes", MIB)
        job = vm.server.start_job(f"python3 -I -S - veth0 <<'EOF'\n{LISTEN}EOF", 60)
        for node in found[::-1]:
            eq(node.sha256("classes"), digest, "the file")
        said = job.wait(60)
        eq(said.out.strip(), str([("10.0.7.1", 104), ("10.0.7.2", 0)]), "classes on the wire")
    asked = set(re.findall(r"label=(\d+) class=(\d+)", vm.server.read(f"{FOLDER}/trace")))
    # Each of the two sends to itself, by no packet, and to the other.
    eq(len({label for label, _ in asked}), 4, f"flow labels: {asked}")
    ok(all(0 < int(label) < 1 << 20 for label, _ in asked), f"flow labels: {asked}")


@needs(machines=1, timeout=400)
def test_two_devices_of_one_kernel_of_which_one_goes(vm: Lab) -> None:
    """It goes while both nodes read: each byte is right, and no read is late; the other node finds its successor."""
    servers = join(vm)
    machine = vm.server
    with nodes(servers, (LEFT, "")) as (left,):
        for number in range(2):
            with nodes(servers, (RIGHT, "")) as (right,):
                found = [left, right]
                eq(right.add(left.address), "", "the error of ibaddr")
                until(lambda right=right: alive(left, right) and alive(right, left), BACK_SECONDS, "both are known")
                name = f"load{number}"
                digest = put(servers, name, 16 * MIB)
                said = during(found, name, f"rdma link delete {RIGHT}")
                took = max(row["max_ms"] for row in said)
                print(f"# the device went while both read: the longest read took {took:.0f} ms", flush=True)
                left.forget()
                eq([node.sha256(name) for node in found], [digest] * 2, f"{name}, once more")
                in_time(took <= LATE_SECONDS * 1000, f"a read took {took:.0f} ms")
            machine.run(f"ip netns exec far rdma link add {RIGHT} type rxe netdev veth1")


@needs(machines=1, timeout=300)
def test_two_devices_of_one_network_namespace(vm: Lab) -> None:
    """rxe brings what is for the other device to the sender's own: the nodes do not meet, and read files in time."""
    servers = gfarm_mount.start(vm)
    machine = vm.server
    vm.defer(machine.run, "rdma link delete rxe1; ip link delete eth1", 60)
    machine.run(f"set -e; ip link add eth1 mtu {MTU} type dummy; ip addr add 10.0.1.1/24 dev eth1; ip link set eth1 up;"
                "rdma link add rxe1 type rxe netdev eth1")
    with nodes(servers, ("rxe0", ""), ("rxe1", "")) as found:
        for node, other in zip(found, found[::-1], strict=True):
            eq(node.add(other.address), "", "the error of ibaddr")
        for number, (node, other) in enumerate(zip(found, found[::-1], strict=True)):
            digest = put(servers, f"apart{number}", MIB)
            eq(other.sha256(f"apart{number}"), digest, "the first reader")
            began = time.monotonic()
            eq(shares(node, f"apart{number}", digest, MIB), 1.0, "share of the file server")
            took = time.monotonic() - began
            in_time(took <= LATE_SECONDS, f"the file was read in {took:.1f} s")
            ok(not alive(node, other), "they have met")
        # What they drop is what they have sent themselves. Nothing comes where no queue pair of the sender's device
        # has the number of the other's.
        for node in found:
            ok(set(node.dropped()) <= {"sender"}, f"dropped: {node.dropped()}")
