# SPDX-License-Identifier: GPL-2.0
"""Connections of a path: one for each processor that is there, or as many as nr_io_queues= says."""
from __future__ import annotations

import json

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, until
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs

PROCESSORS = "/sys/devices/system/cpu"
VERIFY = "--verify=crc32c --verify_fatal=1"


def connections(machine: Machine) -> int:
    """The queue pairs of RTRS: of a client with one path, its connections."""
    rows = json.loads(machine.run("rdma -j resource show qp"))
    return sum(row["type"] == "RC" for row in rows)


def processor(lab: Lab, online: bool) -> None:
    """Gives the client its second processor, or takes it away."""
    eq(lab.client.write(f"{PROCESSORS}/cpu1/online", "01"[online], 60), "", "the second processor")


def queues(disk: rnbd.Disk) -> dict[str, list[int]]:
    """The processors of each hardware queue of a disk."""
    folder = f"/sys/block/{disk.name}/mq"
    lists = {name: disk.machine.read(f"{folder}/{name}/cpu_list") for name in disk.machine.names(folder)}
    return {name: [int(number) for number in text.split(",")] for name, text in lists.items()}


def works_on(disk: rnbd.Disk, number: int) -> None:
    """Writes and verifies from one processor."""
    disk.fio(f"--rw=randwrite --bs=4k --iodepth=16 --size=1m --cpus_allowed={number} {VERIFY}").clean()


@needs(smp=2)
def test_a_path_has_connections_for_the_processors_that_are_there(pair: Lab) -> None:
    """One that is missing has none; when it comes it uses another one's, also of a path that connects again."""
    rnbd.start(pair)
    pair.defer(processor, pair, True)
    processor(pair, False)
    disk = rnbd.map_disk(pair)
    eq(connections(pair.client), 2, "connections: for messages, and of the only processor")
    eq(queues(disk), {"0": [0, 1]}, "processors of the queues")
    processor(pair, True)
    works_on(disk, 1)
    path = paths.to_wire(pair)
    eq(pair.client.write(f"{path}/disconnect", "1"), "", "disconnect")
    eq(pair.client.write(f"{path}/reconnect", "1", 60), "", "reconnect")
    until(lambda: disk.attribute("state") == "open", 20, "the disk is back")
    eq(connections(pair.client), 2, "connections afterwards")
    for number in (0, 1):
        works_on(disk, number)
    processor(pair, False)
    works_on(disk, 0)
    disk.unmap()
    # With both from the start.
    processor(pair, True)
    disk = rnbd.map_disk(pair)
    eq((connections(pair.client), len(queues(disk))), (3, 2), "connections, and queues, of two processors")
    processor(pair, False)
    works_on(disk, 0)
    disk.unmap()


@needs(smp=2)
def test_a_session_has_as_many_queues_as_its_first_device_asks_for(pair: Lab) -> None:
    """nr_io_queues= of map_device, also for processors that come later; other devices of the session may name it."""
    rnbd.start(pair, mib=16, count=2)
    disk = rnbd.map_disk(pair, options="access_mode=rw nr_io_queues=1 nr_poll_queues=0")
    eq((connections(pair.client), len(queues(disk))), (2, 1), "connections, and queues")
    disk.fio(f"--rw=randwrite --bs=4k --iodepth=16 --numjobs=2 --size=1m --offset_increment=1m {VERIFY}").clean()
    mark = pair.client.log_mark()
    eq(rnbd.try_map(pair, rnbd.request(pair, "ram1", options="nr_io_queues=2")), "EINVAL", "another number")
    said = pair.client.log_matches("exists with 1 IO queues: leave nr_io_queues=2 out", mark)
    eq(len(said), 1, f"lines that say why: {said}")
    for options in ("access_mode=rw", "access_mode=rw nr_io_queues=1"):
        rnbd.map_disk(pair, "ram1", options=options).unmap()
    disk.unmap()
    # For one that is to come.
    pair.defer(processor, pair, True)
    processor(pair, False)
    disk = rnbd.map_disk(pair, options="access_mode=rw nr_io_queues=2")
    eq((connections(pair.client), len(queues(disk))), (3, 2), "connections, and queues, with one processor")
    processor(pair, True)
    works_on(disk, 1)
    disk.unmap()


@needs(smp=2, own_modules=True, timed=True, tier=tier.ALL)
def test_a_server_in_c_takes_any_number_of_connections(pair: Lab) -> None:
    """It keeps as many as the client says, with more and fewer than its processors."""
    rnbd.ram_disk(pair)
    rnbd.load_server(pair, "c")
    rnbd.load_client(pair)
    for asked, count in (("nr_io_queues=1", 2), ("nr_io_queues=2 nr_poll_queues=2", 5)):
        disk = rnbd.map_disk(pair, options=f"access_mode=rw {asked}")
        eq(connections(pair.client), count, f"connections with {asked}")
        disk.fio(f"--rw=randwrite --bs=4k --iodepth=16 --numjobs=2 --size=1m --offset_increment=1m {VERIFY}").clean()
        disk.unmap()
