# SPDX-License-Identifier: GPL-2.0
"""The test device: an RDMA device in memory, under the same modules and the same checks."""
from __future__ import annotations

from collections.abc import Callable

from vmlab import rnbd
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

# What adapters have room for, by the constants of their drivers in the kernel (drivers/infiniband/hw).
ADAPTERS = {
    # irdma: I40IW_MAX_WQ_FRAGMENT_COUNT
    "three_segments": "max_sge=3 max_fast_reg_page_list_len=512",
    # bnxt_re: BNXT_STATIC_MAX_SGE, MAX_PBL_LVL_1_PGS
    "six_segments": "max_sge=6 max_fast_reg_page_list_len=512",
    # irdma: IRDMA_MAX_WQ_FRAGMENT_COUNT; bnxt_re: BNXT_VAR_MAX_SGE
    "thirteen_segments": "max_sge=13 max_qp_rd_atom=1",
}


def _plug_in(vm: Lab, parameters: str = "") -> None:
    """Puts the test device in the place of rxe0."""
    vm.server.run("rdma link delete rxe0")
    vm.defer(vm.server.run, "mods -r && rdma link add rxe0 type rxe netdev eth0")
    vm.server.run(f"mods ours rdma_test_device {parameters}")


def _holds_what_was_written(vm: Lab) -> None:
    rnbd.start(vm)
    disk = rnbd.map_disk(vm)
    disk.fio("--rw=randwrite --bsrange=4k-512k --iodepth=16 --size=8m --verify=crc32c --verify_fatal=1").clean()
    there = vm.server.run("dd if=/dev/ram0 bs=1M iflag=direct status=none | md5sum").split()[0]
    eq(disk.checksum(), there, "what the disk holds, at both ends")
    disk.unmap()


@needs(machines=1, own_modules=True)
def test_the_selftest_of_rdma_passes_on_it(vm: Lab) -> None:
    """Queue pairs connect, carry messages, flush and drain as on rxe."""
    _plug_in(vm)
    mark = vm.server.log_mark()
    vm.server.run("mods ours rdma_test")
    bad = [line for line in vm.server.log_matches(r"rdma_test: ", mark) if not line.endswith(": ok")]
    eq(bad, [], "lines that are not ok")


@needs(machines=1, own_modules=True)
def test_a_disk_over_it_holds_what_was_written(vm: Lab) -> None:
    """Small and large requests arrive, in each direction, on a device that is both ends."""
    _plug_in(vm)
    _holds_what_was_written(vm)


def _on(parameters: str) -> Callable[[Lab], None]:
    @needs(machines=1, own_modules=True)
    def test(vm: Lab) -> None:
        """The modules keep to the limits of the device."""
        _plug_in(vm, parameters)
        _holds_what_was_written(vm)
    return test


for _name, _parameters in ADAPTERS.items():
    globals()[f"test_a_disk_on_{_name}"] = _on(_parameters)


@needs(machines=1, own_modules=True)
def test_it_can_be_unplugged_under_load(vm: Lab) -> None:
    """The modules above it close what they have there, and the module unloads."""
    _plug_in(vm)
    rnbd.start(vm)
    disk = rnbd.map_disk(vm)
    load = disk.fio("--rw=randrw --bs=4k --iodepth=16 --size=32m --time_based --runtime=60")
    until(lambda: disk.requests > 200, 20, "the load runs")
    vm.server.run("rmmod rdma_test_device")
    disk.unmap("force")
    ok(load.wait(30).code, "IO went on without a device")
