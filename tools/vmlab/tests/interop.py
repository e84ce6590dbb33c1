# SPDX-License-Identifier: GPL-2.0
"""Eight cells: client {C, Rust} x server {C, Rust} x always_invalidate {Y, N}, each the same round of work.

The cells are tests of their own; the last one prints the table.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable

from vmlab import rnbd
from vmlab.checks import eq, ok
from vmlab.lab import Lab
from vmlab.needs import needs

LANGUAGE = {"c": "C", "ours": "Rust"}
CELLS = tuple(itertools.product(("c", "ours"), ("c", "ours"), ("Y", "N")))
RESULTS: dict[tuple[str, str, str], str] = {}


def work(pair: Lab, client: str, server: str, invalidate: str) -> None:
    """Map, mkfs, copy, verify, discard, write zeroes, flush, unmap, map again, compare."""
    rnbd.null_disk(pair, "gb=1 memory_backed=1 discard=1 cache_size=4 fua=1")
    rnbd.load_server(pair, server, f"always_invalidate={invalidate}")
    rnbd.load_client(pair, client)
    vm = pair.client
    disk = rnbd.map_disk(pair, "nullb0")
    rnbd.round_robin(pair)
    disk.fio("--rw=randwrite --bsrange=512-1m --blockalign=512 --iodepth=8 --size=12m --verify=crc32c "
             "--verify_fatal=1 --fsync=32", 180).clean()
    vm.run(f"blkdiscard -o 4M -l 4M {disk.path} && blkdiscard -z -o 8M -l 2M {disk.path}")
    left = f"dd if={disk.path} bs=1M skip=4 count=6 iflag=direct status=none | tr -d '\\0' | wc -c"
    eq(vm.run(left).strip(), "0", "bytes left in discarded and zeroed ranges")
    vm.run(f"modprobe ext4; mkfs.ext4 -q {disk.path} 64M && mount {disk.path} /mnt")
    pair.defer(vm.try_run, "umount /mnt 2>/dev/null; rmmod ext4 2>/dev/null")
    vm.run("cp -r /usr/lib/python3.13/json /usr/bin/bash /mnt/ && sync && cd /mnt && "
           "find . -type f -exec md5sum {} + > /run/sums && cd / && umount /mnt", 120)
    disk.unmap()
    disk = rnbd.map_disk(pair, "nullb0")
    vm.run(f"mount {disk.path} /mnt && cd /mnt && md5sum --quiet -c /run/sums && cd / && umount /mnt", 120)
    disk.unmap()


def _make(client: str, server: str, invalidate: str) -> Callable[[Lab], None]:
    @needs(timeout=300)
    def test(pair: Lab) -> None:
        for name in {client, server}:
            ok(pair.assets.module_set(name), f"the module set '{name}' is not built")
        RESULTS[client, server, invalidate] = "FAILED"
        work(pair, client, server, invalidate)
        RESULTS[client, server, invalidate] = "ok"
    test.__doc__ = f"Client in {LANGUAGE[client]}, server in {LANGUAGE[server]}, always_invalidate={invalidate}."
    return test


for _cell in CELLS:
    _client, _server, _invalidate = _cell
    globals()[f"test_client_{_client}_server_{_server}_{_invalidate}"] = _make(*_cell)


def table() -> str:
    """The results of this run, for people."""
    lines = [f"{'':12} {'server C, Y':13}{'server C, N':13}{'server Rust, Y':16}server Rust, N"]
    for client in ("c", "ours"):
        cells = [RESULTS.get((client, server, invalidate), "-") for server in ("c", "ours") for invalidate in "YN"]
        lines.append(f"client {LANGUAGE[client]:5} {cells[0]:13}{cells[1]:13}{cells[2]:16}{cells[3]:16}".rstrip())
    return "\n".join(lines)


@needs(unloads=False)
def test_the_table(pair: Lab) -> None:
    """All eight cells in one table."""
    print("".join(f"# {line}\n" for line in table().splitlines()), end="", flush=True)
    missing = [f"client {c}, server {s}, {i}" for c, s, i in CELLS if RESULTS.get((c, s, i)) != "ok"]
    eq(missing, [], "cells that did not pass")
