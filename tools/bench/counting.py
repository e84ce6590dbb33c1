# SPDX-License-Identifier: GPL-2.0
"""Guest instructions per IO by module: exact, and independent of the host's load.

(run of n2 IOs - run of n1 IOs) / (n2 - n1): the constant cost of a run cancels out.
"""
import bisect
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import setups

from vmlab import plugin
from vmlab.lab import Lab, Spec
from vmlab.machine import Machine

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
CASES = (("randread", "4k"), ("randwrite", "4k"), ("randread", "64k"), ("randwrite", "64k"),
         ("randread", "128k"), ("randwrite", "128k"))
PROTECTION_CASES = (("randread", "4k"), ("randwrite", "4k"), ("randread", "128k"), ("randwrite", "128k"))
IOS = (100, 500)
# Instructions per IO of each function of each module, by setup, pattern and size.
Counts = dict[tuple[str, str, str], dict[tuple[str, str], float]]


def compile_tools(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Builds the plugin for this host's QEMU and the guest's `mark`."""
    count, mark = folder / "count.so", folder / "mark"
    plugin.build(HERE / "guest/count.c", count)
    subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-static", "-nostdlib", "-o", mark, HERE / "guest/mark.c"],
                   check=True)
    return count, mark


class Symbols:
    """The module and the function that each address belongs to, by the guest's own kallsyms."""

    def __init__(self, text: str) -> None:
        found = []
        for line in text.splitlines():
            address, kind, name, *module = line.split()
            if kind.lower() in "tw":
                found.append((int(address, 16), name, module[0].strip("[]") if module else "kernel"))
        found.sort()
        self._found, self._starts = found, [entry[0] for entry in found]
        self._names = {address: name for address, name, _module in found}

    def of(self, address: int) -> tuple[str, str]:
        """(module, function); an address before the first function has none."""
        index = bisect.bisect_right(self._starts, address) - 1
        return ("?", "?") if index < 0 else (self._found[index][2], self._found[index][1])

    def starting_at(self, address: int) -> str:
        """The function whose first instruction is there, "" if there is none."""
        return self._names.get(address, "")

    def bounds(self, module: str) -> dict[str, int]:
        """The first instruction of each function of a module, by name; of names that occur once."""
        places: dict[str, list[int]] = {}
        for address, name, of_module in self._found:
            if of_module == module:
                places.setdefault(name, []).append(address)
        return {name: found[0] for name, found in places.items() if len(found) == 1}


@dataclass
class Counted:
    """The lines that the plugin has written at a mark, by address: guest/count.c has their format."""

    user: int = 0
    # Blocks: executed instructions, and executions.
    instructions: dict[int, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    # Executions of each instruction of a module, and of each that locks (with `detail=1` only).
    passed: dict[int, int] = field(default_factory=dict)
    locked: dict[int, int] = field(default_factory=dict)

    @classmethod
    def read(cls, file: pathlib.Path) -> "Counted":
        """Reads the file of a mark."""
        counted = cls()
        for line in file.read_text().splitlines():
            kind, *fields = line.split()
            if kind == "user":
                counted.user = int(fields[0])
            elif kind == "B":
                at = int(fields[0], 16)
                counted.instructions[at], counted.times[at] = int(fields[1]), int(fields[2])
            else:
                {"I": counted.passed, "L": counted.locked}[kind][int(fields[0], 16)] = int(fields[1])
        return counted

    def by_function(self, symbols: Symbols) -> dict[tuple[str, str], int]:
        """Executed instructions by (module, function)."""
        counts = {("user", "user"): self.user}
        for at, count in self.instructions.items():
            key = symbols.of(at)
            counts[key] = counts.get(key, 0) + count
        return counts


def read_counts(file: pathlib.Path, symbols: Symbols) -> dict[tuple[str, str], int]:
    """Executed instructions at a mark by (module, function)."""
    return Counted.read(file).by_function(symbols)


def _fio(device: str, pattern: str, size: str, options: str, ios: int) -> str:
    return (f"fio --name=x --filename={device} --rw={pattern} --bs={size} {options} --direct=1 "
            f"--ioengine=io_uring --number_ios={ios} --io_size=4g --norandommap --randrepeat=1 "
            "--output=/tmp/fio.out || cat /tmp/fio.out")


class Counter:
    """A machine under the plugin; runs cases and reads what they cost."""

    def __init__(self, machine: Machine, base: pathlib.Path, ios: tuple[int, int] = IOS) -> None:
        self._machine, self._base, self._ios, self._marks = machine, base, ios, 0

    def runs(self, setup: setups.Setup, pattern: str, size: str, options: str) -> tuple[Counted, Counted]:
        """A short run and a long one, after one that is not counted."""
        first, second = (_fio(setup.device, pattern, size, options, ios) for ios in self._ios)
        self._machine.run(f"{first}\n/tmp/mark\n{first}\n/tmp/mark\n{second}\n/tmp/mark", 600)
        short, long = (Counted.read(self._base.with_name(f"{self._base.name}.{self._marks + n}")) for n in (1, 2))
        self._marks += 3
        return short, long

    def case(self, setup: setups.Setup, pattern: str, size: str, symbols: Symbols,
             options: str) -> dict[tuple[str, str], float]:
        """Instructions per IO by (module, function) of one pattern and block size."""
        short, long = (counted.by_function(symbols) for counted in self.runs(setup, pattern, size, options))
        more = self._ios[1] - self._ios[0]
        return {key: (long.get(key, 0) - short.get(key, 0)) / more for key in short.keys() | long.keys()}


def measure(say: Callable[[str], None], wanted: Sequence[setups.Setup],
            cases: Sequence[tuple[str, str]] = CASES, icount: str = "",
            options: str = "--iodepth=1",
            prepare: Callable[[Machine], None] = lambda _: None, nvme: tuple[str, ...] = (),
            disk_mib: int = 64) -> Counts:
    """{(setup, pattern, size): {(module, function): instructions per IO}}. With `icount` guest time is instructions, so
    timers are exact, too: for sums over all of the machine. `options` are more of fio's; `prepare` gets the machine
    first; `nvme` and `disk_mib` are those of its specification."""
    results = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = pathlib.Path(name)
        count, mark = compile_tools(folder)
        base = folder / "counts"
        spec = Spec(machines=1, smp=1, memory_mib=2048, accel="tcg,thread=single", append="nokaslr", icount=icount,
                    nvme=nvme, disk_mib=disk_mib,
                    qemu_args=("-plugin", f"file={count},out={base}"))
        with Lab(spec) as lab:
            machine = lab.client
            machine.push(mark, "/tmp/mark")
            machine.run(f"chmod 755 /tmp/mark; {setups.BACKING}")
            prepare(machine)
            counter = Counter(machine, base)
            for setup in wanted:
                setups.bring_up(machine, setup)
                symbols = Symbols(machine.run("cat /proc/kallsyms", 120))
                for pattern, size in cases:
                    say(f"counting {setup.name} {pattern} {size}")
                    results[setup.name, pattern, size] = counter.case(setup, pattern, size, symbols, options)
                setups.take_down(machine, setup)
    return results
