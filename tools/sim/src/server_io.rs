// SPDX-License-Identifier: GPL-2.0

//! The server's requests: from the chunk to the disk and back, and the fence between two paths that
//! bring a request for the same chunk.
//!
//! Stands for `rtrs/server/{io,path/fence.rs}` and `rnbd/server`. As there, a write goes to the
//! disk from the chunk: the final content of the chunk is written.

use proto::common::errno::Errno;
use proto::rtrs::{
    imm::Imm,
    path::ServerState, //
};

use crate::{
    check::Kind,
    disk::Content,
    event::Event,
    message::{
        Body,
        Deed,
        Message, //
    },
    network::ConnId,
    server::{
        Number,
        Session, //
    },
    settings::Mutation,
    trace::note,
    world::World,
};

/// A request that is being served, or waits for another in its chunk to end.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) path: u64,
    session: [u8; 16],
    pub(crate) conn: ConnId,
    pub(crate) chunk: u16,
    /// The head, copied out of the chunk once.
    pub(crate) body: Body,
    /// The operation was begun: it is at the disk, or its answer waits.
    pub(crate) running: bool,
    /// The disk has carried it out.
    pub(crate) executed: bool,
    /// Its answer was posted.
    pub(crate) answered: bool,
    /// The device that was open under its number when an IO was begun. It stays with the operation,
    /// also when the number is closed.
    open: Option<usize>,
    /// The content that a flush covers.
    covered: Vec<(usize, Content)>,
}

impl Session {
    /// Opens a device, or finds the number that it is open under.
    fn open(&mut self, device: usize) -> u32 {
        let open = |n: &Number| *n == Number::Open { device };
        let free = |n: &Number| *n == Number::Free;
        let mut numbers = self.numbers.iter();
        let found = numbers.position(open);
        let found = found.or_else(|| self.numbers.iter().position(free));
        let number = found.unwrap_or(self.numbers.len());
        match self.numbers.get_mut(number) {
            Some(slot) => *slot = Number::Open { device },
            None => self.numbers.push(Number::Open { device }),
        }
        // CAST: a few devices.
        number as u32
    }

    /// The device of a number.
    fn device(&self, number: u32) -> Option<usize> {
        match self.numbers.get(number as usize) {
            Some(Number::Open { device }) => Some(*device),
            _ => None,
        }
    }

    /// Closes the device of a number.
    pub(crate) fn close(&mut self, number: u32, retire: bool) {
        if let (Some(device), Some(slot)) =
            (self.device(number), self.numbers.get_mut(number as usize))
        {
            *slot = match retire {
                true => Number::Retired { device },
                false => Number::Free,
            };
        }
    }
}

impl World {
    /// The chunk that a request's immediate names.
    pub(crate) fn chunk_of(&self, imm: u32) -> Option<u16> {
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
        let landed = self
            .chunk_of(*imm)
            .and_then(|c| self.landed.get(&(self.at, c)));
        landed.is_some_and(|later| later > send)
    }

    /// The adapter writes a request into its chunk, without the server's software.
    pub(crate) fn land(&mut self, conn: ConnId, message: &Message) {
        let Message::Request {
            imm, body, send, ..
        } = message
        else {
            return;
        };
        let Some(chunk) = self.chunk_of(*imm) else {
            return;
        };
        self.landed.insert((self.at, chunk), *send);
        let session = self.session_of(conn);
        let session = session.and_then(|uuid| self.server.sessions.get_mut(&uuid));
        if let Some(place) = session.and_then(|s| s.chunks.get_mut(usize::from(chunk))) {
            *place = Some(*body);
        }
    }

    /// The other requests in a chunk, by their paths.
    fn others_in(&self, session: [u8; 16], chunk: u16) -> Vec<u64> {
        let live = |path| {
            let state = self.server.paths.get(&path).map(|p| p.state);
            state == Some(ServerState::Connected)
        };
        let only_live = self.settings.broken(Mutation::FenceOnlyLive);
        let mixed = self.settings.broken(Mutation::MixSessions);
        let here = |op: &&Op| {
            let same = (mixed || op.session == session) && op.chunk == chunk;
            same && (!only_live || live(op.path))
        };
        let ops = self.server.ops.values().filter(here);
        ops.map(|op| op.path).collect()
    }

    /// Handles a request on a connected path.
    pub(crate) fn serve(&mut self, path: u64, conn: ConnId, imm: u32, body: Body) {
        let session = self.server.paths.get(&path).map(|p| p.session);
        let (Some(chunk), Some(session)) = (self.chunk_of(imm), session) else {
            self.server_close(path);
            return;
        };
        let others = self.others_in(session, chunk);
        if others.contains(&path) {
            let request = body.request;
            let what = format!("r{request} came for chunk {chunk} in use on its path");
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
            executed: false,
            answered: false,
            open: None,
            covered: Vec::new(),
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
            let of = self.server.paths.get(&other).map(|p| p.session);
            self.check
                .require(of == Some(session), Kind::OtherClient, || {
                    format!("r{request} closes path {other} of another client")
                });
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
        let its_session = self.server.sessions.get(&op.session);
        op.open = its_session.and_then(|s| s.device(op.body.number));
        let (session, chunk, body, path) = (op.session, op.chunk, op.body, op.path);
        if let Deed::Flush { device } = body.deed {
            op.covered = self.disk.dirty(device);
        }
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
        if self.settings.always_invalidate && body.deed.is_write() {
            self.revoke(path, chunk);
        }
        self.check_fence(session, &body);
        if self.answers_early(body.deed) {
            self.reply(number, None, 0);
        }
        let later = match body.deed.is_admin() {
            true => 1_000,
            false => self.disk.delay_us(&mut self.rng),
        };
        self.after(later, Event::DiskDone { op: number });
    }

    fn answers_early(&self, deed: Deed) -> bool {
        matches!(deed, Deed::Write { .. }) && self.settings.broken(Mutation::AnswerEarly)
    }

    /// A device that was closed for a client is not written by it, under whatever number, unless an
    /// administrator has opened it again, or an outage has made the client forget.
    fn check_fence(&mut self, session: [u8; 16], body: &Body) {
        let Deed::Write { block, .. } = body.deed else {
            return;
        };
        let device = block % self.settings.volatile.len();
        let Some(s) = self.server.sessions.get(&session) else {
            return;
        };
        let closed = s.numbers.contains(&Number::Retired { device });
        let open = s.device(body.number) == Some(device);
        let device = &self.clients[self.at].devices[device];
        let since = device.fenced.map(|(disconnects, _)| disconnects);
        let now = device.disconnects;
        self.check.require(
            !(closed && open && since == Some(now)),
            Kind::FenceBroken,
            || format!("r{} writes to a device that was closed", body.request),
        );
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

    /// The disk carries out an IO: it writes the content of the chunk.
    pub(crate) fn apply(&mut self, op: &Op) {
        if let Deed::Flush { .. } = op.body.deed {
            if !self.settings.broken(Mutation::IgnoreFlush) {
                self.disk.flush(&op.covered);
            }
        }
        let Deed::Write { block, fua } = op.body.deed else {
            return;
        };
        let session = self.server.sessions.get(&op.session);
        let held = session.and_then(|s| s.chunks.get(usize::from(op.chunk)).copied());
        let request = op.body.request;
        if let Some(held) = held.flatten().filter(|held| held.request != request) {
            let what = format!(
                "r{request} wrote the data of r{} to block {block}",
                held.request
            );
            self.check.fail(Kind::ForeignData, what);
        }
        note!(self, Disk, "block {block} = r{request}");
        self.check.applies(block, request);
        let fua = fua && !self.settings.broken(Mutation::IgnoreFua);
        self.disk.write(block, request, fua);
    }

    pub(crate) fn disk_done(&mut self, number: u64) {
        let Some(mut op) = self.server.ops.remove(&number) else {
            return;
        };
        let (error, content) = self.carry_out(&op);
        if error.is_none() {
            self.apply(&op);
        }
        let path = self.server.paths.get(&op.path);
        if path.is_some_and(|p| p.state == ServerState::Closing) {
            self.trace
                .reached("a request ends on a path that is closed");
        }
        op.executed = true;
        let is_answered = self.answers_early(op.body.deed);
        self.server.ops.insert(number, op);
        if is_answered {
            self.end_op(number);
        } else {
            self.reply(number, error, content);
        }
    }

    /// The result of a request: an error, or what the answer brings.
    fn carry_out(&mut self, op: &Op) -> (Option<Errno>, u64) {
        let deed = op.body.deed;
        let device = deed.device(self.settings.volatile.len());
        let Some(session) = self.server.sessions.get_mut(&op.session) else {
            return (Some(Errno::ENODEV), 0);
        };
        match deed {
            Deed::Info => return (None, self.server.boot),
            Deed::Open { device } => return (None, session.open(device).into()),
            Deed::Close { number } => session.close(number, false),
            Deed::Read { .. } | Deed::Write { .. } | Deed::Flush { .. } => {}
        }
        match (device, op.open) {
            (None, _) => (None, 0),
            (Some(_), None) => (Some(Errno::ENOTCONN), 0),
            (Some(device), Some(open)) => {
                self.check.require(device == open, Kind::WrongDevice, || {
                    let request = op.body.request;
                    format!("r{request} for device {device} reaches device {open}")
                });
                match deed {
                    Deed::Read { block } => (None, self.disk.content(block)),
                    _ => (None, 0),
                }
            }
        }
    }

    /// The request's chunk can be used again.
    pub(crate) fn end_op(&mut self, number: u64) {
        // With an early answer it is still at the disk.
        if self.server.ops.get(&number).is_some_and(|op| !op.executed) {
            return;
        }
        let Some(op) = self.server.ops.remove(&number) else {
            return;
        };
        let state = self.server.paths.get(&op.path).map(|p| p.state);
        let is_up = state == Some(ServerState::Connected) && !self.server.mute;
        self.check
            .require(op.answered || !is_up, Kind::Unanswered, || {
                format!("r{} is over and not answered", op.body.request)
            });
        self.begin_waiting(op.session, op.chunk);
        self.maybe_torn_down(op.path);
    }

    /// Drops the requests of a path that is torn down which wait for their chunk, or for room for
    /// their answer.
    pub(crate) fn drop_waiting(&mut self, path: u64) {
        let of_path = |op: &Op| op.path == path;
        let answered: Vec<u64> = self
            .server
            .ops
            .iter()
            .filter(|(_, op)| of_path(op) && op.executed)
            .map(|(number, _)| *number)
            .collect();
        self.server.ops.retain(|_, op| !of_path(op) || op.running);
        answered.into_iter().for_each(|number| self.end_op(number));
    }
}
