# SPDX-License-Identifier: GPL-2.0
"""Memory of a node that goes bad: a bit of a page that it has cached is changed from outside the machine."""
from __future__ import annotations

import shlex

from vmlab import gfarm_mount, tier
from vmlab.checks import eq, in_time, ok
from vmlab.gfarm_node import Node
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests.gfarm_cache import acquainted

SMP = 2
TIER = tier.ALL

PAGE, SIZE, BAD = 4096, 300_001, 17
# A program is slow, and so is a node then; what is silent for longer costs a page from the file server.
OPTIONS = "cc_timeout_ms=2000"
# Prints the physical address of a page of a file in the page cache. The mapping is a private one, which is not written
# to, so that Python tells its address.
FIND = r"""
import ctypes, mmap, sys
path, page = sys.argv[1], int(sys.argv[2])
with open(path, "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
pages[page * 4096]
address = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + page * 4096
with open("/proc/self/pagemap", "rb") as table:
    table.seek(address // 4096 * 8)
    entry = int.from_bytes(table.read(8), "little")
assert entry >> 63, hex(entry)
print((entry & (1 << 55) - 1) * 4096)
"""


def damage(holder: Node, name: str, page: int) -> None:
    """Changes a bit of a page of a file that a node has cached."""
    machine = holder.machine
    said = machine.run(f"python3 -I -S - {shlex.quote(f'{holder.at}/{name}')} {page} <<'END'\n{FIND}\nEND")
    machine.flip(int(said) + 100)


@needs(machines=1, timeout=400)
def test_bad_memory_of_a_node_is_not_passed_on(vm: Lab) -> None:
    """Another node reads what the file server has, counts the page and says who had it; without cc_verify it reads what
    the bad memory has. With cc_verify=2 the node that has it finds out itself, and drops it."""
    servers = gfarm_mount.start(vm)
    for verify in 1, 0, 2:
        name = f"damaged{verify}"
        wanted = gfarm_mount.put_random(servers, name, SIZE, "fs1")
        with acquainted(servers, 2, f"{OPTIONS},cc_verify={verify}") as (holder, reader):
            eq(holder.sha256(name), wanted, "read by the first node")
            damage(holder, name, BAD)
            ok(holder.sha256(name) != wanted, "the memory of the first node has not changed")
            mark = vm.server.log_mark()
            found = reader.sha256(name)
            counts, own = reader.ibstat(), holder.ibstat()
            print(f"# cc_verify={verify}: {counts['peer_pages']} pages of the other node, {counts['peer_damaged']} "
                  f"damaged; {own['own_damaged']} found by itself", flush=True)
            in_time(counts["peer_pages"] >= SIZE // PAGE // 2, f"{counts['peer_pages']} pages of the other node")
            lines = vm.server.log_matches("gfarm_ra: .* damaged", mark)
            if verify == 0:
                in_time(found != wanted, "the damaged page has not been asked for")
                eq((counts["peer_damaged"], own["own_damaged"], len(lines)), (0, 0, 0), "pages found, and lines")
                continue
            eq(found, wanted, "what the second node has read")
            bad = counts["peer_damaged"], own["own_damaged"]
            eq(bad, (1, 0) if verify == 1 else (0, 1), "damaged pages that were found by who asks, and who gives")
            eq(len(lines), 1, f"{lines}")
            ok(("from the node gid=" if verify == 1 else "in the page cache of this machine") in lines[0], lines[0])
            if verify == 2:
                eq(holder.sha256(name), wanted, "what the first node reads now")
