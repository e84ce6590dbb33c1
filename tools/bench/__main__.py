# SPDX-License-Identifier: GPL-2.0
"""bench: our modules, the C driver and nvme-rdma side by side in one guest; the kernel's mount of Gfarm and gfarm2fs.

    python3 tools/bench                  all tables (about half an hour under emulation)
    python3 tools/bench --counts         instructions per IO only
    python3 tools/bench --rates [--quick] [--repeat N]  guest-time rates only
    python3 tools/bench --paths          instructions per 4 KiB IO with two paths, by policy
    python3 tools/bench --protection     instructions per IO with protection information and without
    python3 tools/bench --store [--repeat N]  protection information on a plain medium, beside dm-integrity
    python3 tools/bench --arrays [--repeat N]  rnbd_ec over three disks of rnbd, beside md-raid5
    python3 tools/bench --wires          throughput over one wire and over two
    python3 tools/bench --memory         memory of a session only
    python3 tools/bench --gfarm [--quick] [--repeat N]  Gfarm only: beside gfarm2fs, and questions to gfmd
    python3 tools/bench --peers [--quick] [--repeat N]  Gfarm: pages from another node, from a file server, and by NFS
    python3 tools/bench --limits         what an IO costs against tools/bench/limits.toml (a minute; part of make test)
    python3 tools/bench --set-limits     writes that file anew
    python3 tools/bench --only 'Rust Y' --hot randread,4k   where the instructions go
"""
import argparse
import pathlib
import sys
from collections.abc import Sequence

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1])]

import arrays
import counting
import gfarm_clients
import gfarm_counts
import gfarm_peers
import gfarm_readers
import gfarm_tables
import limits
import memory
import protection
import rates
import setups
import store
import store_tables
import tables
import wires

# At least so many of each client, so that a median can be told.
GFARM_TURNS = 3


def say(text: str) -> None:
    """Progress goes to standard error: standard output is the tables."""
    print(f"  bench: {text}", file=sys.stderr, flush=True)


def gfarm(options: argparse.Namespace) -> None:
    """The tables of Gfarm's clients."""
    print(gfarm_tables.questions(gfarm_clients.questions(say)), end="\n\n", flush=True)
    rated = gfarm_clients.rates(say, gfarm_clients.size(options.quick), max(options.repeat, GFARM_TURNS))
    print(gfarm_tables.rates(rated), end="\n\n", flush=True)
    counts = gfarm_counts.measure(say)
    print(gfarm_tables.instructions(counts), gfarm_tables.by_module(counts), sep="\n\n", end="\n\n")
    for case in gfarm_counts.CASES if options.hot else ():
        print(gfarm_tables.hottest(counts, case.title), end="\n\n")


def peers(options: argparse.Namespace) -> None:
    """The tables of pages from other nodes."""
    print(gfarm_tables.readers(gfarm_readers.measure(say, options.quick)), end="\n\n", flush=True)
    print(gfarm_tables.peers(gfarm_peers.rates(say, options.quick, max(options.repeat, GFARM_TURNS))), end="\n\n",
          flush=True)
    counts = gfarm_peers.counts(say)
    print(gfarm_tables.pages(counts), end="\n\n", flush=True)
    for (fragment, source), totals in counts.items() if options.hot else ():
        print(gfarm_tables.hottest({("", gfarm_counts.CLIENTS[0]): totals}, ""), f"(from a {source}, {fragment})",
              sep="\n", end="\n\n")


def sidecar(options: argparse.Namespace) -> None:
    """The tables of mode store."""
    wanted = [s for s in store.SETUPS if not options.only or s.name in options.only]
    if not wanted:
        return
    print(store_tables.rates(store.measure(say, wanted, options.repeat)), end="\n\n", flush=True)
    if options.only:
        return
    counts = store.counts(say)
    print(store_tables.instructions(counts), end="\n\n", flush=True)
    for each in counts.values() if options.hot else ():
        print(store_tables.hottest(each, "wire", tuple(options.hot.split(",")[:2])), end="\n\n")


def protected(options: argparse.Namespace, wanted: Sequence[setups.Setup], cases: Sequence[tuple[str, str]]) -> None:
    """The tables of modes wire and pass."""
    counts = protection.measure(say, wanted, cases)
    print(protection.more(counts), protection.by_module(counts), sep="\n\n", end="\n\n", flush=True)
    for setup in wanted if options.hot else ():
        print(protection.hottest(counts, setup, *options.hot.split(",")[:2]), end="\n\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", action="store_true")
    parser.add_argument("--rates", action="store_true")
    parser.add_argument("--paths", action="store_true")
    parser.add_argument("--protection", action="store_true")
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--arrays", action="store_true")
    parser.add_argument("--wires", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--gfarm", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--set-limits", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a few cells of the rates only; Gfarm: fewer files")
    parser.add_argument("--only", action="append", metavar="SETUP", help="repeatable; default: all")
    parser.add_argument("--case", action="append", metavar="PATTERN,SIZE[,DEPTH[,JOBS]]",
                        help="these only (counts: without depth and jobs); repeatable")
    parser.add_argument("--repeat", type=int, default=1, metavar="N",
                        help="rates: the median of N rounds; Gfarm: of N turns of each client")
    parser.add_argument("--hot", metavar="PATTERN,SIZE", help="also print the hottest functions of a case; Gfarm: any")
    return parser


def main() -> int:
    """Measures and prints Markdown."""
    parser = _parser()
    options = parser.parse_args()
    if options.set_limits:
        limits.set_limits(say)
        return 0
    if options.limits:
        return limits.check(say)
    known = protection.SETUPS if options.protection else store.SETUPS if options.store else setups.SETUPS
    wanted = [s for s in known if not options.only or s.name in options.only]
    if not wanted:
        parser.error(f"no such setup; there are: {'; '.join(s.name for s in known)}")
    cases = [tuple(case.split(",")) for case in options.case or ()]
    everything = not (options.counts or options.rates or options.paths or options.protection or options.store
                      or options.arrays or options.wires or options.memory or options.gfarm or options.peers)
    if options.counts or everything:
        counts = counting.measure(say, wanted, [(case[0], case[1]) for case in cases] or counting.CASES)
        print(tables.instructions(counts, wanted), end="\n\n")
        for case in (("randread", "4k"), ("randwrite", "4k")):
            print(tables.by_module(counts, wanted, case), end="\n\n")
        for setup in wanted if options.hot else ():
            print(tables.hottest(counts, setup, options.hot.split(",")[:2]), end="\n\n")
    if options.paths or everything:
        counts = counting.measure(say, setups.TWO_PATHS, counting.CASES[:2])
        print(tables.policies(counts), end="\n\n")
    if options.protection or everything:
        protected(options, wanted if options.protection else protection.SETUPS, [(c[0], c[1]) for c in cases])
    if options.store or everything:
        sidecar(options)
    if options.arrays or everything:
        rounds = [arrays.measure(say) for _ in range(options.repeat)]
        print(arrays.table(arrays.median(rounds)), end="\n\n", flush=True)
    if options.wires or everything:
        print(tables.wires(wires.measure(say)), end="\n\n")
    if options.rates or everything:
        print(tables.rates(rates.measure(say, wanted, rates.cells(options.quick, cases), options.repeat), wanted),
              end="\n\n")
    if options.memory or everything:
        print(tables.memory(memory.measure(say)), end="\n\n")
    if options.gfarm or everything:
        gfarm(options)
    if options.peers or everything:
        peers(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
