# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: fake servers, a mount of them, and what a user does while they lie.

    gfarm_fake_run.py GROUP SEED        prints a line of JSON for each case: its name, and what is wrong with it ("")

The key is in the environment variable KEY, and in the session's keyring.
"""
from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import errorcode

import gfarm_fake as fake
import gfarm_fake_lies as lies
import gfarm_fake_wire as wire
from gfarm_fake_judge import AT, PATIENCE, Judge, mounted
from gfarm_fake_late import answers_that_are_late
from gfarm_fake_lies import Case

FILES_AT_ONCE, ROUNDS = 160, 40


def group(name: str, judge: Judge) -> None:
    """The cases of a table."""
    cases, options = lies.GROUPS[name]
    if name == "logins":
        for case in cases():
            judge.login(case)
        with mounted(options):
            judge.honest("an honest gfmd")
        return
    with mounted(options):
        judge.honest("honest servers")
        for case in cases():
            judge.case(case)


QUESTIONS = {"gfmd.attributes": "stat", "gfmd.list": "list", "gfmd.open": "read", "gfmd.link": "link",
             "gfmd.usage": "usage", "gfmd.process": "stat anew", "gfmd.challenge": "stat anew", "gfsd.join": "read",
             "gfsd.challenge": "read", "gfsd.open": "read", "gfsd.stat": "read", "gfsd.read": "read",
             "gfsd.bulk": "bulk"}
BOUNDARIES = 14


def boundaries(judge: Judge, _seed: int) -> None:
    """Each answer ends at a boundary, and a byte behind it; what was asked is asked again, or fails."""
    with mounted("connect_timeout=8,receive_timeout=8,reconnect_timeout=2"):
        for spot, does in QUESTIONS.items():
            fields: list[int] = []

            def measure(answer: wire.Fields, fields: list[int] = fields) -> list[wire.Turn]:
                fields.append(len(answer))
                return [lies.joined(answer)]
            judge.case(Case(f"{spot} is whole", spot, measure, does, lies.DONE))
            count = max(fields, default=0)
            for field in sorted({round(n * count / BOUNDARIES) for n in range(BOUNDARIES)} - {count}):
                judge.case(Case(f"{spot} ends after {field} fields", spot, lies.cut(field, field % 3), does, lies.ANY,
                                times=1, seconds=15))


def mutation(answer: bytes, source: random.Random) -> list[wire.Turn]:
    """An answer with something wrong, or right by chance."""
    at = source.randrange(len(answer) + 1)
    end = min(len(answer), at + source.choice((1, 4, 8, 100)))
    junk = source.choice((source.randbytes(end - at), b"\xff" * (end - at), bytes(end - at)))
    changed = answer[:at] + junk + answer[end:]
    return source.choice((
        lambda: [changed], lambda: [changed], lambda: [changed], lambda: [answer[:at] + answer[end:]],
        lambda: [answer[:at] + junk + answer[at:]], lambda: [answer[:at], wire.CLOSE],
        lambda: [source.randbytes(source.choice((4, 40, 4000)))], lambda: [answer, answer],
        lambda: [answer[:at], 0.3, answer[at:]]))()


def at_random(judge: Judge, seed: int) -> None:
    """Answers that are changed at random."""
    source = random.Random(seed)
    with mounted("connect_timeout=2,receive_timeout=2,reconnect_timeout=1"):
        for number in range(ROUNDS):
            spot = source.choice(tuple(QUESTIONS))
            state = source.getrandbits(64)

            def lie(fields: wire.Fields, state: int = state) -> list[wire.Turn]:
                return mutation(lies.joined(fields), random.Random(state))
            does = QUESTIONS[spot]
            case = Case(f"{number}: {spot}", spot, lie, does, tuple(errorcode.values()) + ("", "a wrong result"),
                        times=source.choice((1, 1, None)), seconds=25, lines=40)
            judge.case(case)


def many(judge: Judge, _seed: int) -> None:
    """More files than there are workers are read when all servers stop; they go on when those are back."""
    nodes = [node for n in range(FILES_AT_ONCE) if (node := wire.find(f"f{0x700000 + n}"))]
    world = judge.world
    with mounted("connect_timeout=20,receive_timeout=60,reconnect_timeout=120"):
        files = [os.open(f"{AT}/{node.name}", os.O_RDONLY) for node in nodes]
        for server in world.gfsds.values():
            server.freeze()
        results: list[bool] = []

        def read(file: int, node: wire.Node) -> None:
            results.append(os.pread(file, node.size, 0) == wire.content(node.inum, node.size))
        threads = [threading.Thread(target=read, args=pair) for pair in zip(files, nodes, strict=True)]
        for thread in threads:
            thread.start()
        time.sleep(2)
        early = len(results)
        # The workers of all files wait for gfsds; now they all ask gfmd, which is gone as well.
        world.gfmd.freeze()
        world.end_processes()
        for server in world.gfsds.values():
            server.drop()
        time.sleep(1)
        began = time.monotonic()
        for server in (world.gfmd, *world.gfsds.values()):
            server.thaw()
        for thread in threads:
            thread.join(max(0.0, began + 90 - time.monotonic()))
        took = time.monotonic() - began
        wrong = ["" if not early else f"{early} files were read from frozen gfsds",
                 "" if results.count(True) == len(nodes) else f"{results.count(True)} of {len(nodes)} files were read"]
        judge.report("many files", "; ".join(text for text in wrong if text), took, judge.log.lines())
        if any(thread.is_alive() for thread in threads):
            subprocess.run(["umount", "-f", AT], check=False)
        for thread in threads:
            thread.join()
        for file in files:
            os.close(file)


HELD_FILES, HELD_KIB, HELD_GFSDS = 32, 64, 3000
STRANGERS = 5000


def held_kib() -> int:
    """The kernel's own memory."""
    with open("/proc/meminfo", encoding="ascii") as file:
        rows = dict(line.split(":") for line in file)
    return sum(int(rows[name].split()[0]) for name in ("Slab", "VmallocUsed"))


def long(judge: Judge, _seed: int) -> None:
    """Thousands of gfsds that nobody knows, in the first answer of all: the mount finds those later that are there.
    Files that are open do not keep the long answers."""
    world = judge.world
    with mounted("connect_timeout=8,receive_timeout=8,reconnect_timeout=2"):
        world.script.arm("gfmd.open", lies.strangers(STRANGERS))
        found = judge.user.does("read")
        world.script.disarm()
        wrong = ["" if found == "EIO" else f"{found or 'success'}, not EIO", judge.works()]
        judge.report("strangers only", "; ".join(text for text in wrong if text), 0, judge.log.lines())
        world.script.arm("gfmd.open", lies.many_hosts(HELD_GFSDS))
        files = [os.open(judge.user.path("f"), os.O_RDONLY)]
        before = held_kib()
        files += [os.open(judge.user.path("f"), os.O_RDONLY) for _file in range(HELD_FILES)]
        each = (held_kib() - before) / HELD_FILES
        world.script.disarm()
        for file in files:
            os.close(file)
        judge.report("long answers", "" if each < HELD_KIB else f"{each:.0f} KiB for each open file", 0,
                     judge.log.lines())


CLOSED_SECONDS = 40.0


def all_closed(world: fake.World) -> str:
    """Waits until gfmd has no open descriptor; what is wrong if it keeps some."""
    deadline = time.monotonic() + CLOSED_SECONDS
    while world.descriptors and time.monotonic() < deadline:
        time.sleep(0.05)
    return f"{world.descriptors} descriptors stay open" if world.descriptors else ""


HALVES_SECONDS, TOLD_SECONDS = 3.0, 20.0
# Less than until the second part, on a busy host, too.
KILLED_SECONDS = min(HALVES_SECONDS / 2 * PATIENCE, HALVES_SECONDS * 0.75)


def killed(judge: Judge, _seed: int) -> None:
    """A task is killed while a part of its answer is there: the rest is received, and the connection stays."""
    world = judge.world
    with mounted("connect_timeout=20,receive_timeout=20,reconnect_timeout=20"):
        judge.honest("honest servers")
        logins = world.processes
        for spot, program in (("gfmd.attributes", "stat"), ("gfmd.open", "cat"), ("gfmd.list", "ls")):
            for part in (0.0, 0.5, 0.9):
                def lie(fields: wire.Fields, part: float = part) -> list[wire.Turn]:
                    whole = lies.joined(fields)
                    at = int(len(whole) * part)
                    return [whole[:at], HALVES_SECONDS, whole[at:]]
                world.script.arm(spot, lie, 1)
                # What is asked before that is told without a pause.
                task = subprocess.Popen([program, judge.user.path("d" if program == "ls" else "f")],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                deadline = time.monotonic() + TOLD_SECONDS
                while not world.script.told and time.monotonic() < deadline:
                    time.sleep(0.02)
                time.sleep(HALVES_SECONDS / 6)      # for the first part to arrive
                began = time.monotonic()
                task.kill()
                task.wait()
                took = time.monotonic() - began
                told = world.script.disarm()
                found = judge.user.does("stat")
                lines = judge.log.lines()
                wrong = ["" if told else "the lie was not told",
                         "" if took < KILLED_SECONDS else f"it was killed after {took:.1f} s only",
                         found and f"then: {found}", "; ".join(lines),
                         "" if world.processes == logins else "gfmd was connected again"]
                judge.report(f"{program}, {part} of the answer to {spot}", "; ".join(text for text in wrong if text),
                             took, lines)
        judge.report("descriptors of killed tasks", all_closed(world), 0, [])
    killed_askers(judge)
    asked_anew(judge)


ASKERS, NAME_DIGITS, DIE_SECONDS = 100, 240, 5.0
MEMORY = ("/proc/sys/net/ipv4/tcp_wmem", "/proc/sys/net/ipv4/tcp_rmem")


def unsent() -> int:
    """The bytes for gfmd that it has not taken."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return sum(int(row[4].partition(":")[0], 16) for row in rows if row[2].endswith(f":{fake.PORT:04X}"))


def asker(number: int) -> int:
    """Begins a process that looks a long name up; answers its number."""
    pid = os.fork()
    if not pid:
        with suppress(OSError):
            os.stat(f"{AT}/f{0x900000 + number:0{NAME_DIGITS}}")
            os._exit(0)
        os._exit(1)
    return pid


def kill_all(tasks: list[int]) -> None:
    """Kills those of some processes that are there still."""
    for pid in tasks:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def little_memory(*paths: str) -> Iterator[None]:
    """Connections that begin in the body keep few bytes."""
    before = {}
    for path in paths:
        with open(path, encoding="ascii") as file:
            before[path] = file.read()
    try:
        for path in paths:
            with open(path, "w", encoding="ascii") as file:
                file.write("4096 4096 4096")
        yield
    finally:
        for path, told in before.items():
            with open(path, "w", encoding="ascii") as file:
                file.write(told)


def killed_askers(judge: Judge) -> None:
    """gfmd takes nothing any more: a task is killed that has sent a part of its question, and so are those behind it.
    Later gfmd gets the rest, and the connection stays."""
    world = judge.world
    world.gfmd.hold_little()
    with little_memory(MEMORY[0]), mounted("connect_timeout=20,receive_timeout=60,reconnect_timeout=20"):
        judge.honest("honest servers")
        logins = world.processes
        world.gfmd.freeze()
        tasks = [asker(number) for number in range(ASKERS)]
        time.sleep(HALVES_SECONDS)
        left, began = unsent(), time.monotonic()
        for pid in tasks:
            os.kill(pid, signal.SIGKILL)
        for pid in tasks:
            os.waitpid(pid, 0)
        took = time.monotonic() - began
        world.gfmd.thaw()
        found, lines = judge.user.does("stat"), judge.log.lines()
        wrong = ["" if left else "gfmd has taken all",
                 "" if took < DIE_SECONDS * PATIENCE else f"they died after {took:.1f} s",
                 found and f"then: {found}", "; ".join(lines),
                 "" if world.processes == logins else "gfmd was connected again"]
        judge.report("in the middle of a question", "; ".join(text for text in wrong if text), took, lines)


ANEW_SECONDS = 6


def asked_anew(judge: Judge) -> None:
    """gfmd is lost while many tasks wait for it. The next process gets all their questions at once, and takes no more
    while its answers are not taken: it is not lost, and they are answered."""
    world = judge.world
    options = f"connect_timeout=20,receive_timeout={ANEW_SECONDS},reconnect_timeout=60"
    with little_memory(*MEMORY), mounted(options):
        world.script.arm("gfmd.attributes", lies.change("user", wire.text(b"u" * 255)))
        logins = world.processes
        world.gfmd.freeze()
        tasks = [asker(number) for number in range(ASKERS)]
        time.sleep(1)
        world.end_processes()
        time.sleep(1)
        began = time.monotonic()
        world.gfmd.thaw()
        # Without end if gfmd is given up for its silence, and asked all of it anew.
        stop = threading.Timer(2 * ANEW_SECONDS, kill_all, (tasks,))
        stop.start()
        failed = sum(os.waitpid(pid, 0)[1] != 0 for pid in tasks)
        stop.cancel()
        took = time.monotonic() - began
        world.script.disarm()
        again = world.processes - logins
        wrong = [f"{failed} of {ASKERS} failed" if failed else "",
                 "" if took < ANEW_SECONDS * PATIENCE else f"they were answered after {took:.1f} s",
                 "" if again == 1 else f"gfmd was connected again {again} times"]
        judge.report("asked anew", "; ".join(text for text in wrong if text), took, judge.log.lines())


def interrupted(judge: Judge) -> None:
    """gfmd says that it cannot answer yet, and umount -f ends the pause: the task is told EIO."""
    world, said = judge.world, list[str]()
    with mounted("connect_timeout=20,receive_timeout=20,reconnect_timeout=60"):
        file = os.open(judge.user.path("f"), os.O_RDONLY)
        world.script.arm("gfmd.attributes", lies.instead(wire.u32(wire.BUSY)))
        task = threading.Thread(target=lambda: said.append(judge.user.does("stat")))
        task.start()
        deadline = time.monotonic() + TOLD_SECONDS
        while not world.script.told and time.monotonic() < deadline:
            time.sleep(0.02)
        subprocess.run(["umount", "-f", AT], stderr=subprocess.DEVNULL, check=False)
        task.join()
        world.script.disarm()
        os.close(file)
        judge.report("umount -f in a pause", "" if said == ["EIO"] else f"{said}, not EIO", 0, judge.log.lines())


CLOSED_FILES, CLOSED_TASKS = 300, 140


def closed(judge: Judge, _seed: int) -> None:
    """Files are closed while gfmd is silent, and more tasks ask it than it answers at a time. Later it closes all their
    descriptors, and never has more of them open than the mount may have."""
    world, user = judge.world, judge.user
    with mounted(f"connect_timeout=60,receive_timeout=60,reconnect_timeout=60,open_files={CLOSED_FILES}"):
        files = [os.open(user.path("f"), os.O_RDONLY) for _file in range(CLOSED_FILES)]
        opened = world.descriptors
        world.gfmd.freeze()
        tasks = [threading.Thread(target=user.does, args=("stat",)) for _task in range(CLOSED_TASKS)]
        for task in tasks:
            task.start()
        for file in files:
            os.close(file)
        time.sleep(1)       # a mount that loses descriptors does so now
        world.gfmd.thaw()
        files = [os.open(user.path("f"), os.O_RDONLY) for _file in range(CLOSED_FILES)]
        for file in files:
            os.close(file)
        for task in tasks:
            task.join()
        wrong = ["" if opened == CLOSED_FILES else f"{opened} of {CLOSED_FILES} files have a descriptor",
                 all_closed(world),
                 f"{world.most} were open at a time" if world.most > CLOSED_FILES else "",
                 "" if world.processes == 1 else "gfmd was connected again"]
        judge.report("closed files", "; ".join(text for text in wrong if text), 0, judge.log.lines())
    refused_closes(judge)
    interrupted(judge)
    interrupted_opens(judge)
    interrupted_reopens(judge)


FORGOTTEN_FILES, FORGOTTEN_STEP = 16, 3


def refused_closes(judge: Judge) -> None:
    """gfmd knows some of the descriptors no more that it is to close together: it closes those behind them."""
    world, user = judge.world, judge.user
    with mounted("connect_timeout=20,receive_timeout=20,reconnect_timeout=20"):
        logins = world.processes
        files = [os.open(user.path("f"), os.O_RDONLY) for _file in range(FORGOTTEN_FILES)]
        world.forget(FORGOTTEN_STEP)
        left = world.descriptors
        for file in files:
            os.close(file)
        wrong = ["" if left == FORGOTTEN_FILES * 2 // FORGOTTEN_STEP else f"{left} descriptors were left",
                 all_closed(world), "" if world.processes == logins else "gfmd was connected again"]
        judge.report("refused closes", "; ".join(text for text in wrong if text), 0, judge.log.lines())


FEW_FILES, SOON_SECONDS = 16, 0.9


def interrupted_opens(judge: Judge) -> None:
    """Files are closed, gfmd is silent, and another one waits for their descriptors: umount -f ends that, with EIO."""
    world, user, said = judge.world, judge.user, list[str]()
    with mounted(f"connect_timeout=20,receive_timeout=60,reconnect_timeout=60,open_files={FEW_FILES}"):
        at = os.open(AT, os.O_RDONLY | os.O_DIRECTORY)
        files = [os.open(user.path("f"), os.O_RDONLY) for _file in range(FEW_FILES)]
        wanted = user.path("f")
        os.stat(wanted)
        world.gfmd.freeze()
        for file in files:
            os.close(file)

        def wait() -> None:
            try:
                os.close(os.open(wanted, os.O_RDONLY))
                said.append("")
            except OSError as error:
                said.append(errorcode.get(error.errno or 0, str(error)))
        task = threading.Thread(target=wait)
        task.start()
        time.sleep(1.5)     # longer than it waits where no descriptor is being closed
        waited, began = not said, time.monotonic()
        subprocess.run(["umount", "-f", AT], stderr=subprocess.DEVNULL, check=False)
        task.join()
        took = time.monotonic() - began
        world.gfmd.thaw()
        os.close(at)
        wrong = ["" if waited else "it did not wait", "" if said == ["EIO"] else f"{said}, not EIO",
                 "" if took < SOON_SECONDS * PATIENCE else f"after {took:.1f} s"]
        judge.report("umount -f in an open", "; ".join(text for text in wrong if text), took, judge.log.lines())


MANY_CLOSES = 48    # more than a file that is opened anew waits for


def interrupted_reopens(judge: Judge) -> None:
    """Files are closed, gfmd is silent, and one that has lost its gfsd is to be opened anew: umount -f ends that, and
    no descriptor stays open."""
    world, user, said = judge.world, judge.user, list[str]()
    with mounted("connect_timeout=20,receive_timeout=60,reconnect_timeout=60"):
        held = os.open(user.path("f"), os.O_RDONLY)
        os.pread(held, 1, 0)
        files = [os.open(user.path("f"), os.O_RDONLY) for _file in range(MANY_CLOSES)]
        world.gfmd.freeze()
        for file in files:
            os.close(file)
        for gfsd in world.gfsds.values():
            gfsd.drop()
        os.posix_fadvise(held, 0, 0, os.POSIX_FADV_DONTNEED)

        def read() -> None:
            try:
                os.pread(held, 1, 0)
                said.append("")
            except OSError as error:
                said.append(errorcode.get(error.errno or 0, str(error)))
        task = threading.Thread(target=read)
        task.start()
        time.sleep(1)
        waited = not said
        subprocess.run(["umount", "-f", AT], stderr=subprocess.DEVNULL, check=False)
        world.forget(1)     # they have ended with their process
        world.gfmd.thaw()
        task.join()
        os.close(held)
        wrong = ["" if waited else "it did not wait", all_closed(world)]
        judge.report("umount -f while a file is opened anew", "; ".join(text for text in wrong if text), 0,
                     judge.log.lines())


PROGRAMS: dict[str, Callable[[Judge, int], None]] = {"boundaries": boundaries, "random": at_random, "many": many,
                                                     "long": long, "closed": closed,
                                                     "killed": killed, "late": answers_that_are_late}


def main() -> None:
    """One group."""
    name, seed = sys.argv[1], int(sys.argv[2])
    judge = Judge(fake.World(os.environ["KEY"]))
    if name in PROGRAMS:
        PROGRAMS[name](judge, seed)
    else:
        group(name, judge)
    sys.stdout.flush()
    os._exit(0)     # threads that serve a connection do not end


if __name__ == "__main__":
    main()
