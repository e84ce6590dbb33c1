# SPDX-License-Identifier: GPL-2.0
"""The choice of a path among those that are connected.

    client ── two wires ── server
"""
from __future__ import annotations

from vmlab import paths, rnbd
from vmlab.checks import eq, ge, in_time, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

READS = 64


def _read(lab: Lab, device: str) -> list[int]:
    """Reads one by one; returns the reads over each wire, as far as there is a path."""
    wires = range(len(paths.names(lab)))
    before = [paths.count(lab, "rdma", 0, wire) for wire in wires]
    lab.client.run(f"dd if={device} of=/dev/null bs=4k count={READS} iflag=direct status=none")
    found = [paths.count(lab, "rdma", 0, wire) - count for wire, count in zip(wires, before, strict=True)]
    eq(sum(found), READS, f"reads over all paths, of {found}")
    return found


def _both(lab: Lab, device: str, what: str) -> None:
    """Both paths take turns; each CPU has its own, and the reader may change its CPU."""
    for wire, reads in enumerate(_read(lab, device)):
        ge(reads, READS // 2 - 8, f"{what}, wire {wire}")


@needs(wires=2)
def test_paths_come_and_go_between_requests(pair: Lab) -> None:
    """Round-robin takes turns among the connected paths, whichever they are, and each disk sees every read."""
    with paths.two_paths(pair) as disk:
        paths.set_all(pair, mpath_policy="round-robin", heartbeat_interval_ms=30000)
        _both(pair, disk.path, "reads over two paths")
        other, mark = paths.to_wire(pair, 1), pair.server.log_mark()
        eq(pair.client.write(f"{other}/disconnect", "1"), "")
        until(lambda: pair.server.log_matches("session s1: path .*: the client has disconnected", mark), 10,
              "the server says who has ended the path")
        eq(_read(pair, disk.path), [READS, 0], "reads while one is disconnected")
        paths.reconnect(pair, other)
        _both(pair, disk.path, "reads over the path that is back")
        eq(pair.client.write(f"{other}/remove_path", "1"), "")
        eq(_read(pair, disk.path), [READS], "reads over the path that is left")
        eq(pair.client.write(rnbd.session_file("add_path"), f"ip:{pair.address(pair.server, 1)}"), "")
        _both(pair, disk.path, "reads over the path that is new")


@needs(wires=2)
def test_min_latency_follows_the_heartbeats(pair: Lab) -> None:
    """All reads go over the path whose heartbeat was answered fastest, also when that is another one."""
    with paths.two_paths(pair) as disk:
        paths.set_all(pair, mpath_policy="min-latency", heartbeat_interval_ms=1000)
        for slow in (0, 1):
            fast = 1 - slow
            pair.client.run(f"modprobe sch_netem; tc qdisc add dev eth{slow} root netem delay 200ms")

            def is_slower(slow: int = slow) -> bool:
                return _latency_ms(pair, slow) >= 100 > _latency_ms(pair, 1 - slow)
            until(is_slower, 20, f"wire {slow} is the slower one")
            reads = _read(pair, disk.path)
            in_time(is_slower(), "the other wire has become as slow, on a busy host")
            eq(reads[fast], READS, f"reads while wire {slow} is slow")
            pair.client.run(f"tc qdisc del dev eth{slow} root")


def _latency_ms(lab: Lab, wire: int) -> float:
    """The round trip of the path's last heartbeat."""
    number, unit = lab.client.read(f"{paths.to_wire(lab, wire)}/cur_latency").split()
    ok(unit == "ns", f"cur_latency in {unit}")
    return int(number) / 1e6
