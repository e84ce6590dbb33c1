# SPDX-License-Identifier: GPL-2.0
"""The words in which tests of paths are written: what a session's paths are doing, and for how long."""
from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vmlab import rnbd, rxe
from vmlab.checks import ByChance, Failed, TooSlow, eq, ok, until
from vmlab.history import History
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.patience import factor


def names(lab: Lab, session: str = "s1") -> list[str]:
    """The names of the client's paths."""
    return lab.client.names(rnbd.session_file("paths", session))


def to_wire(lab: Lab, wire: int = 0, session: str = "s1") -> str:
    """The folder of the client's path to the server's address on a wire."""
    address = lab.address(lab.server, wire)
    found = [name for name in names(lab, session) if name.endswith(f"@ip:{address}")]
    eq(len(found), 1, f"paths to {address}")
    return f"{rnbd.session_file('paths', session)}/{found[0]}"


def state(lab: Lab, wire: int = 0, session: str = "s1") -> str:
    """`connected` or `disconnected`."""
    return lab.client.read(f"{to_wire(lab, wire, session)}/state")


def states(lab: Lab, session: str = "s1") -> list[str]:
    """The states of all paths."""
    return [lab.client.read(f"{rnbd.session_file('paths', session)}/{name}/state") for name in names(lab, session)]


def all_connected(lab: Lab, mark: int, session: str = "s1") -> None:
    """No path of the session is down, and none was since the mark. One that rxe has flushed is lost by chance: it
    flushes a queue pair for which it has to repeat a registration."""
    found = states(lab, session)
    lost = lab.client.log_matches("disconnected|path closed|heartbeat", mark)
    if set(found) == {"connected"} and not lost:
        return
    flushed = lab.client.log_matches("WR flushed, closing the path", mark)
    silent = lab.client.log_matches("heartbeat", mark)
    raise (ByChance if flushed and not silent else Failed)(f"the paths of {session} are {found}: {lost}")


def not_lost(lab: Lab, mark: int, wire: int = 0, session: str = "s1") -> None:
    """The path over a wire is up, while something happens to another one. The peer that notices first says why it is
    lost: rxe flushes a queue pair for which it has to repeat a registration, and who is stopped for long by its host
    misses heartbeats."""
    if state(lab, wire, session) == "connected":
        return
    address = re.escape(f"ip:{lab.address(lab.server, wire)}")
    reasons = lab.client.log_matches(rf"closing the path to {address}$", mark)
    reasons += lab.server.log_matches(rf"path {address}@.*, path closed")
    kinds = (("WR flushed", ByChance), ("heartbeat", TooSlow))
    kind = next((kind for words, kind in kinds if any(words in line for line in reasons)), Failed)
    raise kind(f"the path over wire {wire} is lost: {reasons}")


def set_all(lab: Lab, session: str = "s1", **settings: int | str) -> None:
    """Writes settings of the session; the C driver has most of them not."""
    for name, value in settings.items():
        eq(lab.client.write(rnbd.session_file(name, session), str(value)), "", f"setting {name}")


def count(lab: Lab, file: str, column: int, wire: int = 0, session: str = "s1") -> int:
    """A number of a file of a path's statistics."""
    return int(lab.client.read(f"{to_wire(lab, wire, session)}/stats/{file}").split()[column])


def failovers(lab: Lab, wire: int = 0, session: str = "s1") -> int:
    """Requests that the path has taken over from others."""
    return count(lab, "rdma", 5, wire, session)


def uptime(machine: Machine) -> float:
    """The guest's own clock, which stands still when the guest does."""
    return float(machine.read("/proc/uptime").split()[0])


def guest_seconds(machine: Machine, reached: Callable[[], bool], limit: float, what: str) -> float:
    """The seconds until `reached`, by the clock of `machine`; asks often."""
    began = uptime(machine)
    until(reached, limit, what, pause=0.05)
    return uptime(machine) - began


def figure(text: str) -> None:
    """A line for people: a measured figure of the running test."""
    print(f"# {text} (load factor {factor():.1f})", flush=True)


@contextmanager
def two_paths(lab: Lab, options: str = "access_mode=rw", mib: int = 64, server: str | None = None,
              client: str | None = None) -> Iterator[rnbd.Disk]:
    """A disk over both wires; `server` and `client` are module sets, the one under test by default."""
    rnbd.ram_disk(lab, mib)
    rnbd.load_server(lab, server)
    rnbd.load_client(lab, client)
    disk = rnbd.map_disk(lab, line=rnbd.request(lab, options=options, wires=2))
    eq(states(lab), ["connected", "connected"])
    yield disk
    disk.unmap()


def wait_busy(disk: rnbd.Disk, more: int = 40, history: History | None = None) -> None:
    """Waits until a load is in full flight; if a history has ended instead, fails with what it has found."""
    before = disk.requests

    def busy() -> bool:
        if history is not None and not history.running:
            history.clean()
        return disk.requests > before + more

    until(busy, 30, "IO is going on", pause=0.05)


def revive_rxe(lab: Lab) -> bool:
    """Makes rxe devices anew whose connection manager's queue pair has died of a link that went down, a defect of
    rxe that no driver above can mend (Documentation/failover.md); says whether there were any."""
    found = False
    for machine in lab.machines:
        for device in rxe.dead_devices(machine):
            figure(f"{machine.name}: the GSI queue pair of {device} was dead, the device is made anew")
            machine.run(f"rdma link delete {device} && rdma link add {device} type rxe netdev eth{device[3:]}")
            found = True
    return found


def reconnect(lab: Lab, folder: str) -> None:
    """Has a path connect again; one that connects by itself just then, on a busy host, refuses it with EBUSY, and an
    attempt there may fail."""
    def done() -> bool:
        errno = lab.client.write(f"{folder}/reconnect", "1", 60)
        ok(errno in ("", "EBUSY", "ETIMEDOUT", "ECONNRESET"), f"reconnect: {errno}")
        return not errno
    until(done, 20, "the path connects again")


# What is not back by then may have met a dead device, and the load uses the host's processors meanwhile.
USUAL_SECONDS = 8


def back_seconds(lab: Lab, reached: Callable[[], bool], limit: float, what: str) -> float:
    """The seconds of `guest_seconds` on the client, for what comes back after a link was down; not held up by a dead
    rxe device."""
    began = uptime(lab.client)
    try:
        return guest_seconds(lab.client, reached, min(limit, USUAL_SECONDS), what)
    except Failed:
        if revive_rxe(lab):
            began = uptime(lab.client)
    guest_seconds(lab.client, reached, limit, what)
    return uptime(lab.client) - began


def mend_for_a_new_session(lab: Lab, wire: int = 0) -> None:
    """Joins a cut wire and waits until a session can be opened over it. One that is opened while the neighbour's
    address is not resolved yet waits for the connection manager's 30 s."""
    lab.mend(wire)
    revive_rxe(lab)
    lab.greet()


def rest(seconds: float) -> None:
    """Lets time pass in which something must or must not happen."""
    time.sleep(seconds * min(2.0, factor()))
