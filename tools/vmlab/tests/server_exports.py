# SPDX-License-Identifier: GPL-2.0
"""Devices of the server: which are rejected, how they are fenced, and the log lines."""
from __future__ import annotations

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ge, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests.administration import EXPORTS
from vmlab.tests.hostile import PATIENT, bring_peer

TIER = tier.ALL

FILES = ("scripted_peer.py", "messages.py", "client.py", "exports.py")
# LOG_LIMIT of rnbd/server/log_limit.rs.
LINES, LINES_SECONDS = 10, 5.0
TURNS = 12


def _play(lab: Lab, name: str) -> None:
    vm = lab.server
    rnbd.ram_disk(lab, 8, 4)
    if not vm.exists("/tmp/peer/exports.py"):
        bring_peer(vm, FILES)
    rnbd.load_server(lab, rtrs=PATIENT)
    lengths = f"OPENS={tier.of(300, 1000)} TURNS={tier.of(80, 300)}"
    done = vm.try_run(f"cd /tmp/peer && {lengths} python3 -S -m exports {name} {lab.server_address}", 120)
    eq(done.out.strip().split("\n")[-1:], ["ok"], done.out)


@needs(machines=1, timeout=200)
def test_refused_opens_do_not_fill_the_log(lab: Lab) -> None:
    """Repeated OPEN of a device that another session writes to, and of one with a damaged sidecar.

    Every one is answered, few are logged. A thousand in make test-long, else three hundred.
    """
    mark, began = lab.server.log_mark(), paths.uptime(lab.server)
    _play(lab, "refused_opens")
    lines = lab.server.log_matches("session beggar", mark)
    most = LINES * ((paths.uptime(lab.server) - began) / LINES_SECONDS + 2)
    ge(len(lines), 1, "lines about the refusals")
    ok(len(lines) <= min(most, 500), f"{len(lines)} lines about the refusals, at most {most:.0f}")


@needs(machines=1, timeout=200)
def test_force_close_closes_what_its_file_stands_for(lab: Lab) -> None:
    """force_close is written while its client closes the device and opens another under the same number."""
    _play(lab, "a_device_is_fenced_and_no_other")


@needs(machines=1, timeout=200)
def test_a_number_belongs_to_one_device(lab: Lab) -> None:
    """A client closes numbers of devices that are being opened: no OPEN fails by it, no number has two devices."""
    _play(lab, "a_number_is_closed_before_it_is_known")


@needs(machines=1, timeout=200)
def test_an_export_that_goes_does_not_block_its_successor(lab: Lab) -> None:
    """A session opens a device while the last other one closes it: the export's folder is not there twice."""
    _play(lab, "a_device_is_opened_while_its_last_user_closes_it")


@needs(wires=1, timeout=200)
def test_a_disk_that_is_no_export_any_more_is_closed(pair: Lab) -> None:
    """The module of a disk can be unloaded, and a disk be removed, as soon as no session has it open."""
    rnbd.start(pair, mib=8)
    folder, module = f"{EXPORTS}/ram0", "/sys/module/brd/refcnt"
    free = pair.server.read(module)
    look = (f"while [ ! -e {folder} ]; do sleep 0.05; done; while [ -e {folder} ]; do :; done; "
            f"read users < {module}; echo $users")
    found = []
    for _ in range(TURNS):
        watch = pair.server.start_job(look, 60)
        disk = rnbd.map_disk(pair)
        until(lambda: pair.server.exists(folder), 10, "the disk is an export")
        pair.server.run("sleep 0.2")
        disk.unmap()
        found.append(watch.ok(30).strip())
    eq(found, [free] * TURNS, "users of the disk's module")


@needs(machines=1)
def test_an_open_in_another_mode_is_not_the_old_one(lab: Lab) -> None:
    """A client whose CLOSE was lost opens the device in another access mode: it may write, or may not any more."""
    _play(lab, "a_device_is_opened_anew_in_another_mode")


@needs(machines=1)
def test_blocks_that_the_protocol_cannot_name_are_refused(lab: Lab) -> None:
    """A disk with logical blocks of 64 KiB is not announced as one with 32; one with 4 KiB blocks is mapped."""
    vm = lab.server
    rnbd.start(lab, mib=8, count=2)
    lab.defer(vm.try_run, "mods -r; losetup -D", 60)
    vm.run("modprobe loop; losetup -b 65536 /dev/loop0 /dev/ram0; losetup -b 4096 /dev/loop1 /dev/ram1")
    eq(vm.read("/sys/block/loop0/queue/logical_block_size"), "65536")
    mark = vm.log_mark()
    eq(rnbd.try_map(lab, rnbd.request(lab, "loop0")), "EINVAL")
    ok(vm.log_matches("rnbd_server.*65536", mark), "the server's log does not say why")
    disk = rnbd.map_disk(lab, "loop1")
    eq(disk.queue("logical_block_size"), "4096")
    disk.unmap()


@needs(machines=1, own_modules=True)
def test_the_log_says_where_the_server_is_and_what_it_exports(lab: Lab) -> None:
    """One line with port and search path; a folder that is not there is warned about, port 0 refused."""
    vm = lab.server
    cases = (("", "port 1234, dev_search_path '/'", ""),
             ("port_nr=4321 dev_search_path=/dev", "port 4321, dev_search_path '/dev'", ""),
             ("dev_search_path=/dev/%SESSNAME%", "dev_search_path '/dev/%SESSNAME%'", ""),
             ("dev_search_path=", "dev_search_path ''", ""),
             ("dev_search_path=/nowhere/at/all", "dev_search_path '/nowhere/at/all'", "'/nowhere/at/all' is not there"))
    for parameters, line, warning in cases:
        mark = vm.log_mark()
        vm.run(f"mods {lab.modules} rtrs-server && mods {lab.modules} rnbd-server {parameters}", 60)
        log = [text for _n, text in vm.kernel_log(mark) if "rnbd_server" in text]
        ok(any(line in text for text in log), f"{parameters!r}: no line with {line!r} in {log}")
        warnings = [text for text in log if "is not there" in text]
        eq(len(warnings), 1 if warning else 0, f"{parameters!r}: warnings in {log}")
        ok(not warning or warning in warnings[0], f"{parameters!r}: {warnings}")
        vm.run("mods -r", 60)
    vm.run(f"mods {lab.modules} rtrs-server")
    mark = vm.log_mark()
    ok(vm.try_run(f"mods {lab.modules} rnbd-server port_nr=0").code, "loaded with port_nr=0")
    ok(vm.log_matches("rnbd_server.*port_nr", mark), "the log does not say why it was not loaded")
