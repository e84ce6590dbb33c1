# SPDX-License-Identifier: GPL-2.0
"""The ways to a machine: the channel to its agent, its commands, QEMU itself."""
from __future__ import annotations

import json
import socket
import tempfile
import threading
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

from vmlab import checks, qmp
from vmlab.channel import AgentError, Channel, MachineGone
from vmlab.machine import TIMED_OUT, Hardware, Job, Machine


@contextmanager
def connected() -> Iterator[tuple[Channel, socket.socket]]:
    """A channel with a peer that plays the guest."""
    with tempfile.TemporaryDirectory() as folder:
        channel = Channel("guest", f"{folder}/port")
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(f"{folder}/port")
        channel.accept(5)
        try:
            yield channel, peer
        finally:
            channel.close()
            peer.close()


def send(peer: socket.socket, **answer: object) -> None:
    """One line from the guest."""
    peer.sendall(json.dumps(answer).encode() + b"\n")


class JobTest(unittest.TestCase):
    """The end of a command's time."""

    def job(self, channel: Channel, *qemu_args: str) -> Job:
        """A command that has no second at all."""
        machine = SimpleNamespace(name="guest", channel=channel, hardware=Hardware(qemu_args=qemu_args))
        return Job(cast(Machine, machine), "x", 0.0)

    def test_a_clock_that_jumps_does_not_end_a_command(self) -> None:
        """While a machine that counts its instructions waits for a disk, its clock goes on by a minute in half a
        second: the host ends a command there."""
        with connected() as (channel, peer), peer.makefile("rb") as asked:
            job = self.job(channel, "-icount", "shift=2,sleep=off")
            self.assertGreater(json.loads(asked.readline())["timeout"], 1e6)
            threading.Timer(0.1, lambda: send(peer, id=1, code=-9, out="so far")).start()
            threading.Timer(0.1, lambda: send(peer, id=2)).start()
            result = job.wait(0.01)
            self.assertEqual(json.loads(asked.readline())["do"], "kill")
        self.assertEqual((result.code, result.out), (TIMED_OUT, "so far"))

    def test_another_clock_ends_a_command(self) -> None:
        """The agent does, as the host may be stopped meanwhile."""
        with connected() as (channel, peer), peer.makefile("rb") as asked:
            self.job(channel)
            self.assertEqual(json.loads(asked.readline())["timeout"], 0.0)


class QmpTest(unittest.TestCase):
    """Commands to QEMU itself."""

    def test_one_that_is_not_answered_is_a_matter_of_time(self) -> None:
        """A test runs once more by that."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as silent:
            silent.bind(f"{folder}/qmp")
            silent.listen()
            with self.assertRaisesRegex(checks.TooSlow, "has not answered stop within 0 s"):
                qmp.execute(f"{folder}/qmp", "stop", 0.1)


class ChannelTest(unittest.TestCase):
    """Answers in any order, and what happens without one."""

    def test_answers_find_their_requests_in_any_order(self) -> None:
        """A request that hangs does not keep others waiting."""
        with connected() as (channel, peer):
            first, second = channel.ask("run", command="a"), channel.ask("run", command="b")
            send(peer, id=2, code=0, out="b")
            self.assertEqual(second.wait(5)["out"], "b")
            self.assertFalse(first.arrived)
            send(peer, id=1, code=1, out="a")
            self.assertEqual(first.wait(5)["code"], 1)

    def test_requests_are_lines_of_json(self) -> None:
        """Requests are as the agent expects them."""
        with connected() as (channel, peer):
            channel.ask("kill", target=7, signal=9)
            self.assertEqual(json.loads(peer.recv(1000)), {"id": 1, "do": "kill", "target": 7, "signal": 9})

    def test_parts_are_delivered_on_the_way(self) -> None:
        """Commands whose output is shown as it grows need it."""
        parts: list[str] = []
        with connected() as (channel, peer):
            pending = channel.ask("run", on_part=parts.append, command="x")
            send(peer, id=1, part="one ")
            send(peer, id=1, part="two")
            send(peer, id=1, code=0, out="")
            pending.wait(5)
        self.assertEqual("".join(parts), "one two")

    def test_a_dead_machine_fails_whoever_waits(self) -> None:
        """Requests fail at once, not at a time-out; later ones too."""
        with connected() as (channel, peer):
            pending = channel.ask("run", command="x")
            threading.Timer(0.1, peer.close).start()
            with self.assertRaises(MachineGone):
                pending.wait(20)
            with self.assertRaises(MachineGone):
                channel.ask("run", command="y")

    def test_silence_ends_at_the_limit(self) -> None:
        """No answer is an error."""
        with connected() as (channel, _peer), self.assertRaises(MachineGone):
            channel.ask("run", command="x").wait(0.05)

    def test_errors_of_the_agent_are_raised(self) -> None:
        """The error has the agent's words."""
        with connected() as (channel, peer):
            pending = channel.ask("pull", path="/nowhere")
            send(peer, id=1, error="FileNotFoundError: /nowhere")
            with self.assertRaisesRegex(AgentError, "nowhere"):
                pending.wait(5)

    def test_noise_on_the_line_is_ignored(self) -> None:
        """An agent that was restarted may leave half a line."""
        with connected() as (channel, peer):
            pending = channel.ask("run", command="x")
            peer.sendall(b'0, "out": "rest of an old answer"}\n')
            send(peer, id=99, code=0, out="nobody asked")
            send(peer, ready=1.0)
            send(peer, id=1, code=0, out="mine")
            self.assertEqual(pending.wait(5)["out"], "mine")
