# SPDX-License-Identifier: GPL-2.0
"""The disk behind a name: the server tells which it is, the client compares, and sysfs shows it."""
from __future__ import annotations

from vmlab import paths, rnbd, tier
from vmlab.assets import TOOLS
from vmlab.checks import eq, matches, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests.pi_store import TOOL, bring_tool

MIB = 16
RULES = TOOLS.parent / "Documentation" / "udev" / "61-rnbd.rules"
SIDECAR_RULES = RULES.with_name("64-pi-sidecar.rules")
EXPORTS = "/sys/class/rnbd-server/ctl/devices"
WWID = r"naa\.3[0-9a-f]{15}"


def serve_file(lab: Lab, name: str) -> None:
    """/dev/loop0 on the server shows this file, made if it is not there."""
    lab.server.run(f"set -e; modprobe loop max_loop=2; cd /run; [ -e {name} ] || truncate -s {MIB}M {name}; "
                   f"[ ! -e /sys/block/loop0/loop ] || losetup -d /dev/loop0; losetup /dev/loop0 /run/{name}")


def start(lab: Lab) -> rnbd.Disk:
    """A disk over a loop device over the file `one`."""
    serve_file(lab, "one")
    lab.defer(lab.server.run, "mods -r; [ ! -e /sys/block/loop0/loop ] || losetup -d /dev/loop0; "
              "rm -f /run/one /run/two /run/kept", 60)
    # The server soon closes the device of a client that is away.
    rnbd.load_server(lab, rtrs="heartbeat_interval_ms=500")
    rnbd.load_client(lab)
    lab.defer(lab.mend, 0)
    return rnbd.map_disk(lab, device="loop0")


def away(lab: Lab, disk: rnbd.Disk) -> None:
    """Cuts the wire until both sides have noticed."""
    lab.cut(0)
    until(lambda: disk.attribute("state") == "closed", 20, "the client has noticed")
    closed = "ls /sys/class/rnbd-server/ctl/devices 2>/dev/null || true"
    until(lambda: not lab.server.run(closed).split(), 20, "the server has closed the device")


def exchange(lab: Lab, disk: rnbd.Disk, name: str) -> None:
    """While the wire is cut, another file comes behind the device's name."""
    away(lab, disk)
    serve_file(lab, name)
    lab.mend(0)


def refused(lab: Lab, disk: rnbd.Disk, mark: int, why: str) -> None:
    """The disk is not opened again, and one line says why."""
    paths.back_seconds(lab, lambda: bool(lab.client.log_matches(why, mark)), 30, f"the log says: {why}")
    eq(lab.client.write(f"{disk.control}/remap_device", "1"), "ESTALE")
    eq(disk.attribute("state"), "closed")


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
    paths.back_seconds(pair, lambda: bool(refusals(pair, mark)), 30, "the log says why")
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
    """`force` in remap_device goes on with the disk that has the name now, also with a smaller one: its size, its
    content, its identity."""
    disk = start(pair)
    before = wwid(disk)
    mark = pair.client.log_mark()
    pair.server.run(f"truncate -s {2 * MIB}M /run/two")
    exchange(pair, disk, "two")
    write = pair.client.start_job(f"dd if=/dev/zero bs=64k count=1 status=none | tr '\\0' x | "
                                  f"dd of={disk.path} bs=64k oflag=direct status=none", 90)
    paths.back_seconds(pair, lambda: bool(refusals(pair, mark)), 30, "the log says why")
    eq(pair.client.write(f"{disk.control}/remap_device", "forced"), "EINVAL")
    eq(pair.client.write(f"{disk.control}/remap_device", "force"), "")
    eq(write.wait(20).code, 0, "the write")
    eq(disk.attribute("state"), "open")
    eq(disk.sectors, 2 * MIB << 11)
    matches(wwid(disk), WWID)
    ok(wwid(disk) != before, f"the identity is still {before}")
    eq(pair.client.write(f"{disk.control}/remap_device", "force"), "EALREADY")
    mark = pair.client.log_mark()
    away(pair, disk)
    pair.server.run(f"losetup -d /dev/loop0; truncate -s {MIB}M /run/two")
    serve_file(pair, "two")
    pair.mend(0)
    refused(pair, disk, mark, f"a smaller disk under this name, {MIB << 11} sectors instead of {2 * MIB << 11}")
    eq(pair.client.write(f"{disk.control}/remap_device", "force"), "")
    eq(disk.sectors, MIB << 11)
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


@needs(machines=1, disruptive=True, tier=tier.ALL)
def test_udev_knows_a_device_with_a_sidecar(lab: Lab) -> None:
    """The rules of the documentation name it; not any more when something else was written over it."""
    vm = lab.server
    bring_tool(vm)
    vm.run(f"mkdir -p /run/udev/rules.d /usr/local/sbin; ln -sf {TOOL} /usr/local/sbin/pi-sidecar; modprobe loop; "
           "truncate -s 16M /run/udev.img; losetup /dev/loop6 /run/udev.img")
    vm.push(SIDECAR_RULES, f"/run/udev/rules.d/{SIDECAR_RULES.name}")
    udevd = vm.start_job("exec /usr/lib/systemd/systemd-udevd", 120)
    lab.defer(udevd.kill)
    until(lambda: vm.exists("/run/udev/control"), 20, "udevd listens")
    for make, found in ((f"{TOOL} format --force", "pi_sidecar"), ("mkswap -f", "swap")):
        vm.run(f"{make} /dev/loop6; udevadm trigger --settle --action=change /sys/block/loop6")
        eq(vm.run("udevadm info --query=property --property=ID_FS_TYPE --value /dev/loop6").strip(), found)


# another_disk_under_the_old_name_is_refused shows the rule in each run; what is another disk, proto.
@needs(wires=1, timed=True, own_modules=True, tier=tier.ALL)
def test_a_disk_with_a_sidecar_is_another_than_without(pair: Lab) -> None:
    """A superblock that something has written over, a format, a C server: the disk is not opened again, and nothing
    is written to a place that is another one now. It comes back with its sidecar."""
    serve_file(pair, "one")
    bring_tool(pair.server)
    pair.server.run(f"{TOOL} format --force /dev/loop0")
    disk = start(pair)
    until(lambda: bool(pair.server.log_matches("and that of its sidecar")), 5, "the server's log says what counts")
    before = wwid(disk)
    pair.client.run(f"head -c 65536 /dev/urandom > /run/area; dd if=/run/area of={disk.path} bs=64k oflag=direct "
                    "status=none")
    mark = pair.client.log_mark()
    away(pair, disk)
    pair.server.run("head -c 4096 /run/one > /run/block0; head -c 4096 /dev/zero | "
                    "dd of=/dev/loop0 bs=4096 oflag=direct status=none; md5sum < /run/one > /run/sum")
    pair.mend(0)
    write = pair.client.start_job(f"dd if=/run/area of={disk.path} bs=64k seek=1 oflag=direct status=none", 90)
    refused(pair, disk, mark, f"another disk under this name, {WWID} instead of {before}")
    ok(write.running, "a write did not wait for the sidecar")
    pair.server.run("md5sum < /run/one | cmp - /run/sum; "
                    "dd if=/run/block0 of=/dev/loop0 bs=4096 oflag=direct status=none")
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 30, "the disk is back")
    eq(write.wait(20).code, 0, "the write")
    pair.client.run("cat /run/area /run/area > /run/twice; "
                    f"dd if={disk.path} bs=64k count=2 iflag=direct status=none | cmp - /run/twice")
    mark = pair.client.log_mark()
    away(pair, disk)
    pair.server.run(f"cp /run/one /run/kept; {TOOL} format --force /dev/loop0")
    pair.mend(0)
    refused(pair, disk, mark, f"another disk under this name, {WWID} instead of {before}")
    mark = pair.client.log_mark()
    rnbd.unload(pair, pair.server)
    pair.server.run("dd if=/run/kept of=/dev/loop0 bs=1M oflag=direct status=none; rm /run/kept; md5sum < /run/one > "
                    "/run/sum")
    rnbd.load_server(pair, "c")
    refused(pair, disk, mark, f"does not tell which disk it has under this name.*it was {before}")
    rnbd.unload(pair, pair.server)
    pair.server.run("md5sum < /run/one | cmp - /run/sum")
    rnbd.load_server(pair)
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 40, "the disk is back")
    eq(wwid(disk), before)
    pair.client.run(f"dd if={disk.path} bs=64k count=2 iflag=direct status=none | cmp - /run/twice")
    disk.unmap()


def plug_in(lab: Lab, *others: str) -> str:
    """The SCSI disk that is there besides the others."""
    lab.server.run("for host in /sys/class/scsi_host/host*; do echo '- - -' > $host/scan; done")

    def there() -> list[str]:
        return [name for name in lab.server.names("/sys/block") if name.startswith("sd") and name not in others]

    # The kernel makes it after the scan has ended.
    until(there, 20, f"a SCSI disk besides {others}")
    name, = there()
    until(lambda: lab.server.exists(f"/dev/{name}"), 20, "udev has made its file")
    return name


def pull_out(lab: Lab, name: str) -> None:
    """Removes it, as a cable that is pulled does; then nothing of the server has it open."""
    lab.server.run(f"echo 1 > /sys/block/{name}/device/delete")
    until(lambda: not lab.server.exists(f"{EXPORTS}/{name}"), 5, "the server has closed it")
    until(lambda: lab.server.read("/sys/module/sd_mod/refcnt") == "0", 5, "the server has let go of it")


@needs()
def test_a_disk_that_is_removed_is_opened_again_when_it_is_back(pair: Lab) -> None:
    """Under load: IO fails soon, and goes on after remap_device. Without: remap_device alone finds out. Another disk
    under the old name is refused."""
    server, client = pair.server, pair.client
    server.run("modprobe sd_mod; modprobe scsi_debug dev_size_mb=16 delay=0 add_host=2 per_host_store=1", 60)
    pair.defer(rnbd.remove_module, server, "scsi_debug")
    pair.defer(server.run, "mods -r; rm -f /dev/mine", 60)
    until(lambda: server.exists("/dev/sda") and server.exists("/dev/sdb"), 20, "the SCSI disks appear")
    server.run("ln -s sda /dev/mine")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, "mine")
    before, remap = wwid(disk), f"{disk.control}/remap_device"
    client.run(f"head -c 4M /dev/urandom > /run/piece; dd if=/run/piece of={disk.path} bs=1M oflag=direct status=none")
    marks = server.log_mark(), client.log_mark()
    fio = disk.fio("--rw=randrw --bs=4k --iodepth=8 --offset=8m --size=4m --time_based --runtime=60")
    paths.wait_busy(disk)
    pull_out(pair, "sda")
    ok(fio.wait(10).code, "IO to a disk that is gone succeeds")
    ok(client.try_run(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct", 10).code, "a read passed")
    eq(disk.attribute("state"), "closed")
    eq(len(server.log_matches("the disk of device 'mine' is gone", marks[0])), 1, "lines of the server")
    eq(len(client.log_matches(r"the server has closed it, .*\(remap_device\)", marks[1])), 1, "lines of the client")
    eq(client.write(remap, "1"), "ENOENT")
    server.run("ln -sf sdb /dev/mine")
    eq(client.write(remap, "1"), "ESTALE")
    ok(client.try_run(f"dd if=/run/piece of={disk.path} bs=4k count=1 oflag=direct").code, "a write passed")
    server.run("cmp -n 16777216 /dev/sdb /dev/zero")
    for _ in range(2):
        now = plug_in(pair, "sdb")
        server.run(f"ln -sf {now} /dev/mine")
        eq(client.write(remap, "1"), "")
        eq((disk.attribute("state"), wwid(disk)), ("open", before))
        eq(client.write(remap, "1"), "EALREADY")
        client.run(f"dd if={disk.path} bs=1M count=4 iflag=direct status=none | cmp - /run/piece")
        pull_out(pair, now)
    disk.unmap()
