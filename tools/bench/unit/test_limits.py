# SPDX-License-Identifier: GPL-2.0
"""The limits of what an IO costs: what is counted, and that a figure above its limit fails and is explained."""
from __future__ import annotations

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parents[2])]

import attribution
import counting
import events
import gfarm_limits
import limits

KALLSYMS = """ffffffff81000000 T rxe_post_send
ffffffff81000100 T rust_helper_refcount_inc
ffffffff81000200 T rxe_xmit_packet
ffffffffc0000000 t send\t[rtrs_client]
ffffffffc0000040 t receive\t[rtrs_client]
ffffffffc0000080 t other\t[brd]
"""
# A post, a helper of two instructions, the middle of rxe_post_send, and three places in modules.
SHORT = """user 5
B ffffffff81000000 40 10
B ffffffffc0000000 100 10
I ffffffffc0000000 10
"""
LONG = """user 9
B ffffffff81000000 120 30
B ffffffff81000010 60 30
B ffffffff81000100 40 20
B ffffffffc0000000 300 30
B ffffffffc0000080 90 30
I ffffffffc0000000 30
I ffffffffc0000080 30
L ffffffffc0000000 20
L ffffffff81000100 20
L ffffffff81000000 40
"""


def read(text: str) -> counting.Counted:
    """Reads counts as from the plugin's file."""
    with tempfile.TemporaryDirectory() as name:
        file = pathlib.Path(name) / "counts"
        file.write_text(text, encoding="ascii")
        return counting.Counted.read(file)


class CountedTest(unittest.TestCase):
    """The figures that are made of the plugin's lines."""

    def test_an_io_costs_the_difference_of_two_runs(self) -> None:
        """Instructions and locks of the modules and the helpers, calls of functions from their first instruction."""
        symbols = counting.Symbols(KALLSYMS)
        cost = events.per_io(read(SHORT), read(LONG), 20, symbols, ("rtrs_client",))
        self.assertEqual(cost.figures[events.INSTRUCTIONS], 10 + 2)     # not brd's, not those of rxe
        self.assertEqual(cost.figures[events.LOCKED], 1 + 1)
        self.assertEqual(cost.figures["send posts"], 1)
        self.assertEqual(cost.figures["packets"], 0)
        self.assertEqual(cost.by_address, {"rtrs_client": {0xffffffffc0000000: 1.0}})
        self.assertEqual(cost.by_helper, {"rust_helper_refcount_inc": 2.0})

    def test_tables_of_functions_are_sums_of_blocks(self) -> None:
        """The older tables of the bench."""
        counts = read(LONG).by_function(counting.Symbols(KALLSYMS))
        self.assertEqual(counts["kernel", "rxe_post_send"], 180)
        self.assertEqual(counts["user", "user"], 9)


class AttributionTest(unittest.TestCase):
    """The function of the sources that an instruction belongs to."""

    def test_names_lose_their_arguments(self) -> None:
        """Whatever is generic over whatever."""
        for name, plain in (
                ("<rdma::qp::batch::Batch<a::B, 4, 2>>::push_raw", "rdma::qp::batch::Batch::push_raw"),
                ("core::ptr::drop_in_place::<kernel::sync::arc::Arc<rdma::Pd>>", "core::ptr::drop_in_place"),
                ("<rnbd::Queue<T> as block_ext::mq::Operations>::queue_rq", "block_ext::mq::Operations::queue_rq"),
                ("rdma_helper_sg_gather", "rdma_helper_sg_gather")):
            self.assertEqual(attribution.plain(name), plain)

    def test_the_innermost_function_of_the_tree_is_told(self) -> None:
        """A function of the language's library that was inlined into it is not named."""
        tree = attribution.REPOSITORY
        printed = (f"0x0000000000000010\ncore::get\n/usr/lib/core.rs:1\n<a::B>::inner\n{tree}/a.rs:2\n"
                   f"a::outer\n{tree}/a.rs:9\n0x0000000000000020\nexit\n/kernel/exit.c:1\n")
        found = attribution.chains(printed)
        self.assertEqual([attribution.own_function(found[at]) for at in (0x10, 0x20)], ["a::B::inner", "exit"])


CELLS = {f"Rust Y, randread 4k, depth {depth}": dict.fromkeys(events.FIGURES, 0.0) | {
    events.INSTRUCTIONS: 1000.0, events.LOCKED: 20.0, "send posts": 2.0} for depth in (1, 16)}
FUNCTIONS = {"Rust Y, randread 4k, depth 1": {"a::send": 40.0, "a::map": 10.0}}


class LimitsTest(unittest.TestCase):
    """Figures against the file."""

    def check(self, figure: str, value: float, functions: dict[str, float] | None = None,
              depth: int = 16) -> tuple[int, str]:
        """The status, and what is printed, if one figure of the cell of a depth is `value`."""
        cells = {cell: dict(figures) for cell, figures in CELLS.items()}
        cells[f"Rust Y, randread 4k, depth {depth}"][figure] = value
        found = limits.Limits(cells, {"Rust Y, randread 4k, depth 1": functions or {"a::send": 40.0, "a::map": 10.0}})
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()) as printed:
            file = pathlib.Path(name) / "limits.toml"
            file.write_text(limits.Limits(CELLS, FUNCTIONS).write(), encoding="utf-8")
            with mock.patch.object(limits, "FILE", file), mock.patch.object(limits, "_measure", lambda _say: found):
                return limits.check(lambda _text: None), printed.getvalue()

    def test_a_file_is_read_as_it_was_written(self) -> None:
        """Functions with little are left out."""
        told = limits.Limits(CELLS, {"Rust Y, randread 4k, depth 1": {"a::send": 40.0, "a::small": 1.0}})
        again = limits.Limits.read(told.write())
        self.assertEqual(again.cells, CELLS)
        self.assertEqual(again.functions, {"Rust Y, randread 4k, depth 1": {"a::send": 40.0}})

    def test_what_is_within_the_tolerance_passes(self) -> None:
        """And the closing line counts cells."""
        for depth, value in ((1, 1004.9), (16, 1009.9)):
            status, printed = self.check(events.INSTRUCTIONS, value, depth=depth)
            self.assertEqual((status, printed.splitlines()[-1]), (0, "2 passed, 0 failed"))

    def test_instructions_above_their_limit_fail_with_the_functions_that_grew(self) -> None:
        """The newcomer first, those that shrank not at all."""
        status, printed = self.check(events.INSTRUCTIONS, 1005.1, {"a::send": 39.0, "a::map": 12.0, "a::new": 35.0}, 1)
        self.assertEqual((status, printed.splitlines()[-1]), (1, "1 passed, 1 failed"))
        self.assertIn("the limit is 1000.00", printed)
        named = [line.split()[-1] for line in printed.splitlines() if line.startswith("#     ")]
        self.assertEqual(named, ["a::new", "a::map"])

    def test_requests_are_posted_together(self) -> None:
        """Of requests that are submitted together, posts have room up to the bar of the client, 0.3, and no more."""
        cell, limit = str(events.Cell("Rust Y", "randread", 16)), 1.12
        figures = dict.fromkeys(events.FIGURES, 1.0) | {events.POSTS: limit}
        for found, is_above in ((limit + 0.14, False), (1.3, True), (2.0, True)):
            above, _ = limits.judge(cell, figures, figures | {events.POSTS: found})
            self.assertEqual(bool(above), is_above, found)

    def test_cells_of_gfarm_have_their_own_room(self) -> None:
        """Cells are given room for an instruction of a thousand, and for a call that is rare."""
        above = [limits.room(cell, name, limit)[0] for cell in (gfarm_limits.PAGE, "Rust Y, randread 4k, depth 1")
                 for name, limit in ((events.INSTRUCTIONS, 1000.0), ("send posts", 0.1))]
        self.assertEqual(above, [50, 0.2, 5, 0.03])

    def test_one_locked_instruction_more_fails(self) -> None:
        """One of twenty is five percent. At depth 16 completions that come together decide about half of one."""
        self.assertEqual([self.check(events.LOCKED, value, depth=depth)[0]
                          for depth, value in ((1, 20.6), (16, 20.6), (16, 21.0))], [1, 0, 1])

    def test_one_call_more_in_ten_fails(self) -> None:
        """Calls have a tolerance of their own."""
        self.assertEqual(self.check("send posts", 2.1, depth=1)[0], 1)
        self.assertEqual(self.check("send posts", 2.02, depth=1)[0], 0)

    def test_a_figure_that_fell_asks_to_lower_its_limit(self) -> None:
        """A figure far below its limit does not fail."""
        status, printed = self.check(events.INSTRUCTIONS, 979.0)
        self.assertEqual(status, 0)
        self.assertIn("--set-limits", printed)

    def test_a_cell_without_a_limit_fails(self) -> None:
        """A new one needs its figures."""
        self.assertTrue(limits.judge("new", {}, CELLS["Rust Y, randread 4k, depth 1"])[0])

    def test_the_file_of_the_tree_has_all_figures(self) -> None:
        """Each cell that is measured, each figure."""
        told = limits.Limits.read(limits.FILE.read_text(encoding="utf-8"))
        for setup in limits.SETUPS:
            for pattern in events.PATTERNS:
                for depth in events.DEPTHS:
                    self.assertEqual(set(told.cells[str(events.Cell(setup, pattern, depth))]), set(events.FIGURES))


if __name__ == "__main__":
    unittest.main()
