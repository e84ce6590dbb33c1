# SPDX-License-Identifier: GPL-2.0
"""Promises of kernel_ext and block_ext to other modules: the module of their tests, and its files in sysfs."""
from __future__ import annotations

import re

from vmlab.checks import TooSlow, eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2

DEVICE = "/sys/class/kernel_ext_test/stage"
PARAMETERS = "/sys/module/kernel_ext_test/parameters"
TURNS = 20


def load(lab: Lab, parameters: str = "") -> None:
    """The C modules have no such library, so it is always ours."""
    lab.server.run("mods -r")
    lab.server.run(f"mods ours kernel_ext_test {parameters}")


@needs(machines=1, own_modules=True)
def test_every_part_passes_its_selftest(vm: Lab) -> None:
    """One `ok` line a part, and none that failed."""
    mark = vm.server.log_mark()
    load(vm)
    lines = vm.server.log_matches(r"kernel_ext_test: ", mark)
    bad = [line for line in lines if not re.search(r"kernel_ext_test: [\w ]+: ok$", line)]
    eq(bad, [], "lines that are not ok")
    ok(len(lines) >= 24, f"only {len(lines)} parts")
    eq(vm.server.run("ls /sys/module/xor/holders").split(), ["kernel_ext_test"], "who needs xor.ko")


@needs(machines=1, own_modules=True)
def test_parameters_are_read_and_never_written(vm: Lab) -> None:
    """Values of insmod in sysfs, mode 0444, a string without its newline and not too long."""
    load(vm, "stage=1 number=9 label=$'hello\\n'")
    found = {name: vm.server.read(f"{PARAMETERS}/{name}") for name in ("stage", "number", "label")}
    eq(found, {"stage": "Y", "number": "9", "label": "hello"})
    eq(set(vm.server.run(f"stat -c %a {PARAMETERS}/*").split()), {"444"}, "modes")
    vm.server.run("mods -r")
    for refused in ("number=65536", "number=x", "label=12345678901234567", "stage=maybe"):
        ok(vm.server.try_run(f"mods ours kernel_ext_test {refused}").code, f"{refused} was accepted")


@needs(machines=1, own_modules=True)
def test_attributes_are_shown_and_stored(vm: Lab) -> None:
    """A number is stored and shown; other text is rejected; a full page is an error."""
    load(vm)
    eq(vm.server.write(f"{DEVICE}/number", "12\n"), "")
    eq(vm.server.read(f"{DEVICE}/number"), "12")
    eq(vm.server.write(f"{DEVICE}/number", "12 apples"), "EINVAL")
    ok(vm.server.try_run(f"printf '\\377' > {DEVICE}/number").code, "bytes that are no text were accepted")
    eq(vm.server.read(f"{DEVICE}/number"), "12", "after refusals")
    ok("too long" in vm.server.try_run(f"cat {DEVICE}/flood 2>&1").out, "a full page gave no EMSGSIZE")


@needs(machines=1, own_modules=True)
def test_a_removal_waits_for_a_store_that_runs(vm: Lab) -> None:
    """The removal of a directory, and the unload of a module, wait for running functions of the attributes."""
    load(vm)
    for deed in (f"echo 1 > {DEVICE}/child/remove", "rmmod kernel_ext_test"):
        vm.server.run(f"echo 1 > {DEVICE}/make_child")
        mark = vm.server.log_mark()
        job = vm.server.start_job(f"echo $$ > /run/holder; echo 1500 > {DEVICE}/child/hold_ms")
        stack = "[ ! -s /run/holder ] || cat /proc/$(cat /run/holder)/stack"
        until(lambda stack=stack, job=job: "msleep" in vm.server.try_run(stack).out or not job.running, 20, "it holds")
        if not job.running:
            raise TooSlow("the store was over before the removal")
        vm.server.run(f"rm /run/holder; {deed}")
        ok(vm.server.log_matches("held for 1500 ms", mark), f"`{deed}` did not wait")
        job.wait(10)
    ok(not vm.server.exists("/sys/class/kernel_ext_test"), "the class is still there")


@needs(machines=1, own_modules=True)
def test_a_directory_removes_itself_once(vm: Lab) -> None:
    """Of two concurrent writers one succeeds, the other gets an error, and no file is left."""
    load(vm)
    remove = f"(echo 1 > {DEVICE}/child/remove) 2>/dev/null && echo won"
    turn = f"echo 1 > {DEVICE}/make_child; {remove} & {remove} & wait; ls {DEVICE} | grep -E 'child$|link'"
    found = vm.server.run(f"for turn in $(seq {TURNS}); do {turn}; done").split()
    eq(found, ["won", "make_child"] * TURNS)


@needs(machines=1, own_modules=True)
def test_a_file_does_not_remove_itself_while_its_directory_goes(vm: Lab) -> None:
    """Its writer comes to that while another task removes the directory, and waits for it: ENODEV, and no oops."""
    load(vm)
    for deed in (f"echo 1 > {DEVICE}/child/remove", "rmmod kernel_ext_test"):
        vm.server.run(f"echo 1 > {DEVICE}/make_child")
        late = vm.server.start_job(f"echo $$ > /run/late; {{ echo 3000 > {DEVICE}/child/remove_late; }} 2>&1")
        # The writer sleeps in its store function, so the deed waits for it.
        stack = "[ ! -s /run/late ] || cat /proc/$(cat /run/late)/stack"
        until(lambda late=late, stack=stack: "store_remove_late" in vm.server.try_run(stack).out or not late.running,
              20, "it is held", pause=0.05)
        if not late.running:
            raise TooSlow("the late writer was over before the removal")
        vm.server.run(f"rm /run/late; {deed}")
        said = late.wait(20)
        ok(said.code and "No such device" in said.out, f"`{deed}`: the late writer: {said.code} {said.out}")
    ok(not vm.server.exists("/sys/class/kernel_ext_test"), "the class is still there")


@needs(machines=1, own_modules=True)
def test_a_file_that_is_open_survives_its_directory(vm: Lab) -> None:
    """A write through it gives ENODEV, also after the module is gone."""
    load(vm)
    script = (f"echo 1 > {DEVICE}/make_child; exec 7> {DEVICE}/child/hold_ms 8< {DEVICE}/number; "
              f"echo 1 > {DEVICE}/child/remove; echo 5 >&7 && echo written; "
              "rmmod kernel_ext_test; cat <&8 && echo read; true")
    found = vm.server.try_run(f"({script}) 2>&1").out
    eq(found.count("No such device"), 2, found)
    ok("written" not in found and "read\n" not in found, found)
