# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: `python3 hostile_servers.py NAME SECONDS` is a server that violates the protocol.

What must come of it stands in the decorator: the errno that map_device answers with (a set of them where the
protocol leaves it open), or 0 when mapping succeeds and the lie comes with the first IO, which must then fail
(or be right) without harm.
"""
from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Callable

import messages as m
from scripted_peer import Endpoint, ScriptedPeer
from server import GO, SEND, Lies, Server

# Appears when the server listens.
READY = "/tmp/peer/ready"
# What a server that tells it was asked for.
OPERATIONS = "/tmp/peer/operations"
# How the late write has ended: the status of its completion.
WRITTEN = "/tmp/peer/written"
# Lies that harm nothing: the client invalidates its memory itself. The server then writes under the old key.
HARMLESS = ("invalidation_that_did_not_happen", "one_that_keeps_a_message_for_a_polled_read")
KEPT = HARMLESS[1]
# A READ into a buffer of the client has no key of its own: these are about READs that have one.
OF_KEYS = (*HARMLESS, "a_key_of_a_read_that_was_given_up", "an_answer_without_the_end_of_the_data")
# After these the server writes under a key of a read that has ended.
WRITES_LATE = (*HARMLESS, "a_key_of_a_read_that_was_given_up")
# For what the client closes the path, in its own words. Without its rule it would be closed some time later, too.
CLOSED_FOR = {
    "answer_for_a_request_that_was_never_made": "which is not in flight here",
    "answer_with_an_id_out_of_range": "which is none",
    "answer_of_an_unknown_type": "the unknown immediate",
    "a_request_to_a_client": "the unknown immediate",
    "key_of_a_foreign_chunk": "a key for the foreign chunk",
    "an_answer_without_the_end_of_the_data": "without the end of its data",
}
HostileServer = Callable[[], Lies]
HOSTILE_SERVERS: dict[str, tuple[tuple[int, ...], HostileServer]] = {}


def hostile_server(*expected: int) -> Callable[[HostileServer], HostileServer]:
    """Registers a lie under its function's name."""
    def register(function: HostileServer) -> HostileServer:
        HOSTILE_SERVERS[function.__name__] = (expected, function)
        return function
    return register


@hostile_server(0)
def an_honest_one() -> Lies:
    """The reference: mapping and reading work."""
    return Lies()


@hostile_server(0)
def an_old_server_whose_memory_was_not_cleared() -> Lies:
    """Reserved bytes hold an answer to somebody else: what looks like a boot and an identity is neither."""
    return Lies(session={"magic": m.EXTENSION, "nonce": 1, "boot": 2, "rest": b"\xa5" * 8},
                open={"identity": 0x3123456789ABCDEF})


@hostile_server(0)
def an_identity_that_is_none() -> Lies:
    """The nonce comes back, and with it an identity of another type."""
    return Lies(echoes=True, session={"boot": (1 << 64) - 1, "rest": b"\xff" * 8}, open={"identity": (1 << 64) - 1})


@hostile_server(0)
def one_that_tells_who_it_is() -> Lies:
    """The measure of the two before: the disk has the identity."""
    return Lies(echoes=True, session={"boot": 1}, open={"identity": 0x3123456789ABCDEF})


@hostile_server(0)
def one_that_is_slow_to_say_its_version() -> Lies:
    """It takes longer than one who has the lock of all messages waits for that."""
    return Lies(echoes=True, session={"boot": 1}, slow_seconds=0.9)


@hostile_server(0)
def one_that_erases_for_good() -> Lies:
    """Its disk has secure erase; it writes down what it is asked for."""
    return Lies(open={"secure": 1, "discard": 8192, "granularity": 4096}, tells=OPERATIONS)


@hostile_server(0)
def a_bad_second_disk_under_the_number_of_the_first() -> Lies:
    """Every OPEN after the first is answered with the number of the first and a block size of 513 bytes."""
    return Lies(open={"device": 7}, open_again={"logical": 513}, tells=OPERATIONS)


@hostile_server(0)
def a_second_disk_under_the_number_of_the_first() -> Lies:
    """Every OPEN is answered with one number: requests of the first disk would reach the second."""
    return Lies(open={"device": 7}, tells=OPERATIONS)


@hostile_server(0)
def one_that_opens_one_disk() -> Lies:
    """No OPEN after the first is answered, as by a C server with silent disks: the client says why it can send none."""
    return Lies(opens_one=True, depth=8, tells=OPERATIONS)


@hostile_server(errno.EINVAL)
def protection_information_that_does_not_exist() -> Lies:
    """A format and a mode of the future."""
    return Lies(echoes=True, session={"boot": 1}, open={"pi": b"\x7f\x0c"})


@hostile_server(errno.EINVAL)
def protection_information_unasked() -> Lies:
    """The client has asked for none: it would not know how to send its requests."""
    return Lies(echoes=True, session={"boot": 1}, open={"pi": b"\x11\x0c"})


# What a client that meets the server asks for besides.
STALE = "one_that_answers_without_data"
ASKED = {"an_answer_without_the_end_of_the_data": " pi=crc64", STALE: " pi=crc64", KEPT: " nr_poll_queues=1"}
SMALL = "one_that_takes_the_key_of_a_small_buffer_away"
OPENS_ONE = "one_that_opens_one_disk"
HONEST = {"an_honest_one": "", "a_bad_second_disk_under_the_number_of_the_first": "",
          "a_second_disk_under_the_number_of_the_first": "",
          "one_that_is_slow_to_say_its_version": "",
          "one_that_erases_for_good": "", "one_that_writes_into_buffers_at_any_time": "",
          "one_that_takes_the_key_of_a_buffer_away": "", SMALL: "", STALE: "", OPENS_ONE: "",
          "an_old_server_whose_memory_was_not_cleared": "", "an_identity_that_is_none": "",
          "one_that_tells_who_it_is": "naa.3123456789abcdef"}


@hostile_server(errno.ECONNRESET, errno.EINVAL, errno.EPROTO)
def wrong_magic_in_the_accept() -> Lies:
    """Private data of another protocol."""
    return Lies(connect={"magic": 0xDEAD})


@hostile_server(errno.ECONNRESET, errno.EINVAL, errno.EPROTO)
def wrong_version_in_the_accept() -> Lies:
    """RTRS 3.0."""
    return Lies(connect={"version": 0x0300})


@hostile_server(errno.EINVAL, errno.ECONNRESET)
def no_queue_depth() -> Lies:
    """Depth 0: no request could be sent."""
    return Lies(connect={"depth": 0})


@hostile_server(errno.EINVAL, errno.ECONNRESET, errno.ENOMEM)
def depth_and_chunk_that_do_not_fit_the_immediate() -> Lies:
    """65535 chunks of a gigabyte."""
    return Lies(connect={"depth": 65535, "io_size": 1 << 30})


@hostile_server(errno.EINVAL, errno.ECONNRESET)
def no_io_size() -> Lies:
    """max_io_size 0."""
    return Lies(connect={"io_size": 0})


@hostile_server(errno.EINVAL, errno.ECONNRESET)
def no_room_for_heads() -> Lies:
    """max_hdr_size 0."""
    return Lies(connect={"head_size": 0})


@hostile_server(errno.ECONNRESET)
def a_rejection_that_says_nothing() -> Lies:
    """A consumer's reject without private data."""
    return Lies(reject=b"")


@hostile_server(errno.EBUSY, errno.ECONNRESET)
def a_rejection_with_a_reason() -> Lies:
    """The errno of the private data counts."""
    return Lies(reject=m.connect_response(error=-errno.EBUSY))


@hostile_server(errno.EINVAL, errno.ECONNRESET, errno.EPROTO)
def info_without_regions() -> Lies:
    """sg_cnt 0."""
    return Lies(info=m.info_response([]))


@hostile_server(errno.EINVAL, errno.ECONNRESET, errno.EPROTO)
def info_that_promises_more_than_it_holds() -> Lies:
    """sg_cnt 4 with one region behind it."""
    return Lies(info=m.info_response([(0, 1, 131072)], count=4))


@hostile_server(errno.EINVAL, errno.ECONNRESET, errno.EPROTO)
def info_with_regions_of_the_wrong_size() -> Lies:
    """Less than the chunks need."""
    return Lies(info=m.info_response([(0, 1, 4096)] * 4))


@hostile_server(errno.EINVAL, errno.ECONNRESET, errno.EPROTO)
def info_of_another_type() -> Lies:
    """Type 3."""
    return Lies(info=m.info_response([(0, 1, 4 * 131072)], kind=3))


@hostile_server(errno.EINVAL, errno.ECONNRESET, errno.EPROTO)
def info_cut_short() -> Lies:
    """Three bytes."""
    return Lies(info=b"\x01\x00\x01")


@hostile_server(errno.EINVAL, errno.EPROTO, errno.EIO)
def open_response_without_block_size() -> Lies:
    """A logical block size of 0."""
    return Lies(open={"logical": 0})


@hostile_server(errno.EINVAL, errno.EPROTO, errno.EIO)
def open_response_with_an_odd_block_size() -> Lies:
    """513 bytes."""
    return Lies(open={"logical": 513})


@hostile_server(errno.EINVAL, errno.EPROTO, errno.EIO)
def open_response_of_another_type() -> Lies:
    """A session's answer to a device's question."""
    return Lies(open={"kind": m.SESSION_INFO_RESPONSE})


@hostile_server(errno.EINVAL, errno.EPROTO, errno.EIO)
def open_response_of_a_disk_without_end() -> Lies:
    """2^64 - 1 sectors."""
    return Lies(open={"sectors": (1 << 64) - 1})


def _foreign_id(server: Server, end: Endpoint, chunk: int) -> None:
    server.respond(end, (chunk + 1) % server.depth)


@hostile_server(0)
def answer_for_a_request_that_was_never_made() -> Lies:
    """The id of another chunk."""
    return Lies(at_io=_foreign_id)


def _id_out_of_range(server: Server, end: Endpoint, chunk: int) -> None:
    server.respond(end, 0x7FFFF)


@hostile_server(0)
def answer_with_an_id_out_of_range() -> Lies:
    """The largest id of the immediate."""
    return Lies(at_io=_id_out_of_range)


def _unknown_immediate(server: Server, end: Endpoint, chunk: int) -> None:
    end.post("write", SEND, 0, 0, 0, m.imm(6, chunk))


@hostile_server(0)
def answer_of_an_unknown_type() -> Lies:
    """Type 6."""
    return Lies(at_io=_unknown_immediate)


def _fenced(server: Server, end: Endpoint, chunk: int) -> None:
    server.ends[0].post("write", SEND, 0, 0, 0, m.imm(m.IMM_FENCED, 1))


@hostile_server(0)
def an_answer_to_no_fence_message() -> Lies:
    """A server that has not said that it knows the message has drained a path."""
    return Lies(at_io=_fenced)


def _request_to_a_client(server: Server, end: Endpoint, chunk: int) -> None:
    end.post("write", SEND, 0, 0, 0, m.imm(m.IMM_REQUEST, chunk))


@hostile_server(0)
def a_request_to_a_client() -> Lies:
    """IO_REQ is what clients send."""
    return Lies(at_io=_request_to_a_client)


def _invalidated(server: Server, end: Endpoint, chunk: int) -> None:
    server.lies.at_io = _invalidated        # every time: nobody knows which read is the last
    server.respond(end, chunk, kind=m.IMM_RESPONSE_INVALIDATED)


def _write_late(server: Server) -> None:
    _write(server.ends[-1], server.reply)


def _write(end: Endpoint, memory: tuple[int, int, int]) -> None:
    """Writes where a read's data should have gone, and notes how that has ended."""
    address, key, _size = memory
    while end.completion(0):
        pass
    end.post("write", SEND, 64, address, key)
    done = end.completion()
    while done and done.opcode & 128:
        done = end.completion()
    with open(WRITTEN + ".new", "w", encoding="ascii") as file:
        file.write(str(done.status if done else -1))
    os.rename(WRITTEN + ".new", WRITTEN)


@hostile_server(0)
def invalidation_that_did_not_happen() -> Lies:
    """IO_RSP_W_INV without SEND_WITH_INV: the client must take its memory back itself."""
    return Lies(at_io=_invalidated, later=_write_late)


def _lose(server: Server, end: Endpoint, chunk: int) -> None:
    server.lost = server.reply
    server.lies.reject = m.connect_response(error=-errno.EBUSY)
    _unknown_immediate(server, end, chunk)


def _welcome(server: Server) -> None:
    server.lies.reject = None


def _write_to_the_lost(server: Server) -> None:
    # The last of the client's connections; it is connected before the info request.
    _write(server.ends[-1], server.lost)


@hostile_server(0)
def a_key_of_a_read_that_was_given_up() -> Lies:
    """A read is not answered and fails when its time without a path is over. The next life has other keys."""
    return Lies(stays=True, at_io=_lose, later=_welcome, at_info=_write_to_the_lost)


def _keep(server: Server, end: Endpoint, chunk: int) -> None:
    polled, (_, key, _) = server.ends[-1], server.reply
    server.lies.at_io = _keep       # for the next request as well
    kind = m.IMM_RESPONSE
    if end is polled:
        server.lies.at_io = None
        with open(OPERATIONS, "w", encoding="ascii") as file:
            file.write("the same key" if key == server.kept else f"key {key:#x}, not {server.kept:#x}")
        kind = m.IMM_RESPONSE_INVALIDATED
    elif os.path.exists(READY + ".keep"):
        os.remove(READY + ".keep")
        server.kept = key
        polled.post("sendinv", SEND, 0, key=key)
    elif server.is_asked:
        end.post("sendinv", SEND, 0, key=key)
        kind = m.IMM_RESPONSE_INVALIDATED
    server.respond(end, chunk, kind=kind)


@hostile_server(0)
def one_that_keeps_a_message_for_a_polled_read() -> Lies:
    """A key is invalidated on an idle connection; 256 requests later a polled read there has the same one."""
    return Lies(depth=2, at_io=_keep, later=_write_late)


def _scribble(server: Server, end: Endpoint, chunk: int) -> None:
    """Writes into the buffers around the one of the READ before its data, and into it after the answer."""
    server.lies.at_io = _scribble
    address, key, size = server.reply
    if not size:
        server.respond(end, chunk)
        return
    end.put(SEND, b"\xa5" * 4096 + bytes(4096))
    for place in (address - m.BUFFER_SIZE, address + m.BUFFER_SIZE, address):
        if 0 <= place - m.BUFFERS <= m.BUFFER_BLOCK - 4096:
            end.post("write", SEND, 4096, place, key)
    end.post("write", SEND + 4096, size, address, key, m.imm(m.IMM_RESPONSE, chunk))
    end.post("write", SEND, 4096, address, key)


@hostile_server(0)
def one_that_writes_into_buffers_at_any_time() -> Lies:
    """Into those of other READs, into that of a READ before its data, and after the answer: each READ has its own."""
    return Lies(at_io=_scribble)


def _invalidate_buffer(server: Server, end: Endpoint, chunk: int) -> None:
    """Takes the key of the READ's buffer away, and then writes there, which the adapter refuses."""
    address, key, size = server.reply
    end.post("sendinv", SEND, 0, key=key)
    end.post("write", SEND, size, address, key, m.imm(m.IMM_RESPONSE, chunk))


@hostile_server(0)
def one_that_takes_the_key_of_a_buffer_away() -> Lies:
    """The path ends, and the buffers have other keys in its next life: the READ is sent again, and answered."""
    return Lies(stays=True, at_io=_invalidate_buffer)


def _answer_with_data(server: Server, end: Endpoint, chunk: int) -> None:
    """Answers a READ by the write that brings its data: of a short one the adapter refuses it without an event."""
    server.lies.at_io = _answer_with_data
    address, key, size = server.reply
    end.put(SEND, bytes(size))
    end.post("write", SEND, size, address, key, m.imm(m.IMM_RESPONSE, chunk))


def _invalidate_small_buffer(server: Server, end: Endpoint, chunk: int) -> None:
    """Takes the key of a READ of one packet away; answers the others, and those of the path's next lives."""
    if server.reply[2] == 512:
        server.lies.at_io = _answer_with_data
        _invalidate_buffer(server, end, chunk)
        return
    _answer_with_data(server, end, chunk)
    server.lies.at_io = _invalidate_small_buffer


@hostile_server(0)
def one_that_takes_the_key_of_a_small_buffer_away() -> Lies:
    """The write that the adapter refuses is one packet: the path ends, and its next life has other keys."""
    return Lies(stays=True, at_io=_invalidate_small_buffer)


def _twice(server: Server, end: Endpoint, chunk: int) -> None:
    server.respond(end, chunk)
    server.respond(end, chunk)


@hostile_server(0)
def the_same_answer_twice() -> Lies:
    """The second one is for a request that is over."""
    return Lies(at_io=_twice)


def _foreign_rkey(server: Server, end: Endpoint, chunk: int) -> None:
    end.put(SEND, m.rkey_response((chunk + 1) % server.depth, 0x1234))
    end.post("send", SEND, 8, imm=m.imm(m.IMM_RESPONSE, chunk))


@hostile_server(0)
def key_of_a_foreign_chunk() -> Lies:
    """With new keys promised, the key message names another chunk."""
    return Lies(connect={"flags": 2}, at_io=_foreign_rkey)


def _no_tail(server: Server, end: Endpoint, chunk: int) -> None:
    for blocks in (1, 2, 3, 4):
        head = server.ends[-1].get(chunk * server.chunk + blocks * (4096 + 16) + 32, 24)
        kind, size, flags, _, _, key, length = struct.unpack("<HHHHQII", head)
        if (kind, size, flags, length) == (m.READ, 32, m.NEED_INVAL | m.TAIL, blocks * 4096):
            end.post("sendinv", SEND, 0, key=key)
            end.put(SEND, m.rkey_response(chunk, 0x1234))
            end.post("send", SEND, 8, imm=m.imm(m.IMM_RESPONSE_INVALIDATED, chunk))


@hostile_server(0)
def an_answer_without_the_end_of_the_data() -> Lies:
    """A READ with protection information: the key comes, and the tuple that should be behind it does not."""
    return Lies(echoes=True, session={"boot": 1}, connect={"flags": 2}, open={"pi": b"\x11\x0c", "logical": 4096},
                at_io=_no_tail)


def _data_until_told(server: Server, end: Endpoint, chunk: int) -> None:
    """Answers READs with protection information, and from a time on without a byte."""
    server.lies.at_io = _data_until_told
    address, key, size = server.reply
    if os.path.exists(GO):
        server.respond(end, chunk)
        return
    data = bytes(size // (4096 + 16) * 4096)
    end.put(SEND, data + m.crc64_tuples(data, server.sector))
    end.post("write", SEND, size, address, key, m.imm(m.IMM_RESPONSE, chunk))


@hostile_server(0)
def one_that_answers_without_data() -> Lies:
    """The buffer of the READ has right data of the same block, of the READ before: it is an error all the same."""
    return Lies(echoes=True, depth=2, session={"boot": 1}, open={"pi": b"\x11\x0c", "logical": 4096},
                at_io=_data_until_told)


def _long_message(server: Server, end: Endpoint, chunk: int) -> None:
    end.put(SEND, struct.pack("<H", m.RKEY) + bytes(4000))
    end.post("send", SEND, 4002, imm=m.imm(m.IMM_RESPONSE, chunk))


@hostile_server(0)
def a_message_longer_than_its_receive() -> Lies:
    """4 KiB into 72 bytes: the client's adapter refuses it."""
    return Lies(connect={"flags": 2}, at_io=_long_message)


if __name__ == "__main__":
    with ScriptedPeer() as peer:
        server = Server(peer, HOSTILE_SERVERS[sys.argv[1]][1]())
        open(READY, "w", encoding="ascii").close()
        server.run(float(sys.argv[2]))
