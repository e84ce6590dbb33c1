// SPDX-License-Identifier: GPL-2.0

//! The server's requests: from the chunk to the disk and back, and the fence between two paths that
//! bring a request for the same chunk.
//!
//! Stands for `rtrs/server/io` and `rnbd/server`. As there, a write goes to the disk from the
//! chunk: the final content of the chunk is written.

use proto::common::errno::Errno;
use proto::rtrs::{
    imm::{
        Imm,
        Response, //
    },
    path::ServerState, //
};

use crate::{
    check::Kind,
    event::Event,
    message::{
        Body,
        Deed,
        Message,
        Side, //
    },
    network::ConnId,
    settings::Mutation,
    trace::note,
    world::World,
};

/// A request that is being served, or waits for another in its chunk to end.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) path: u64,
    session: [u8; 16],
    conn: ConnId,
    chunk: u16,
    /// The head, copied out of the chunk once.
    body: Body,
    /// At the disk.
    pub(crate) running: bool,
}

impl World {
    /// The chunk that a request's immediate names.
    fn chunk_of(&self, imm: u32) -> Option<u16> {
        match Imm::decode(imm) {
            Ok(Imm::Request { payload }) => self.geometry.split(payload).ok().map(|(id, _)| id),
            _ => None,
        }
    }

    /// Says whether the server has received a later sending in the packet's chunk.
    pub(crate) fn is_superseded(&self, message: &Message) -> bool {
        let Message::Request { imm, send, .. } = message else {
            return false;
        };
        let landed = self.chunk_of(*imm).and_then(|c| self.landed.get(&c));
        landed.is_some_and(|later| later > send)
    }

    /// The adapter writes a request into its chunk, without the server's software.
    pub(crate) fn land(&mut self, conn: ConnId, message: &Message) {
        let Message::Request { imm, body, send } = message else {
            return;
        };
        let Some(chunk) = self.chunk_of(*imm) else {
            return;
        };
        self.landed.insert(chunk, *send);
        let session = self.session_of(conn);
        let session = session.and_then(|uuid| self.server.sessions.get_mut(&uuid));
        if let Some(place) = session.and_then(|s| s.chunks.get_mut(usize::from(chunk))) {
            *place = Some(*body);
        }
    }

    /// Handles a request on a connected path.
    pub(crate) fn serve(&mut self, path: u64, conn: ConnId, imm: u32, body: Body) {
        let session = self.server.paths.get(&path).map(|p| p.session);
        let (Some(chunk), Some(session)) = (self.chunk_of(imm), session) else {
            self.server_close(path);
            return;
        };
        let live = |path| {
            let state = self.server.paths.get(&path).map(|p| p.state);
            state == Some(ServerState::Connected)
        };
        let only_live = self.settings.broken(Mutation::FenceOnlyLive);
        let same = |op: &&Op| {
            let here = op.session == session && op.chunk == chunk;
            here && (!only_live || live(op.path))
        };
        let others: Vec<u64> = self
            .server
            .ops
            .values()
            .filter(same)
            .map(|o| o.path)
            .collect();
        if others.contains(&path) {
            let what = format!(
                "r{} came for chunk {chunk} in use on its path",
                body.request
            );
            self.check.fail(Kind::ChunkTwice, what);
            self.server_close(path);
            return;
        }
        let fence = !others.is_empty() && !self.settings.broken(Mutation::ForgetChunkFence);
        let number = self.server.number();
        let op = Op {
            path,
            session,
            conn,
            chunk,
            body,
            running: false,
        };
        self.server.ops.insert(number, op);
        if !fence {
            self.begin(number);
            return;
        }
        let request = body.request;
        note!(
            self,
            Server,
            "r{request} waits: chunk {chunk} is in flight on {others:?}"
        );
        self.trace.reached("a request waits for its chunk");
        for other in others {
            self.server_close(other);
        }
        // The waiting request of the other path has been dropped by now, and perhaps none is
        // running.
        self.begin_waiting(session, chunk);
    }

    /// Submits an operation to the disk.
    fn begin(&mut self, number: u64) {
        let Some(op) = self.server.ops.get_mut(&number) else {
            return;
        };
        op.running = true;
        let (session, chunk, body, path) = (op.session, op.chunk, op.body, op.path);
        let same = |o: &&Op| o.running && o.session == session && o.chunk == chunk;
        let running = self.server.ops.values().filter(same).count();
        self.check.require(running == 1, Kind::ChunkTwice, || {
            format!(
                "chunk {chunk} is with the disk {running} times, last by r{}",
                body.request
            )
        });
        note!(
            self,
            Server,
            "r{} {:?} begins, path {path}",
            body.request,
            body.deed
        );
        if self.settings.broken(Mutation::AnswerEarly) {
            self.reply(number, None, 0);
        }
        let later = match body.deed {
            Deed::Open => 1_000,
            _ => self.disk.delay_us(&mut self.rng),
        };
        self.after(later, Event::DiskDone { op: number });
    }

    /// Starts the operation that waits for a chunk, if none is running there.
    fn begin_waiting(&mut self, session: [u8; 16], chunk: u16) {
        let in_chunk = |o: &Op| o.session == session && o.chunk == chunk;
        let mut ops = self.server.ops.iter().filter(|(_, o)| in_chunk(o));
        if ops.clone().any(|(_, o)| o.running) {
            return;
        }
        if let Some(number) = ops.next().map(|(n, _)| *n) {
            self.begin(number);
        }
    }

    /// The disk writes the content of the chunk.
    pub(crate) fn apply(&mut self, op: &Op) {
        let Deed::Write { block } = op.body.deed else {
            return;
        };
        let session = self.server.sessions.get(&op.session);
        let held = session.and_then(|s| s.chunks.get(usize::from(op.chunk)).copied());
        let request = op.body.request;
        if let Some(held) = held.flatten().filter(|held| *held != op.body) {
            let what = format!(
                "r{request} wrote the data of r{} to block {block}",
                held.request
            );
            self.check.fail(Kind::ForeignData, what);
        }
        note!(self, Disk, "block {block} = r{request}");
        self.check.applies(block, request);
        self.disk.blocks[block] = request;
    }

    pub(crate) fn disk_done(&mut self, number: u64) {
        let Some(op) = self.server.ops.get(&number) else {
            return;
        };
        let deed = op.body.deed;
        let session = self.server.sessions.get_mut(&op.session);
        let (mut error, mut content) = (None, 0);
        match (deed, session) {
            (Deed::Open, Some(session)) => session.device_open = true,
            (_, Some(session)) if session.device_open => {}
            _ => error = Some(Errno::ENODEV),
        }
        if let Deed::Read { block } = deed {
            content = self.disk.blocks[block];
        }
        if !self.settings.broken(Mutation::AnswerEarly) {
            self.reply(number, error, content);
        }
        let Some(op) = self.server.ops.remove(&number) else {
            return;
        };
        let path = self.server.paths.get(&op.path);
        if path.is_some_and(|p| p.state == ServerState::Closing) {
            self.trace
                .reached("a request ends on a path that is closed");
        }
        if error.is_none() {
            self.apply(&op);
        }
        self.begin_waiting(op.session, op.chunk);
        self.maybe_torn_down(op.path);
    }

    fn reply(&mut self, number: u64, error: Option<Errno>, content: u64) {
        let Some(op) = self.server.ops.get(&number) else {
            return;
        };
        let (conn, request) = (op.conn, op.body.request);
        let state = self.server.paths.get(&op.path).map(|p| p.state);
        if state != Some(ServerState::Connected) {
            return;
        }
        if self.server.mute {
            note!(self, Fault, "answer to r{request} forgotten");
            return;
        }
        let imm = Imm::Response(Response::new(op.chunk, error, false)).encode();
        let message = Message::Response {
            imm,
            content,
            request,
        };
        self.post(conn, Side::Server, message);
    }

    /// Drops the waiting requests of a path that is torn down.
    pub(crate) fn drop_waiting(&mut self, path: u64) {
        self.server
            .ops
            .retain(|_, op| op.path != path || op.running);
    }
}
