# SPDX-License-Identifier: GPL-2.0
"""The lab itself: if these fail, the results of all other tests mean nothing.

    client ══ wire 0 ══ server
           ══ wire 1 ══
"""
from __future__ import annotations

import tempfile
from pathlib import Path

from vmlab import oracle, tier
from vmlab.channel import MachineGone
from vmlab.checks import Skip, eq, ok, raises, until
from vmlab.lab import Lab
from vmlab.machine import LAST_WORDS_LINES, Hardware, Machine, is_patching_oops
from vmlab.needs import needs

SMP = 2
TIER = tier.ALL

HOLD_A_CONTEXT = """
import ctypes, time
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.restype = ctypes.c_void_p
verbs.ibv_alloc_pd.argtypes = [ctypes.c_void_p]
context = verbs.ibv_open_device(ctypes.c_void_p(verbs.ibv_get_device_list(None)[0]))
assert context and verbs.ibv_alloc_pd(context)
time.sleep(600)
"""


@needs(wires=2)
def test_both_wires_carry(pair: Lab) -> None:
    """Each wire joins the two machines, in both address families and with jumbo frames."""
    for wire in range(2):
        for family in (4, 6):
            pair.client.run(f"ping -c 1 -W 10 {pair.address(pair.server, wire, family)}")
        pair.client.run(f"ping -c 1 -W 10 -s 8900 {pair.address(pair.server, wire)}")


@needs(wires=2)
def test_a_cut_wire_is_silent_and_the_other_carries(pair: Lab) -> None:
    """A cut affects one wire only, and mending restores it."""
    pair.cut(0)
    pair.defer(pair.mend, 0)
    ok(pair.client.try_run("ping -c 1 -W 1 10.0.0.2").code, "a ping crossed the cut wire")
    pair.client.run("ping -c 1 -W 10 10.0.1.2")
    pair.mend(0)
    until(lambda: pair.client.try_run("ping -c 1 -W 2 10.0.0.2").code == 0, 30, "the wire carries again")


@needs(wires=2)
def test_verbs_are_there(pair: Lab) -> None:
    """Every wire has an RDMA device, active, with an RDMA MTU of 4096."""
    for machine in pair.machines:
        eq(machine.run("rdma link").count("state ACTIVE"), 2, f"active links on {machine.name}")
        machine.run("modprobe ib_uverbs")
        eq(machine.run("ibv_devinfo").count("active_mtu:\t\t4096"), 2, f"large MTUs on {machine.name}")


@needs(wires=2)
def test_the_agent_survives_a_large_answer(pair: Lab) -> None:
    """Megabytes come back whole."""
    lines = pair.server.run("seq 1 200000").splitlines()
    eq((len(lines), lines[-1]), (200000, "200000"))


@needs(wires=2)
def test_the_agent_survives_a_command_that_hangs(pair: Lab) -> None:
    """A task in an uninterruptible wait times out, and other commands run meanwhile."""
    vm = pair.client
    vm.run("modprobe dm_mod; modprobe brd rd_nr=1 rd_size=4096; "
           "dmsetup create stuck --table '0 8192 linear /dev/ram0 0'")
    pair.defer(vm.run, "dmsetup resume stuck; for i in 1 2 3 4 5; do sleep 0.5; dmsetup remove stuck && break; done; "
                       "rmmod brd")
    vm.run("dmsetup suspend stuck")
    job = vm.start_job("dd if=/dev/dm-0 of=/dev/null bs=4k count=1 iflag=direct", timeout=2)
    eq(vm.run("echo still here"), "still here\n")
    ok(vm.kernel_log(), "the kernel log can be read beside the hung command")
    eq(job.wait(30).code, 124, "code of a command that ran out of time")


@needs(wires=2)
def test_commands_run_side_by_side_and_can_be_killed(pair: Lab) -> None:
    """Jobs do not wait for each other; a kill includes the children, also those in their own session."""
    jobs = [pair.client.start_job("setsid sleep 300 & sleep 300 & sleep 300; true") for _ in range(3)]
    eq(pair.client.run("echo free"), "free\n")
    for job in jobs:
        job.kill()
        eq(job.wait(20).code, -9, "code of a killed command")
    until(lambda: not pair.client.try_run("grep -lx sleep /proc/[0-9]*/comm").out, 10, "no sleep is left over")


@needs(wires=2)
def test_commands_are_killed_as_they_begin_and_as_they_end(pair: Lab) -> None:
    """A kill that meets the start or the end of a command neither fails nor is lost."""
    for command in ("sleep 300", "sleep 0.02", "true"):
        for _ in range(40):
            job = pair.client.start_job(command)
            job.kill()
            job.kill()
            ok(job.wait(20).code in (0, -9), "a killed command ends")


@needs(wires=2)
def test_files_travel_both_ways(pair: Lab) -> None:
    """Push and pull keep every byte."""
    data = bytes(range(256)) * 4096 + b"end"
    with tempfile.TemporaryDirectory() as folder:
        there, back = Path(folder) / "there", Path(folder) / "back"
        there.write_bytes(data)
        pair.client.push(there, "/run/travelled")
        pair.client.pull("/run/travelled", back)
        ok(back.read_bytes() == data, "the file changed on its way")


@needs(wires=2)
def test_a_refused_write_names_its_errno(pair: Lab) -> None:
    """Writing to sysfs tells which error the kernel gave."""
    eq(pair.client.write("/sys/kernel/mm/ksm/run", "7"), "EINVAL")
    eq(pair.client.write("/sys/nowhere", "1"), "ENOENT")
    eq(pair.client.write("/proc/sys/kernel/hostname", "client"), "")


@needs(wires=2, complaints=True, tier=tier.CORE)
def test_the_oracle_hears_the_kernel_complain(pair: Lab) -> None:
    """Each kind of kernel warning in the log is reported, and ordinary lines are not."""
    complaints = ("WARNING: CPU: 0 PID: 1 at fake.c:1", "BUG: fake", "Oops: 0000 [#1]", "refcount_t: underflow",
                  "Call Trace:", "INFO: task fio:12 blocked for more than 60 seconds.",
                  "rcu: INFO: rcu_preempt self-detected stall on CPU")
    vm = pair.server
    mark = vm.log_mark()
    for text in (*complaints, "rnbd_client: rnbd0 mapped", "random: crng init done"):
        vm.run(f"echo '{text}' > /dev/kmsg")
    eq(len(oracle.complaints(vm, mark)), len(complaints), "complaints heard")


@needs(wires=2, tier=tier.CORE)
def test_the_oracle_sees_what_is_left_behind(pair: Lab) -> None:
    """An RDMA object of a running process is found, and is gone after the process ended."""
    vm = pair.server
    vm.run("modprobe ib_uverbs")
    baseline = oracle.Baseline.take(vm)
    eq(baseline.leaks(), [], "leaks of an idle machine")
    job = vm.start_job(f"exec python3 -I -S -c '{HOLD_A_CONTEXT}'")
    until(lambda: oracle.resources(vm) != baseline.at_boot, 20, "the protection domain is counted")
    eq(len(baseline.leaks()), 1, "leaks while a program holds a protection domain")
    job.kill()
    job.wait(20)
    eq(baseline.leaks(), [], "leaks afterwards")


@needs(wires=2, disruptive=True)
def test_a_machine_dies_and_comes_back(pair: Lab) -> None:
    """A power failure stops one machine; its wires carry again after it booted."""
    pair.server.kill()
    ok(not pair.server.alive, "the server lives")
    ok(pair.client.try_run("ping -c 1 -W 1 10.0.0.2").code, "a ping reached a dead machine")
    pair.reboot(pair.server)
    pair.client.run("ping -c 3 -W 5 10.0.1.2")


@needs(machines=1)
def test_a_machine_whose_clock_runs_fast_is_given_up(vm: Lab) -> None:
    """A kernel that takes the counter for slower than it is has a clock that is too fast; it is not saved."""
    if not vm.client.hardware.has_the_hosts_ticks:
        raise Skip("only an emulated guest measures the rate of the counter")
    with tempfile.TemporaryDirectory() as folder:
        fast = Machine("fast", Path(folder) / "m", vm.image, Hardware(append="tsc_early_khz=1000000"), [])
        vm.defer(fast.kill)
        fast.start()
        while not booted(fast):
            fast.kill()
            fast.start()
        why = raises(MachineGone, lambda: fast.set_up("sleep 2", 60))
        ok("a second takes 0." in str(why), f"given up for another reason: {why}")


def booted(machine: Machine) -> bool:
    """Whether a boot went well, which the emulation kills now and then."""
    try:
        machine.wait_ready()
    except MachineGone:
        if not is_patching_oops(machine.console_tail(LAST_WORDS_LINES)):
            raise
        return False
    return True


@needs(machines=1)
def test_one_machine_is_both(vm: Lab) -> None:
    """In a lab of one, client and server are the same machine with an RDMA device of its own."""
    ok(vm.client is vm.server, "two machines")
    eq(vm.server_address, "10.0.0.1")
    ok("state ACTIVE" in vm.client.run("rdma link"), "no active RDMA link")


@needs(machines=1, complaints=True)
def test_a_blocked_task_shows_its_stack(vm: Lab) -> None:
    """A task that waits for a frozen disk is named with what it waits in, by the kernel itself."""
    name = "blocked"
    vm.client.run("modprobe -a brd dm-mod")
    vm.client.run(f"dmsetup create {name} --table '0 2048 linear /dev/ram0 0' && dmsetup suspend --nolockfs {name}")
    vm.defer(vm.client.run, f"dmsetup remove {name}; rmmod brd")
    reader = vm.client.start_job("dd if=/dev/dm-0 of=/dev/null iflag=direct count=1")
    vm.defer(reader.wait)
    vm.defer(vm.client.run, f"dmsetup resume {name}")
    until(lambda: any("io_schedule" in line for line in vm.client.blocked()), 20, "a stack")
