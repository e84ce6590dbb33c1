# SPDX-License-Identifier: GPL-2.0
"""The channel to the agent, the choice of tests, the oracle's ear, the checks."""
from __future__ import annotations

import json
import socket
import tempfile
import threading
import unittest
from collections.abc import Iterator
from contextlib import contextmanager

from vmlab import checks
from vmlab.channel import AgentError, Channel, MachineGone
from vmlab.lab import Spec
from vmlab.needs import Case, Needs, grouped, needs
from vmlab.oracle import COMPLAINT


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
        """As the agent expects them."""
        with connected() as (channel, peer):
            channel.ask("kill", target=7, signal=9)
            self.assertEqual(json.loads(peer.recv(1000)), {"id": 1, "do": "kill", "target": 7, "signal": 9})

    def test_parts_are_delivered_on_the_way(self) -> None:
        """For commands whose output is shown as it grows."""
        parts: list[str] = []
        with connected() as (channel, peer):
            pending = channel.ask("run", on_part=parts.append, command="x")
            send(peer, id=1, part="one ")
            send(peer, id=1, part="two")
            send(peer, id=1, code=0, out="")
            pending.wait(5)
        self.assertEqual("".join(parts), "one two")

    def test_a_dead_machine_fails_whoever_waits(self) -> None:
        """At once, not at a time-out; later requests too."""
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
        """With its words."""
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


class NeedsTest(unittest.TestCase):
    """Declarations and order."""

    @staticmethod
    def case(name: str, **wanted: object) -> Case:
        """A test that does nothing."""
        return Case(name, lambda _lab: None, Needs(**wanted))  # type: ignore[arg-type]

    def test_the_decorator_keeps_shape_and_rest_apart(self) -> None:
        """Machines and wires make the lab, the rest is about the test."""
        @needs(machines=1, smp=4, disruptive=True, timeout=7)
        def test(_lab: object) -> None:
            pass
        declared = getattr(test, "vmlab_needs")
        self.assertEqual(declared, Needs(spec=Spec(machines=1, wires=1, smp=4), timeout=7, disruptive=True))

    def test_equal_labs_follow_each_other_and_disruptive_tests_come_last(self) -> None:
        """So that as few machines as possible are booted."""
        two, one = Spec(), Spec(machines=1)
        cases = [self.case("a", spec=two), self.case("b", spec=one), self.case("c", spec=two, disruptive=True),
                 self.case("d", spec=two)]
        self.assertEqual([case.name for case in grouped(cases)], ["a", "d", "c", "b"])


class OracleTest(unittest.TestCase):
    """Which lines of a kernel log are complaints."""

    def test_complaints(self) -> None:
        """All that no test may leave behind."""
        for line in ("WARNING: CPU: 1 PID: 77 at lib/refcount.c:28", "BUG: kernel NULL pointer dereference",
                     "Oops: general protection fault", "refcount_t: underflow; use-after-free.", "Call Trace:",
                     "INFO: task fio:77 blocked for more than 60 seconds.",
                     "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks", "list_del corruption. prev->next",
                     "watchdog: BUG: soft lockup - CPU#0 stuck", "BUG: sleeping function called from invalid context",
                     "Kernel panic - not syncing: fatal"):
            self.assertRegex(line, COMPLAINT)

    def test_ordinary_lines(self) -> None:
        """Words that only look like one."""
        for line in ("RCU CPU stall warnings timeout set to 60 (rcu_cpu_stall_timeout).", "debug: warning level 3",
                     "rtrs_core: loading out-of-tree module taints kernel.", "rnbd_client: rnbd0 mapped",
                     "Command line: rcupdate.rcu_cpu_stall_timeout=60", "DEBUG build"):
            self.assertNotRegex(line, COMPLAINT)


class ChecksTest(unittest.TestCase):
    """Expectations say what was found."""

    def test_messages(self) -> None:
        """Both values are named."""
        with self.assertRaisesRegex(checks.Failed, "size: found 1, expected 2"):
            checks.eq(1, 2, "size")
        with self.assertRaisesRegex(checks.Failed, "at least 5"):
            checks.ge(4, 5)

    def test_until_returns_the_value_or_gives_up(self) -> None:
        """The first true value ends the wait."""
        values = iter([0, "", "there"])
        self.assertEqual(checks.until(lambda: next(values), 5, "it", pause=0), "there")
        with self.assertRaisesRegex(checks.Failed, "not within 0 s: never"):
            checks.until(lambda: False, 0, "never", pause=0)

    def test_raises(self) -> None:
        """Another exception passes through, none is a failure."""
        self.assertIsInstance(checks.raises(KeyError, lambda: {}["x"]), KeyError)
        with self.assertRaises(checks.Failed):
            checks.raises(KeyError, lambda: None)
