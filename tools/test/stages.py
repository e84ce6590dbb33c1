# SPDX-License-Identifier: GPL-2.0
"""The stages of `make test`. A stage runs programs, shows their output and counts."""
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable

import native
import objects

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PYTHON = [sys.executable, "-B"]
KDIR = [*PYTHON, "tools/kdir"]
CARGO_MIN = (1, 85)
CLOSING = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")
# Where crates of the kernel have their roots.
KERNEL_FOLDERS = ("common", "kernel_ext", "block", "rdma", "rtrs", "rnbd", "samples", "selftest")
# About half a minute of one core.
SIMULATION_SEEDS = 20_000
# Five minutes of flapping, and liars in a machine of their own, where nothing is measured.
SLOW = ("failover.both_paths_flap",)
TIMELESS = ("hostile.*", "impostor.*")


@dataclasses.dataclass
class Counts:
    """What came of some tests; prints as the closing line."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        tail = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{tail}"


@dataclasses.dataclass
class Stage:
    """A name and the function that runs it."""

    name: str
    run: Callable[[], Counts]


def _stream(command: list[str], **options) -> tuple[int, list[str]]:
    """Runs a program, shows its output as it comes, returns its status and its lines."""
    lines = []
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, text=True, errors="replace", **options) as process:
        for line in process.stdout or ():
            lines.append(line.rstrip("\n"))
            # A stage's own closing line must not be taken for that of the whole.
            if not CLOSING.fullmatch(lines[-1]):
                print(line, end="", flush=True)
        status = process.wait()
    return status, lines


def _closing(status: int, lines: list[str]) -> Counts:
    """Reads the closing line of one of our own programs; none, or a bad status, is a failure."""
    match = CLOSING.fullmatch(lines[-1]) if lines else None
    if not match:
        print(f"not ok: no closing line (exit status {status})")
        return Counts(failed=1)
    counts = Counts(int(match[1]), int(match[2]), int(match[3] or 0))
    if status and not counts.failed:
        print(f"not ok: exit status {status} although nothing failed")
        counts.failed += 1
    return counts


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


def _one(name: str, status: int) -> Counts:
    """Counts a program that is one test."""
    print(f"{'not ok' if status else 'ok'} {name}", flush=True)
    return Counts(failed=1) if status else Counts(passed=1)


def _tidy() -> Counts:
    return _closing(*_stream([*PYTHON, "tools/tidy"]))


def _python_units() -> Counts:
    """Unit tests of the tools themselves."""
    total = Counts()
    for folder in sorted(REPOSITORY.glob("tools/*/unit")):
        status, lines = _stream([*PYTHON, "-m", "unittest", "discover", "-s", str(folder), "-p", "*.py",
                                 "-t", str(folder.parent.parent)])
        ran = next((int(m[1]) for line in lines if (m := re.match(r"Ran (\d+) test", line))), 0)
        bad = sum(int(n) for line in lines[-1:] for n in re.findall(r"(?:failures|errors)=(\d+)", line))
        if status and not bad or not ran:
            bad = max(bad, 1)
        total += Counts(max(ran - bad, 0), bad)
    return total


def cargo() -> list[str]:
    """The host's cargo where it is new enough, else the one of the Debian root."""
    if shutil.which("cargo"):
        answer = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False).stdout
        if (found := re.search(r"(\d+)\.(\d+)", answer)) and (int(found[1]), int(found[2])) >= CARGO_MIN:
            return ["cargo"]
    return [*KDIR, "run", "cargo"]


def _cargo_tests() -> Counts:
    """The pure protocol code on the host: golden vectors, exhaustive, property and fuzz tests; and that the simulation
    finds what it is for."""
    status, lines = _stream([*cargo(), "test", "--locked", "--manifest-path", "tools/Cargo.toml"])
    total = Counts()
    for line in lines:
        if match := re.match(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", line):
            total += Counts(int(match[1]), int(match[2]), int(match[3]))
    if status and not total.failed or not total.passed:
        total.failed += 1
    return total


def _simulation() -> Counts:
    """Client and server with several paths and faults: many seeds of the simulation."""
    status, _ = _stream([*cargo(), "run", "--release", "--locked", "--quiet", "--manifest-path", "tools/Cargo.toml",
                         "--package", "ferrofabric-sim", "--", "--seeds", str(SIMULATION_SEEDS)])
    # A seed is not a test: the closing line counts what somebody wrote.
    return _one(f"simulation.{SIMULATION_SEEDS}-seeds", status)


def _lint() -> Counts:
    """rustfmt and clippy with the kernel's settings; every warning is an error."""
    total = Counts()
    roots = sorted(str(p.relative_to(REPOSITORY)) for folder in KERNEL_FOLDERS
                   for p in (REPOSITORY / folder).glob("*.rs"))
    tree = subprocess.run([*KDIR, "tree"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()
    status, _ = _stream([*KDIR, "run", "rustfmt", "--check", "--edition", "2021", "--config-path",
                         f"{tree}/.rustfmt.toml", *roots])
    total += _one("lint.rustfmt-kernel", status)
    host_clippy = [*cargo(), "clippy", "--locked", "--all-targets", "--manifest-path", "tools/Cargo.toml", "--",
                   "-D", "warnings"]
    total += _one("lint.clippy-host", _stream(host_clippy)[0])
    host_format = [*cargo(), "fmt", "--all", "--check", "--manifest-path", "tools/Cargo.toml"]
    total += _one("lint.rustfmt-host", _stream(host_format)[0])
    output = subprocess.run([*KDIR, "paths"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    built = next(line.split()[1] for line in output.splitlines() if line.startswith("modules"))
    environment = os.environ | {"KDIR_OUTPUT": f"{built}-clippy"}
    status, _ = _stream([*KDIR, "build", "CLIPPY=1", "KRUSTFLAGS=-Dwarnings"], env=environment)
    total += _one("lint.clippy-kernel", status)
    return total


def _build() -> Counts:
    total = _one("build.modules", _stream([*KDIR, "build"])[0])
    total += _one("build.reference-modules", _stream([*KDIR, "cmodules"])[0])
    return total


def _objects() -> Counts:
    total = Counts()
    for name, complaints in objects.check(REPOSITORY, KDIR):
        for complaint in complaints:
            print(f"#   {complaint}")
        total += _one(f"objects.{name}", len(complaints))
    return total


def _native() -> Counts:
    """The build as a Debian of the kernel's own release does it."""
    if json.loads(_output(*KDIR, "paths", "--json"))["root"] == "/":
        print("# this host builds without a root: the stages before have shown it")
        return Counts(skipped=1)
    enter = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user", "--map-auto"]
    status, lines = native.check(REPOSITORY, KDIR, enter)
    print("\n".join(line for line in lines if not CLOSING.fullmatch(line)), flush=True)
    return _closing(status, lines)


CHECKS = (Stage("tidy", _tidy), Stage("unit tests of the tools", _python_units),
          Stage("protocol code on the host", _cargo_tests), Stage("simulation", _simulation),
          Stage("lint", _lint))
OBJECTS = (Stage("build", _build), Stage("objects", _objects), Stage("native", _native))


def _vmlab(*words: str) -> list[str]:
    return [*PYTHON, "tools/vmlab", "run", *words]


def _options(name: str, patterns: tuple[str, ...] | list[str]) -> list[str]:
    return [word for pattern in patterns for word in (name, pattern)]


def _side_by_side() -> Counts:
    """One test that takes its time whatever the machine does, and beside it many to which time is nothing."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        slow = subprocess.Popen(_vmlab(*_options("--only", SLOW)), cwd=REPOSITORY, stdin=subprocess.DEVNULL,
                                stdout=said, stderr=subprocess.STDOUT)
        counts = _closing(*_stream(_vmlab(*_options("--only", TIMELESS))))
        status = slow.wait()
        said.seek(0)
        lines = said.read().splitlines()
    print("\n".join(line for line in lines if not CLOSING.fullmatch(line)), flush=True)
    return counts + _closing(status, lines)


def machines(patterns: list[str]) -> list[Stage]:
    """The tests in virtual machines, all or those whose names match."""
    if patterns:
        chosen = _vmlab(*_options("--only", patterns))
        return [Stage("build", _build), Stage("virtual machines", lambda: _closing(*_stream(chosen)))]
    rest = _vmlab(*_options("--without", (*SLOW, *TIMELESS)))
    return [Stage("virtual machines, two labs side by side", _side_by_side),
            Stage("virtual machines", lambda: _closing(*_stream(rest)))]
