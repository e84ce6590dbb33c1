# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: does one thing again and again, and each time another allocation of the kernel fails.

    nth.py FROM STEP write PATH TEXT          write(2)
    nth.py FROM STEP insmod PATH PARAMETERS   finit_module(2)

Needs CONFIG_FAULT_INJECTION (fail-nth in the kernel's Documentation/fault-injection/fault-injection.rst). Ends with the
first try that succeeds, or in which nothing was left to fail. Prints one JSON object: `n`, the number of the
allocation in that try; `injected`, whether it failed; `error`, what came of the try; and `errors`, how often the tries
before gave which errno. The kernel log has a line for each try.
"""
import collections
import ctypes
import json
import os
import sys

SYS_FINIT_MODULE = 313      # x86-64
LIBC = ctypes.CDLL(None, use_errno=True)


def insmod(file, parameters):
    """finit_module(2), for which Python has no name."""
    if LIBC.syscall(SYS_FINIT_MODULE, file, parameters, 0) < 0:
        raise OSError(ctypes.get_errno(), "")


def attempt(nth, deed, path, text, number):
    """One try with the allocation of this number failing; answers its errno and whether an allocation failed."""
    target = os.open(path, os.O_RDONLY if deed is insmod else os.O_WRONLY)
    count = str(number).encode()
    error = 0
    os.pwrite(nth, count, 0)
    try:
        deed(target, text)
    except OSError as why:
        error = why.errno
    left = int(os.pread(nth, 32, 0))
    os.pwrite(nth, b"0", 0)
    os.close(target)
    return error, left == 0


def main(start, step, what, path, text):
    """Tries until nothing fails any more."""
    deed = insmod if what == "insmod" else os.write
    nth = os.open(f"/proc/self/task/{os.getpid()}/fail-nth", os.O_RDWR)
    errors = collections.Counter()
    number = int(start)
    while True:
        error, injected = attempt(nth, deed, path, text.encode(), number)
        with open("/dev/kmsg", "w", encoding="ascii") as log:
            log.write(f"<3>nth: {number} of {path}: {error} {'injected' if injected else 'whole'}")
        if not error or not injected:
            break
        errors[error] += 1
        number += int(step)
    print(json.dumps({"n": number, "injected": injected, "error": error, "errors": errors}))


if __name__ == "__main__":
    main(*sys.argv[1:])
