# SPDX-License-Identifier: GPL-2.0
"""The guest agent: obeys JSON lines on a virtio-serial port.

The port is part of the stock kernel image, so it works before any module is loaded and survives every cut
of the network. Each request runs in a thread of its own: a command that hangs blocks no other.

    {"id": 1, "do": "run", "command": "...", "timeout": 60, "stream": false}
        -> {"id": 1, "part": "..."}... while it runs, if stream; then {"id": 1, "code": 0, "out": "..."}
    {"id": 2, "do": "kill", "target": 1, "signal": 9}      -> {"id": 2}
    {"id": 3, "do": "write", "path": "/sys/...", "text": "1"}  -> {"id": 3, "errno": 0}
    {"id": 4, "do": "push", "path": "/run/x", "data": BASE64, "append": false}  -> {"id": 4}
    {"id": 5, "do": "pull", "path": "/run/x", "offset": 0, "length": 1048576}   -> {"id": 5, "data": BASE64}
    {"id": 6, "do": "kmsg", "after": 17}                   -> {"id": 6, "lines": [[18, 6, "text"]...]}
    {"id": 7, "do": "mark"}                                -> {"id": 7, "sequence": 18}, the newest record of the log
    {"id": 8, "do": "exists", "path": "/dev/rnbd0"}        -> {"id": 8, "exists": true}
    {"id": 9, "do": "list", "path": "/sys/class"}          -> {"id": 9, "names": ["ata_port"...]}, in order
    {"id": 10, "do": "link", "path": "/dev/fd"}            -> {"id": 10, "path": "/proc/1/fd"}, with no link in it
    {"id": 11, "do": "examine", "after": 17, "folders": ["/sys/class/rtrs-client"]}
        -> {"id": 11, "lines": [...], "rdma": "what `rdma -j resource show` prints", "modules": ["brd"...],
            "folders": {"/sys/class/rtrs-client": ["ctl"...]}}
    {"id": 12, "do": "wake", "entropy": BASE64}             -> {"id": 12}

A failure of the agent itself is answered with {"id": N, "error": "..."}.
"""
import base64
import bisect
import errno
import fcntl
import json
import math
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time

PORT = "/dev/vport0p1"
TIMED_OUT = 124                 # as timeout(1) says it
GROUPS = "/sys/fs/cgroup"
KILL_GRACE_SECONDS = 2.0
# Requests that are answered at once, without a thread of their own: they cannot hang.
QUICK = frozenset({"kill", "kmsg", "mark", "exists", "list", "link"})
STREAM_SECONDS = 0.2
RNDADDENTROPY, RNDRESEEDCRNG = 0x40085203, 0x5207       # include/uapi/linux/random.h
KMSG_RECORD_BYTES = 8192


class Group:
    """The control group of one command: fio's jobs leave their parent's session, but never this."""

    def __init__(self, number):
        self.path = f"{GROUPS}/job-{number}"
        self.lock = threading.Lock()        # the group is not removed while it is being killed
        self.started = threading.Event()
        self.leader = None

    def start(self, command, out):
        """Starts the shell command in the group; answers its process."""
        os.makedirs(self.path, exist_ok=True)
        # 0 is the writing process; the shell enters before it starts another.
        entry = f"echo 0 >{self.path}/cgroup.procs\n"
        child = subprocess.Popen(["/bin/bash", "-c", entry + command], stdin=subprocess.DEVNULL,
                                 stdout=out, stderr=subprocess.STDOUT, start_new_session=True, cwd="/root")
        self.leader = child.pid
        self.started.set()
        return child

    def kill(self, number):
        """Signals the command's process group; SIGKILL goes to all it ever started and cannot be outrun."""
        self.started.wait()
        with self.lock:
            if self.leader is None:
                return      # it has ended, or never began
            try:
                os.killpg(self.leader, number)      # it may not have entered its group yet
            except ProcessLookupError:
                pass
            if number == signal.SIGKILL:
                with open(f"{self.path}/cgroup.kill", "w", encoding="ascii") as file:
                    file.write("1")

    def leave(self):
        """Removes the group, unless the command left something running on purpose."""
        with self.lock:
            self.leader = None
            self.started.set()      # or it never will be
            try:
                os.rmdir(self.path)
            except OSError:
                pass


class KernelLog:
    """The kernel log, kept as far as it was read: to read it whole takes longer with every test."""

    def __init__(self):
        self.lock = threading.Lock()
        self.file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        self.lines = []

    def after(self, sequence):
        """[sequence, level, text] of the records after a sequence number."""
        with self.lock:
            self._catch_up()
            return self.lines[bisect.bisect_right(self.lines, sequence, key=lambda line: line[0]):]

    def newest(self):
        """The sequence number of the newest record, -1 if there is none."""
        with self.lock:
            self._catch_up()
            return self.lines[-1][0] if self.lines else -1

    def _catch_up(self):
        while True:
            try:
                record = os.read(self.file, KMSG_RECORD_BYTES).decode(errors="replace")
            except BlockingIOError:
                return
            except OSError as why:
                if why.errno == errno.EPIPE:    # overwritten while reading: go on with the oldest
                    continue
                raise
            head, _, text = record.partition(";")
            level, sequence, micros = (int(part) for part in head.split(",")[:3])
            text = text.split("\n", 1)[0]
            self.lines.append([sequence, level & 7, f"[{micros / 1e6:12.6f}] {text}"])


class Agent:
    """The port, the lock around its writing end, and the commands that run now."""

    def __init__(self, port):
        self.port = port
        self.lock = threading.Lock()
        self.running = {}
        self.log = KernelLog()

    def say(self, **answer):
        """Sends one line, whole."""
        data = json.dumps(answer).encode() + b"\n"
        with self.lock:
            while data:
                data = data[os.write(self.port, data):]

    def serve(self):
        """Reads requests for ever; an end of file means that the host is not connected (yet)."""
        rest = b""
        while True:
            data = os.read(self.port, 1 << 16)
            if not data:
                time.sleep(0.1)
                continue
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self.take(line)

    def take(self, line):
        """Has a request carried out, in a thread of its own if it may take long; a command is known before a request to
        kill it is read."""
        try:
            request = json.loads(line)
            number, deed = request.pop("id"), request.pop("do")
        except (ValueError, KeyError, AttributeError) as why:
            self.say(id=None, error=f"{type(why).__name__}: {why}")
            return
        if deed == "run":
            self.running[number] = Group(number)
        if deed in QUICK:
            self.obey(number, deed, request)
        else:
            threading.Thread(target=self.obey, args=(number, deed, request), daemon=True).start()

    def obey(self, number, deed, request):
        """Carries out one request."""
        try:
            self.say(id=number, **getattr(self, "do_" + deed)(number, **request))
        except Exception as why:    # every failure must be reported to the host
            self.say(id=number, error=f"{type(why).__name__}: {why}")

    def do_run(self, number, command, timeout, stream=False):
        """One shell command in a control group of its own; its output goes through a file."""
        path = f"/run/jobs/{number}"
        group = self.running[number]
        try:
            with open(path, "wb") as out:
                child = group.start(command, out)
            with open(path, "rb") as out:
                code = self.follow(number, child, out, time.monotonic() + timeout, stream)
                return {"code": code, "out": out.read().decode(errors="replace")}
        finally:
            del self.running[number]
            group.leave()
            if os.path.exists(path):
                os.unlink(path)

    def follow(self, number, child, out, deadline, stream):
        """Waits for the child; kills it at the deadline and gives up on it if that does not help."""
        with open(os.pidfd_open(child.pid), "rb", buffering=0) as process:
            ended = select.poll()
            ended.register(process, select.POLLIN)
            pause = STREAM_SECONDS if stream else math.inf
            while not ended.poll(1000 * max(0, min(deadline - time.monotonic(), pause))):
                if time.monotonic() > deadline:
                    return self.give_up(number, child)
                part = out.read() if stream else b""
                if part:
                    self.say(id=number, part=part.decode(errors="replace"))
        return child.wait()

    def give_up(self, number, child):
        """Kills a command that has had its time; a task in an uninterruptible wait is left behind."""
        self.running[number].kill(signal.SIGKILL)
        try:
            child.wait(KILL_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        return TIMED_OUT

    def do_kill(self, _number, target, signal=9):
        """A signal to a running command; the one to kill reaches every process it started."""
        group = self.running.get(target)
        if group:
            group.kill(signal)
        return {}

    def do_write(self, _number, path, text):
        """One write(2), the way user space talks to sysfs; answers the errno."""
        try:
            file = os.open(path, os.O_WRONLY)
        except OSError as why:
            return {"errno": why.errno}
        try:
            os.write(file, text.encode())
        except OSError as why:
            return {"errno": why.errno}
        finally:
            os.close(file)
        return {"errno": 0}

    def do_push(self, _number, path, data, append=False):
        """A piece of a file from the host."""
        with open(path, "ab" if append else "wb") as out:
            out.write(base64.b64decode(data))
        return {}

    def do_pull(self, _number, path, offset, length):
        """A piece of a file for the host; shorter than asked at the file's end."""
        with open(path, "rb") as file:
            file.seek(offset)
            return {"data": base64.b64encode(file.read(length)).decode()}

    def do_kmsg(self, _number, after):
        """The kernel log after a sequence number: [sequence, level, text] each; text has the time."""
        return {"lines": self.log.after(after)}

    def do_wake(self, _number, entropy):
        """The machine goes on from a saved state: its random numbers shall not be those of the last time. The kernel
        would go on with the saved ones, up to a minute: the identity of the boot, for instance."""
        entropy = base64.b64decode(entropy)
        with open("/dev/urandom", "wb", buffering=0) as file:
            fcntl.ioctl(file, RNDADDENTROPY, struct.pack("ii", 8 * len(entropy), len(entropy)) + entropy)
            fcntl.ioctl(file, RNDRESEEDCRNG)
        return {}

    def do_mark(self, _number):
        """The sequence number of the newest record, -1 if there is none."""
        return {"sequence": self.log.newest()}

    def do_examine(self, _number, after, folders):
        """What is asked after every test, in one answer: log, RDMA objects, modules, and what is in these folders."""
        rdma = subprocess.run(["rdma", "-j", "resource", "show"], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=True)
        with open("/proc/modules", encoding="ascii") as file:
            modules = [line.partition(" ")[0] for line in file]
        return {"lines": self.log.after(after), "rdma": rdma.stdout, "modules": modules,
                "folders": {path: sorted(os.listdir(path)) for path in folders if os.path.isdir(path)}}

    def do_exists(self, _number, path):
        """Whether there is such a file, without a process."""
        return {"exists": os.path.exists(path)}

    def do_list(self, _number, path):
        """What is in a folder."""
        return {"names": sorted(os.listdir(path))}

    def do_link(self, _number, path):
        """Where links lead."""
        return {"path": os.path.realpath(path)}


def protect():
    """Makes the agent the last process to be killed for memory."""
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("-1000")


def main():
    """Waits for the port and serves it."""
    for _ in range(200):
        if os.path.exists(PORT):
            break
        time.sleep(0.05)
    protect()
    agent = Agent(os.open(PORT, os.O_RDWR))
    with open("/proc/uptime", encoding="ascii") as file:
        agent.say(ready=float(file.read().split()[0]), pid=os.getpid())
    agent.serve()


if __name__ == "__main__":
    sys.exit(main())
