// SPDX-License-Identifier: GPL-2.0

//! The fence message, on both sides, and what it is for: receives that the server's software has
//! not handled.
//!
//! Stands for `rtrs/client/path/fence.rs` and `rtrs/server/path/fence_message.rs`. The decisions
//! are those of `proto::fence`.

use proto::rtrs::{
    availability::Admission,
    fence::{
        check,
        Life,
        ANSWER_MS,
        SETUP_ANSWER_MS, //
    },
    imm::Imm,
    path::{
        ClientState,
        ServerState, //
    }, //
};

use crate::{
    check::Kind,
    client_path::ClientPath,
    event::{
        Event,
        MS,
        S, //
    },
    message::{
        Message,
        Side, //
    },
    settings::Mutation,
    trace::note,
    world::World,
};

/// The requests of a path that is down, which wait until the server executes none of them any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Down {
    since: Option<Admission>,
    life: Option<Life>,
}

/// The word of another path about a life.
enum Settled {
    Yes,
    NoPath,
    /// The word comes when a path that was asked has answered, or is lost.
    Later,
}

impl World {
    // -- the client --

    /// A path that was live is down: `Session::path_down` and `Path::give_on` of the driver.
    pub(crate) fn life_is_down(&mut self, path: usize) {
        self.path_down();
        let is_any = self.clients[self.at].in_flight(path).next().is_some();
        let given_up = self.clients[self.at].paths[path].place;
        let asks = is_any && !self.settings.broken(Mutation::NoFence);
        let client = &mut self.clients[self.at];
        let given_up = given_up.filter(|place| asks && client.fences.give_up(*place));
        let life = given_up.and_then(|place| place.life());
        let is_connected = client.availability.is_connected();
        let since = is_connected.then(|| client.availability.admission());
        client.paths[path].down = Some(Down { since, life });
        self.give_on(path);
    }

    /// Has the requests of a path that is down sent again or given back, when the server executes
    /// none of them any more: the loop in `Path::give_on`.
    pub(crate) fn give_on(&mut self, path: usize) {
        let Some(Down { since, life }) = self.clients[self.at].paths[path].down else {
            return;
        };
        let settled = life.map_or(Settled::Yes, |life| self.is_settled(path, life));
        let is_connected = self.clients[self.at].availability.is_connected();
        match settled {
            Settled::Later => return,
            Settled::NoPath => self.trace.reached("a lost life is settled later"),
            Settled::Yes => {}
        }
        let client = &mut self.clients[self.at];
        client.paths[path].down = None;
        let may_resend = matches!(settled, Settled::Yes)
            && is_connected
            && since.is_some_and(|since| client.availability.admits(since));
        self.fail_over(path, may_resend);
        self.teardown_done(path);
    }

    /// Looks at all paths again that wait for an answer.
    pub(crate) fn give_on_all(&mut self) {
        for path in 0..self.clients[self.at].paths.len() {
            self.give_on(path);
        }
    }

    /// `Path::is_settled` of the driver, which waits.
    fn is_settled(&mut self, path: usize, life: Life) -> Settled {
        if !self.clients[self.at].fences.is_open(life) {
            return Settled::Yes;
        }
        let client = &mut self.clients[self.at];
        let others = client.paths.iter().enumerate();
        let up = others.filter(|&(i, p)| i != path && p.is_live && p.state().carries_io());
        let is_any_up = up.clone().next().is_some();
        let placed = |(i, p): (usize, &ClientPath)| Some((i, p.place?));
        let mut able = up.filter_map(placed);
        let other = able.find(|(_, place)| client.fences.can_settle(place, life));
        let Some((other, place)) = other else {
            if is_any_up {
                self.trace
                    .reached("a path of an older session is not asked");
                return Settled::Later;
            }
            return Settled::NoPath;
        };
        if !client.fences.must_ask(&place, life) {
            self.trace.reached("a lost life ended with its session");
            return Settled::Yes;
        }
        if client.paths[other].asked == 0 {
            self.ask(other, life.number(), ANSWER_MS);
        }
        Settled::Later
    }

    /// Sends a fence message.
    fn ask(&mut self, path: usize, number: u32, answer_ms: u32) {
        let p = &mut self.clients[self.at].paths[path];
        p.asked = number;
        let (life, admin) = (p.life, p.conns[0]);
        note!(self, Client, "p{path} asks about life {number}");
        let imm = Imm::Fence(number).encode();
        self.post(admin, Side::Client, Message::Pulse { imm });
        let timeout = Event::FenceTimeout { path, life, number };
        self.after(u64::from(answer_ms) * MS, timeout);
    }

    /// Asks about all lives that were given up before a path is used; then it is admitted:
    /// `Path::fence_lost_lives`.
    pub(crate) fn fence_lost_lives(&mut self, path: usize) {
        match self.next_fence(path) {
            Some(number) => {
                self.trace.reached("a path asks before it is used");
                self.ask(path, number, SETUP_ANSWER_MS);
            }
            None => self.admit(path),
        }
    }

    /// The number of a life that a path's server has to be asked about.
    pub(crate) fn next_fence(&mut self, path: usize) -> Option<u32> {
        let client = &mut self.clients[self.at];
        client.fences.next(&client.paths[path].place?)
    }

    /// Handles the answer to a fence message.
    pub(crate) fn fenced(&mut self, path: usize, number: u32) {
        let client = &mut self.clients[self.at];
        let p = &mut client.paths[path];
        let asked = std::mem::take(&mut p.asked);
        let life = p.place.and_then(|place| place.life());
        let Some(life) = life.filter(|_| asked == number) else {
            let what =
                format!("p{path} is told that {number} is drained, it has asked for {asked}");
            return self.check.fail(Kind::Refused, what);
        };
        note!(self, Client, "p{path}: life {number} is drained");
        let p = &self.clients[self.at].paths[path];
        let is_connecting = p.state() == ClientState::Connecting;
        self.clients[self.at]
            .fences
            .answered(life.session(), number);
        if is_connecting {
            self.fence_lost_lives(path);
        }
        self.give_on_all();
    }

    pub(crate) fn fence_timeout(&mut self, path: usize, life: u64, number: u32) {
        let p = &self.clients[self.at].paths[path];
        if p.life == life && p.asked == number {
            self.trace
                .reached("a fence message is unanswered for too long");
            self.path_failed(path);
        }
    }

    // -- the server --

    /// Handles a fence message.
    pub(crate) fn fence_message(&mut self, path: u64, number: u32) {
        let Some(p) = self.server.paths.get_mut(&path) else {
            return;
        };
        // Before that it has no receives.
        if p.state != ServerState::Connected {
            return;
        }
        let session = self.server.sessions.get(&p.session);
        let last = session.map_or(0, |s| s.last_number);
        match check(number, p.life, last) {
            Ok(()) if p.asked_about == 0 => p.asked_about = number,
            bad => {
                let what = format!(
                    "path {path} refuses a fence message: {bad:?}, {}",
                    p.asked_about
                );
                return self.check.fail(Kind::Refused, what);
            }
        }
        self.answer_fence(path);
    }

    /// Answers the fence message of a path if the other one is drained, else closes that.
    pub(crate) fn answer_fence(&mut self, path: u64) {
        let Some(p) = self.server.paths.get(&path) else {
            return;
        };
        let (number, session) = (p.asked_about, p.session);
        if number == 0 || p.state != ServerState::Connected {
            return;
        }
        let named = |o: &crate::server::ServerPath| o.life.is_some_and(|l| l.number() == number);
        let mut others = self.server.paths.iter();
        let other = others.find(|&(_, o)| o.session == session && named(o));
        let early = self.settings.broken(Mutation::FencedEarly);
        let other = other.map(|(id, _)| *id).filter(|_| !early);
        if let Some(other) = other {
            self.server_close(other);
        }
        // The close may have had it answered.
        let Some(p) = self
            .server
            .paths
            .get(&path)
            .filter(|p| p.asked_about == number)
        else {
            return;
        };
        let admin = p.conns.get(&0).copied();
        let other = other.and_then(|other| self.server.paths.get(&other));
        if other.is_some_and(|other| !other.drained) {
            self.trace.reached("a fence message waits for its answer");
            return;
        }
        note!(
            self,
            Server,
            "path number {number} is drained, says path {path}"
        );
        let is_sent = admin.is_some_and(|admin| self.send_pulse(admin, Imm::Fenced(number)));
        if let Some(p) = self.server.paths.get_mut(&path).filter(|_| is_sent) {
            p.asked_about = 0;
        }
    }

    /// Answers what can be answered.
    pub(crate) fn answer_fences(&mut self) {
        for path in self.server.paths.keys().copied().collect::<Vec<_>>() {
            self.answer_fence(path);
        }
    }

    // -- receives that wait --

    /// The server's software does not handle the receives of a wire for a while.
    pub(crate) fn stall(&mut self) {
        let wire = self.rng.usize(0..self.wires.len());
        let later = self.rng.u64(50 * MS..12 * S);
        if self.server.stalled.insert(wire) {
            note!(
                self,
                Fault,
                "receives of wire {wire} wait for {} ms",
                later / MS
            );
            self.after(later, Event::Resume { wire });
        }
    }

    /// Says whether an event waits for the receives of its wire.
    pub(crate) fn is_stalled(&self, event: &Event) -> bool {
        let Event::Receive { conn, to, .. } = event else {
            return false;
        };
        *to == Side::Server && self.server.stalled.contains(&self.conns[*conn].wire)
    }

    /// The receives of a wire are handled again, in order.
    pub(crate) fn resume_receives(&mut self, wire: usize) {
        if !self.server.stalled.remove(&wire) {
            return;
        }
        let client = self.at;
        for (owner, event) in std::mem::take(&mut self.server.held) {
            self.at = owner;
            self.handle(event);
        }
        let paths = self.server.paths.iter().filter(|(_, p)| p.wire == wire);
        for path in paths.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.server_drain(path);
        }
        self.at = client;
    }
}
