# SPDX-License-Identifier: GPL-2.0
"""Panics of protocol code, and large frames, as the checks of the built modules find them."""
from __future__ import annotations

import sys
import unittest

from kdir.config import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tools/test"))
import objects

DISASSEMBLY = """
Disassembly of section .text:

0000000000000010 <_RNvNtCs1_4rtrs6client3run>:
  10:	call   15 <_RNvNtCs1_4rtrs6client3run+0x5>
			11: R_X86_64_PLT32	_RNvNtNtCs2_4core9panicking18panic_bounds_check-0x4
  20:	call   25 <_RNvNtCs1_4rtrs6client3run+0x15>
			21: R_X86_64_PLT32	memcpy-0x4
  30:	call   35 <_RNvNtCs1_4rtrs6client3run+0x25>
			31: R_X86_64_PLT32	_RNvNtCs2_4core6option13unwrap_failed-0x4

Disassembly of section .init.text:

0000000000000000 <init_module>:
   0:	call   5 <init_module+0x5>
			1: R_X86_64_PLT32	_RNvNtNtCs2_4core5slice5index16slice_index_fail-0x4
"""
# Registers are saved before, and a loop of probes is no frame.
FRAMES = f"""
0000000000000010 <small>:
  11:	push   %rbx
  12:	sub    $0x{objects.FRAME_BYTES_MAX:x},%rsp
0000000000000020 <large>:
  21:	sub    $0x{objects.FRAME_BYTES_MAX + 8:x},%rsp
  29:	sub    $0xffff,%rax
"""
# As objtool prints it; the chain of branches follows.
OBJTOOL = """x.o: warning: objtool: _RN3abc8allocate() falls through to next function _RN3abc5drain()
x.o: warning: objtool:   _RN3abc8allocate+0x16c8: (branch)
x.o: warning: objtool: _RI4core5slice4sort6shared9smallsort18small_sort_generalE0_() falls through to next function f()
x.o: warning: objtool: Rebuild with libopcodes for disassembly support
x.o: error: objtool: x.o: is not an object
"""
# As addr2line prints it: the address, then the place and those that it is inlined in.
LINES = """0x0000000000000011
/tree/rtrs/proto/imm.rs:62
/tree/rtrs/client/io/completion.rs:80
0x0000000000000031
/kernel/rust/kernel/alloc/kvec.rs:663
/tree/rtrs/client/session.rs:112
0x0000000000000041
??:0
"""


class ObjectsTest(unittest.TestCase):
    """The two steps of the check."""

    def test_every_call_of_a_panic_is_found(self) -> None:
        """All sections are searched, for whatever function of core."""
        self.assertEqual(objects.panics(DISASSEMBLY), {".text": ["11", "31"], ".init.text": ["1"]})

    def test_large_frames_are_found(self) -> None:
        """The function's name and the bytes are told."""
        self.assertEqual(objects.frames(FRAMES), [f"large takes {objects.FRAME_BYTES_MAX + 8} bytes of the stack"])

    def test_inlined_protocol_code_is_blamed(self) -> None:
        """Code that a driver's function has inlined is blamed, too; the kernel's containers are not; what has no source
        is not passed over."""
        self.assertEqual(objects.blamed(LINES, "/tree", objects.pure(REPOSITORY)), [
            "rtrs/proto/imm.rs:62 in rtrs/client/io/completion.rs:80 can panic", "0x0000000000000041 has no source"])

    def test_functions_that_no_stack_unwinds_through_are_found(self) -> None:
        """Lines that follow the complaint, and those that are not ours, are no complaints of their own."""
        self.assertEqual(objects.unwinds(OBJTOOL), [
            "_RN3abc8allocate() falls through to next function _RN3abc5drain()", "x.o: is not an object"])

    def test_every_pure_folder_is_found(self) -> None:
        """All that is below it is pure; drivers and the crates' other files are not."""
        pure = objects.pure(REPOSITORY)
        for path in ("rtrs/proto/imm.rs", "rtrs/proto.rs", "rnbd/sidecar/replay.rs", "rnbd/proto/wire/io.rs",
                     "gfarm_ra/proto/options.rs", "lib/rdma/proto/gid.rs", "samples/crc32_umr/proto/wire.rs",
                     "test/test_device/proto/key.rs", "lib/common/text.rs", "lib/chunk4k/layout.rs"):
            self.assertRegex(path, pure)
        for path in ("rtrs/client/session.rs", "rnbd/server/store.rs", "rtrs/rtrs_core.rs",
                     "lib/kernel_ext/kernel_ext.rs"):
            self.assertNotRegex(path, pure)

    def test_all_pure_code_is_built_from_the_folders_that_are_searched(self) -> None:
        """A folder that is not among the modules' sources would be passed over."""
        said = {path.parent for path in REPOSITORY.rglob("*.rs") if "tools" not in path.relative_to(REPOSITORY).parts
                and objects.PURE in path.read_text(encoding="utf-8")}
        # A program of the host, of which no module has anything.
        said.discard(REPOSITORY / "samples/gga_halfblock")
        self.assertEqual(said - {REPOSITORY / folder for folder in objects.SOURCES}, set())


if __name__ == "__main__":
    unittest.main()
