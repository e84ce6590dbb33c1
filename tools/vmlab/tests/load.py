# SPDX-License-Identifier: GPL-2.0
"""Modules: order, parameters, errors, loading and unloading many times. One machine is enough."""
from __future__ import annotations

from vmlab import rnbd, tier
from vmlab.checks import eq, ok
from vmlab.lab import Lab
from vmlab.needs import needs

DEFAULTS = {"rtrs_server": {"max_chunk_size": "131072", "sess_queue_depth": "512", "always_invalidate": "Y"},
            "rnbd_server": {"port_nr": "1234", "dev_search_path": "/"}}

# What C does not have; all of these may be changed (mode 644), see paths_server and pi.
OURS = {"rtrs_server": {"heartbeat_interval_ms", "heartbeat_missed_max", "max_memory_mib", "trace", "write_copy_max"},
        "rnbd_server": {"pi", "sidecar", "srv_verify"}}

# Parameter values that must not load, and what insmod says then.
REFUSED = (
    ("max_chunk_size=4096", "Invalid argument"),        # below 8192
    ("max_chunk_size=100000", "Invalid argument"),      # no power of two
    ("max_chunk_size=-1", "Invalid argument"),
    ("sess_queue_depth=0", "Invalid argument"),
    ("sess_queue_depth=65536", "Invalid argument"),
    ("sess_queue_depth=-5", "Invalid argument"),
    ("sess_queue_depth=65535 max_chunk_size=8192", "Invalid argument"),     # 16 + 13 bits do not fit in 28
    ("sess_queue_depth=512 max_chunk_size=1048576", "Invalid argument"),    # 9 + 20
    ("always_invalidate=maybe", "Invalid argument"),
    ("sess_queue_depth=many", "Invalid argument"),
)
ACCEPTED = (
    ("sess_queue_depth=1", "sess_queue_depth", "1"),
    ("max_chunk_size=8192", "max_chunk_size", "8192"),
    ("sess_queue_depth=256 max_chunk_size=1048576", "max_chunk_size", "1048576"),   # 8 + 20 bits just fit
    ("always_invalidate=0", "always_invalidate", "N"),
    ("always_invalidate=off", "always_invalidate", "N"),
    ("always_invalidate", "always_invalidate", "Y"),    # a bool parameter without a value
)


def parameters(lab: Lab, module: str) -> dict[str, str]:
    """The parameters that /sys/module shows."""
    lines = lab.server.run(f"cd /sys/module/{module}/parameters && grep -H . *").splitlines()
    return dict(line.split(":", 1) for line in lines)


@needs(machines=1, own_modules=True)
def test_parameters_have_the_names_and_defaults_of_c(vm: Lab) -> None:
    """Readable in /sys/module, mode 0444, but for what is new; those of C's client have none."""
    rnbd.load_server(vm, rnbd="")
    rnbd.load_client(vm)
    for module, wanted in DEFAULTS.items():
        more = OURS.get(module, set()) if vm.modules == "ours" else set()
        found = parameters(vm, module)
        eq({name for name in found if name not in wanted}, more, f"parameters of {module} that C does not have")
        eq({name: value for name, value in found.items() if name not in more}, wanted, module)
        for name in found:
            mode = vm.server.run(f"stat -c %a /sys/module/{module}/parameters/{name}").strip()
            eq(mode, "644" if name in more else "444", f"mode of {module}'s {name}")
    clients = ("rtrs_client", "rnbd_client")
    if vm.modules == "ours":
        # The lab has them record.
        eq(parameters(vm, "rnbd_client"), {"assume_cache_loss": "N", "trace": "1"}, "those of rnbd_client, C has none")
        eq(parameters(vm, "rtrs_client"), {"read_copy_max": "4096", "retry_count": "2", "trace": "1"},
       "those of rtrs_client, C has none")
    for module in ("rtrs_core", *(() if vm.modules == "ours" else clients)):
        ok(not vm.server.exists(f"/sys/module/{module}/parameters"), f"{module} has parameters")


@needs(machines=1, own_modules=True)
def test_parameters_that_are_given_are_there(vm: Lab) -> None:
    """Every accepted form takes effect, and the search path loses its newline."""
    for line, name, value in ACCEPTED:
        vm.server.run(f"mods {vm.modules} rtrs-server {line}")
        eq(parameters(vm, "rtrs_server")[name], value, line)
        vm.server.run("mods -r")
    vm.server.run(f"mods {vm.modules} rnbd-server port_nr=4321 dev_search_path=$'/dev/%SESSNAME%\\n'")
    given = {"port_nr": "4321", "dev_search_path": "/dev/%SESSNAME%"}
    eq({name: value for name, value in parameters(vm, "rnbd_server").items() if name in given}, given)


@needs(machines=1, own_modules=True)
def test_a_server_on_another_port(vm: Lab) -> None:
    """port_nr=4321: dest_port=4321 reaches it, the default port does not."""
    rnbd.ram_disk(vm, 8)
    rnbd.load_server(vm, rnbd="port_nr=4321 dev_search_path=/dev")
    rnbd.load_client(vm)
    eq(rnbd.try_map(vm, rnbd.request(vm)), "ECONNRESET", "the default port")
    disk = rnbd.map_disk(vm, line=rnbd.request(vm, before="dest_port=4321"))
    disk.fio("--rw=randwrite --bs=4k --size=64k --verify=crc32c").clean()
    disk.unmap()


@needs(machines=1, own_modules=True)
def test_wrong_parameters_do_not_load(vm: Lab) -> None:
    """Each with the C driver's errno, and no module stays loaded."""
    wrong = []
    for line, wanted in REFUSED:
        result = vm.server.try_run(f"mods {vm.modules} rtrs-server {line}")
        if not result.code or wanted not in result.out:
            wrong.append(f"{line}: code {result.code}, {result.out.strip()!r}")
        if vm.server.exists("/sys/module/rtrs_server"):
            wrong.append(f"{line}: the module stayed")
        vm.server.run("mods -r")
    eq(wrong, [], "parameters")
    long_path = vm.server.try_run(f"mods {vm.modules} rnbd-server dev_search_path=/{'x' * 4100}")
    ok(long_path.code, "a search path of 4101 characters was accepted")


@needs(machines=1, own_modules=True)
def test_a_module_whose_libraries_are_missing_does_not_load(vm: Lab) -> None:
    """insmod in the wrong order fails with the missing name, without effect."""
    base = f"/lib/modules/$(uname -r)/{vm.modules}"
    result = vm.server.try_run(f"insmod {base}/rnbd-server.ko")
    ok(result.code, "rnbd-server loaded without rtrs-server")
    eq(vm.server.run("mods -l"), "", "modules left")


@needs(machines=1, own_modules=True)
def test_a_library_in_use_does_not_unload(vm: Lab) -> None:
    """The loader counts the users of each module."""
    rnbd.load_server(vm)
    for name in ("rtrs_server", "rtrs_core"):
        ok(vm.server.try_run(f"rmmod {name}").code, f"{name} was unloaded under its users")
    vm.server.run("mods -r")


@needs(machines=1, own_modules=True, timeout=240, tier=tier.ALL)
def test_loading_and_unloading_again_and_again(vm: Lab) -> None:
    """Server and client, in and out; every fifth time with a mapped disk in between. Twenty times in make test-long,
    else five."""
    rnbd.ram_disk(vm, 8)
    for turn in range(tier.of(5, 20)):
        rnbd.load_server(vm)
        rnbd.load_client(vm)
        if turn % 5 == 4:
            rnbd.map_disk(vm).unmap()
        vm.server.run("mods -r", 60)


@needs(machines=1, own_modules=True)
def test_unloading_with_a_mapped_disk(vm: Lab) -> None:
    """The unload of the client module removes its disks; the server may be unloaded before or after."""
    for order in (("rnbd_client", "rnbd_server"), ("rnbd_server", "rnbd_client")):
        rnbd.ram_disk(vm, 8)
        rnbd.load_server(vm)
        rnbd.load_client(vm)
        disk = rnbd.map_disk(vm)
        for name in order:
            vm.server.run(f"rmmod {name}", 60)
        ok(not disk.present, "the disk stayed")
        vm.server.run("mods -r")
