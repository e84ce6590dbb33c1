// SPDX-License-Identifier: GPL-2.0

//! The fence message: before what was in flight on a lost life is sent again, the server is asked
//! on another path whether it has drained that life (`proto::fence`, decision 0023).

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        rcu,
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use rdma::Drained;
use rtrs_core::proto::{
    availability::Admission,
    fence::{
        Life,
        Place,
        ANSWER_MS,
        SETUP_ANSWER_MS, //
    },
    imm::Imm, //
};

use crate::client::path::{
    connections::Connections,
    error::PathError,
    setup::Step,
    Path, //
};

/// Time until a path looks again for another one to ask on, when one has come up just after none
/// was, in milliseconds.
const NO_OTHER_MS: i64 = 5;

/// The end at the server of the life of a path that was lost: it executes no request of that any
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LifeEnd {
    /// Nothing is known of it.
    Unknown,
    /// The server cannot be asked (decision 0006).
    Assumed,
    /// The server has said so.
    Proven,
}

/// The fence message that a path has sent to its server; one at a time is under way on a path.
#[pin_data]
pub(crate) struct Question {
    /// The number of the life that the server was asked about; 0 when it has answered.
    asked: AtomicU32,
    /// Held by the thread that asks; sleeps.
    #[pin]
    turn: Mutex<()>,
}

impl Question {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            asked: AtomicU32::new(0),
            turn <- new_mutex!((), "Question::turn"),
        })
    }
}

impl Path {
    /// Handles the server's answer that it has drained life `number` of the session of `life`.
    /// Returns `false` if it was not asked. Any context.
    #[cold]
    pub(crate) fn fenced(&self, life: Option<Life>, number: u32) -> bool {
        let Some(life) = life.filter(|_| number != 0) else {
            return false;
        };
        let asked = &self.question.asked;
        if asked.load(Ordering::Acquire) != number {
            return false;
        }
        self.session.fences.lock().answered(life.session(), number);
        asked.store(0, Ordering::Release);
        self.setup.reached(0, Step::Fence);
        self.state_changed.wake_all();
        true
    }

    /// Asks the server of a path that is being connected about all lives that were given up, and
    /// waits for the answers. Sleeps.
    pub(super) fn fence_lost_lives(&self, connections: &Connections) -> Result<(), PathError> {
        let _turn = self.question.turn.lock();
        while let Some(number) = self.session.next_fence(connections) {
            self.setup.expect();
            self.question.asked.store(number, Ordering::Release);
            let answered = connections
                .send_admin_imm(Imm::Fence(number))
                .map_err(PathError::Post)
                .and_then(|()| self.setup.wait(0, Step::Fence, SETUP_ANSWER_MS));
            self.question.asked.store(0, Ordering::Release);
            answered?;
        }
        Ok(())
    }

    /// Asks the server of this path, which is up, about `life`; returns when it has answered, the
    /// path is lost, or it is one to another session now. Sleeps.
    fn ask(self: &Arc<Self>, life: Life) {
        let number = life.number();
        let _turn = self.question.turn.lock();
        let guard = rcu::read_lock();
        let connections = self.connections.read(&guard);
        let Some((connections, admin)) = connections.and_then(|c| Some((c, c.admin()?))) else {
            return;
        };
        // The path may have been connected anew since it was chosen, to a server that has another
        // life of this number.
        if connections.life().map(Life::session) != Some(life.session()) {
            return;
        }
        let asked_in = admin.qp.handler().life;
        self.question.asked.store(number, Ordering::Release);
        let sent = connections.send_admin_imm(Imm::Fence(number));
        drop(guard);
        if let Err(e) = sent {
            self.fail_life(asked_in, PathError::Post(e));
        }
        let is_over = || {
            let is_answered = self.question.asked.load(Ordering::Acquire) != number;
            is_answered || self.life() != asked_in || !self.is_connected()
        };
        let waited = self.state_changed.wait_until_timeout_ms(is_over, ANSWER_MS);
        self.question.asked.store(0, Ordering::Release);
        if waited.is_err() {
            self.abandon(PathError::FenceTimeout);
        }
    }

    /// Returns another path that is up and can settle `life`, with the place that it has reached.
    fn another(&self, life: Life) -> Option<(Arc<Self>, Place)> {
        let paths = self.session.paths.get()?;
        let guard = rcu::read_lock();
        paths.all.iter().find_map(|other| {
            let connections = other.connections.read(&guard)?;
            let is_other = !core::ptr::eq(&**other, self) && other.is_connected();
            let place = connections.place;
            let can_settle = || self.session.fences.lock().can_settle(&place, life);
            (is_other && can_settle()).then(|| (other.clone(), place))
        })
    }

    /// Asks about `life`, which was given up, on the other paths. Returns whether the server
    /// executes nothing of it any more; `false` if no path is up that can tell. Sleeps.
    fn is_settled(&self, life: Life) -> bool {
        while self.session.fences.lock().is_open(life) {
            let Some((other, place)) = self.another(life) else {
                return false;
            };
            if self.session.fences.lock().must_ask(&place, life) {
                other.ask(life);
            }
        }
        true
    }

    /// Has the requests of drained connections sent again or given back, when the server executes
    /// none of them any more. `down` is when the path went down; `None` gives them back. Sleeps.
    pub(super) fn give_on(
        &self,
        connections: &Connections,
        drained: &Drained<'_>,
        down: Option<Admission>,
    ) {
        let (session, requests) = (&self.session, &connections.requests);
        let life = connections
            .life()
            .filter(|_| requests.is_any_unanswered())
            .filter(|_| session.fences.lock().give_up(connections.place));
        let waiting = requests.unanswered();
        session
            .fenced_requests
            .fetch_add(waiting, Ordering::Relaxed);
        loop {
            let end = match life {
                None => LifeEnd::Assumed,
                Some(life) if self.is_settled(life) => LifeEnd::Proven,
                Some(_) => LifeEnd::Unknown,
            };
            if session.requests_down(requests, self.number.get(), drained, down, end) {
                break;
            }
            // Another path has come up since the last look, or one is not known to be lost yet.
            fsleep(Delta::from_millis(NO_OTHER_MS));
        }
        session
            .fenced_requests
            .fetch_sub(waiting, Ordering::Relaxed);
    }
}
