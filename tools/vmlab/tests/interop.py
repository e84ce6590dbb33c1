# SPDX-License-Identifier: GPL-2.0
"""Eight cells: client {C, Rust} x server {C, Rust} x always_invalidate {Y, N}, each the same round of work.

Each cell is a test of its own.
"""
from __future__ import annotations

import itertools

import pytest

from vmlab import rnbd, tier
from vmlab.checks import eq, ok
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests.io import every_size, memory_anywhere

LANGUAGE = {"c": "C", "ours": "Rust"}
# So many chunks are enough, and with copies of 64 KiB of each the machines have the memory.
COPIES = "sess_queue_depth=64"
CELLS = tuple(itertools.product(("c", "ours"), ("c", "ours"), ("Y", "N")))


def work(pair: Lab, client: str, server: str, invalidate: str) -> None:
    """Map, mkfs, copy, verify, discard, write zeroes, flush, unmap, map again, compare."""
    rnbd.null_disk(pair, "gb=1 memory_backed=1 discard=1 cache_size=4 fua=1")
    rnbd.load_server(pair, server, f"always_invalidate={invalidate}")
    rnbd.load_client(pair, client)
    vm = pair.client
    disk = rnbd.map_disk(pair, "nullb0")
    rnbd.round_robin(pair)
    disk.fio("--rw=randwrite --bsrange=512-1m --blockalign=512 --iodepth=8 --verify=crc32c "
             f"--verify_fatal=1 --fsync=32 --size={tier.of(3, 12)}m", 180).clean()
    if client == "ours":
        memory_anywhere(disk)
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


def _tier(client: str, server: str, invalidate: str) -> str:
    """C with C shows the test itself; `io.*` shows in each run what is the same without new keys."""
    if client != server:
        return tier.CORE if invalidate == "Y" else tier.ALL
    return tier.LONG if client == "c" else tier.ALL


@pytest.mark.parametrize(("client", "server", "invalidate", "title"), [
    pytest.param(*cell, f"Client in {LANGUAGE[cell[0]]}, server in {LANGUAGE[cell[1]]}, always_invalidate={cell[2]}.",
                 id=f"client_{cell[0]}_server_{cell[1]}_{cell[2]}",
                 marks=pytest.mark.tier(_tier(*cell))) for cell in CELLS])
@needs(own_modules=True, timed=True, timeout=300)
def test_cell(pair: Lab, client: str, server: str, invalidate: str, title: str) -> None:
    """One cell of the table."""
    for name in {client, server}:
        ok(pair.assets.module_set(name), f"the module set '{name}' is not built")
    work(pair, client, server, invalidate)
    print(f"# {title} ok", flush=True)


@pytest.mark.parametrize(("client", "server"), [
    pytest.param(*cell, id=f"copies_with_client_{cell[0]}_server_{cell[1]}")
    for cell in (("c", "ours"), ("ours", "c"))])
@needs(own_modules=True, tier=tier.ALL)
def test_data_are_right_however_much_is_copied(pair: Lab, client: str, server: str) -> None:
    """None, and all up to 64 KiB: READs by our client, WRITEs by our server, each size of IO, with C in either role."""
    rnbd.ram_disk(pair, 16)
    rnbd.load_server(pair, server, f"{COPIES} always_invalidate=Y")
    rnbd.load_client(pair, client)
    for most_bytes in (0, 65536):
        if client == "ours":
            rnbd.copy_reads(pair, most_bytes)
        if server == "ours":
            rnbd.copy_writes(pair, most_bytes)
        disk = rnbd.map_disk(pair)
        every_size(disk)
        disk.fio("--rw=randwrite --bsrange=512-96k --blockalign=512 --iodepth=8 --verify=crc32c --verify_fatal=1 "
                 "--size=2m", 120).clean()
        disk.unmap()
