# SPDX-License-Identifier: GPL-2.0
"""Disks of a server that do not answer their OPEN, and users who wait no longer: what is open for no one is closed, and
nothing else."""
from __future__ import annotations

from collections.abc import Callable

from vmlab import paths, rnbd, tier
from vmlab.checks import ByChance, eq, ok, until
from vmlab.lab import Lab
from vmlab.machine import Job
from vmlab.needs import needs
from vmlab.tests.administration import EXPORTS, USERS, ask, ask_in_vain, fence, read_block
from vmlab.tests.paths import SUSPENDED, dm_disk

# The server answers ETIMEDOUT a second after an OPEN has come, or half a second later. Before that the user is killed,
# and then the disk answers.
KILLED_SECONDS = 0.4
PATTERN = "ferrofabric"


def suspend(lab: Lab) -> None:
    """The disk of the server answers no more."""
    lab.server.run(f"dmsetup suspend --nolockfs --noflush {SUSPENDED}")
    lab.defer(lab.server.run, f"dmsetup resume {SUSPENDED}")


def write_in_vain(lab: Lab, line: str, file: str, then: Callable[[], Job] | None = None) -> Job | None:
    """Writes to a file of the client that waits for the silent disk; the writer is killed, and `then` begins. The disk
    answers then, in time for the server."""
    mark = lab.server.log_mark()
    if not lab.client.try_run(f"timeout -s KILL {KILLED_SECONDS} sh -c \"echo '{line}' > {file}\"").code:
        raise ByChance("the writer was not killed in time")
    if lab.server.run(USERS).strip() == "0":
        raise ByChance("the writer was killed before the server had its message")
    job = then() if then else None
    lab.server.run(f"dmsetup resume {SUSPENDED}")
    until(lambda: lab.server.log_matches("'dm-0'.* opened as", mark), 20, "the server has opened the disk")
    if lab.server.log_matches("'dm-0' is silent", mark):
        raise ByChance("the disk has answered too late")
    return job


def first_bytes(lab: Lab, device: str) -> str:
    """What the server's disk begins with."""
    return lab.server.run(f"dd if=/dev/{device} bs=4k count=1 iflag=direct status=none | head -c {len(PATTERN)} "
                          "| tr -d '\\0'").strip()


def is_closed(lab: Lab, mark: int) -> Callable[[], bool]:
    """Whether the server has closed the disk."""
    return lambda: bool(lab.server.log_matches("'dm-0'.* closed", mark))


@needs(wires=1, timeout=240)
def test_a_disk_that_a_killed_writer_has_asked_for_is_mapped_otherwise(pair: Lab) -> None:
    """A writer that maps a silent disk read-only is killed, and at once the disk is mapped for writing, and another
    one. The server has opened it for the first and opens it anew for the second. What the client does about the first
    ends neither, and the requests of each disk reach that one."""
    dm_disk(pair, 8, count=2)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    kept = rnbd.map_disk(pair, "ram1")
    suspend(pair)
    mark = pair.server.log_mark()
    mapped = write_in_vain(pair, rnbd.request(pair, "dm-0", options="access_mode=ro"), f"{rnbd.CONTROL}/map_device",
                           lambda: ask(pair, "dm-0"))
    ok(mapped and not mapped.wait(60).code, "the disk was not mapped")
    link = f"{rnbd.CONTROL}/devices/dm-0@s1"
    disk = rnbd.Disk(pair.client, pair.client.real_path(link).rpartition("/")[2], "s1", "dm-0")
    pair.defer(disk.unmap_if_there)
    kept.unmap()
    other = rnbd.map_disk(pair, "ram1")
    # The first one is settled.
    paths.rest(4)
    eq(pair.client.run(f"printf {PATTERN} | dd of={disk.path} bs=4k count=1 conv=sync oflag=direct 2>&1 | "
                       "grep -i error; true"), "")
    eq(read_block(other), 0, "a read of the other disk")
    eq((first_bytes(pair, "dm-0"), first_bytes(pair, "ram1")), (PATTERN, ""), "what the disks begin with")
    opened = pair.server.log_matches("'dm-0'.* opened as", mark)
    ok("opened as rw" in opened[-1], f"the server has it open as it is mapped: {opened}")
    disk.unmap()
    other.unmap()
    until(lambda: pair.server.run(USERS).strip() == "0", 10, "nobody has it open any more")


@needs(wires=1, timeout=240)
def test_what_a_killed_remap_has_opened_is_closed(pair: Lab) -> None:
    """An administrator of the server has fenced a client off. The writer of remap_device is killed while the disk is
    silent: the server has it open for nobody, and other clients would not get it."""
    dm_disk(pair, 8, count=2)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, "dm-0")
    fence(pair, "dm-0")
    ok(read_block(disk), "a read of a fenced disk succeeded")
    suspend(pair)
    mark = pair.server.log_mark()
    write_in_vain(pair, "1", f"{disk.control}/remap_device")
    until(is_closed(pair, mark), 10, "the client has closed it again")
    ok(not pair.server.exists(f"{EXPORTS}/dm-0"), "the fenced device is open again")
    eq(disk.attribute("state"), "closed")
    eq(pair.client.write(f"{disk.control}/remap_device", "1"), "")
    eq(read_block(disk), 0, "a read of the disk that was opened again")


@needs(wires=1, timeout=240)
def test_a_disk_that_is_unmapped_in_an_outage_of_the_client_is_closed(pair: Lab) -> None:
    """Only the client has noticed that the path is lost, and a disk is unmapped meanwhile. For the server the session
    goes on with the path that comes then, and has the disk open: it is closed when the session is back."""
    dm_disk(pair, 8, count=2)
    rnbd.load_server(pair, rtrs="heartbeat_interval_ms=60000")
    rnbd.load_client(pair)
    disk, other = rnbd.map_disk(pair, "dm-0"), rnbd.map_disk(pair, "ram1")
    mark = pair.server.log_mark()
    pair.defer(pair.mend, 0)
    pair.silence(0)
    until(lambda: disk.attribute("state") == "closed", 60, "the client has noticed")
    eq(pair.client.write(f"{disk.control}/unmap_device", "force"), "")
    eq(pair.server.run(USERS).strip(), "1", "the server has not noticed")
    pair.mend(0)
    paths.back_seconds(pair, lambda: other.attribute("state") == "open", 60, "the session is back")
    until(is_closed(pair, mark), 20, "the disk is closed on the server")
    eq(pair.server.run(USERS).strip(), "0", "its users")
    eq(read_block(other), 0, "a read of the other disk")


@needs(wires=1, timeout=180, tier=tier.ALL)
def test_a_silent_disk_that_no_one_waits_for_is_closed(pair: Lab) -> None:
    """A user has given up, and then the disk answers. In time, as the server knows: the client closes it. After the
    client was told that it is silent: the server has it open for no one, and closes it again after a while."""
    dm_disk(pair, 8, count=2)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    other = rnbd.map_disk(pair, "ram1")
    suspend(pair)
    mark = pair.server.log_mark()
    write_in_vain(pair, rnbd.request(pair, "dm-0"), f"{rnbd.CONTROL}/map_device")
    until(is_closed(pair, mark), 10, "the client has closed it again")
    suspend(pair)
    mark = pair.server.log_mark()
    ask_in_vain(pair, ["dm-0"])
    until(lambda: pair.server.log_matches("'dm-0' is silent", mark), 20, "the client is told")
    paths.rest(3)
    pair.server.run(f"dmsetup resume {SUSPENDED}")
    until(lambda: pair.server.log_matches("'dm-0'.* opened as", mark), 20, "the server has opened the disk")
    paths.rest(5)
    eq(pair.server.log_matches("'dm-0'.* closed", mark), [], "it was not kept")
    until(is_closed(pair, mark), 40, "the server has closed it again")
    eq(pair.server.run(USERS).strip(), "0", "its users")
    eq(read_block(other), 0, "a read of the other disk")
