# SPDX-License-Identifier: GPL-2.0
"""Runs stages in order: two at a time, each as soon as those that it comes after have ended."""
import threading
from collections.abc import Mapping

import stages
import waiting

LANES = 2


class Schedule:
    """The stages that are left, those that have ended, and who waits for them."""

    def __init__(self, plan: stages.Plan, lanes: int = LANES, before: Mapping[str, float] | None = None) -> None:
        self._left, self._lanes, self._held = list(plan.stages), lanes, plan.held
        self._names = {stage.name for stage in plan.stages}
        self._at_once = sum(not stage.beside for stage in plan.stages) == 1
        self._ended: set[str] = set()
        self._changed = threading.Condition()
        beside = next((stage.name for stage in plan.stages if stage.beside), "")
        self._waiting = waiting.Waiting([stage.name for stage in plan.stages], beside, lanes, before or {},
                                        stages.Output().say)

    def run(self) -> None:
        """Runs all of them."""
        with self._waiting:
            self._run()

    def _run(self) -> None:
        lanes = [threading.Thread(target=self._lane, args=(False,)) for _ in range(self._lanes)]
        beside = threading.Thread(target=self._lane, args=(True,))
        try:
            for thread in (*lanes, beside):
                thread.start()
            for thread in lanes:
                thread.join()
            if self._held:
                self._held.release()
            beside.join()
        except KeyboardInterrupt:       # what runs has been told as well; nothing else begins
            with self._changed:
                self._left.clear()
                self._changed.notify_all()
            raise

    def _lane(self, beside: bool) -> None:
        while stage := self._take(beside):
            self._waiting.begin(stage.name)
            stage.run(at_once=beside or self._at_once)
            with self._changed:
                self._waiting.end(stage.name)
                self._ended.add(stage.name)
                self._changed.notify_all()

    def _take(self, beside: bool) -> stages.Stage | None:
        """The next stage of this kind of lane, when there is one that need not wait."""
        with self._changed:
            while left := [stage for stage in self._left if stage.beside == beside]:
                for stage in left:
                    if self._names & set(stage.after) <= self._ended:
                        self._left.remove(stage)
                        return stage
                self._changed.wait()
        return None
