# SPDX-License-Identifier: GPL-2.0
"""The kernel log of one machine, judged without a gap: from the boot of its lab on, also over power failures."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vmlab import oracle, replay
from vmlab.channel import AgentError, MachineGone
from vmlab.machine import LAST_WORDS_LINES, Machine, is_lost_timer

FIRST = -1      # the mark before all that a kernel says


class KernelLog:
    """The kernel log of a machine. Marks are sequence numbers of its latest boot: `began` is that of the last line
    before the test, `judged` that of the last line that the oracle has looked at."""

    def __init__(self, machine: Machine, mark: int) -> None:
        self.machine = machine
        self.judged = self.began = mark
        self.is_judged = True       # by the oracle; a test may look for itself
        self._before: list[str] = []    # lines of this test before its latest power failure
        self._wrong: list[str] = []     # what the oracle has found in them
        self._was_emulation = False

    def begin(self) -> list[str]:
        """A test begins. Returns what is wrong in what the machine has said since the oracle last looked, in words."""
        wrong = self.listen()
        self.began, self.is_judged = self.judged, True
        self._before, self._wrong, self._was_emulation = [], [], False
        return wrong

    def judged_to(self, newest: int) -> None:
        """The test has ended, and the oracle has looked at the lines until this one; the test did so by itself if it
        said that it would."""
        if self.is_judged:
            self.judged = max(self.judged, newest)
        elif self.machine.alive:
            self.judged = self.machine.log_mark()
        self.is_judged = True

    def listen(self) -> list[str]:
        """Has the oracle look at what it has not seen yet; what is wrong, in words."""
        heard = oracle.listen(self.machine, self.judged)
        self.judged = heard.newest
        return heard.wrong

    def end_boot(self) -> None:
        """The machine is about to lose its power, and with it the log: the oracle looks now. What was decided and not
        done yet is no fault then."""
        name = self.machine.name
        if not self.machine.alive:
            self._was_emulation |= self.machine.died_of_emulation
            self._before.append(self.machine.console_tail(LAST_WORDS_LINES))
            self._wrong.append(f"{name}: the machine died before its power failed\n{self.machine.last_words()}")
        else:
            try:
                self._before += self._said()
                if self.is_judged:
                    self._wrong += oracle.listen(self.machine, self.judged, is_over=False).wrong
            except (MachineGone, AgentError) as why:
                self._wrong.append(f"{name}: its log could not be read before its power failed: {why}")
        self.began = self.judged = FIRST

    def take_wrong(self) -> list[str]:
        """Returns the complaints from before the power failures of this test, in words; once."""
        wrong, self._wrong = self._wrong, []
        return wrong

    def _said(self) -> list[str]:
        return [text for _sequence, text in self.machine.whole_log(self.began)] if self.machine.alive else []

    def lines(self) -> list[str]:
        """All that it has said in this test, but for records (replay.py)."""
        return [text for text in self._before + self._said() if not replay.is_record(text)]

    @property
    def shows_broken_emulation(self) -> bool:
        """Whether it has died or stood still in this test by what only happens under emulation."""
        return self._was_emulation or self.machine.died_of_emulation or is_lost_timer("\n".join(self.lines()))

    def keep(self, folder: Path) -> None:
        """Writes all that it has said in this test to a file of the folder, records as well."""
        text = "\n".join(self._before + self._said())
        if not self.machine.alive:
            text += f"\nits console:\n{self.machine.console_tail(LAST_WORDS_LINES)}"
        (folder / f"{self.machine.name}.log").write_text(f"{text}\n", encoding="utf-8")


def are_consequences(wrong: Sequence[str]) -> bool:
    """Whether all that is wrong in a lab may come of an emulation that broke: machines that died, what they have left
    at others, and the reports of processors that stood still. What a kernel complains of besides, and what a driver did
    that was not decided, is none."""
    return not any(oracle.is_of_the_kernel(text) for text in wrong)
