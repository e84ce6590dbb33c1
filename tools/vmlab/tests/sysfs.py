# SPDX-License-Identifier: GPL-2.0
"""The sysfs interface: names, modes and texts, which user-space tools read. All on one machine."""
from __future__ import annotations

from vmlab import rnbd
from vmlab.checks import eq, ge, matches, ok, until
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs

SMP = 2

PATH = "ip:10.0.0.1@ip:10.0.0.1"
CLIENT_PATH = f"{rnbd.SESSIONS}/s1/paths/{PATH}"
SERVER_PATH = f"/sys/class/rtrs-server/s1/paths/{PATH}"
USER_BYTES = 32         # an RNBD message travels with each request, and the client counts it
SERVER_DISK = "/sys/class/rnbd-server/ctl/devices/ram0"

# File: mode and a pattern that its whole text matches.
CLIENT_FILES = {
    "/sys/class/rnbd-client/ctl/map_device": (
        "644", r'Usage: echo "\[dest_port=server port number\] sessname=<name of the rtrs session> '
               r'path=<\[srcaddr@\]dstaddr> \[path=<\[srcaddr@\]dstaddr>\] device_path=<full path on remote side> '
               r'\[access_mode=<ro\|rw\|migration>\] \[nr_poll_queues=<number of queues>\]" > map_device\n\n'
               r'addr ::= \[ ip:<ipv4> \| ip:<ipv6> \| gid:<gid> \]'),
    "/sys/block/rnbd0/rnbd/unmap_device": ("644", r"Usage: echo <normal\|force> > unmap_device"),
    "/sys/block/rnbd0/rnbd/resize": ("644", r"Usage: echo <new size in sectors> > resize"),
    "/sys/block/rnbd0/rnbd/remap_device": ("644", r"Usage: echo <1> > remap_device"),
    "/sys/block/rnbd0/rnbd/state": ("444", "open"),
    "/sys/block/rnbd0/rnbd/session": ("444", "s1"),
    "/sys/block/rnbd0/rnbd/mapping_path": ("444", "ram0"),
    "/sys/block/rnbd0/rnbd/access_mode": ("444", "rw"),
    "/sys/block/rnbd0/rnbd/nr_poll_queues": ("444", "0"),
    f"{rnbd.SESSIONS}/s1/max_reconnect_attempts": ("644", "-1"),
    f"{rnbd.SESSIONS}/s1/mpath_policy": ("644", r"min-inflight \(MI: 1\)"),
    f"{rnbd.SESSIONS}/s1/add_path": (
        "644", r"Usage: echo \[<source addr>@\]<destination addr> > add_path\n\n"
               r"\*addr ::= \[ ip:<ipv4\|ipv6> \| gid:<gid> \]"),
    f"{CLIENT_PATH}/state": ("444", "connected"),
    f"{CLIENT_PATH}/hca_name": ("444", "rxe0"),
    f"{CLIENT_PATH}/hca_port": ("444", "1"),
    f"{CLIENT_PATH}/src_addr": ("444", "ip:10.0.0.1"),
    f"{CLIENT_PATH}/dst_addr": ("444", "ip:10.0.0.1"),
    f"{CLIENT_PATH}/cur_latency": ("444", r"\d+ ns"),
    f"{CLIENT_PATH}/reconnect": ("644", "Usage: echo 1 > reconnect"),
    f"{CLIENT_PATH}/disconnect": ("644", "Usage: echo 1 > disconnect"),
    f"{CLIENT_PATH}/remove_path": ("644", "Usage: echo 1 > remove_path"),
    f"{CLIENT_PATH}/stats/cpu_migration_from": ("644", r"(\d+ ){2}"),
    f"{CLIENT_PATH}/stats/cpu_migration_to": ("644", r"(\d+ ){2}"),
    f"{CLIENT_PATH}/stats/reconnects": ("644", "0 0"),
    f"{CLIENT_PATH}/stats/rdma": ("644", r"\d+ \d+ \d+ \d+ \d+ \d+"),
    f"{CLIENT_PATH}/stats/reset_all": ("644", "echo 1 to reset all statistics"),
}
SERVER_FILES = {
    f"{SERVER_PATH}/hca_name": ("444", "rxe0"),
    f"{SERVER_PATH}/hca_port": ("444", "1"),
    f"{SERVER_PATH}/src_addr": ("444", "ip:10.0.0.1"),
    f"{SERVER_PATH}/dst_addr": ("444", "ip:10.0.0.1"),
    f"{SERVER_PATH}/disconnect": ("644", "Usage: echo 1 > disconnect"),
    f"{SERVER_PATH}/stats/rdma": ("644", r"\d+ \d+ \d+ \d+"),
    f"{SERVER_DISK}/sessions/s1/read_only": ("444", "0"),
    f"{SERVER_DISK}/sessions/s1/access_mode": ("444", "rw"),
    f"{SERVER_DISK}/sessions/s1/mapping_path": ("444", "ram0"),
    f"{SERVER_DISK}/sessions/s1/force_close": ("644", "Usage: echo 1 > force_close"),
}
# Writes that must be refused, with their errno, while ram0 is mapped and open.
REFUSED_WRITES = (
    ("/sys/block/rnbd0/rnbd/unmap_device", "gently", "EINVAL"),
    ("/sys/block/rnbd0/rnbd/resize", "big", "EINVAL"),
    ("/sys/block/rnbd0/rnbd/remap_device", "2", "EINVAL"),
    ("/sys/block/rnbd0/rnbd/remap_device", "1", "EALREADY"),
    (f"{rnbd.SESSIONS}/s1/max_reconnect_attempts", "10000", "EINVAL"),
    (f"{rnbd.SESSIONS}/s1/max_reconnect_attempts", "-2", "EINVAL"),
    (f"{rnbd.SESSIONS}/s1/max_reconnect_attempts", "few", "EINVAL"),
    (f"{rnbd.SESSIONS}/s1/mpath_policy", "random", "EINVAL"),
    (f"{rnbd.SESSIONS}/s1/mpath_policy", "3", "EINVAL"),
    (f"{CLIENT_PATH}/reconnect", "2", "EINVAL"),
    (f"{CLIENT_PATH}/disconnect", "yes", "EINVAL"),
    (f"{CLIENT_PATH}/remove_path", "0", "EINVAL"),
    (f"{CLIENT_PATH}/stats/reset_all", "0", "EINVAL"),
    (f"{CLIENT_PATH}/stats/rdma", "0", "EINVAL"),
    (f"{CLIENT_PATH}/stats/reconnects", "2", "EINVAL"),
    (f"{SERVER_PATH}/disconnect", "0", "EINVAL"),
    (f"{SERVER_PATH}/stats/rdma", "0", "EINVAL"),
    (f"{SERVER_DISK}/sessions/s1/force_close", "0", "EINVAL"),
)
POLICIES = {"0": "round-robin (RR: 0)", "1": "min-inflight (MI: 1)", "2": "min-latency (ML: 2)",
            "round-robin": "round-robin (RR: 0)", "rr": "round-robin (RR: 0)", "MI": "min-inflight (MI: 1)",
            "Min-Latency": "min-latency (ML: 2)", "ml\n": "min-latency (ML: 2)",
            "min-inflight\n": "min-inflight (MI: 1)"}


def compare(machine: Machine, files: dict[str, tuple[str, str]]) -> None:
    """All differences at once: a file that is missing, its mode, its text."""
    wrong = []
    modes = machine.try_run(f"stat -Lc '%a %n' {' '.join(files)} 2>/dev/null").out.splitlines()
    there = {path: mode for mode, path in (line.split(" ", 1) for line in modes)}
    for path, (mode, pattern) in files.items():
        if path not in there:
            wrong.append(f"{path} is missing")
            continue
        found = there[path]
        if found != mode:
            wrong.append(f"{path} has mode {found} instead of {mode}")
        try:
            matches(machine.read(path), rf"\A(?:{pattern})\Z", path)
        except AssertionError as why:
            wrong.append(str(why))
    if wrong:
        raise AssertionError("\n".join(wrong))


@needs(machines=1)
def test_every_file_of_the_client_is_as_in_c(vm: Lab) -> None:
    """Names, modes and texts below rnbd-client, rnbd0 and rtrs-client."""
    rnbd.start(vm, mib=8)
    rnbd.map_disk(vm)
    compare(vm.client, CLIENT_FILES)
    eq(vm.client.run("readlink -f /sys/class/rnbd-client/ctl"), "/sys/devices/virtual/rnbd-client/ctl\n")
    eq(vm.client.run(f"readlink -f {rnbd.CONTROL}/devices/ram0@s1"), "/sys/devices/virtual/block/rnbd0\n")


@needs(machines=1)
def test_every_file_of_the_server_is_as_in_c(vm: Lab) -> None:
    """Names, modes and texts below rtrs-server and rnbd-server."""
    rnbd.start(vm, mib=8)
    rnbd.map_disk(vm)
    compare(vm.server, SERVER_FILES)
    eq(vm.server.run(f"readlink -f {SERVER_DISK}/block_dev"), "/sys/devices/virtual/block/ram0\n")


@needs(machines=1)
def test_wrong_values_are_refused(vm: Lab) -> None:
    """Each with the C driver's errno, and the disk goes on."""
    rnbd.start(vm, mib=8)
    disk = rnbd.map_disk(vm)
    wrong = [f"{path} <- {text!r}: {found or 'success'} instead of {wanted}"
             for path, text, wanted in REFUSED_WRITES if (found := vm.client.write(path, text)) != wanted]
    eq(wrong, [], "writes")
    vm.client.run(f"dd if=/dev/zero of={disk.path} bs=4k count=4 oflag=direct status=none")


@needs(machines=1)
def test_what_is_refused_does_not_fill_the_log(vm: Lab) -> None:
    """A page of text is shown by its beginning, in one line: a second line in it is no line of the log."""
    rnbd.start(vm, mib=8)
    rnbd.map_disk(vm)
    mark = vm.client.log_mark()
    files = sorted({path for path, _text, _errno in REFUSED_WRITES} | {rnbd.session_file("add_path")})
    accepted = [path for path in files if vm.client.write(path, "x\nforged: " + "y" * 4000) != "EINVAL"]
    eq(accepted, [], "files that did not refuse")
    log = vm.client.log_matches("rnbd|rtrs", mark)
    ge(len(log), len(files), "lines")
    eq([line[:80] for line in log if len(line) > 250 or "\n" in line or "\\x0a" in line], [], "long or broken lines")


@needs(machines=1)
def test_session_settings_take_effect(vm: Lab) -> None:
    """The policy in all its spellings, and the number of reconnect attempts."""
    rnbd.start(vm, mib=8)
    rnbd.map_disk(vm)
    for word, text in POLICIES.items():
        eq(vm.client.write(rnbd.session_file("mpath_policy"), word), "", f"writing {word!r}")
        eq(vm.client.read(rnbd.session_file("mpath_policy")), text, f"after {word!r}")
    for count in ("0", "9999", "-1"):
        eq(vm.client.write(rnbd.session_file("max_reconnect_attempts"), count), "", f"writing {count}")
        eq(vm.client.read(rnbd.session_file("max_reconnect_attempts")), count)


@needs(machines=1)
def test_statistics_count_and_reset(vm: Lab) -> None:
    """Reads and writes with their bytes on both sides; writing 1 clears them."""
    rnbd.start(vm, mib=8)
    disk = rnbd.map_disk(vm)
    vm.client.write(f"{CLIENT_PATH}/stats/reset_all", "1")
    vm.server.write(f"{SERVER_PATH}/stats/rdma", "1")
    vm.client.run(f"dd if=/dev/zero of={disk.path} bs=64k count=4 oflag=direct status=none; "
                  f"dd if={disk.path} of=/dev/null bs=64k count=2 iflag=direct status=none")
    reads, read_bytes, writes, written, inflight, failed = map(int, vm.client.read(f"{CLIENT_PATH}/stats/rdma").split())
    eq((writes, written, inflight, failed), (4, 4 * (65536 + USER_BYTES), 0, 0),
       "writes, bytes, in flight, failed over")
    ge(reads, 2, "reads")
    ge(read_bytes, 2 * (65536 + USER_BYTES), "bytes read")
    server = list(map(int, vm.server.read(f"{SERVER_PATH}/stats/rdma").split()))
    eq(server[2], 4, "the server's writes")
    ok(server[3] in (4 * 65536, 4 * (65536 + USER_BYTES)), f"{server[3]} bytes written at the server")
    ge(server[1], 2 * 65536, "the server's bytes read")
    vm.client.write(f"{CLIENT_PATH}/stats/rdma", "1")
    eq(vm.client.read(f"{CLIENT_PATH}/stats/rdma").split()[:4], ["0"] * 4, "after the reset")


@needs(machines=1)
def test_names_with_slashes_become_exclamation_marks(vm: Lab) -> None:
    """A device path with a folder in it, with %SESSNAME% in the server's search path."""
    rnbd.ram_disk(vm, 8)
    vm.server.run("mkdir -p /dev/pool/s1/deep && cp -a /dev/ram0 /dev/pool/s1/deep/disk")
    vm.defer(vm.server.run, "rm -r /dev/pool")
    rnbd.load_server(vm, rnbd="dev_search_path=/dev/pool/%SESSNAME%")
    rnbd.load_client(vm)
    disk = rnbd.map_disk(vm, "deep//disk")
    eq(disk.attribute("mapping_path"), "deep//disk")
    eq(vm.client.names(f"{rnbd.CONTROL}/devices"), ["deep!!disk@s1"])
    eq(vm.server.names("/sys/class/rnbd-server/ctl/devices"), ["ram0"])
    eq(vm.server.read("/sys/class/rnbd-server/ctl/devices/ram0/sessions/s1/mapping_path"), "deep//disk")


@needs(machines=1)
def test_nothing_is_left_in_sysfs_after_unmap(vm: Lab) -> None:
    """The unmap of the last device of a session removes the session, on both sides."""
    rnbd.start(vm, mib=8)
    disk = rnbd.map_disk(vm)
    disk.unmap()
    for place in (rnbd.SESSIONS, f"{rnbd.CONTROL}/devices", "/sys/class/rtrs-server",
                  "/sys/class/rnbd-server/ctl/devices"):
        until(lambda place=place: vm.client.names(place) in ([], ["ctl"]), 10, f"{place} is empty")


@needs(machines=1)
def test_the_source_address_and_ipv6_can_be_named(vm: Lab) -> None:
    """src@dst, src,dst, and IPv6: each gives a path of that name."""
    rnbd.start(vm, mib=8)
    cases = {"ip:10.0.0.1@ip:10.0.0.1": PATH, "ip:10.0.0.1,ip:10.0.0.1": PATH, "ip:10.0.0.1": PATH,
             "ip:fd00::1": "ip:fd00::1@ip:fd00::1", "ip:fd00::1@ip:fd00:0:0:0::1": "ip:fd00::1@ip:fd00::1"}
    for spelled, name in cases.items():
        disk = rnbd.map_disk(vm, line=f"sessname=s1 path={spelled} device_path=ram0 access_mode=rw")
        eq(vm.client.names(f"{rnbd.SESSIONS}/s1/paths"), [name], spelled)
        disk.unmap()


@needs(machines=1)
def test_a_gid_can_be_named(vm: Lab) -> None:
    """gid: addresses are read, and refused for RoCE, where the connection manager has no route to them."""
    rnbd.start(vm, mib=8)
    gid = vm.client.run("grep -il 0000:0000:0000:0000:0000:ffff:0a00:0001 /sys/class/infiniband/rxe0/ports/1/gids/* "
                        "| head -1 | xargs cat").strip()
    ok(gid, "rxe0 has no GID for 10.0.0.1")
    line = "sessname=s1 path=gid:{} device_path=ram0 access_mode=rw"
    eq(rnbd.try_map(vm, line.format(gid)), "EHOSTUNREACH", "a GID that there is")
    eq(rnbd.try_map(vm, line.format("fe80::z")), "EINVAL", "text that is none")
