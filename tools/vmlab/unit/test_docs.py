# SPDX-License-Identifier: GPL-2.0
"""The documents' blocks, and those of their commands that are for the host; how blocks are read, on small texts."""
from __future__ import annotations

import functools
import subprocess
import sys
import unittest

from vmlab import docs, plan

PAGE = """# Title

Type

    make demo       # what it does

<!-- on: server -->
    modprobe x
    cat y

A figure without a hint:

    a ── b

<!-- printed -->
```
1. Chapter

    12 files
```

    python3 tools/vmlab run --list     remark

<!-- on: moon -->
    ls
"""


class BlocksTest(unittest.TestCase):
    """Blocks of a text, and the places for which they are."""

    def setUp(self) -> None:
        """The same page for all."""
        self.blocks = list(docs.parse("page.md", PAGE))

    def test_places(self) -> None:
        """The place is told by a hint or by the first words; everything else is covered by no rule."""
        self.assertEqual([block.place for block in self.blocks], ["host", "server", "", "printed", "host", ""])

    def test_lines_and_commands(self) -> None:
        """Remarks beside a command are no part of it, blank lines of a fence stay."""
        self.assertEqual([block.commands for block in self.blocks[:2]], [["make demo"], ["modprobe x", "cat y"]])
        self.assertEqual(self.blocks[3].lines, ("1. Chapter", "", "    12 files"))
        self.assertEqual(self.blocks[4].commands, ["python3 tools/vmlab run --list"])
        self.assertEqual(self.blocks[1].where, "page.md:8")

    def test_a_hint_holds_for_the_next_block_only(self) -> None:
        """Text in between takes it away."""
        (block,) = docs.parse("x", "<!-- figure -->\n\nwords\n\n    a b\n")
        self.assertEqual(block.place, "")


class HostCommandsTest(unittest.TestCase):
    """Commands of this checkout: what is none is found."""

    def test_wrong_commands_are_found(self) -> None:
        """A target, a setting, a program, a command, an option, a package that is not there."""
        for command in ("make nothing", "make test NAME=x", "python3 tools/nowhere", "python3 tools/kdir fly",
                        "python3 tools/vmlab run --nowhere", "cargo run -p ferrofabric-nowhere", "cd nowhere", "ls"):
            self.assertTrue(docs.complaint(command), command)

    def test_right_commands_pass(self) -> None:
        """Commands pass as the documents write them."""
        for command in ("make test ONLY='io.*'", "sudo make modules_install", "python3 tools/kdir update",
                        "FERROFABRIC_MIRROR=x make modules", "cd tools/fuzz && cargo fuzz list"):
            self.assertEqual(docs.complaint(command), "", command)


class SysfsTest(unittest.TestCase):
    """Files that a text names."""

    def test_places_holders_are_patterns(self) -> None:
        """<x>, N, and the ABI's `...`."""
        text = "`/sys/block/rnbdN/queue/io_timeout` and `echo 1 > /sys/class/rtrs-client/<session>/paths/<path>/x`"
        self.assertEqual(docs.sysfs_paths(text),
                         {"/sys/block/rnbd*/queue/io_timeout", "/sys/class/rtrs-client/*/paths/*/x"})
        self.assertEqual(docs.sysfs_paths("cat /sys/class/rnbd-server/ctl/devices/vdb/sidecar/scrub"),
                         {"/sys/class/rnbd-server/ctl/devices/*/sidecar/scrub"})
        abi = "What:\t\t/sys/class/a/<s>/paths/<a b>@<c>/\nWhat:\t\t.../paths/<a b>@<c>/state\n"
        self.assertEqual(docs.sysfs_paths(abi), {"/sys/class/a/*/paths/*@*", "/sys/class/a/*/paths/*@*/state"})


class TranscriptTest(unittest.TestCase):
    """Transcripts of a document are compared with what is printed."""

    PRINTED = "1. Boot\n    Up after 44 s (tcg).\n    (10.2 s)\n2. Load\n    180 files\n    equal\n"

    def test_figures_and_line_breaks_may_differ(self) -> None:
        """The words may not."""
        shown = "1. Boot\n    Up after 9 s\n    (kvm).\n    ...\n    7 files equal"
        self.assertEqual(docs.transcript_errors(shown, self.PRINTED),
                         [])

    def test_words_and_their_order_may_not(self) -> None:
        """Each piece between dots is looked for behind the one before."""
        self.assertEqual(docs.transcript_errors("1. Boat\n...\n    180 files", self.PRINTED), ["#. Boat"])
        self.assertEqual(docs.transcript_errors("2. Load\n...\n1. Boot", self.PRINTED), ["#. Boot"])


@functools.cache
def listed_tests() -> list[str]:
    """The names of the tests in virtual machines, as the program lists them."""
    listed = subprocess.run([sys.executable, "-B", "tools/vmlab", "run", "--list"], cwd=docs.REPOSITORY,
                            capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if not line.startswith(" ")]


class DocumentsTest(unittest.TestCase):
    """The documents of this checkout."""

    def test_every_block_is_covered_by_a_rule(self) -> None:
        """Commands without a machine are run by no test."""
        unknown = [block.where for file in docs.documents() for block in docs.blocks(file) if not block.place]
        self.assertEqual(unknown, [],
                         "blocks that no rule covers: see tools/vmlab/docs.py")

    def test_commands_for_machines_have_a_test_that_runs_them(self) -> None:
        """tests/documentation.py runs the blocks of these; another document needs a test there, and its name here."""
        self.assertEqual([file for file in docs.documents()
                          if any(block.place in docs.MACHINES for block in docs.blocks(file))],
                         ["Documentation/crc32-umr.md", "Documentation/ec.md", "Documentation/failover.md",
                          "Documentation/gfarm.md", "Documentation/protection.md", "Documentation/quickstart.md",
                          "Documentation/rioc-client.md", "Documentation/rioc.md"])

    def test_the_messages_of_troubleshooting_are_said_by_somebody(self) -> None:
        """Each message's fixed words stand in a source; a message that was reworded is noticed here."""
        page = (docs.REPOSITORY / "Documentation/troubleshooting.md").read_text(encoding="utf-8")
        said, listed = docs.sources(), docs.messages(page)
        self.assertGreater(len(listed), 30)
        self.assertEqual({message: wrong for message in listed if (wrong := docs.unsaid(message, said))}, {})
        self.assertEqual(docs.unsaid("rtrs_client: ... the moon is full", said), ["the moon is full"])

    def test_the_commands_of_the_host_exist(self) -> None:
        """Targets, programs, options, and tests that are chosen by a pattern."""
        commands = [command for file in docs.documents() for block in docs.blocks(file) if block.place == "host"
                    for command in block.commands]
        self.assertGreater(len(commands), 10)
        self.assertEqual([wrong for command in commands if (wrong := docs.complaint(command))], [])
        for pattern in (pattern for command in commands for pattern in docs.chosen_tests(command)):
            self.assertTrue(any(plan.matches(name, [pattern]) for name in listed_tests()), f"no test matches {pattern}")

    def test_the_cheap_ones_are_run(self) -> None:
        """Commands that only print are run."""
        for command in ("make help", f"{sys.executable} -B tools/vmlab run --list"):
            done = subprocess.run(command.split(), cwd=docs.REPOSITORY, capture_output=True, text=True, check=False)
            self.assertTrue(done.returncode == 0 and done.stdout, f"{command}: {done.stderr}")


if __name__ == "__main__":
    unittest.main()
