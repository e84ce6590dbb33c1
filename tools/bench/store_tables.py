# SPDX-License-Identifier: GPL-2.0
"""Turns the measurements of mode store into Markdown tables."""
import statistics

import store
from counting import Counts
from tables import checksums, markdown

# What the rates of mode store are compared with.
_RATIOS = ("off", "dm-integrity on rnbd", "rnbd on dm-integrity", "nvme-rdma")
_MODULES = ("rnbd_server", "rnbd_client", "rtrs_server", "rtrs_client", "kernel_ext", "block_ext", "rdma_rust",
            "ib_core", "rdma_rxe", "null_blk")


def rates(results: store.Rates) -> str:
    """IOPS in guest time, and those of mode store relative to the others'."""
    names = list(dict.fromkeys(name for _, name, _ in results))
    others = [name for name in _RATIOS if name in names and "store" in names]
    rows = []
    for medium, cell in dict.fromkeys((medium, cell) for medium, _, cell in results):
        values = {name: statistics.median(results[medium, name, cell]) for name in names}
        rows.append([f"{medium}: {cell.title}", *(f"{value:.0f}" for value in values.values()),
                     *(f"{values['store'] / values[other]:.2f}" for other in others)])
    return markdown(["IOPS in guest time", *names, *(f"store/{other}" for other in others)], rows)


def instructions(results: dict[int, Counts]) -> str:
    """Instructions per IO by module, of everything in the kernel of the machine."""
    rows = []
    for depth, counts in results.items():
        for (name, *case), functions in sorted(counts.items(), key=lambda entry: entry[0][1:], reverse=True):
            each = {module: sum(v for (m, _), v in functions.items() if m == module) for module in _MODULES}
            crc, all_ = checksums(functions), sum(v for (m, _), v in functions.items() if m != "user")
            rest = all_ - crc - sum(each.values())
            rows.append([f"{' '.join(case)} qd {depth}, {name}", *(f"{value:.0f}" for value in each.values()),
                         *(f"{value:.0f}" for value in (crc, rest, all_))])
    return markdown(["instructions per IO", *_MODULES, "checksums", "other kernel", "all"], rows)


def hottest(counts: Counts, name: str, case: tuple[str, str], most: int = 40) -> str:
    """The functions, of everything, in which mode store has most more instructions than the setup `name`."""
    base = counts[name, *case]
    more = [(value - base.get(key, 0), *key) for key, value in counts["store", *case].items()]
    rows = [[f"{value:.1f}", module, function] for value, module, function in sorted(more, reverse=True)[:most]]
    return markdown([f"{' '.join(case)}: store more than {name}", "module", "function"], rows)
