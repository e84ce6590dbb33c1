# SPDX-License-Identifier: GPL-2.0
"""Things that only the wire shows: which connection carries a request, and what of the kernel a peer gets to know."""
from __future__ import annotations

import struct
from itertools import pairwise

from vmlab import rnbd, wire
from vmlab.checks import eq, ge, ok
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2

REQUEST, RKEY_RESPONSE = 0, 4
# The kernel's half of the address space begins here.
KERNEL = 1 << 63


def requests(messages: list[wire.Message]) -> list[wire.Message]:
    """IO requests of the client: not the questions about sessions and devices, which go over connection 0."""
    return [message for message in messages if message.from_client and message.connection > 0
            and message.immediate is not None and message.immediate >> 28 == REQUEST]


@needs()
def test_d4_polled_io_uses_the_poll_connections(pair: Lab) -> None:
    """D4: requests of polled IO are on the connections of the poll queues, all others on those of the processors."""
    rnbd.start(pair, mib=8)
    with wire.captured(pair) as messages:
        disk = rnbd.map_disk(pair, options="access_mode=rw nr_poll_queues=2")
        disk.fio("--rw=randread --bs=4k --iodepth=4 --numjobs=2 --size=128k").clean()
        disk.fio("--hipri --rw=randwrite --bs=4k --iodepth=4 --numjobs=2 --size=128k").clean()
    used: dict[str, set[int]] = {"read": set(), "write": set()}
    for request in requests(messages):
        used["write" if str(request).endswith(" write") else "read"].add(request.connection)
    # 0 is for messages, then one for each of two processors, then those for polling. All writes were polled.
    ok(used["read"] and used["read"] <= {1, 2}, f"connections of reads: {used['read']}")
    ok(used["write"] and used["write"] <= {3, 4}, f"connections of polled writes: {used['write']}")


@needs()
def test_d27_no_address_of_the_kernel_is_told(pair: Lab) -> None:
    """D27: addresses in what both sides send are offsets; the C drivers tell where chunks and buffers are."""
    rnbd.start(pair, mib=8)
    with wire.captured(pair) as messages:
        disk = rnbd.map_disk(pair)
        disk.fio("--rw=randrw --bs=4k --iodepth=8 --size=256k").clean()
        disk.unmap()
    (info,) = [message.data for message in messages
               if message.connection == 0 and not message.from_client and len(message.data) > 4096]
    chunks = [struct.unpack_from("<Q", info, at)[0] for at in range(8, len(info), 16)]
    eq([hex(address) for address in chunks if address >= KERNEL], [], "addresses of chunks")
    written = [message.address for message in messages if message.direct]
    ge(len(written), 64, "RDMA writes")
    eq([hex(address) for address in written if address >= KERNEL], [], "addresses that are written to")


@needs()
def test_d20_each_answer_changes_its_chunks_key_once(pair: Lab) -> None:
    """D20: under a deep queue of writes the keys of a chunk follow each other without a gap."""
    rnbd.start(pair, mib=8)
    rnbd.copy_writes(pair, 0)
    with wire.captured(pair) as messages:
        disk = rnbd.map_disk(pair)
        disk.fio("--rw=randwrite --bs=4k --iodepth=256 --size=4m").clean()
    keys: dict[int, list[int]] = {}
    for message in messages:
        if not message.from_client and message.kind == "send_imm" and len(message.data) == 8:
            kind, chunk, key = struct.unpack("<HHI", message.data)
            eq(kind, RKEY_RESPONSE, "message with a new key")
            keys.setdefault(chunk, []).append(key & 0xff)
    ge(max(len(all_of_one) for all_of_one in keys.values()), 3, "answers for one chunk")
    steps = {chunk: [(two - one) % 256 for one, two in pairwise(used)] for chunk, used in keys.items()}
    # The key of a chunk that was read from stays (decision 0003).
    eq({chunk: step for chunk, step in steps.items() if set(step) - {0, 1}}, {}, "chunks with a key that was skipped")
    ge(sum(sum(step) for step in steps.values()), 256, "keys that were changed")
