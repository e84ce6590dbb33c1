# SPDX-License-Identifier: GPL-2.0
"""People work with disks, all at once on one pair of machines, while everything happens to it that may.

Nine disks of one server are used (vmlab/people.py): read and written as they are, with fio and changing schedulers,
with ext4 and xfs, as swap, under md and under dm-multipath. Meanwhile wires are cut, machines stand still, the client
is suspended, processors go and come. Nothing may fail, and every sector must hold what was written.

What happens is chosen anew in each run; VMLAB_SEED=N gives it again. `make soak MINUTES=N` goes on for longer.
"""
from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from vmlab import paths, people, rnbd, seed, tier
from vmlab.checks import NotInTime, eq
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs
from vmlab.patience import factor
from vmlab.tests import failover

SMP = 2
TIER = tier.LONG if failover.FLAPS else tier.ALL

MINUTES = float(os.environ.get("VMLAB_SOAK_MINUTES", tier.of(0.0, 10.0)))
# In `make test-all` so many kinds of trouble, by chance; else all, at least once.
EVENTS = tier.of(3, 9)
# Beginning and end need a few minutes on a busy host.
TIMEOUT_SECONDS = 60 * MINUTES + 600
MIB = 32
DISKS = 8               # ram0 to ram7 of the server
BACK_SECONDS = 60.0
SCHEDULERS = ("none", "mq-deadline", "kyber", "bfq")
# Of the sessions that dm-multipath lies on: requests of a lost path are given back after so many seconds.
FAIL_SECONDS = 2


class Soak:
    """The disks, those who use them, and what happens to them."""

    def __init__(self, lab: Lab, chance: random.Random) -> None:
        self.lab, self.chance = lab, chance
        rnbd.start(lab, mib=MIB, count=DISKS)
        # The paths of one session share a round; each of the other two has one wire.
        self.disks = [self._disk(f"ram{number}") for number in range(DISKS - 1)]
        rnbd.round_robin(lab)
        self.legs = [self._leg(wire) for wire in range(2)]
        raw, fio, ext4, xfs, swap, left, right = self.disks
        self.verifier = people.Verifier(fio, TIMEOUT_SECONDS)
        self.multipath = people.Multipath(lab, self.legs, TIMEOUT_SECONDS)
        self.people: list[people.Person] = [
            people.Raw(raw, TIMEOUT_SECONDS), self.verifier, people.Journal(lab, ext4, "ext4", TIMEOUT_SECONDS),
            people.Journal(lab, xfs, "xfs", TIMEOUT_SECONDS), people.Swapper(lab, swap, TIMEOUT_SECONDS),
            people.Mirror(lab, [left, right], TIMEOUT_SECONDS), self.multipath]
        self.events: list[Callable[[], None]] = [
            self.silent_wire, self.cut_wire, self.both_wires, self.frozen_server, self.suspended_client,
            self.processor_of_client, self.processor_of_server, self.schedulers, self.administrator]

    def _disk(self, device: str) -> rnbd.Disk:
        return rnbd.map_disk(self.lab, device, line=rnbd.request(self.lab, device, wires=2))

    def _leg(self, wire: int) -> rnbd.Disk:
        session, address = f"leg{wire}", self.lab.address(self.lab.server, wire)
        disk = rnbd.map_disk(self.lab, f"ram{DISKS - 1}", session, line=(
            f"sessname={session} path=ip:{address} device_path=ram{DISKS - 1} access_mode=migration"))
        paths.set_all(self.lab, session, fast_io_fail_tmo=FAIL_SECONDS)
        return disk

    def _rest(self, least: float, most: float) -> None:
        time.sleep(self.chance.uniform(least, most))

    # -- what happens: each ends with everything as it was ----------------------------------------------------

    def silent_wire(self) -> None:
        """One wire carries nothing for a while; the client sees no reason."""
        wire = self.chance.randrange(2)
        self.lab.silence(wire)
        self._rest(1, 8)
        self.lab.mend(wire)

    def cut_wire(self) -> None:
        """One wire is cut; both ends lose the carrier."""
        wire = self.chance.randrange(2)
        self.lab.cut(wire)
        self._rest(0.2, 5)
        self.lab.mend(wire)

    def both_wires(self) -> None:
        """No path is left for a while."""
        for wire in range(2):
            self.lab.silence(wire)
        self._rest(1, 8)
        for wire in range(2):
            self.lab.mend(wire)

    def frozen_server(self) -> None:
        """The server's machine stands still; it does not notice."""
        self.lab.server.freeze()
        try:
            self._rest(0.5, 8)
        finally:
            self.lab.server.thaw()

    def suspended_client(self) -> None:
        """The client's machine suspends to idle as far as its devices, waits for two seconds, and resumes."""
        self.lab.client.run("echo 2 > /sys/module/suspend/parameters/pm_test_delay; echo devices > /sys/power/pm_test; "
                            "echo freeze > /sys/power/state", 100)

    def _processor(self, machine: Machine) -> None:
        file = "/sys/devices/system/cpu/cpu1/online"
        eq(machine.write(file, "0", 100), "", "taking a processor away")
        self._rest(0.2, 2)
        eq(machine.write(file, "1", 100), "", "giving it back")

    def processor_of_client(self) -> None:
        """One of the client's processors goes and comes back."""
        self._processor(self.lab.client)

    def processor_of_server(self) -> None:
        """The same at the server."""
        self._processor(self.lab.server)

    def schedulers(self) -> None:
        """A disk gets another scheduler twice."""
        for name in self.chance.sample(SCHEDULERS, 2):
            self.verifier.schedule(name)

    def administrator(self) -> None:
        """Paths are disconnected and connected by hand at the client."""
        path = f"{rnbd.session_file('paths')}/{self.chance.choice(paths.names(self.lab))}"
        eq(self.lab.client.write(f"{path}/disconnect", "1", 60), "", "disconnect")
        self._rest(0.1, 2)
        paths.reconnect(self.lab, path)

    # -- the run -----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """All paths are connected again, and dm-multipath has both legs."""
        def connected() -> bool:
            return all(set(paths.states(self.lab, name)) == {"connected"} for name in ("s1", "leg0", "leg1"))
        paths.back_seconds(self.lab, connected, BACK_SECONDS, "all paths are connected")
        self.multipath.reinstate()

    def _goes_on(self, event: str) -> None:
        waiting = {disk: disk.requests for disk in self.disks}
        began = time.monotonic()
        while waiting:
            for disk in [disk for disk, count in waiting.items() if disk.requests > count]:
                del waiting[disk]
            for person in [person for person in self.people if not person.running]:
                person.end()        # says what it has found
            if time.monotonic() > began + BACK_SECONDS * factor():
                print("\n".join(self.lab.client.blocked()), flush=True)
                said = {disk.name: (disk.remote, disk.attribute("state"),
                                    self.lab.client.read(f"/sys/block/{disk.name}/inflight")) for disk in waiting}
                raise NotInTime(f"no request ends for {BACK_SECONDS:.0f} s after {event}: {said}")
            time.sleep(0.1)

    def run(self) -> None:
        """A round of trouble, and others until the time is over; each time in another order."""
        until_seconds = time.monotonic() + 60 * MINUTES
        rounds = 0
        while rounds == 0 or time.monotonic() < until_seconds:
            for event in self.chance.sample(self.events, EVENTS):
                began = time.monotonic()
                event()
                self.settle()
                self._goes_on(event.__name__)
                print(f"# {event.__name__}: {time.monotonic() - began:.1f} s", flush=True)
            rounds += 1
        print(f"# {rounds} rounds", flush=True)

    def end(self) -> None:
        """Everyone ends, and was content; the disks go."""
        with ThreadPoolExecutor(len(self.people)) as pool:
            for _ in pool.map(lambda person: person.end(), self.people):
                pass
        for disk in [*self.disks, *self.legs]:
            disk.unmap()


@needs(wires=2, timeout=TIMEOUT_SECONDS + 300, rxe_may_die=True)
def test_everything_at_once(pair: Lab) -> None:
    """Seven kinds of use under up to nine kinds of trouble: no error, no wrong sector, and IO goes on after each."""
    for wire in range(2):
        pair.defer(pair.mend, wire)
    soak = Soak(pair, seed.fresh())
    soak.run()
    soak.end()
