# SPDX-License-Identifier: GPL-2.0
"""Turns what was measured of Gfarm's clients into Markdown tables."""
from __future__ import annotations

from gfarm_clients import Asked
from gfarm_counts import CASES, CLIENTS, Cost, Totals
from tables import markdown

from vmlab.gfarm_speed import Figure

HOTTEST = 25


def rates(results: dict[str, list[Figure]]) -> str:
    """Medians of both clients, their ratio, and the lowest and highest ratio of two turns that follow each other."""
    rows = []
    for clock, figures in results.items():
        for figure in figures:
            kernel, fuse = figure.medians
            turns = [one / other for one, other in zip(figure.kernel, figure.fuse, strict=True)]
            rows.append([f"{clock}: {figure.job.title}", figure.job.unit, f"{kernel:.1f}", f"{fuse:.1f}",
                         f"{figure.ratio:.2f}", f"{min(turns):.2f} to {max(turns):.2f}"])
    return markdown(["Gfarm", "unit", *CLIENTS, "ratio", "of turns"], rows)


def questions(found: list[Asked]) -> str:
    """Round trips of each deed, and the least that would do."""
    rows = [[asked.deed.title, str(asked.gfmd), str(asked.deed.least), asked.deed.why,
             *(", ".join(f"{count} {kind}" for kind, count in asked.of(server).items()) for server in ("gfmd", "gfsd"))]
            for asked in found]
    return markdown(["Gfarm, round trips of", "to gfmd", "least", "why", "gfmd", "gfsds"], rows)


def _costs(results: dict[tuple[str, str], Totals], title: str) -> list[Cost]:
    return [Cost.of(results[title, client]) for client in CLIENTS]


def instructions(results: dict[tuple[str, str], Totals]) -> str:
    """Thousands of instructions per unit, of everything in the guest."""
    rows = []
    for case in CASES:
        kernel, fuse = _costs(results, case.title)
        values = (kernel.modules, *(value for cost in (kernel, fuse) for value in (cost.kernel, cost.user, cost.all)))
        rows.append([case.title, *(f"{value / 1000:.1f}" for value in values), f"{kernel.all / fuse.all:.2f}"])
    head = [f"{client}: {what}" for client in CLIENTS for what in ("kernel", "programs", "all")]
    return markdown(["thousand instructions per", "our modules", *head, "ratio"], rows)


def by_module(results: dict[tuple[str, str], Totals]) -> str:
    """The same by module, of the modules that cost anything."""
    sums = {key: _by_module(totals) for key, totals in results.items()}
    names = sorted({name for one in sums.values() for name, value in one.items() if value >= 100},
                   key=lambda name: -max(one.get(name, 0) for one in sums.values()))
    rows = [[f"{title}, {client}", *(f"{one.get(name, 0) / 1000:.1f}" for name in names)]
            for (title, client), one in sums.items()]
    return markdown(["thousand instructions in", *names], rows)


def _by_module(totals: Totals) -> dict[str, float]:
    sums: dict[str, float] = {}
    for (module, _function), value in totals.items():
        sums[module] = sums.get(module, 0) + value
    return sums


def hottest(results: dict[tuple[str, str], Totals], title: str) -> str:
    """The functions of the kernel's mount that cost most in a case, whichever module they are in."""
    totals = results[title, CLIENTS[0]]
    dearest = sorted(((value, key) for key, value in totals.items()), reverse=True)[:HOTTEST]
    rows = [[f"{value:.0f}", module, name] for value, (module, name) in dearest]
    return markdown([title, "module", "function"], rows)
