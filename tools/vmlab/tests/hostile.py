# SPDX-License-Identifier: GPL-2.0
"""A hostile client: every violation is answered with an error or a closed path, and others are still served.

    liar (user-space verbs) ──┐
    bystander (the same) ─────┴── rxe0 ── rtrs-server + rnbd-server      one machine
"""
from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmlab import assets, rnbd, tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs

PEER = Path(__file__).resolve().parents[1] / "peer"
KDIR = PEER.parents[1] / "kdir"
FILES = ("scripted_peer.py", "messages.py", "client.py", "attacks.py", "hostile_connects.py")
# A scripted peer does not answer heartbeats: it would count as dead. Ended sessions take a moment to give memory back.
PATIENT = "heartbeat_interval_ms=60000 max_memory_mib=600"
# Each test makes two sessions or three, and random_envelopes up to forty.
SMALL = f"{PATIENT} sess_queue_depth=128"
# What may come out differently where keys are not invalidated, and one of each other kind.
ALSO_WITH_N = ("d5_head_across_the_end_of_the_chunk", "d6_descriptor_longer_than_asked",
               "d11_user_length_past_the_offset", "d11_two_descriptors", "unknown_message_type",
               "a_send_where_only_writes_belong", "d7_io_message_cut_short", "d8_write_to_a_read_only_mapping",
               "a_tail_of_a_plain_device", "d9_write_without_data", "read_past_the_end_of_the_device", "io_after_close",
               "random_messages", "random_envelopes")
# Of these, the ones that show in each run that the rules are the same.
WITH_N_IN_CORE = ("d9_write_without_data", "a_tail_of_a_plain_device")
# What the server makes of a message is decided by proto, whose tests on the host have each of these lies. These show in
# each run that each of its judges is asked, and all that is decided elsewhere.
IN_CORE = ("d5_head_across_the_end_of_the_chunk", "d5_offset_equal_to_the_chunk_size",
           "d6_descriptor_longer_than_asked", "d7_dots_in_a_device_name", "d7_io_message_cut_short",
           "d7_room_for_half_an_answer", "d8_write_to_a_read_only_mapping", "d9_write_without_data",
           "d11_two_descriptors", "a_further_path_of_no_session", "a_response_to_a_server", "a_second_info_request",
           "a_send_where_only_writes_belong", "a_tail_of_a_plain_device", "a_write_under_a_stale_key",
           "access_mode_that_does_not_exist", "another_number_of_connections", "device_that_was_never_opened",
           "discard_past_the_end_of_the_device", "immediate_of_an_unknown_type", "info_before_all_connections",
           "info_cut_short", "io_after_close", "private_data_of_every_length", "read_past_the_end_of_the_device",
           "reserved_bytes_of_noise", "session_name_of_somebody_else", "session_name_with_a_slash",
           "the_same_connection_twice", "unknown_block_message", "wrong_major_version")
# A lie costs one line, or two where the request was refused first and the path closed then.
LOG_LINES_MAX = 2

sys.path.insert(0, str(PEER))
import attacks
import hostile_connects


def peer_program() -> Path:
    """The scripted peer, compiled in the Debian root against its own verbs libraries."""
    source = PEER / "scripted_peer.c"
    parts = source.read_bytes() + (PEER / "barrage.h").read_bytes()
    digest = hashlib.sha256(parts).hexdigest()[:12]
    program = assets.cache_dir() / f"scripted_peer-{digest}"
    if not program.exists():
        part = program.with_name(f".{program.name}.{os.getpid()}")      # another lab may be at it, too
        subprocess.run([sys.executable, "-B", str(KDIR), "run", "gcc-14", "-O2", "-Wall", "-Wextra", "-Werror",
                        "-Wno-unused-parameter", "-o", str(part), str(source), "-lrdmacm", "-libverbs"],
                       check=True)
        part.rename(program)
    return program


def bring_peer(vm: Machine, files: tuple[str, ...] = FILES) -> None:
    """Puts the scripted peer and its scripts into a machine."""
    vm.run("mkdir -p /tmp/peer; modprobe ib_uverbs; modprobe rdma_ucm")
    for name in files:
        vm.push(PEER / name, f"/tmp/peer/{name}")
    vm.push(peer_program(), "/tmp/peer/scripted_peer")
    vm.run("chmod 755 /tmp/peer/scripted_peer")


def _prepare(lab: Lab, invalidate: str) -> None:
    """Four disks, the server, and the scripted peers; what is there of an earlier test stays."""
    vm = lab.server
    if not vm.exists("/tmp/peer/hostile_connects.py"):
        bring_peer(vm)
    rnbd.ram_disk(lab, 16, 4)
    rnbd.load_server(lab, rtrs=f"always_invalidate={invalidate} {SMALL}")


def _is_routine(line: str) -> bool:
    """Lines about honest sessions coming and going."""
    return bool(re.search(r"(opened as \w+(: naa\..*)?|\) closed|ended|connected|proto(col)? 2\.0.*)$", line))


def _play(vm: Lab, script: str, name: str) -> str:
    """Runs one lie; what its script prints. As modules the scripts are compiled once only."""
    lengths = f"MESSAGES={tier.of(20_000, 100_000)} ENVELOPES={tier.of(15, 40)}"
    return vm.server.try_run(f"cd /tmp/peer && {lengths} python3 -S -m {script} {name} {vm.server_address}", 200).out


def _tier(test: str) -> pytest.MarkDecorator:
    """The rules of a message do not know whether keys are invalidated, which the tests of proto show."""
    name = test.removesuffix("_with_n")
    if name != test:
        return pytest.mark.tier(tier.CORE if name in WITH_N_IN_CORE else tier.LONG)
    return pytest.mark.tier(tier.CORE if name in IN_CORE else tier.ALL)


def _cases() -> Iterator[tuple[str, str, str, bool, str, str]]:
    """Every lie: its test, script, name, whether the server may be silent about it, always_invalidate, title."""
    for script, lies in (("attacks", attacks.ATTACKS), ("hostile_connects", hostile_connects.HOSTILE_CONNECTS)):
        for name, (expected, function) in lies.items():
            title = function.__doc__ or ""
            silent = expected == 0 if script == "attacks" else expected is None
            yield name, script, name, silent, "Y", title
            if name in ALSO_WITH_N:
                yield f"{name}_with_n", script, name, silent, "N", f"{title} (always_invalidate=N)"


@pytest.mark.parametrize(
    ("script", "name", "silent", "invalidate", "title"),
    [pytest.param(*case, id=test, marks=_tier(test))
     for test, *case in sorted(_cases(), key=lambda case: case[4], reverse=True)])
@needs(machines=1, timeout=240)
def test_lie(vm: Lab, script: str, name: str, silent: bool, invalidate: str, title: str) -> None:
    """One violation: it is answered, logged in one or two lines, and others are still served."""
    del title       # for the list of tests
    _prepare(vm, invalidate)
    mark = vm.server.log_mark()
    eq(_play(vm, script, name).split("\n")[-2:], ["ok", ""])
    lines = [line for line in vm.server.log_matches("rtrs_server|rnbd_server|beyond end of device", mark)
             if not _is_routine(line)]
    if not silent:
        ok(lines, "the kernel log does not say what happened")
        ok(len(lines) <= LOG_LINES_MAX, f"{len(lines)} lines in the kernel log: {lines}")


@needs(machines=1)
def test_nothing_is_left_of_the_attackers(vm: Lab) -> None:
    """A hostile client's session ends with its program, and the modules unload (the lab checks for leaks)."""
    _prepare(vm, "N")
    _play(vm, "attacks", "d9_write_without_data")
    until(lambda: not vm.server.names("/sys/class/rtrs-server"), 10, "no session is left")
    rnbd.unload(vm, vm.server)
