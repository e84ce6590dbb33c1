# SPDX-License-Identifier: GPL-2.0
"""One throw-away machine: a QEMU, its console (a log file), its QMP socket and its guest agent."""
from __future__ import annotations

import base64
import ctypes
import errno as errnos
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmlab import qmp, replay, ticks
from vmlab.channel import ANSWER_MARGIN_SECONDS, Channel, MachineGone, Pending
from vmlab.image import Image
from vmlab.patience import is_debug_kernel, scaled

TICKS = "tsc_early_khz"     # tells the rate of the time stamp counter
LAST_WORDS_LINES = 200
# The first line of a kernel's report of its death.
DEATH = re.compile(r"\bBUG\b|\bOops\b|general protection fault|stack segment|double fault|Kernel panic")
# A breakpoint that the kernel put at a place of its own text to change it, and whose handler does not know the place
# any more. In text of a module the line ends with the module's name.
INT3_OOPS = re.compile(r"Oops: int3(.*?)RIP: 0010:([^\n]*)", re.S)
# Letters of a kernel that has complained before: it died, or has seen a bad page, a warning, a lockup.
TAINTED = re.compile(r"Tainted: [A-Z ]*[BDLW]")
# RCU's report of a processor that has done nothing for a minute, made by that processor itself: it was in the idle
# task, halted, and is so where the report interrupts it.
STALL = re.compile(r"(?=rcu: INFO: \w+ (?:self-)?detected stall)")
SLEPT = re.compile(r"self-detected stall on CPU(?:(?!Comm: ).)*Comm: swapper/\d(?:(?!RIP: ).)*"
                   r"RIP: 0010:pv_native_safe_halt", re.S)
# norandmaps: an emulator keeps translated code by its address. With the same addresses in every process bash
# starts in 40 ms of its processor time instead of 110, `rdma` in 27 instead of 96. init_on_alloc=0: Debian's kernel
# clears all memory that it allocates, which hides what reads memory that it has not written. tsc=nowatchdog: on a busy
# host the watchdog takes the TSC for unstable and changes to the HPET, each read of which leaves the emulated code.
APPEND = ("console=ttyS0 quiet panic=-1 mitigations=off init_on_alloc=0 net.ifnames=0 log_buf_len=4M printk.devkmsg=on "
          "apparmor=0 audit=0 norandmaps rcupdate.rcu_cpu_stall_timeout=60 nmi_watchdog=0 sysrq_always_enabled "
          "tsc=nowatchdog")
# An emulator carries out `rep movsb` byte by byte; without these flags the kernel copies words. With both settings
# io.* takes a fifth less processor time.
EMULATED_CPU = "max,-erms,-fsrm"
QEMU = os.environ.get("VMLAB_QEMU", "qemu-system-x86_64")
# A boot takes about 12 seconds of processor time under emulation, however busy the host is (the debug kernel's took
# more than 60); one that hangs either spins or does nothing at all.
BOOT_CPU_SECONDS = 200.0 if is_debug_kernel() else 60.0
BOOT_SECONDS = 300.0
STALLED_SECONDS, STALLED_CPU_SECONDS = 60.0, 2.0
WAKE_SECONDS = 90.0
ENTROPY_BYTES = 32
PULL_BYTES = 1 << 20
TIMED_OUT = 124         # as timeout(1) says it
# Of a machine whose clock is the count of its instructions: while it waits for a disk of the host, the clock jumps from
# timer to timer, by a minute in half a second. The host's clock ends its commands.
NO_TIMEOUT = 2e6
MEMORY_MIB = 1024       # what a machine does not use costs nothing (snapshot.py)
PUSH_BYTES = 256 << 10
PR_SET_PDEATHSIG = 1
# Of a stack: what may not be on it, registers, frames around it.
NOISE = re.compile(r"\] +(\?|R[A-Z0-9]{1,2}:|RIP|RSP|</?TASK>|Call Trace:)")
_LIBC = ctypes.CDLL(None)


class CommandFailed(Exception):
    """A guest command ended with a code other than 0."""


@dataclass(frozen=True)
class Result:
    """The end of a guest command. `code` 124 means that it was killed at its timeout."""

    code: int
    out: str


@dataclass(frozen=True)
class Hardware:
    """The hardware of a machine. Machines of equal hardware can stand in for each other."""

    smp: int = 2
    memory_mib: int = MEMORY_MIB
    accel: str = "tcg,thread=multi"
    append: str = ""
    qemu_args: tuple[str, ...] = ()

    @property
    def has_the_hosts_ticks(self) -> bool:
        """Whether the guest's time stamp counter is the host's: emulated, and no instructions are counted instead."""
        return self.accel.startswith("tcg") and not self.counts_instructions

    @property
    def counts_instructions(self) -> bool:
        """Whether the guest's clock is the count of its instructions."""
        return "-icount" in self.qemu_args

    @property
    def kernel_arguments(self) -> str:
        """The kernel's command line."""
        mhz = ticks.Host.mhz() if self.has_the_hosts_ticks and TICKS not in self.append else None
        return " ".join([APPEND, *([f"{TICKS}={mhz}000"] if mhz else []), self.append]).strip()


@dataclass(frozen=True)
class Examination:
    """The state of a machine after a test. `rdma` is what `rdma -j resource show` says."""

    log: list[tuple[int, str]]
    rdma: list[dict[str, Any]]
    modules: list[str]
    folders: dict[str, list[str]]


class Job:
    """A guest command that runs while the test goes on."""

    def __init__(self, machine: Machine, command: str, timeout: float,
                 on_part: Callable[[str], None] | None = None) -> None:
        self._machine, self._command, self._timeout = machine, command, scaled(timeout)
        self._is_timed_here = machine.hardware.counts_instructions
        self._pending: Pending = machine.channel.ask("run", on_part, command=command, stream=on_part is not None,
                                                     timeout=NO_TIMEOUT if self._is_timed_here else self._timeout)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal to the command and all its children."""
        self._machine.channel.ask("kill", target=self._pending.number, signal=int(number)).wait(scaled(30))

    @property
    def running(self) -> bool:
        """Whether the command has not ended yet."""
        return not self._pending.arrived

    def wait(self, seconds: float | None = None) -> Result:
        """Waits for the end of the command."""
        limit = self._timeout + scaled(ANSWER_MARGIN_SECONDS) if seconds is None else scaled(seconds)
        if self._is_timed_here and not self._pending.arrives_within(limit):
            self.kill()
            return Result(TIMED_OUT, self._pending.wait(scaled(ANSWER_MARGIN_SECONDS))["out"])
        answer = self._pending.wait(limit)
        return Result(answer["code"], answer["out"])

    def ok(self, seconds: float | None = None) -> str:
        """The same, but a code other than 0 is an error."""
        return _checked(self._machine.name, self._command, self.wait(seconds))


def _checked(name: str, command: str, result: Result) -> str:
    if result.code:
        what = "ran out of time" if result.code == TIMED_OUT else f"ended with code {result.code}"
        raise CommandFailed(f"{name}: `{command}` {what}: {result.out.strip()[-2000:]}")
    return result.out


def _die_with_parent() -> None:
    """Runs in the child before QEMU: no machine outlives the harness, however that ends."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def is_patching_oops(console: str) -> bool:
    """Whether the kernel ended in the middle of a change of its own text: where QEMU emulates several processors with
    a thread each, one may run half of it (the same as in `keeper`, which changes the preemption of machines). A kernel
    that had complained of something else before is not excused."""
    oops = INT3_OOPS.search(console)
    return oops is not None and not oops[2].rstrip().endswith("]") and not TAINTED.search(oops[1])


def is_lost_timer(log: str) -> bool:
    """Whether a processor was halted for a minute although its timer was set: QEMU has lost the interrupt. A processor
    that the kernel keeps busy, or whose interrupts it has switched off, is not in the idle task's halt. Each report of
    a stall in the log has to be of that kind."""
    reports = STALL.split(log)[1:]
    return bool(reports) and all(map(SLEPT.search, reports))


class Machine:
    """A machine that may be booted, killed and booted again; its wires stay where they are."""

    def __init__(self, name: str, folder: Path, image: Image, hardware: Hardware, net_args: list[str]) -> None:
        self.name, self.folder, self.image, self.hardware = name, folder, image, hardware
        self._net_args = net_args
        self._qemu: subprocess.Popen[bytes] | None = None
        self._boots = 0
        self.reboots = 0        # by a test; the boot watchdog's own tries do not count
        self.was_killed = False     # by a test, and not started since
        self.before_kill: Callable[[Machine], None] | None = None   # has the log judged
        self.was_unplugged = False      # an end of a wire was pulled out of it since it was made
        self.channel: Channel
        folder.mkdir(parents=True, exist_ok=True)

    # -- power ---------------------------------------------------------------------------------------------

    @property
    def console(self) -> Path:
        """The console log of the latest boot."""
        return self.folder / f"console.{self._boots}"

    @property
    def alive(self) -> bool:
        """Whether its QEMU runs and the agent's port is open."""
        return self._qemu is not None and self._qemu.poll() is None and not self.channel.gone.is_set()

    def start(self, memory: tuple[str, ...] = ()) -> None:
        """Powers on and returns; `wait_ready` follows. `memory` are arguments of QEMU for where the memory is, and what
        is in it (snapshot.py). Main thread only."""
        self._boots += 1
        self.was_killed = False
        self.channel = Channel(self.name, f"{self.folder}/port")
        Path(f"{self.folder}/qmp").unlink(missing_ok=True)
        with open(self.folder / "qemu.log", "ab") as log:
            self._qemu = subprocess.Popen([*self.arguments(), *memory], stdin=subprocess.DEVNULL, stdout=log,
                                          stderr=log, preexec_fn=_die_with_parent, start_new_session=True)
        self.channel.accept(20)

    def arguments(self) -> list[str]:
        """QEMU's command line."""
        hw = self.hardware
        return [
            QEMU,
            "-M", "q35", "-cpu", "host" if hw.accel.startswith("kvm") else EMULATED_CPU, "-accel", hw.accel,
            "-smp", str(hw.smp), "-m", str(hw.memory_mib), "-nodefaults", "-display", "none", "-no-reboot",
            "-kernel", str(self.image.kernel), "-initrd", str(self.image.initrd),
            "-append", hw.kernel_arguments,
            "-serial", f"file:{self.console}", "-qmp", f"unix:{self.folder}/qmp,server=on,wait=off",
            "-device", "virtio-serial-pci", "-chardev", f"socket,id=port,path={self.folder}/port",
            "-device", "virtserialport,chardev=port,name=agent", *self._net_args, *hw.qemu_args,
            *disk_args("root", self.image.root, read_only=True),
        ]

    def wait_ready(self) -> None:
        """Waits for the agent of a booting machine; raises MachineGone if it does not speak up in time."""
        began = time.monotonic()
        while not self.channel.ready.wait(0.2):
            waited, used = time.monotonic() - began, self.cpu_seconds()
            if not self.alive:
                raise MachineGone(f"{self.name}: QEMU ended during the boot")
            if waited > BOOT_SECONDS or used > BOOT_CPU_SECONDS or (
                    waited > STALLED_SECONDS and used < STALLED_CPU_SECONDS):
                raise MachineGone(f"{self.name}: no agent after {waited:.0f} s ({used:.0f} s of processor time)")

    def set_up(self, script: str, timeout: float) -> None:
        """Runs the first commands of a machine that has booted; raises MachineGone if its clock is wrong."""
        first = ticks.Reading.take(self.run)
        self.run(script, timeout)
        rate = first.wrong_by(ticks.Reading.take(self.run)) if self.hardware.has_the_hosts_ticks else None
        if rate is not None:
            ticks.Host.is_believed &= TICKS in self.hardware.append
            raise MachineGone(f"{self.name}: a second takes {1 / max(rate, 0.001):.2f} s: its kernel has measured the "
                              "rate of the time stamp counter wrongly")

    def cpu_seconds(self) -> float:
        """Processor time that its QEMU has used on the host."""
        try:
            assert self._qemu is not None
            fields = Path(f"/proc/{self._qemu.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except (OSError, AssertionError):
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait_awake(self) -> None:
        """Waits for the agent of a woken machine, which is already up and has nothing to announce."""
        entropy = base64.b64encode(os.urandom(ENTROPY_BYTES)).decode()
        self.channel.ask("wake", entropy=entropy).wait(scaled(WAKE_SECONDS))

    def kill(self) -> None:
        """Power failure, by a test. What the kernel has said until then is judged first."""
        if self._qemu is not None and self.before_kill is not None:
            self.before_kill(self)
        self.was_killed = True
        self.power_off()

    def power_off(self) -> None:
        """The same, by the harness: nothing is asked."""
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()
            self._qemu = None
            self.channel.close()

    def qmp(self, command: str, **arguments: Any) -> Any:
        """One QMP command to this machine's QEMU."""
        return qmp.execute(f"{self.folder}/qmp", command, **arguments)

    def freeze(self) -> None:
        """Stops all processors; the guest does not notice, its peers do."""
        self.qmp("stop")

    def thaw(self) -> None:
        """Lets the processors go on."""
        self.qmp("cont")

    def flip(self, address: int) -> None:
        """Flips a bit of its memory at a physical address, as memory that goes bad does: no one writes there."""
        said = self.qmp("human-monitor-command", **{"command-line": f"gpa2hva {address:#x}"})
        assert self._qemu is not None
        with open(f"/proc/{self._qemu.pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(int(said.split()[-1], 16))
            byte = memory.read(1)[0]
            memory.seek(-1, os.SEEK_CUR)
            memory.write(bytes([byte ^ 4]))

    def set_link(self, wire: int, up: bool) -> None:
        """Plugs or unplugs this machine's end of a wire; the guest sees the carrier change."""
        self.was_unplugged |= not up
        self.qmp("set_link", name=f"nic{wire}", up=up)

    def console_tail(self, lines: int = 40) -> str:
        """The end of the console, indented, for a report."""
        try:
            text = self.console.read_text(errors="replace")
        except OSError:
            return "#     (no console)"
        return "\n".join(f"#     {line}" for line in text.splitlines()[-lines:])

    def last_words(self, lines: int = 60) -> str:
        """The words of a machine that is gone about its death, from the report's first line on, by its console: the end
        of that would be the registers."""
        told = self.console_tail(LAST_WORDS_LINES).splitlines()
        first = next((number for number, line in enumerate(told) if DEATH.search(line)), None)
        return self.console_tail() if first is None else "\n".join(told[first:first + lines])

    @property
    def died_of_emulation(self) -> bool:
        """Whether the machine is dead because the kernel changed its own text while the emulator ran it on another
        processor."""
        return not self.alive and is_patching_oops(self.console_tail(LAST_WORDS_LINES))

    def sysrq(self, key: str) -> None:
        """Presses Alt, SysRq and a key on the machine's keyboard: the kernel answers on the console and in its log even
        if it has no memory for a process."""
        keys = [{"type": "qcode", "data": data} for data in ("alt", "sysrq", key)]
        self.qmp("send-key", keys=keys, **{"hold-time": 200})
        time.sleep(1)       # the keys go up again one after the other

    # -- guest ---------------------------------------------------------------------------------------------

    def try_run(self, command: str, timeout: float = 60.0) -> Result:
        """Runs shell commands in the guest and waits."""
        return self.start_job(command, timeout).wait()

    def run(self, command: str, timeout: float = 60.0) -> str:
        """The same; returns the output, and raises CommandFailed if the code is not 0."""
        return self.start_job(command, timeout).ok()

    def start_job(self, command: str, timeout: float = 600.0,
                  on_part: Callable[[str], None] | None = None) -> Job:
        """Starts shell commands and returns; with `on_part` the output is delivered as it grows."""
        return Job(self, command, timeout, on_part)

    def write(self, path: str, text: str, timeout: float = 60.0) -> str:
        """One write(2) to a guest file; returns the errno's name, "" for success."""
        number = self.channel.ask("write", path=path, text=text).wait(scaled(timeout))["errno"]
        return errnos.errorcode[number] if number else ""

    def read(self, path: str) -> str:
        """The text of a guest file, without the newline at its end."""
        data = base64.b64decode(self.channel.ask("pull", path=path, offset=0, length=PULL_BYTES)
                                .wait(scaled(60))["data"])
        return data.decode(errors="replace").removesuffix("\n")

    def exists(self, path: str) -> bool:
        """Whether a guest path exists."""
        return bool(self.channel.ask("exists", path=path).wait(scaled(60))["exists"])

    def names(self, path: str) -> list[str]:
        """The names in a guest folder, in order. No process is started for it, so it can be asked again and again."""
        names: list[str] = self.channel.ask("list", path=path).wait(scaled(60))["names"]
        return names

    def real_path(self, path: str) -> str:
        """A guest path with every link followed."""
        return str(self.channel.ask("link", path=path).wait(scaled(60))["path"])

    def push(self, source: Path, path: str) -> None:
        """Copies a host file into the guest."""
        self.push_bytes(source.read_bytes(), path)

    def push_bytes(self, data: bytes, path: str) -> None:
        """Makes a guest file of these bytes."""
        for at in range(0, max(1, len(data)), PUSH_BYTES):
            piece = base64.b64encode(data[at:at + PUSH_BYTES]).decode()
            self.channel.ask("push", path=path, data=piece, append=at > 0).wait(scaled(60))

    def pull(self, path: str, target: Path) -> None:
        """Copies a guest file to the host."""
        with open(target, "wb") as file:
            while True:
                answer = self.channel.ask("pull", path=path, offset=file.tell(), length=PULL_BYTES).wait(scaled(60))
                data = base64.b64decode(answer["data"])
                file.write(data)
                if len(data) < PULL_BYTES:
                    return

    def kernel_log(self, after: int = -1) -> list[tuple[int, str]]:
        """Lines of the kernel log after a sequence number, oldest first, but for records (replay.py)."""
        return [(sequence, text) for sequence, text in self.whole_log(after) if not replay.is_record(text)]

    def records(self, after: int = -1) -> list[str]:
        """The records (replay.py) in the kernel log after a sequence number, oldest first."""
        return [text for _sequence, text in self.whole_log(after) if replay.is_record(text)]

    def whole_log(self, after: int = -1) -> list[tuple[int, str]]:
        """Both."""
        lines = self.channel.ask("kmsg", after=after).wait(scaled(60))["lines"]
        return [(sequence, text) for sequence, _level, text in lines]

    def log_mark(self) -> int:
        """The sequence number of the newest kernel log record."""
        return int(self.channel.ask("mark").wait(scaled(60))["sequence"])

    def examine(self, after: int = -1, folders: tuple[str, ...] = ()) -> Examination:
        """Asks in one round trip what is asked after every test: the kernel log after a sequence number, the RDMA
        objects, the loaded modules, and what is in these folders (of sysfs; one that is not there is left out)."""
        answer = self.channel.ask("examine", after=after, folders=folders).wait(scaled(60))
        return Examination([(sequence, text) for sequence, _level, text in answer["lines"]], json.loads(answer["rdma"]),
                           answer["modules"], answer["folders"])

    def blocked(self) -> list[str]:
        """The stack of each task that waits and cannot be interrupted, as the kernel prints it."""
        mark = self.log_mark()
        for key in "8w":        # 8: on the console too, if the agent does not answer any more
            self.sysrq(key)
        return [text for _sequence, text in self.kernel_log(mark) if not NOISE.search(text)]

    def log_matches(self, pattern: str, after: int = -1) -> list[str]:
        """The kernel log lines after a mark that match a regular expression."""
        wanted = re.compile(pattern)
        return [text for _sequence, text in self.kernel_log(after) if wanted.search(text)]


def disk_args(name: str, file: Path, read_only: bool) -> tuple[str, ...]:
    """QEMU's arguments for a disk that the guest finds as /dev/lab-NAME. Disks get their letters in order."""
    return ("-blockdev", f"driver=file,node-name={name},read-only={'on' if read_only else 'off'},filename={file}",
            "-device", f"virtio-blk-pci,drive={name},serial={name}")


def unique_folder(base: Path) -> Path:
    """A folder for sockets; unix socket paths have room for 107 bytes only."""
    folder = base / f"{os.getpid()}-{threading.get_ident() % 1000}-{int(time.time() * 1000) % 10**8:x}"
    folder.mkdir(parents=True)
    if len(f"{folder}/server/port") > 100:
        raise OSError(errnos.ENAMETOOLONG, f"too long for a unix socket: {folder}; set VMLAB_RUN to a short path")
    return folder
