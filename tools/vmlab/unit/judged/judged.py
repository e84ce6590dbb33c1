# SPDX-License-Identifier: GPL-2.0
"""Tests for the test of the worker (`test_worker.py`): what their machines say is judged, whenever they say it.

The machines are not real: a kernel log is a list. What keeps and judges them is real.
"""
from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from vmlab import keeper, oracle, replay, rxe
from vmlab.channel import MachineGone
from vmlab.checks import ByChance, Failed, NotInTime, TooSlow, WrongData, eq
from vmlab.keeper import Keeper
from vmlab.kernel_log import KernelLog
from vmlab.lab import Lab, Spec
from vmlab.machine import Examination, Machine, Result
from vmlab.needs import needs

WARNING = "WARNING: CPU: 0 PID: 1 at fake.c:1 "
UNDECIDED = "rtrs_client: path 00000001 1 did 7"
OOPS = "Oops: int3: 0000 [#1] SMP\nCPU: 1 UID: 0 PID: 77 Comm: fio Tainted: G {} 7.2.12\nRIP: 0010:__schedule+0x1/0x2"
IDLE = {"ifname": "rxe0", "pd": 1, "mr": 0}
setattr(oracle, "SETTLE_SECONDS", 0)        # noqa: B010 -- nothing settles here


class FakeMachine(Machine):
    """A machine that says what it is told to."""

    def __init__(self, name: str) -> None:
        self.name, self.was_unplugged = name, False
        self.console_text = ""
        self.at_unload: list[str] = []      # what it says then
        self.power_on()

    def die(self) -> None:
        """Says nothing any more, and no test has asked for that."""
        self.is_up = False

    def power_on(self) -> None:
        """Says nothing yet."""
        self.is_up = True
        self.log: list[str] = []
        self.mr = 0
        self.was_killed = False
        self._qemu = cast(Any, object())

    def power_off(self) -> None:
        """Says nothing any more."""
        self._qemu = None

    @property
    def alive(self) -> bool:
        """Whether its power is on."""
        return self._qemu is not None and self.is_up

    def whole_log(self, after: int = -1) -> list[tuple[int, str]]:
        """The list."""
        if not self.alive:
            raise MachineGone(f"{self.name}: no answer")
        return list(enumerate(self.log))[after + 1:]

    def log_mark(self) -> int:
        """Its newest line."""
        return len(self.log) - 1

    def examine(self, after: int = -1, folders: tuple[str, ...] = ()) -> Examination:
        """Nothing but the log and memory regions."""
        del folders
        return Examination(self.whole_log(after), [IDLE | {"mr": self.mr}], ["rdma_rxe"], {})

    def try_run(self, command: str, timeout: float = 60.0) -> Result:
        """Knows how to unload."""
        del timeout
        if command == "mods -r":
            self.log += self.at_unload
            self.at_unload = []
        return Result(0, "")

    def exists(self, path: str) -> bool:
        """Has no files."""
        del path
        return False

    def blocked(self) -> list[str]:
        """Has no tasks."""
        return []

    def console_tail(self, lines: int = 40) -> str:
        """The last lines of the machine."""
        del lines
        return self.console_text

    def cpu_seconds(self) -> float:
        """Costs nothing."""
        return 0.0


class FakeLab(Lab):
    """Two of them."""

    def __init__(self, spec: Spec) -> None:
        self.spec, self.folder = spec, Path(tempfile.mkdtemp(prefix="vmlab-unit-"))
        self.machines = [FakeMachine(name) for name in ("client", "server")]
        self._cleanups, self._shared_cleanups = [], []

    def _power_on(self, machines: Iterable[Machine]) -> None:
        for machine in machines:
            cast(FakeMachine, machine).power_on()


def _boot(self: Keeper, spec: Spec) -> None:
    self._spec, self._lab = spec, FakeLab(spec)
    self._baselines = [oracle.Baseline.take(machine) for machine in self._lab.machines]
    self._logs = {machine.name: KernelLog(machine, machine.log_mark()) for machine in self._lab.machines}
    for machine in self._lab.machines:
        machine.before_kill = self._before_kill
        setattr(machine, "reboots", 0)      # noqa: B010 -- of a class that does not call the constructor


def _judge(log: Iterable[str], is_over: bool = True) -> tuple[str, list[str]]:
    del is_over
    return "", [f"{text}: the driver did what was not decided" for text in log if text == UNDECIDED]


setattr(Keeper, "_boot", _boot)     # noqa: B010
setattr(replay, "judge", _judge)    # noqa: B010
setattr(rxe, "dead_devices", lambda _machine: ["rxe0"])     # noqa: B010
TURNS: dict[Callable[..., None], int] = {}


def is_first(test: Callable[..., None]) -> bool:
    """Whether the test runs for the first time."""
    TURNS[test] = TURNS.get(test, 0) + 1
    return TURNS[test] == 1


def machine(lab: Lab, name: str = "server") -> FakeMachine:
    """One of the two."""
    return cast(FakeMachine, next(each for each in lab.machines if each.name == name))


def test_chance_and_what_the_lab_found(lab: Lab) -> None:
    """Meets a chance, and leaves more than that."""
    if is_first(test_chance_and_what_the_lab_found):
        machine(lab).log += ["refcount_t: underflow; use-after-free.", UNDECIDED]
        machine(lab).mr = 3
        raise ByChance("a late packet")


@needs(rxe_may_die=True)
def test_wrong_data_while_rxe_is_dead(lab: Lab) -> None:
    """Reads other bytes, in a test that declares that rxe may die."""
    del lab
    if is_first(test_wrong_data_while_rxe_is_dead):
        raise WrongData("found BBBB, expected AAAA")


def test_wrong_data_while_rxe_gives_up(lab: Lab) -> None:
    """Reads other bytes, and rxe ends a queue pair."""
    if is_first(test_wrong_data_while_rxe_gives_up):
        machine(lab).log.append(keeper.RXE_GAVE_UP)
        eq("BBBB", "AAAA", "data of the disk")


def test_a_wait_that_fails_while_rxe_is_dead(lab: Lab) -> None:
    """Waits for a path, and declares nothing."""
    del lab
    if is_first(test_a_wait_that_fails_while_rxe_is_dead):
        raise NotInTime("not within 30 s: the path is back")


@needs(rxe_may_die=True)
def test_a_declared_wait_that_fails(lab: Lab) -> None:
    """Waits for a path, and declares that rxe may die."""
    del lab
    if is_first(test_a_declared_wait_that_fails):
        raise NotInTime("not within 30 s: the path is back")


def test_too_slow(lab: Lab) -> None:
    """Is too slow the first time."""
    machine(lab).log.append("an ordinary line")
    if is_first(test_too_slow):
        raise TooSlow("it took 9 s")


def test_too_slow_and_a_warning(lab: Lab) -> None:
    """Is too slow, and the kernel complains."""
    if is_first(test_too_slow_and_a_warning):
        machine(lab).log.append(WARNING)
        raise TooSlow("it took 9 s")


def test_a_warning_in_the_body(lab: Lab) -> None:
    """The kernel complains."""
    machine(lab).log.append(WARNING)


def test_a_warning_at_the_unload(lab: Lab) -> None:
    """The kernel complains when the modules go, after the test."""
    machine(lab).at_unload.append(WARNING)


def test_a_record_at_the_unload(lab: Lab) -> None:
    """A driver does what was not decided when it goes."""
    machine(lab).at_unload.append(UNDECIDED)


@needs(disruptive=True)
def test_a_warning_before_a_reboot(lab: Lab) -> None:
    """The kernel complains, and is booted anew."""
    machine(lab).log.append(WARNING)
    lab.reboot(lab.server)


@needs(disruptive=True)
def test_a_record_before_a_power_failure(lab: Lab) -> None:
    """A driver does what was not decided, and loses its power."""
    machine(lab).log.append(UNDECIDED)
    lab.server.kill()


@needs(disruptive=True)
def test_a_machine_is_killed(lab: Lab) -> None:
    """Nothing is wrong with that."""
    lab.server.kill()


@needs(disruptive=True)
def test_a_machine_dies(lab: Lab) -> None:
    """Nobody has killed it."""
    machine(lab).die()


@needs(disruptive=True)
def test_a_machine_dies_and_is_booted(lab: Lab) -> None:
    """Nobody has killed it, and the test brings it back."""
    machine(lab).die()
    lab.reboot(lab.server)


def test_says_something_later(lab: Lab) -> None:
    """The complaint comes when the test is over."""
    log = machine(lab).log
    lab.defer(lambda: None)
    wait = Keeper._measure_stacks

    def measure(of: Lab) -> list[str]:
        log.append(WARNING)
        setattr(Keeper, "_measure_stacks", staticmethod(wait))      # noqa: B010
        return wait(of)
    setattr(Keeper, "_measure_stacks", staticmethod(measure))       # noqa: B010


def test_after_it(lab: Lab) -> None:
    """Does nothing."""
    del lab


def _breaks(lab: Lab, taint: str) -> None:
    machine(lab).console_text = OOPS.format(taint)
    machine(lab).die()
    raise MachineGone("server: no answer")


def test_the_emulation_breaks(lab: Lab) -> None:
    """The server dies of a breakpoint in its own text."""
    if is_first(test_the_emulation_breaks):
        _breaks(lab, "OE")


def test_the_emulation_breaks_after_a_warning(lab: Lab) -> None:
    """The same, after another complaint of that kernel."""
    if is_first(test_the_emulation_breaks_after_a_warning):
        _breaks(lab, "W OE")


def test_the_emulation_breaks_beside_a_warning(lab: Lab) -> None:
    """The same, while the client's kernel complains."""
    if is_first(test_the_emulation_breaks_beside_a_warning):
        machine(lab, "client").log.append(WARNING)
        _breaks(lab, "OE")


def test_fails(lab: Lab) -> None:
    """Fails, and would pass the second time."""
    del lab
    if is_first(test_fails):
        raise Failed("on purpose")
