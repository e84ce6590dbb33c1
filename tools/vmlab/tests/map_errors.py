# SPDX-License-Identifier: GPL-2.0
"""Errors of map_device: the C driver's errno, and one line in the kernel log with the reason.

A line that announces a mapping comes first where map_device begins to connect. It is not counted here.
"""
from __future__ import annotations

import time
from dataclasses import dataclass

from vmlab import rnbd
from vmlab.checks import eq, in_time, ok
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.patience import scaled


@dataclass(frozen=True)
class Refusal:
    """A line for map_device and the errno of its write(2)."""

    line: str
    errno: str
    lines: int = 1      # in the log: what is not mapped; and why a session cannot be connected, which rtrs knows


SERVER = "path=ip:10.0.0.2"
ANNOUNCED = "rnbd_client: mapping '"
# With no session, no device mapped.
TABLE = (
    Refusal(f"sessname=e1 {SERVER} device_path=nosuch", "ENOENT"),
    Refusal("sessname=e1 device_path=ram0", "ENXIO"),
    Refusal(f"sessname=e1 {SERVER}", "EINVAL"),
    Refusal(f"{SERVER} device_path=ram0", "EINVAL"),
    Refusal("sessname=e1 path=10.0.0.2 device_path=ram0", "EPROTONOSUPPORT"),
    Refusal("sessname=e1 path=tcp:10.0.0.2 device_path=ram0", "EPROTONOSUPPORT"),
    Refusal("sessname=e1 path=ip:10.0.0.999 device_path=ram0", "EINVAL"),
    Refusal("sessname=e1 path=gid:nonsense device_path=ram0", "EINVAL"),
    Refusal("sessname=e1 path=ip:fe80::2%nosuch device_path=ram0", "EINVAL", lines=2),
    Refusal(f"sessname=e1 {SERVER} device_path=../ram0", "EINVAL"),
    Refusal(f"sessname=e1 {SERVER} device_path=ram0 access_mode=x", "EINVAL"),
    Refusal(f"sessname=e1 {SERVER} device_path=ram0 access_mode=", "EINVAL"),
    Refusal(f"sessname=e1 {SERVER} device_path=ram0 nr_poll_queues=99", "EINVAL"),
    Refusal(f"sessname=e1 {SERVER} device_path=ram0 nr_poll_queues=-2", "EINVAL"),
    Refusal(f"sessname=e1 {SERVER} device_path=ram0 nr_poll_queues=x", "EINVAL"),
    Refusal(f"sessname=e1 {SERVER} device_path=ram0 nr_io_queues=0", "EINVAL"),
    Refusal(f"sessname=e1 {SERVER} device_path=ram0 nr_io_queues=4097", "EINVAL"),
    Refusal(f"sessname=a/b {SERVER} device_path=ram0", "EINVAL"),
    Refusal(f"dest_port=70000 sessname=e1 {SERVER} device_path=ram0", "EINVAL"),
    Refusal(f"dest_port=x sessname=e1 {SERVER} device_path=ram0", "EINVAL"),
    Refusal(f"colour=red sessname=e1 {SERVER} device_path=ram0", "EINVAL"),
    Refusal("nonsense", "EINVAL"),
    Refusal("\n", "EINVAL"),
    Refusal(f"sessname=e1 {' '.join([SERVER] * 129)} device_path=ram0", "ENOMEM"),
    Refusal(f"sessname={'n' * 300} {SERVER} device_path=ram0", "EINVAL"),
    Refusal(f"sessname=e1 {SERVER} device_path={'d' * 300}", "EINVAL"),
    Refusal(f"dest_port=99 sessname=e9 {SERVER} device_path=ram0", "ECONNRESET", lines=2),
)
# With ram0 mapped as rw in session s1.
TABLE_MAPPED = (
    Refusal(f"sessname=s1 {SERVER} device_path=ram0", "EEXIST"),
    Refusal(f"sessname=s2 {SERVER} device_path=ram0", "EPERM"),
    Refusal(f"sessname=s2 {SERVER} device_path=ram0 access_mode=rw", "EPERM"),
    Refusal(f"sessname=s1 {SERVER} device_path=ram1 nr_poll_queues=1", "EINVAL"),
    Refusal(f"sessname=s1 {SERVER} device_path=ram1 nr_io_queues=2", "EINVAL"),
    Refusal("sessname=s1 device_path=nosuch", "ENOENT"),
)


def refusals(lab: Lab, pattern: str, mark: int) -> list[str]:
    """The client's lines since then that match, without those that announce a mapping."""
    return [line for line in lab.client.log_matches(pattern, mark) if ANNOUNCED not in line]


def refuse(lab: Lab, table: tuple[Refusal, ...]) -> None:
    """Tries every line; reports all that went otherwise, and those about which the kernel log is silent."""
    wrong = []
    for case in table:
        mark = lab.client.log_mark()
        errno = rnbd.try_map(lab, case.line)
        shown = case.line if len(case.line) < 100 else f"{case.line[:97]}..."
        if errno != case.errno:
            wrong.append(f"{errno or 'success'} instead of {case.errno} for {shown!r}")
        log = refusals(lab, "rnbd|rtrs", mark)
        if lab.modules == "ours" and len(log) != case.lines:
            wrong.append(f"{len(log)} log lines for {shown!r}: {log}")
        if errno == "":
            lab.client.run("for f in /sys/block/rnbd*/rnbd/unmap_device; do echo force > $f; done; sleep 1")
    if wrong:
        raise AssertionError("\n".join(wrong))


@needs(timeout=300)
def test_bad_lines_are_refused_with_the_errno_of_c(pair: Lab) -> None:
    """The table of map errors, from a fresh client."""
    rnbd.start(pair, mib=8, count=2)
    refuse(pair, TABLE)
    eq(pair.client.run("ls /dev | grep -c rnbd || true").strip(), "0", "devices left")


@needs(timeout=200)
def test_lines_that_collide_with_a_mapping_are_refused(pair: Lab) -> None:
    """The table of map errors, with a device mapped."""
    rnbd.start(pair, mib=8, count=2)
    disk = rnbd.map_disk(pair)
    refuse(pair, TABLE_MAPPED)
    eq(disk.attribute("state"), "open", "state of the mapped disk afterwards")


@needs()
def test_a_refusal_says_in_one_line_what_was_wrong(pair: Lab) -> None:
    """The kernel log names the device and the reason, once on each side."""
    rnbd.start(pair, mib=8)
    marks = pair.client.log_mark(), pair.server.log_mark()
    eq(rnbd.try_map(pair, rnbd.request(pair, "nosuch")), "ENOENT")
    client, server = refusals(pair, "nosuch", marks[0]), pair.server.log_matches("nosuch", marks[1])
    eq(len(client), 1, f"lines of the client that name the device: {client}")
    eq(len(server), 1, f"lines of the server that name the device: {server}")
    # No disk has a number yet, and where the device was looked for is said.
    eq([line for line in client if "rnbd0 (" in line], [], "lines about a disk that never was")
    ok("dev_search_path" in client[0], f"where to look: {client[0]}")
    rnbd.map_disk(pair)
    mark = pair.client.log_mark()
    eq(rnbd.try_map(pair, rnbd.request(pair, session="s2")), "EPERM", "a second writer")
    why = refusals(pair, "'ram0' over session s2", mark)
    eq(len(why), 1, f"lines that say why: {why}")
    ok("another session has it open for writing" in why[0], why[0])


@needs()
def test_a_session_has_the_name_of_a_host(pair: Lab) -> None:
    """Dots in a session's name, and the session's port after an address; another port is refused."""
    rnbd.start(pair, mib=8)
    line = "sessname=node1.example.com path=ip:10.0.0.2:{port} device_path=ram0 access_mode=rw"
    eq(rnbd.try_map(pair, line.format(port=1235)), "EINVAL", "another port")
    disk = rnbd.map_disk(pair, session="node1.example.com", line=line.format(port=1234))
    eq(pair.server.names("/sys/class/rtrs-server"), ["node1.example.com"], "sessions of the server")
    eq(disk.attribute("state"), "open")
    disk.unmap()


@needs(timeout=240, waits=True)
def test_a_host_that_does_not_answer_takes_half_a_minute(pair: Lab) -> None:
    """An address of no machine: map_device and add_path fail alike after the time-out of the resolution."""
    rnbd.start(pair, mib=8)
    disk = rnbd.map_disk(pair)
    began = time.monotonic()
    adding = pair.client.start_job(f"echo ip:10.0.0.98 > {rnbd.session_file('add_path')}", 120)
    errno = pair.client.write(f"{rnbd.CONTROL}/map_device", "sessname=e2 path=ip:10.0.0.99 device_path=ram0", 120)
    eq(errno, "EHOSTUNREACH", "map_device")
    answer = adding.wait()
    ok(answer.code and "No route to host" in answer.out, f"add_path: {answer.out or 'success'}")
    in_time(time.monotonic() - began < scaled(60), "it took longer than the time-outs explain")
    disk.unmap()


@needs()
def test_a_second_writer_needs_migration(pair: Lab) -> None:
    """rw and rw is rejected, rw and migration is accepted, a third is not; ro always is."""
    rnbd.start(pair, mib=8)
    rnbd.map_disk(pair, session="s1")
    eq(rnbd.try_map(pair, rnbd.request(pair, session="s2")), "EPERM", "a second writer")
    rnbd.map_disk(pair, session="s2", options="access_mode=migration")
    eq(rnbd.try_map(pair, rnbd.request(pair, session="s3", options="access_mode=migration")), "EPERM", "a third writer")
    reader = rnbd.map_disk(pair, session="s3", options="access_mode=ro")
    eq(reader.attribute("access_mode"), "ro")
