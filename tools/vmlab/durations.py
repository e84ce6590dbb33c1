# SPDX-License-Identifier: GPL-2.0
"""Durations: of each test by phase, of each file; kept as JSON in the cache."""
from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vmlab.assets import cache_dir
from vmlab.plan import Planned

# Files that are kept: of runs of a few tests, and of those of nearly all.
KEPT = 20
SLOWEST = 8
KEPT_COMPLETE = 5
COMPLETE = 200
# A group waits that used less than this share of one processor, in at least so many seconds.
WAITING_SHARE, KNOWN_SECONDS = 0.35, 5.0


def folder() -> Path:
    """The folder of the files."""
    return cache_dir() / "durations"


def _rows() -> dict[str, dict[str, Any]]:
    """The figures of each test from its last run."""
    rows: dict[str, dict[str, Any]] = {}
    for file in sorted(folder().glob("run-*.json"), key=lambda file: file.name.replace("all-", "")):
        try:
            rows |= {row["name"]: row for row in json.loads(file.read_text(encoding="utf-8"))["tests"]}
        except (ValueError, KeyError, OSError):
            continue    # of a run that was broken off, or removed meanwhile
    return rows


def complete_runs() -> list[dict[str, Any]]:
    """The kept figures of runs of many tests."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder().glob("run-all-*.json"))]


def latest() -> dict[str, float]:
    """Seconds of each test when it last ran, as far as that is known."""
    return {name: row["seconds"] for name, row in _rows().items()}


def latest_of(tier: str) -> list[dict[str, Any]]:
    """Each test of a tier when it last ran."""
    return [row for row in _rows().values() if row.get("tier") == tier]


def waiting(tests: Sequence[Planned], rows: dict[str, dict[str, Any]] | None = None) -> list[Planned]:
    """The tests, and for each whether it waits: its group did when it last ran, by what it used of a processor. What is
    not known is as declared."""
    known = _rows() if rows is None else rows
    group: dict[tuple[str, str, bool, bool], list[float]] = {}
    for test in tests:
        if row := known.get(test.name):
            sums = group.setdefault((test.file, test.spec, test.timed, test.waits), [0.0, 0.0])
            sums[0] += row["cpu"]
            sums[1] += row["seconds"]

    def waits(test: Planned) -> bool:
        cpu, seconds = group.get((test.file, test.spec, test.timed, test.waits), (0.0, 0.0))
        return cpu < seconds * WAITING_SHARE if seconds >= KNOWN_SECONDS else test.waits
    return [replace(test, waits=waits(test)) for test in tests]


class Durations:
    """The times of one run."""

    def __init__(self) -> None:
        self.before = latest()
        self.rows: list[dict[str, Any]] = []
        self.wakes: list[float] = []    # seconds of processors to wake a machine

    def add(self, **row: Any) -> None:
        """One test: its name, file and tier, seconds, `cpu` that its machines have used of the host's processors, and
        phases."""
        self.rows.append(row)

    def _by(self, key: str, what: str = "seconds") -> dict[str, float]:
        sums: dict[str, float] = {}
        for row in self.rows:
            sums[row[key]] = sums.get(row[key], 0.0) + row[what]
        return dict(sorted(sums.items(), key=lambda pair: -pair[1]))

    def phases(self) -> dict[str, float]:
        """Seconds of all tests by phase, the longest first."""
        sums: dict[str, float] = {}
        for row in self.rows:
            for phase, seconds in row["phases"].items():
                sums[phase] = sums.get(phase, 0.0) + seconds
        return dict(sorted(sums.items(), key=lambda pair: -pair[1]))

    def table(self) -> str:
        """The table for people: phases, files, and the slowest tests."""
        if not self.rows:
            return "no test ran"
        total = sum(row["seconds"] for row in self.rows)
        cpu = self._by("file", "cpu")
        lines = [f"where {total:.0f} s of labs ({sum(cpu.values()):.0f} s of processors) went:",
                 ", ".join(f"{name} {seconds:.0f}" for name, seconds in self.phases().items())]
        counts: dict[str, int] = {}
        for row in self.rows:
            counts[row["file"]] = counts.get(row["file"], 0) + 1
        for file, seconds in self._by("file").items():
            lines.append(f"{seconds:7.1f} s  ({cpu[file]:.0f} s of processors)  {file} ({counts[file]})")
        for row in sorted(self.rows, key=lambda row: -float(row["seconds"]))[:SLOWEST]:
            inside = ", ".join(f"{phase} {s:.1f}" for phase, s in row["phases"].items() if s >= 0.05)
            lines.append(f"{row['seconds']:7.1f} s  {row['name']}: {inside}")
        return "\n".join(lines)

    def keep(self, file: Path | None = None) -> Path:
        """Writes them, and removes the oldest; answers where."""
        path = file or folder() / f"run-{time.strftime('%Y%m%d-%H%M%S')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"phases": self.phases(), "files": self._by("file"),
                                    "wakes": self.wakes, "tests": self.rows}, indent=1),
                        encoding="utf-8")
        complete = len(self.rows) >= COMPLETE
        if file is None and complete:
            path = path.rename(path.with_name(f"run-all-{path.name.removeprefix('run-')}"))
        for pattern, kept in (("run-2*.json", KEPT), ("run-all-*.json", KEPT_COMPLETE)):
            for old in sorted(folder().glob(pattern))[:-kept]:
                old.unlink(missing_ok=True)
        return path
