// SPDX-License-Identifier: GPL-2.0

//! The server's answers: room on the send queue of their connection, and the chunks' keys.
//!
//! Stands for `rtrs/server/io/{send_queue,reply}.rs`. The room is that of `proto::credit`.

use std::collections::VecDeque;

use proto::common::errno::Errno;
use proto::rtrs::{
    credit::{
        Credit,
        Reserved, //
    },
    imm::{
        Imm,
        Response, //
    },
    path::ServerState, //
};

use crate::{
    check::Kind,
    message::{
        Message,
        Side, //
    },
    network::ConnId,
    settings::Mutation,
    trace::note,
    world::World,
};

/// An answer that waits for room.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    op: u64,
    error: Option<Errno>,
    content: u64,
}

/// The send queue of a server's connection.
#[derive(Debug)]
pub(crate) struct SendQueue {
    credit: Credit,
    room: u32,
    begun: u32,
    done: u32,
    waiting: VecDeque<Waiting>,
    /// The check's own count: entries whose completion was not reported.
    unreported: u32,
    since_signal: VecDeque<u32>,
    unsignaled: u32,
}

impl SendQueue {
    pub(crate) fn new(room: u32, queue_depth: u16) -> Self {
        Self {
            credit: Credit::new(room, queue_depth),
            room,
            begun: 0,
            done: 0,
            waiting: VecDeque::new(),
            unreported: 0,
            since_signal: VecDeque::new(),
            unsignaled: 0,
        }
    }

    fn reserve(&mut self, is_broken: bool) -> Option<Reserved> {
        let done = if is_broken { self.begun } else { self.done };
        let reserved = self.credit.reserve(self.begun, done)?;
        self.begun = reserved.begun;
        self.unreported += 1;
        self.unsignaled += 1;
        if reserved.is_signaled {
            self.since_signal.push_back(self.unsignaled);
            self.unsignaled = 0;
        }
        Some(reserved)
    }
}

impl World {
    /// Reserves room for an answer or a heartbeat on a connection.
    fn reserve(&mut self, conn: ConnId) -> Option<Reserved> {
        let is_broken = self.settings.broken(Mutation::IgnoreRoom);
        let queue = self.server.queues.get_mut(&conn)?;
        let reserved = queue.reserve(is_broken);
        let (unreported, room) = (queue.unreported, queue.room);
        self.check.require(unreported <= room, Kind::QueueFull, || {
            format!("c{conn} has {unreported} answers posted, room is for {room}")
        });
        reserved
    }

    fn post_answer(&mut self, conn: ConnId, reserved: Reserved, message: Message) {
        if reserved.is_signaled {
            self.post_signaled(conn, Side::Server, message);
        } else {
            self.post(conn, Side::Server, message);
        }
    }

    /// Sends a heartbeat or its answer, if there is room.
    pub(crate) fn send_pulse(&mut self, conn: ConnId, imm: Imm) -> bool {
        let Some(reserved) = self.reserve(conn) else {
            return false;
        };
        let imm = imm.encode();
        self.post_answer(conn, reserved, Message::Pulse { imm });
        true
    }

    /// Handles the completion of a signaled answer: it and those before it are sent.
    pub(crate) fn answers_sent(&mut self, conn: ConnId) {
        let Some(queue) = self.server.queues.get_mut(&conn) else {
            return;
        };
        queue.done = queue.done.wrapping_add(queue.credit.interval());
        queue.unreported -= queue.since_signal.pop_front().unwrap_or(0);
        while let Some(queue) = self.server.queues.get(&conn) {
            let Some(first) = queue.waiting.front().copied() else {
                return;
            };
            let Some(reserved) = self.reserve(conn) else {
                return;
            };
            if let Some(queue) = self.server.queues.get_mut(&conn) {
                queue.waiting.pop_front();
            }
            self.trace.reached("an answer waits for room");
            self.answer(conn, first, reserved, true);
        }
    }

    /// Answers a request that was carried out, now or when there is room. The chunk is busy until
    /// then.
    pub(crate) fn reply(&mut self, op: u64, error: Option<Errno>, content: u64) {
        let waiting = Waiting { op, error, content };
        let Some(op) = self.server.ops.get(&op) else {
            return;
        };
        let (conn, path, request) = (op.conn, op.path, op.body.request);
        let op_is_admin = op.body.deed.is_admin();
        let state = self.server.paths.get(&path).map(|p| p.state);
        if state != Some(ServerState::Connected) {
            return self.end_op(waiting.op);
        }
        if self.server.mute && !op_is_admin {
            note!(self, Fault, "answer to r{request} forgotten");
            return self.end_op(waiting.op);
        }
        if let Some(reserved) = self.reserve(conn) {
            return self.answer(conn, waiting, reserved, false);
        }
        note!(self, Server, "answer to r{request} waits for room");
        if self.settings.broken(Mutation::ForgetWaiting) {
            return self.end_op(waiting.op);
        }
        if let Some(queue) = self.server.queues.get_mut(&conn) {
            queue.waiting.push_back(waiting);
        }
    }

    /// Posts an answer; `has_waited` for room.
    fn answer(&mut self, conn: ConnId, waiting: Waiting, reserved: Reserved, has_waited: bool) {
        let Some(op) = self.server.ops.get_mut(&waiting.op) else {
            return;
        };
        op.answered = true;
        let (path, chunk, body) = (op.path, op.chunk, op.body);
        let imm = Imm::Response(Response::new(chunk, waiting.error, false)).encode();
        let key = self.next_key(path, chunk, has_waited);
        // The client's next request in the chunk may come at once.
        self.end_op(waiting.op);
        let message = Message::Response {
            imm,
            content: waiting.content,
            key,
            request: body.request,
        };
        self.post_answer(conn, reserved, message);
    }

    /// The key that an answer brings: a new one, if the request has made the old one invalid.
    fn next_key(&mut self, path: u64, chunk: u16, has_waited: bool) -> Option<u64> {
        if !self.settings.always_invalidate {
            return None;
        }
        let chunk = usize::from(chunk);
        let forgotten = has_waited && self.settings.broken(Mutation::NoKeyAfterWait);
        let p = self.server.paths.get_mut(&path)?;
        if p.keys[chunk].is_none() && !forgotten {
            p.next_keys[chunk] += 1 << 16;
            p.keys[chunk] = Some(p.next_keys[chunk]);
        }
        Some(p.next_keys[chunk])
    }

    /// Says whether the adapter takes a request with the key that it has; otherwise its connection
    /// fails. `given_up`: the client has closed the connection.
    pub(crate) fn key_permits(&mut self, conn: ConnId, message: &Message, given_up: bool) -> bool {
        let Message::Request { imm, key, body, .. } = message else {
            return true;
        };
        let path = self.server.path_of(conn);
        let path = path.and_then(|path| self.server.paths.get(&path));
        let Some((path, chunk)) = path.zip(self.chunk_of(*imm)) else {
            return true;
        };
        if path.keys.get(usize::from(chunk)) == Some(&Some(*key)) {
            return true;
        }
        let is_live = path.state == ServerState::Connected;
        note!(
            self,
            Net,
            "c{conn}: key {key:#x} of chunk {chunk} is invalid"
        );
        self.check.require(!is_live || given_up, Kind::BadKey, || {
            let request = body.request;
            format!("r{request} came for chunk {chunk} with an invalid key")
        });
        self.break_conn(conn);
        false
    }

    /// Invalidates the key of a chunk that is being written.
    pub(crate) fn revoke(&mut self, path: u64, chunk: u16) {
        if let Some(p) = self.server.paths.get_mut(&path) {
            p.keys[usize::from(chunk)] = None;
        }
    }
}
