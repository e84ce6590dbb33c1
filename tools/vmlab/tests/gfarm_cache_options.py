# SPDX-License-Identifier: GPL-2.0
"""The options of the cooperative cache of Gfarm mounts, what they control, and its files below /proc."""
from __future__ import annotations

import time
from mmap import ACCESS_READ, mmap

from vmlab import gfarm_mount, gfarm_node, tier
from vmlab.checks import Failed, eq, ge, in_time, matches, ok, until
from vmlab.gfarm_mount import AT, put_random
from vmlab.gfarm_node import DESCRIPTION, queue_pairs
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs
from vmlab.seed import fresh

SMP = 2
TIER = tier.ALL

CC_KEY = f"cc_key={DESCRIPTION}"
# The kernel's log has the same words.
REFUSED = {
    "cc=on": "cc=on: add cc_key=DESCRIPTION",
    "cc=maybe": "cc=maybe is not on or off",
    "ib_mtu=512": "ib_mtu= has no effect: add cc_key=DESCRIPTION, or cc=off",
    "ib_devname=rxe0": "ib_devname= has no effect",
    "cc_share=1": "cc_share= has no effect",
    f"{CC_KEY},ib_mtu=255": "ib_mtu=255 is not in 256..=4096, nor 0",
    f"{CC_KEY},ib_mtu=4097": "ib_mtu=4097 is not in 256..=4096",
    f"{CC_KEY},ib_num_rrpc=0": "ib_num_rrpc=0 is not in 1..=4096",
    f"{CC_KEY},ib_num_srpc=4097": "ib_num_srpc=4097 is not in 1..=4096",
    f"{CC_KEY},ib_gid=256": "ib_gid=256 is not in 0..=255",
    f"{CC_KEY},ib_port=0": "ib_port=0 is not in 1..=255",
    f"{CC_KEY},ib_sl=16": "ib_sl=16 is not in 0..=15",
    f"{CC_KEY},ib_tclass=256": "ib_tclass=256 is not in 0..=255",
    f"{CC_KEY},ib_qkey=2147483648": "ib_qkey=2147483648 is not in 1..=2147483647, nor 0",
    f"{CC_KEY},ib_devname={'x' * 32}": "is not a device's name of up to 31 bytes",
    f"{CC_KEY},cc_timeout_ms=49": "cc_timeout_ms=49 is not in 50..=2000",
    f"{CC_KEY},cc_wait_ms=30001": "cc_wait_ms=30001 is not in 100..=30000",
    f"{CC_KEY},cc_group=65": "cc_group=65 is not in 1..=64, nor 0 for that of its address",
    f"{CC_KEY},cc_directory=1025": "cc_directory=1025 is not in 1..=1024, nor 0 for a share of the memory",
    f"{CC_KEY},cc_share=1048577": "cc_share=1048577 is not in 0..=1048576",
    f"{CC_KEY},cc_verify=3": "cc_verify=3 is not in 0..=2",
}
# What the device cannot.
IMPOSSIBLE = {
    "ib_devname=rxe7": "ib_devname=rxe7: there is no such RDMA device",
    "ib_port=2": "no RDMA device has an active port 2",
    "ib_devname=rxe0,ib_port=2": "rxe0: ib_port=2: the device has no such port",
    "ib_gid=200": "rxe0: ib_gid=200: the port has no usable address there",
    "ib_devname=rxe6,ib_mtu=1025": "rxe6: ib_mtu=1025: the datagrams of the port have 1024 bytes",
    "ib_devname=rxe8": "rxe8: port 1 is not active",
    "ib_devname=rxe9": "rxe9: the datagrams of the port have 512 bytes, messages up to 1024",
}


@needs(machines=1, timeout=240)
def test_options_are_refused_with_a_reason(vm: Lab) -> None:
    """Out of range, without effect, or more than the device can: an error and one line each, and nothing is left."""
    servers = gfarm_mount.start(vm)
    for number, mtu, state in (6, 1500, "up"), (8, 1500, "down"), (9, 1000, "up"):
        net = f"dummy{number}"
        vm.defer(vm.server.run, f"ip link delete {net}")
        vm.server.run(f"ip link add {net} mtu {mtu} type dummy && ip link set {net} {state} && "
                      f"rdma link add rxe{number} type rxe netdev {net}")
    refused = REFUSED | {f"{CC_KEY},{options}": words for options, words in IMPOSSIBLE.items()}
    for options, words in refused.items():
        mark = vm.server.log_mark()
        said = gfarm_node.try_mount(servers, options)
        lines = vm.server.log_matches("gfarm", mark)
        ok(said.code and words in said.out + "\n".join(lines), f"{options}: code {said.code}, {said.out!r}, {lines}")
        ok(len(lines) <= 1, f"{options}: {lines}")
    eq(queue_pairs(vm.server), 0, "queue pairs")


@needs(machines=1, timeout=240)
def test_options_are_in_force_and_shown(vm: Lab) -> None:
    """/proc/mounts has those that were given, ibaddr and the device show what they control, a remount keeps them."""
    servers = gfarm_mount.start(vm)
    put_random(servers, "many", 8 << 20)
    given = ["ib_devname=rxe0", "ib_port=1", "ib_sl=3", "ib_qkey=4711", "ib_num_rrpc=9", "ib_num_srpc=3", "ib_mtu=512",
             "cc_timeout_ms=80", "cc_wait_ms=700", "cc_share=5", "cc_group=9",
             "cc_verify=2", "cc_directory=2"]
    with gfarm_node.node(servers) as mount:
        shown = mount.options
        ok("cc=on" in shown and not any(word.startswith(("ib_", "cc_")) for word in shown), f"{shown}")
        matches(mount.address, r"^lid=0 qpn=\d+ psn=0 qkey=\d+ sl=0 gid=::ffff:10\.")
        first = mount.address.split("qkey=")[1].split()[0]
        network = int(mount.address.rpartition(".")[0].rpartition(".")[2])
        matches(mount.machine.read(f"{mount.folder}/status"), rf"(?m)^group {network % 64 + 1}: 1 of 1 nodes$")
    with gfarm_node.node(servers) as mount:
        ok(f"qkey={first} " not in mount.address, f"the key of the mount before: {mount.address}")
    link_local = _gid(vm.server, "fe80")
    with gfarm_node.node(servers, ",".join([*given, f"ib_gid={link_local}"])) as mount:
        shown = mount.options
        for word in ("cc=on", f"ib_gid={link_local}", *given):
            ok(word in shown, f"{word} is not in {shown}")
        matches(mount.address, r"^lid=0 qpn=\d+ psn=0 qkey=4711 sl=3 gid=fe80::")
        matches(mount.machine.read(f"{mount.folder}/status"), r"(?m)^group 9: 1 of 1 nodes$")
        eq(queue_pairs(vm.server), 2 + 1 + 1, "queue pairs: for messages and replies, to send by, and to receive by")
        # Others are made when they are needed, and no more than the option says.
        vm.server.run(f"for n in $(seq 0 7); do dd if={AT}/many of=/dev/null bs=1M count=1 skip=$n iflag=direct "
                      "status=none & done; wait")
        ge(2 + 1 + 3, queue_pairs(vm.server), "queue pairs after eight reads at a time")
        vm.server.run(f"mount -i -o remount {AT}")
        eq(mount.options, shown, "after a remount")
        for other in ("cc=off", "ib_mtu=1024", "cc_share=6"):
            ok(vm.server.try_run(f"mount -i -o remount,{other} {AT}").code, f"{other} was changed")


def _gid(machine: Machine, begins: str) -> int:
    """The index of the first address of rxe0 that begins like this."""
    folder = "/sys/class/infiniband/rxe0/ports/1/gids"
    rows = machine.run(f"grep -H ^{begins} {folder}/* | head -1")
    return int(rows.partition(":")[0].rpartition("/")[2])


def _costs(machine: Machine) -> dict[str, object]:
    """The costs of a node: threads, queue pairs, and references of modules."""
    threads = machine.run("cat /proc/[0-9]*/comm 2> /dev/null | grep '^gfarm\\|/R-gfarm' | sort")
    modules = machine.run("awk '/^(rdma_(transfer|rust|rxe|cm)|ib_core|gfarm_ra) /{print $1, $3}' /proc/modules")
    devices = machine.run("rdma resource show")
    return {"threads": threads, "modules": modules, "devices": devices}


def _has_key(machine: Machine, key: bytes) -> list[int]:
    """Places where the machine's memory has half of a key or more, as a node keeps it; the keyring has its digits."""
    image = machine.folder / "memory"
    machine.qmp("pmemsave", val=0, size=machine.hardware.memory_mib << 20, filename=str(image), seconds=60)
    with image.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as memory:
        found = [at for half in (key[:8], key[8:]) if (at := memory.find(half)) >= 0]
    image.unlink()
    return found


@needs(machines=1, timeout=240)
def test_the_key_is_wiped_from_memory(vm: Lab) -> None:
    """It is there while a node is mounted; not after the unmount, nor if a node cannot be made after it was read."""
    servers, key = gfarm_mount.start(vm), fresh().randbytes(16)
    put_random(servers, "secret", 300_001)
    with gfarm_node.node(servers, key=key.hex()) as one, gfarm_node.node(servers, at=AT + "2", key=key.hex()) as two:
        two.add(one.address)
        until(lambda: "alive" in one.peers().values() and "alive" in two.peers().values(), 20, "both know each other")
        eq(one.sha256("secret"), two.sha256("secret"), "the file")
        ge(len(_has_key(vm.server, key)), 2, "halves of the key while it is in use")
    eq(_has_key(vm.server, key), [], "places of the key after the unmount")
    ok(gfarm_node.try_mount(servers, f"{CC_KEY},ib_devname=none", key.hex()).code, "a node without a device")
    eq(_has_key(vm.server, key), [], "places of the key after a mount that has failed")


@needs(machines=1, timeout=240)
def test_a_mount_without_the_cache_costs_nothing(vm: Lab) -> None:
    """With cc=off: the threads, modules and objects are those of a mount that has never heard of the cache."""
    servers = gfarm_mount.start(vm)
    with gfarm_mount.mounted(servers) as mount:
        plain = _costs(vm.server)
    with gfarm_mount.mounted(servers, f"cc=off,{CC_KEY},ib_devname=none,ib_mtu=4096,cc_share=1") as mount:
        eq(_costs(vm.server), plain, "with cc=off")
        ok("cc=off" in mount.options and "ib_mtu=4096" in mount.options, f"{mount.options}")
        for name in ("ibaddr", "ibstat"):
            ok(not vm.server.exists(f"{mount.folder}/{name}"), name)
    with gfarm_node.node(servers):
        ok(_costs(vm.server) != plain, "a node has nothing")
    until(lambda: queue_pairs(vm.server) == 0, 10, "its queue pairs are gone")


@needs(machines=1, timeout=240)
def test_peers_are_written_to_ibaddr(vm: Lab) -> None:
    """The lines of 2014 and those with a GID only; what is wrong is an error and changes nothing; all are removed.
    It has keys of queue pairs, which are root's business."""
    servers = gfarm_mount.start(vm)
    with gfarm_node.node(servers, "ib_qkey=222,ib_sl=5") as mount:
        others = "setpriv --reuid=65534 --clear-groups cat"
        ok(vm.server.try_run(f"{others} {mount.folder}/ibaddr").code, "another user reads ibaddr")
        ok("datagrams " in vm.server.run(f"{others} {mount.folder}/ibstat"), "another user does not read ibstat")
        for line, peer in (("add gid=::ffff:10.9.9.1 qpn=17 qkey=4",
                            "lid=0 qpn=17 psn=0 qkey=4 sl=5 gid=::ffff:10.9.9.1"),
                           ("lid=0 qpn=18 psn=9 qkey=3 sl=1 gid=::ffff:10.9.9.1",
                            "lid=0 qpn=18 psn=0 qkey=3 sl=1 gid=::ffff:10.9.9.1")):
            eq(mount.add(line), "", line)
            eq(mount.peers().get(peer), "unknown", f"{line}: {mount.peers()}")
        before = mount.peers()
        for line in ("add gid=::ffff:10.9.9.1", "add gid=::ffff:10.9.9.1 qpn=17", "lid=0 qpn=18 psn=9 qkey=3",
                     "add gid=10.9.9.1 qpn=1x7 qkey=4", mount.address, "remove gid=::ffff:10.9.9.2 qpn=17"):
            ok(mount.add(line), f"taken: {line}")
        eq(mount.add("# a comment"), "", "a comment")
        eq(mount.peers(), before, "peers after wrong lines")
        many = "\n".join(f"add gid=::ffff:10.9.8.7 qpn={qpn} qkey=4" for qpn in range(100, 500))
        eq(mount.add(many), "", "400 lines")
        eq(len(mount.peers()), 402, "peers")
        eq(mount.add(many.replace("add", "remove")), "", "400 lines")
        for line in before:
            eq(mount.add(f"remove {line}"), "", line)
        eq(mount.peers(), {}, "peers at the end")


@needs(machines=1, timeout=240)
def test_a_write_to_ibstat_begins_anew(vm: Lab) -> None:
    """It counts what comes from a peer, one name and number a line; after a write all numbers are small again."""
    servers = gfarm_mount.start(vm)
    with gfarm_node.node(servers) as one, gfarm_node.node(servers, at=AT + "2") as two:
        two.add(one.address)
        until(lambda: "alive" in one.peers().values() and "alive" in two.peers().values(), 20, "both know each other")
        until(lambda: one.ibstat()["datagrams"] >= 4, 20, "some datagrams")
        ok(set(one.dropped()) <= {"unasked"}, f"dropped: {one.dropped()}")
        before = one.ibstat()
        vm.server.write(f"{one.folder}/ibstat", "0\n")
        after = one.ibstat()
        in_time(after["datagrams"] < before["datagrams"], f"{before['datagrams']} datagrams, then {after['datagrams']}")
        eq(set(one.ibstat()), set(before), "names")


class Questions:
    """The requests of a node to gfmd, by kind."""

    def __init__(self, node: gfarm_node.Node) -> None:
        # To look for it asks gfmd for the attributes of the mount's root.
        self._machine, self._file = node.machine, f"{node.folder}/stats"

    def asked(self) -> dict[str, int]:
        """So many until now."""
        rows = (line.split() for line in self._machine.read(self._file).splitlines())
        return {name: int(count) for name, count in rows if name.startswith("gfmd_") and "_us" not in name}

    def at_rest(self) -> dict[str, int]:
        """The same when there were no more for a second: files are closed at gfmd a moment later."""
        for _second in range(20):
            asked = self.asked()
            time.sleep(1)
            if self.asked() == asked:
                return asked
        raise Failed("the node does not stop to ask gfmd")


# What is late has come by then.
REST_SECONDS = 0.5
# The longest part of 256 fragments of 512 bytes, as one read with O_DIRECT; and how often a file is read until nothing
# comes too late, which the machine may be too busy for.
PART_BYTES, ROUNDS = 256 * 512, 6
# What a node is told, and what the other one has said: kinds of answers, of which the first ones are the last of a
# request.
LAST = {"told_data": ("said_data",), "told_node": ("said_node",), "told_fetch": ("said_fetch",),
        "told_miss": ("said_miss",), "told_busy": ("said_busy",),
        "told_refused": ("said_invalid", "said_fragment", "said_leaving")}
ANSWERS = LAST | {"told_wait": ("said_wait",)}


def _is_wrong(asks: dict[str, int], gives: dict[str, int], size: int) -> list[str]:
    """What no busy machine explains about the counts of a node that has read a file of this size, and of the one that
    it has asked: what comes too late, or not at all, is counted by who sends it, and nothing is counted twice."""
    last = sum(asks[told] for told in LAST)
    said = {told: sum(gives[name] for name in names) for told, names in ANSWERS.items()}
    unsaid = gives["requests"] - sum(said[told] for told in LAST)
    first = asks["asked"] - asks["asked_again"]
    checks = {
        "bytes are the file's": asks["peer_bytes"] + asks["gfsd_bytes"] == size,
        "pages are those of the bytes": asks["peer_pages"] * 4096 >= asks["peer_bytes"],
        "pages were announced": asks["peer_pages"] <= asks["told_pages"] <= gives["said_pages"],
        "bytes are those of pages": gives["said_bytes"] == gives["said_pages"] * 4096,
        "requests were sent": gives["requests"] <= asks["asked"],
        "each request has one last answer": 0 <= unsaid <= gives["dropped_memory"] and last <= asks["asked"],
        "answers were sent": all(asks[told] <= said[told] for told in ANSWERS),
        "late answers are those that were not waited for": sum(asks[told] for told in ANSWERS) + asks["told_late"]
                                                           <= sum(said.values()),
        "each read has one first request": first <= asks["reads"],
    }
    return [what for what, is_so in checks.items() if not is_so]


def _is_late(asks: dict[str, int], gives: dict[str, int]) -> list[str]:
    """What is so where nothing was late and nothing lost."""
    answers = sum(asks[told] for told in LAST)
    checks = {
        "nothing is late": not asks["timeouts"] and not asks["told_late"] and not asks["not_asked"],
        "each request has come": gives["requests"] == asks["asked"],
        "each request was answered": answers == asks["asked"],
        "each answer has come": all(asks[told] == sum(gives[name] for name in names)
                                    for told, names in ANSWERS.items()),
        "each page has come": asks["peer_pages"] == asks["told_pages"] == gives["said_pages"],
    }
    return [what for what, is_so in checks.items() if not is_so]


def _read_parts(one: gfarm_node.Node, two: gfarm_node.Node, size: int) -> list[str]:
    """The second node reads a file that the first one has, in parts that are one request for pages each: what is not
    counted as if nothing was late."""
    time.sleep(REST_SECONDS)
    for node in one, two:
        node.machine.write(f"{node.folder}/ibstat", "0")
    before = two.stats()["gfsd_bytes"]
    parts = -(-size // PART_BYTES)
    # Not at the end of the file once more, where dd would ask again whether it is there.
    two.machine.run(f"dd if={two.at}/counted of=/dev/null iflag=direct bs={PART_BYTES} count={parts} status=none", 60)
    time.sleep(REST_SECONDS)
    gives, asks = one.ibstat(), two.ibstat()
    wrong = _is_wrong(asks, gives, size)
    if asks["reads"] + asks["not_asked"] != parts:
        wrong.append(f"{parts} parts are read")
    if asks["gfsd_bytes"] != two.stats()["gfsd_bytes"] - before:
        wrong.append("bytes of file servers")
    ok(not wrong, f"not so: {wrong}; {asks}, {gives}")
    return _is_late(asks, gives)


@needs(machines=1, timeout=240)
def test_counts_are_what_was_read(vm: Lab) -> None:
    """One node reads a file, and another one the same: each byte, request and answer is counted once, and both sides
    count the same."""
    servers = gfarm_mount.start(vm)
    size = 3_000_001
    wanted = put_random(servers, "counted", size, "fs1")
    with gfarm_node.node(servers) as one, gfarm_node.node(servers, "ib_mtu=512,ib_num_srpc=1", at=AT + "2") as two:
        two.add(one.address)
        until(lambda: "alive" in one.peers().values() and "alive" in two.peers().values(), 20, "both know each other")
        eq(one.sha256("counted"), wanted, "the first node")
        counts = one.ibstat()
        eq((counts["peer_bytes"], counts["gfsd_bytes"], one.stats()["gfsd_bytes"]), (0, size, size), "from servers")
        questions = Questions(one)
        asked = questions.at_rest()
        eq(asked["gfmd_close"], asked["gfmd_open"], "files that were closed and opened at gfmd")
        eq(two.sha256("counted"), wanted, "the second node")
        eq(questions.asked(), asked, "requests to gfmd of the node that gives pages")
        first, second = one.ibstat(), two.ibstat()
        eq(_is_wrong(second, first, size), [], f"{second}, {first}")
        eq(second["gfsd_bytes"], two.stats()["gfsd_bytes"], "from file servers")
        in_time(second["peer_bytes"] > 0, f"no bytes from the other node: {second}")
        rounds = [late for _round in range(ROUNDS) if (late := _read_parts(one, two, size))]
        ok(len(rounds) < ROUNDS, f"in none of {ROUNDS} reads: {rounds}")
        for mount in one, two:
            ok(set(mount.dropped()) <= {"unasked"}, f"dropped: {mount.dropped()}")
