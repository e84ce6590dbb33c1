# SPDX-License-Identifier: GPL-2.0
"""Turns what was measured of Gfarm's clients into Markdown tables."""
from __future__ import annotations

from collections.abc import Sequence

from gfarm_clients import Asked
from gfarm_counts import CASES, CLIENTS, Cost, Totals
from gfarm_peers import CALLS, MODULES, Rate
from gfarm_readers import CLIENTS as READERS
from gfarm_readers import COUNTING, COUNTS, Start
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


# MB/s by instructions per page of 4 KiB, each of which takes 4 ns (gfarm_peers.ICOUNT).
PAGE_RATE = 4096 * 1000 / 4


def peers(found: Sequence[Rate]) -> str:
    """Rates of a node that reads from another one, beside what the device can do and beside a file server."""
    rows = [[f"fragments of {r.fragment} bytes, {r.address}", f"{r.raw:.1f}", f"{r.node:.1f}", f"{r.node / r.raw:.2f}",
             f"{r.gfsd:.1f}", f"{r.node / r.gfsd:.2f}",
             *(f"{PAGE_RATE / rate:.0f}" for rate in (r.raw, r.node, r.gfsd)),
             *(f"{r.calls.get(name, 0):.2f}" for name in CALLS)]
            for r in found]
    return markdown(["guest time, MB/s", "raw datagrams", "from a node", "of raw", "from a gfsd", "node / gfsd",
                     *(f"instructions per page, {how}" for how in ("raw", "node", "gfsd")),
                     *(f"{name} per request" for name in CALLS)], rows)


def readers(found: dict[tuple[str, int], Start]) -> str:
    """The time until the last of several readers has all, and the copies that left the servers."""
    rows = []
    for count in COUNTS:
        starts = [found[client, count] for client in READERS]
        copies = [found[client, count].copies for client in COUNTING]
        rows.append([str(count), *(f"{start.seconds:.2f}" for start in starts), *(f"{each:.2f}" for each in copies)])
    return markdown(["readers", *(f"{client}: s" for client in READERS),
                     *(f"{client}: copies" for client in COUNTING)], rows)


def pages(found: dict[tuple[int, str], Totals]) -> str:
    """Instructions per page of 4 KiB, by source and module."""
    sums = {key: _by_module(totals) for key, totals in found.items()}
    names = sorted({name for one in sums.values() for name, value in one.items() if value >= 20},
                   key=lambda name: -max(one.get(name, 0) for one in sums.values()))
    titles = {"raw": "raw datagrams"}
    rows = [[f"{titles.get(source, f'from a {source}')}, fragments of {fragment}", f"{sum(one.values()):.0f}",
             f"{sum(one.get(name, 0) for name in MODULES):.0f}", *(f"{one.get(name, 0):.0f}" for name in names)]
            for (fragment, source), one in sums.items()]
    return markdown(["instructions per page of 4 KiB", "all", "our modules", *names], rows)


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
