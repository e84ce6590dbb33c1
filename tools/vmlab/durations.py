# SPDX-License-Identifier: GPL-2.0
"""Where the time went: of each test by phase, of each file against its budget; kept as JSON in the cache."""
from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from vmlab.assets import cache_dir

# Files that are kept: of runs of a few tests, and of those of nearly all.
KEPT = 20
SLOWEST = 8
KEPT_COMPLETE = 5
COMPLETE = 200
# Seconds of the host's processors that the tests of a file may take in `make test`, all tests of the file together.
# They depend less on what else the host does than seconds of the clock. Measured on two cores by emulation, and a
# third on top.
BUDGET: dict[str, float] = {
    "address_change": 50, "addresses": 30, "administration": 85, "against_c": 40, "allocations": 40,
    "crc32_umr": 150, "dma": 80, "documentation": 95, "drain": 40, "failover": 200,
    "failover_c": 115, "faults": 5, "gfarm": 200, "gfarm_cache": 90, "gfarm_cache_addresses": 60,
    "gfarm_cache_hostile": 120, "gfarm_cache_options": 40, "gfarm_demo": 100, "gfarm_documentation": 40,
    "gfarm_cache_devices": 60, "gfarm_cache_fragments": 45, "gfarm_cache_history": 75, "gfarm_cache_holders": 75,
    "gfarm_cache_machines": 160, "gfarm_cache_readers": 300, "gfarm_cache_waits": 100,
    "gfarm_faults": 200, "gfarm_hostile": 300, "gfarm_memory": 110, "gfarm_mounting": 100, "gfarm_names": 100,
    "gfarm_readers": 60, "gfarm_rig": 120, "gfarm_statistics": 40, "history": 60, "hostile": 170, "hostile_server": 80,
    "identity": 50, "interop": 160, "io": 145, "kernel_ext": 20, "lab": 50, "lifecycle": 95, "limits": 75, "load": 50,
    "map_errors": 50, "memory": 60, "net": 15, "on_the_wire": 30, "paths": 285, "paths_server": 255, "pi": 140,
    "pi_damage": 60, "pi_devices": 90, "pi_grow": 150, "pi_scrub": 60, "pi_sectors": 60, "pi_store": 180, "pi_use": 280,
    "power": 190, "preemption": 105, "quarantine": 60, "rdma": 15, "reclaim": 5, "recovery": 50, "replay": 15,
    "server_admin": 85, "server_exports": 55, "session_names": 60, "soak": 200, "stack": 150, "sysfs": 30,
    "sysfs_fuzz": 65, "teardown": 65, "testdevice": 305, "vfs": 150,
}


def folder() -> Path:
    """Where the files are kept."""
    return cache_dir() / "durations"


def latest() -> dict[str, float]:
    """Seconds of each test when it last ran, as far as that is known."""
    seconds: dict[str, float] = {}
    for file in sorted(folder().glob("run-*.json"), key=lambda file: file.name.replace("all-", "")):
        try:
            seconds |= {row["name"]: row["seconds"] for row in json.loads(file.read_text(encoding="utf-8"))["tests"]}
        except (ValueError, KeyError, OSError):
            continue    # of a run that was broken off, or removed meanwhile
    return seconds


class Durations:
    """The times of one run."""

    def __init__(self) -> None:
        self.before = latest()
        self._rows: list[dict[str, Any]] = []

    def add(self, name: str, file: str, seconds: float, cpu: float, phases: dict[str, float]) -> None:
        """One test; `cpu` is what its machines have used of the host's processors."""
        self._rows.append({"name": name, "file": file, "seconds": seconds, "cpu": cpu, "phases": phases})

    def _by(self, key: str, what: str = "seconds") -> dict[str, float]:
        sums: dict[str, float] = {}
        for row in self._rows:
            sums[row[key]] = sums.get(row[key], 0.0) + row[what]
        return dict(sorted(sums.items(), key=lambda pair: -pair[1]))

    def phases(self) -> dict[str, float]:
        """Seconds of all tests by phase, the longest first."""
        sums: dict[str, float] = {}
        for row in self._rows:
            for phase, seconds in row["phases"].items():
                sums[phase] = sums.get(phase, 0.0) + seconds
        return dict(sorted(sums.items(), key=lambda pair: -pair[1]))

    def table(self) -> str:
        """For people: phases, files against their budgets, and the slowest tests."""
        if not self._rows:
            return "no test ran"
        total = sum(row["seconds"] for row in self._rows)
        cpu = self._by("file", "cpu")
        lines = [f"where {total:.0f} s of labs ({sum(cpu.values()):.0f} s of processors) went:",
                 ", ".join(f"{name} {seconds:.0f}" for name, seconds in self.phases().items())]
        counts: dict[str, int] = {}
        for row in self._rows:
            counts[row["file"]] = counts.get(row["file"], 0) + 1
        for file, seconds in self._by("file").items():
            budget = BUDGET.get(file)
            over = f" of {budget:.0f}{' OVER' if cpu[file] > budget else ''}" if budget else ""
            lines.append(f"{seconds:7.1f} s  ({cpu[file]:.0f}{over} s of processors)  {file} ({counts[file]})")
        for row in sorted(self._rows, key=lambda row: -float(row["seconds"]))[:SLOWEST]:
            inside = ", ".join(f"{phase} {s:.1f}" for phase, s in row["phases"].items() if s >= 0.05)
            lines.append(f"{row['seconds']:7.1f} s  {row['name']}: {inside}")
        return "\n".join(lines)

    def keep(self, file: Path | None = None) -> Path:
        """Writes them, and removes the oldest; answers where."""
        path = file or folder() / f"run-{time.strftime('%Y%m%d-%H%M%S')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"phases": self.phases(), "files": self._by("file"), "tests": self._rows}, indent=1),
                        encoding="utf-8")
        complete = len(self._rows) >= COMPLETE
        if file is None and complete:
            path = path.rename(path.with_name(f"run-all-{path.name.removeprefix('run-')}"))
        for pattern, kept in (("run-2*.json", KEPT), ("run-all-*.json", KEPT_COMPLETE)):
            for old in sorted(folder().glob(pattern))[:-kept]:
                old.unlink(missing_ok=True)
        return path
