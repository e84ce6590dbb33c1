# SPDX-License-Identifier: GPL-2.0
"""Which disk is behind a name: the server tells, the client compares, and sysfs shows it."""
from __future__ import annotations

from vmlab import paths, rnbd
from vmlab.assets import TOOLS
from vmlab.checks import eq, matches, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

MIB = 16
RULES = TOOLS.parent / "Documentation" / "udev" / "61-rnbd.rules"
WWID = r"naa\.3[0-9a-f]{15}"


def serve_file(lab: Lab, name: str) -> None:
    """/dev/loop0 on the server shows this file, made if it is not there."""
    closed = "ls /sys/class/rnbd-server/ctl/devices 2>/dev/null || true"
    until(lambda: not lab.server.run(closed).split(), 20, "the server has closed the device")
    lab.server.run(f"set -e; modprobe loop max_loop=2; cd /run; [ -e {name} ] || truncate -s {MIB}M {name}; "
                   f"[ ! -e /sys/block/loop0/loop ] || losetup -d /dev/loop0; losetup /dev/loop0 /run/{name}")


def start(lab: Lab) -> rnbd.Disk:
    """A disk over a loop device over the file `one`."""
    serve_file(lab, "one")
    lab.defer(lab.server.run, "mods -r; [ ! -e /sys/block/loop0/loop ] || losetup -d /dev/loop0; "
              "rm -f /run/one /run/two", 60)
    # The server soon closes the device of a client that is away.
    rnbd.load_server(lab, rtrs="heartbeat_interval_ms=500")
    rnbd.load_client(lab)
    lab.defer(lab.mend, 0)
    return rnbd.map_disk(lab, device="loop0")


def exchange(lab: Lab, disk: rnbd.Disk, name: str) -> None:
    """While the wire is cut, another file comes behind the device's name."""
    lab.cut(0)
    until(lambda: disk.attribute("state") == "closed", 20, "the client has noticed")
    serve_file(lab, name)
    lab.mend(0)


def refusals(lab: Lab, mark: int) -> list[str]:
    """The client's lines about another disk."""
    return [text for _n, text in lab.client.kernel_log(mark) if "another disk" in text]


def wwid(disk: rnbd.Disk) -> str:
    """The disk's own name in sysfs."""
    return disk.machine.read(f"/sys/block/{disk.name}/wwid")


@needs(wires=1)
def test_another_disk_under_the_old_name_is_refused(pair: Lab) -> None:
    """One line says so, nothing is written to it, IO waits; and goes on when the right one is back."""
    disk = start(pair)
    before = wwid(disk)
    disk.fio("--rw=write --bs=64k --size=4m").clean()
    mark = pair.client.log_mark()
    exchange(pair, disk, "two")
    write = pair.client.start_job(f"dd if=/dev/urandom of={disk.path} bs=64k count=1 oflag=direct status=none", 90)
    until(lambda: bool(refusals(pair, mark)), 30, "the log says why")
    paths.rest(3)
    eq(len(refusals(pair, mark)), 1, f"lines about it: {refusals(pair, mark)}")
    matches(refusals(pair, mark)[0], f"{WWID} instead of {before}")
    eq(disk.attribute("state"), "closed")
    eq(pair.client.write(f"{disk.control}/remap_device", "1"), "ESTALE")
    ok(write.running, "a write did not wait for the right disk")
    eq(pair.server.run(f"cmp -n {MIB << 20} /run/two /dev/zero && echo same").strip(), "same", "the other disk")
    exchange(pair, disk, "one")
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 30, "the disk is back")
    eq(write.wait(20).code, 0, "the write")
    eq(wwid(disk), before)
    disk.unmap()


@needs(wires=1)
def test_the_administrator_takes_another_disk(pair: Lab) -> None:
    """`force` in remap_device goes on with the disk that has the name now: its size, its content, its identity."""
    disk = start(pair)
    before = wwid(disk)
    mark = pair.client.log_mark()
    pair.server.run(f"truncate -s {2 * MIB}M /run/two")
    exchange(pair, disk, "two")
    write = pair.client.start_job(f"dd if=/dev/zero bs=64k count=1 status=none | tr '\\0' x | "
                                  f"dd of={disk.path} bs=64k oflag=direct status=none", 90)
    until(lambda: bool(refusals(pair, mark)), 30, "the log says why")
    eq(pair.client.write(f"{disk.control}/remap_device", "forced"), "EINVAL")
    eq(pair.client.write(f"{disk.control}/remap_device", "force"), "")
    eq(write.wait(20).code, 0, "the write")
    eq(disk.attribute("state"), "open")
    eq(disk.sectors, 2 * MIB << 11)
    matches(wwid(disk), WWID)
    ok(wwid(disk) != before, f"the identity is still {before}")
    eq(pair.client.write(f"{disk.control}/remap_device", "force"), "EALREADY")
    disk.unmap()
    eq(pair.server.run("head -c 3 /run/two"), "xxx")


@needs(wires=1, own_modules=True)
def test_a_disk_is_the_same_after_a_restart_of_the_server(pair: Lab) -> None:
    """Modules that are loaded anew tell the same identities; two disks have two, and so has a partition."""
    rnbd.ram_disk(pair, count=2)
    pair.server.run("printf '2048,8192\\n' | sfdisk -q --no-reread /dev/vda; blockdev --rereadpt /dev/vda || true; "
                    "[ -e /dev/vda1 ]")
    pair.defer(pair.server.run, "wipefs -qa /dev/vda; blockdev --rereadpt /dev/vda || true")
    names = ("ram0", "ram1", "vda", "vda1")
    seen = []
    for _load in range(2):
        rnbd.load_server(pair)
        rnbd.load_client(pair)
        disks = [rnbd.map_disk(pair, device=name, options="access_mode=ro") for name in names]
        found = [wwid(disk) for disk in disks]
        for text in found:
            matches(text, WWID)
        eq(len(set(found)), len(names), f"identities: {found}")
        seen.append(found)
        for disk in disks:
            disk.unmap()
        rnbd.unload(pair, pair.client)
        rnbd.unload(pair, pair.server)
    eq(seen[0], seen[1])


@needs(wires=1)
def test_udev_has_a_name_by_the_identity(pair: Lab) -> None:
    """The rules of the documentation make /dev/disk/by-id/rnbd-naa.3..."""
    disk = start(pair)
    pair.client.run("mkdir -p /run/udev/rules.d")
    pair.client.push(RULES, f"/run/udev/rules.d/{RULES.name}")
    said = pair.client.run(f"udevadm test --action=add /sys/block/{disk.name} 2>&1 || true", 60)
    ok(f"disk/by-id/rnbd-{wwid(disk)}" in said, said[-1500:])
    disk.unmap()
