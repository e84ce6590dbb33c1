# SPDX-License-Identifier: GPL-2.0
"""Keeps one lab for the tests that follow each other, and judges it after each of them."""
from __future__ import annotations

import signal
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

from vmlab import loaded, oracle, replay, rxe, stack
from vmlab.channel import MachineGone
from vmlab.checks import Failed
from vmlab.image import canonical
from vmlab.kernel_log import KernelLog
from vmlab.lab import Lab, Spec
from vmlab.machine import CommandFailed, Machine
from vmlab.needs import Needs
from vmlab.patience import Pace, scaled
from vmlab.phases import phase

LOG_LINES = 40
STACK_LINES = 200
CLEANUP_SECONDS = 120.0
PREEMPT = "/sys/kernel/debug/sched/preempt"
CPUS = "/sys/devices/system/cpu"
DEFAULT_PREEMPTION = "lazy"

# A path's first error is that of its cause, unless rxe names none.
RXE_GAVE_UP = "work request failed: WR flushed, closing the path"


class TimedOut(Exception):
    """A test took longer than it may."""


class Deadline:
    """A time limit for what runs in the main thread."""

    def __init__(self, seconds: float) -> None:
        self._least, self._seconds = seconds, scaled(seconds)

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._expired)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_why: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _expired(self, _number: int, _frame: FrameType | None) -> None:
        # The host may have become busy meanwhile.
        if (more := scaled(self._least) - self._seconds) >= 1:
            self._seconds += more
            signal.setitimer(signal.ITIMER_REAL, more)
            return
        raise TimedOut(f"not done after {self._seconds:g} s")


def reason(why: BaseException, verbose: bool = False) -> str:
    """An exception in words; with its place in the test's file, unless it is a plain expectation."""
    text = str(why) if isinstance(why, Failed) else f"{type(why).__name__}: {why}"
    places = [frame for frame in traceback.extract_tb(why.__traceback__) if "/tests/" in frame.filename]
    if places:
        text += f"\nat {places[-1].filename.rpartition('/')[2]}:{places[-1].lineno}: {places[-1].line}"
    if verbose or not isinstance(why, (Failed, CommandFailed, MachineGone, TimedOut, OSError)):
        text += "\n" + "".join(traceback.format_exception(why))
    return text


@dataclass(frozen=True)
class Judgement:
    """After a test: what is `wrong` in the lab, in words, and what its machines have to say about a failure."""

    wrong: list[str]
    evidence: list[str] = field(default_factory=list)


class Keeper:
    """Holds at most one lab, the one that the latest test used."""

    def __init__(self, modules: str = "ours", accel: str | None = None, append: str = "") -> None:
        self._modules, self._accel, self._append = modules, accel, append
        self._lab: Lab | None = None
        self._spec: Spec | None = None
        self._preempt = DEFAULT_PREEMPTION
        self._baselines: list[oracle.Baseline] = []
        self._logs: dict[str, KernelLog] = {}   # by machine
        self.logs_to: Path | None = None    # where to keep the logs of the next test, also if it passes
        self._cpu_of_dropped = 0.0
        self._wakes: list[float] = []

    @property
    def cpu_seconds(self) -> float:
        """Processor time that the machines of all labs so far have used on the host."""
        living = self._lab.machines if self._lab else []
        return self._cpu_of_dropped + sum(machine.cpu_seconds() for machine in living)

    def take_wakes(self) -> list[float]:
        """Seconds of processors that it took to wake each machine of one processor, since the last call."""
        wakes, self._wakes = self._wakes, []
        return wakes

    @property
    def lab(self) -> Lab | None:
        """The lab that is up."""
        return self._lab

    @property
    def was_unplugged(self) -> bool:
        """Whether a wire was cut in the lab that is up: an rxe device may no longer make connections after that
        (Documentation/failover.md, "With rxe")."""
        return self._lab is not None and any(machine.was_unplugged for machine in self._lab.machines)

    # -- before a test -------------------------------------------------------------------------------------

    def prepare(self, needs: Needs) -> Lab:
        """The lab that is up, if it will do, otherwise a fresh one; with modules and preemption as the test needs."""
        spec = replace(needs.spec, accel=self._accel, append=f"{needs.spec.append} {self._append}".strip())
        if self._lab and (needs.fresh or self._spec != spec or not all(m.alive for m in self._lab.machines)):
            self.drop()
        if self._lab is None:
            self._boot(spec)
        assert self._lab is not None
        modules = loaded.of(self._lab)
        if not needs.shares and any(map(modules.witnesses, self._lab.machines)) and (wrong := self.end_sharing()):
            raise Failed("before this test:\n" + "\n".join(wrong))
        modules.shared = needs.shares
        try:
            self._set_preemption(needs.preempt or DEFAULT_PREEMPTION)
            wrong = [text for texts in self._each(list(self._logs.values()), KernelLog.begin) for text in texts]
        except MachineGone as why:
            raise Failed("\n".join([f"before this test: {why}", *self._last_words(self._lab)])) from None
        if wrong:
            raise Failed("before this test:\n" + "\n".join(wrong))
        for log in self._logs.values():
            log.is_judged = not needs.complaints
        return self._lab

    def _boot(self, spec: Spec) -> None:
        with phase("boot"):
            self._spec, self._lab = spec, Lab(spec)
            self._preempt = DEFAULT_PREEMPTION
            self._lab.modules = self._modules
            seconds = self._lab.boot()
            if self._lab.woken and spec.smp == 1:
                self._wakes += [round(machine.cpu_seconds(), 2) for machine in self._lab.machines]
                Pace.learn(self._wakes)
            replay.program()
            under_test = [canonical(module.stem) for name in spec.sets for module in self._lab.assets.module_set(name)]
            self._baselines = self._each(self._lab.machines, lambda machine: oracle.Baseline.take(machine, under_test))
            marks = self._each(self._lab.machines, Machine.log_mark)
            self._logs = {machine.name: KernelLog(machine, mark)
                          for machine, mark in zip(self._lab.machines, marks, strict=True)}
            for machine in self._lab.machines:
                machine.before_kill = self._before_kill
            print(f"# booted {spec.title} ({self._lab.accel}) in {seconds:.1f} s", flush=True)

    def _set_preemption(self, kind: str) -> None:
        """The kernel can be told while it runs. It then writes to its own text at thousands of places, and QEMU's
        emulation lets another processor run half of such a change (a busy machine panics at a patched call within
        twenty changes): one processor does it alone."""
        if self._lab is None or self._preempt == kind:
            return
        for machine in self._lab.machines:
            others = [f"{CPUS}/cpu{number}/online" for number in range(1, self._lab.spec.smp)]
            machine.run("grep -q debugfs /proc/mounts || mount -t debugfs none /sys/kernel/debug\n"
                        + "".join(f"echo 0 > {other}\n" for other in others)
                        + f"echo {kind} > {PREEMPT}\n"
                        + "".join(f"echo 1 > {other}\n" for other in others))
        self._preempt = kind

    # -- after a test --------------------------------------------------------------------------------------

    def _before_kill(self, machine: Machine) -> None:
        """A test is about to let the power of a machine fail, and with it the machine's log."""
        self._logs[machine.name].end_boot()

    def finish(self, needs: Needs, failed: bool) -> Judgement:
        """Cleans up and asks the oracle."""
        assert self._lab is not None
        with phase("clean-up"):
            wrong = self._clean_up(self._lab.take_cleanups())
        with phase("examine"):
            wrong += self._examine(self._lab, needs)
            wrong += self._measure_stacks(self._lab)
        if wrong or failed or self.logs_to:
            self._keep_logs(self.logs_to or self._lab.folder)
        return Judgement(wrong, self._evidence(self._lab) if wrong or failed else [])

    def _keep_logs(self, folder: Path) -> None:
        """Writes what the machines have said in this test to a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for log in self._logs.values():
            try:
                with Deadline(CLEANUP_SECONDS):
                    log.keep(folder)
            except Exception as why:    # a machine that does not answer has a console still
                print(f"# the log of {log.machine.name} is not kept: {why}", flush=True)

    @staticmethod
    def _clean_up(deeds: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[str]:
        """Runs what tests have deferred, all of it, also when some of it fails."""
        wrong = []
        for deed, arguments in deeds:
            try:
                with Deadline(CLEANUP_SECONDS):
                    deed(*arguments)
            except Exception as why:    # the next clean-up must run
                wrong.append(f"clean-up failed: {reason(why)}")
        return wrong

    def _examine(self, lab: Lab, needs: Needs) -> list[str]:
        """The questions to every machine that lives, to all at once."""
        wrong = [f"{machine.name}: the machine died" for machine in lab.machines
                 if not machine.alive and not machine.was_killed]
        wrong += [text for log in self._logs.values() for text in log.take_wrong()]
        living = [baseline for baseline in self._baselines if baseline.machine.alive]
        findings = self._ask(lab, needs, living)
        restless = [baseline for baseline, found in zip(living, findings, strict=True) if not found.at_rest]
        if restless:
            wrong += [text for found in findings if found.at_rest for text in found.wrong]
            wrong += self._unload(restless)
            findings = self._ask(lab, needs, restless)
        for baseline, found in zip(restless or living, findings, strict=True):
            self._logs[baseline.machine.name].judged_to(found.newest)
        return wrong + [text for found in findings for text in found.wrong]

    def _ask(self, lab: Lab, needs: Needs, subjects: list[oracle.Baseline]) -> list[oracle.Findings]:
        """Has the oracle look at these machines, and at what of their logs it has not seen."""
        modules = loaded.of(lab)

        def ask(baseline: oracle.Baseline) -> oracle.Findings:
            log = self._logs[baseline.machine.name]
            idle = modules.idle(baseline.machine) if needs.shares else None
            return oracle.examine(baseline, log.judged if log.is_judged else oracle.NO_LOG, idle,
                                  modules.witnesses(baseline.machine))
        try:
            with Deadline(CLEANUP_SECONDS):
                return self._each(subjects, ask)
        except Exception as why:    # a machine that cannot be asked is not clean
            return [oracle.Findings([reason(why)], True)] * len(subjects)

    @staticmethod
    def _measure_stacks(lab: Lab) -> list[str]:
        """Measures how deep the stacks were in the test, where the stack tracer is on."""
        wrong = []
        for machine in (each for each in lab.machines if stack.is_watched(lab.spec) and each.alive):
            try:
                depth = stack.Depth.take(machine)
            except (CommandFailed, MachineGone) as why:
                wrong.append(reason(why))
                continue
            print(f"# {machine.name}: {depth.bytes} bytes of stack, with {' '.join(sorted(depth.modules))}", flush=True)
            if depth.wrong:
                wrong.append(f"{machine.name}: {depth.wrong}")
        return wrong

    def _unload(self, living: list[oracle.Baseline]) -> list[str]:
        """Unloads the modules under test of these machines; what is wrong then, in words."""
        assert self._lab is not None
        with phase("unload"):
            try:
                with Deadline(CLEANUP_SECONDS):
                    wrong = [text for texts in self._each(living, oracle.unload) for text in texts]
            except Exception as why:    # a machine that cannot be asked is not clean
                wrong = [reason(why)]
        for baseline in living:
            loaded.of(self._lab).forget(baseline.machine)
        return wrong

    def end_sharing(self) -> list[str]:
        """Unloads all that tests have shared, the disks behind it too, ends what else they share, and has the oracle
        look at what the machines have said meanwhile; what is wrong then, in words."""
        if self._lab is None:
            return []
        wrong = self._unload([baseline for baseline in self._baselines if baseline.machine.alive])
        wrong += self._clean_up(self._lab.take_shared_cleanups())
        for machine in self._lab.machines:
            if machine.alive and (result := machine.try_run("[ ! -e /sys/module/brd ] || rmmod brd")).code:
                wrong.append(f"{machine.name}: the ram disks are still in use: {result.out.strip()}")
        try:
            with Deadline(CLEANUP_SECONDS):
                logs = [log for log in self._logs.values() if log.machine.alive]
                return wrong + [text for texts in self._each(logs, KernelLog.listen) for text in texts]
        except Exception as why:    # a machine that cannot be asked is not clean
            return [*wrong, reason(why)]

    def rxe_gave_up(self) -> bool:
        """Whether rxe has ended a queue pair by itself in this test, as it does where the host stops a machine for so
        long that packets are repeated (Documentation/failover.md, "With rxe")."""
        try:
            with Deadline(CLEANUP_SECONDS):
                return any(RXE_GAVE_UP in text for log in self._logs.values() for text in log.lines())
        except Exception:       # a machine that cannot be asked
            return False

    def rxe_is_dead(self) -> bool:
        """Whether a device of rxe makes no connections any more: its own queue pair has failed with a link."""
        if self._lab is None:
            return False
        try:
            with Deadline(CLEANUP_SECONDS):
                return any(rxe.dead_devices(machine) for machine in self._lab.machines if machine.alive)
        except Exception:       # a machine that cannot be asked, or has no such program
            return False

    def emulation_broke(self) -> bool:
        """Whether a machine has died or stood still in this test by what only happens under emulation."""
        try:
            with Deadline(CLEANUP_SECONDS):
                return any(log.shows_broken_emulation for log in self._logs.values())
        except Exception:       # a machine that cannot be asked
            return False

    def _evidence(self, lab: Lab) -> list[str]:
        """Lines of the machines about a failure."""
        lines = [f"logs: {lab.folder}"]
        for machine in lab.machines:
            try:
                log = self._logs[machine.name].lines()
                lines += [f"kernel log of {machine.name}:", *(f"  {text}" for text in log[-LOG_LINES:])]
                lines += [f"  {text}" for text in machine.blocked()[:STACK_LINES]]
            except Exception:   # no agent: the console is what is left
                lines += [f"console of {machine.name}:", machine.last_words()]
        return lines

    @staticmethod
    def _last_words(lab: Lab) -> list[str]:
        """The consoles of the machines that are gone."""
        return [f"console of {machine.name}:\n{machine.last_words()}"
                for machine in lab.machines if not machine.alive]

    @staticmethod
    def _each(subjects: list[Any], deed: Callable[[Any], Any]) -> list[Any]:
        """Does the same to several machines at once. The pool is not waited for: a hung machine holds its thread."""
        pool = ThreadPoolExecutor(max(1, len(subjects)))
        answers = [pool.submit(deed, subject) for subject in subjects]
        pool.shutdown(wait=False)
        return [answer.result() for answer in answers]

    def drop(self, keep_logs: bool = False) -> None:
        """Powers the lab off; the next test gets a fresh one."""
        if self._lab is not None:
            self._cpu_of_dropped = self.cpu_seconds
            self._lab.close()
            if not keep_logs:
                self._lab.forget()
            self._lab, self._logs = None, {}
