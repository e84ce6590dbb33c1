// SPDX-License-Identifier: GPL-2.0

//! Address handles that were dropped go when no send can use them any more, and not before.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use proptest::prelude::*;
use proto::rdma::retirement::{Bunch, Posted, Retired, SendQueue, Sends, Watched, WAITING_MAX};

/// The handles that were dropped, by number.
#[derive(Debug, Default)]
struct Handles(Vec<u64>);

impl Bunch for Handles {
    fn len(&self) -> usize {
        self.0.len()
    }
}

/// A queue pair and its device, which completes sends in their order.
#[derive(Debug)]
struct Queue {
    sends: Sends,
    /// The handle and the signal of each send that is on its way.
    on_their_way: VecDeque<(u64, bool)>,
    /// The posts of other contexts, of a signaled send to a handle that stays, which have begun.
    posting: usize,
}

type Shared = Rc<RefCell<Queue>>;

struct Seen(Shared);

impl SendQueue for Seen {
    fn sends(&self) -> Sends {
        self.0.borrow().sends
    }
}

impl Queue {
    fn new() -> Shared {
        Rc::new(RefCell::new(Self {
            sends: Sends {
                begun: 0,
                succeeded: 0,
                has_quiet: false,
            },
            on_their_way: VecDeque::new(),
            posting: 0,
        }))
    }

    fn begin(&mut self, posted: Posted) {
        self.sends.begun += u64::from(posted.signaled());
        self.sends.has_quiet |= posted.is_quiet();
    }

    /// Posts sends to a handle.
    fn post(&mut self, handle: u64, signals: &[bool]) {
        let posted = signals
            .iter()
            .fold(Posted::NONE, |posted, is_signaled| posted.and(*is_signaled));
        self.begin(posted);
        self.on_their_way
            .extend(signals.iter().map(|is_signaled| (handle, *is_signaled)));
    }

    /// Another context begins to post.
    fn begin_other(&mut self) {
        self.begin(Posted::LAST_SIGNALED);
        self.posting += 1;
    }

    /// One of those that have begun goes on.
    fn go_on(&mut self) {
        if self.posting > 0 {
            self.posting -= 1;
            self.on_their_way.push_back((u64::MAX, true));
        }
    }

    /// The device is done with some of the sends, and the completions are handled.
    fn complete(&mut self, count: usize) {
        let count = count.min(self.on_their_way.len());
        let signaled = self
            .on_their_way
            .drain(..count)
            .filter(|(_, is_signaled)| *is_signaled);
        self.sends.succeeded += signaled.count() as u64;
    }

    /// The posts that have begun are over, and all that is on its way is flushed.
    fn drain(&mut self) {
        self.posting = 0;
        self.on_their_way.clear();
        self.sends = self.sends.settled();
    }

    fn uses(&self, handle: u64) -> bool {
        self.on_their_way.iter().any(|(used, _)| *used == handle)
    }
}

struct Domain {
    queues: Vec<Shared>,
    watched: Vec<Watched<Seen>>,
    retired: Retired<Handles>,
    gone: Vec<u64>,
}

impl Domain {
    fn new(queues: usize) -> Self {
        let queues: Vec<_> = (0..queues).map(|_| Queue::new()).collect();
        let watched = queues
            .iter()
            .map(|queue| Watched::new(Seen(queue.clone())))
            .collect();
        Self {
            queues,
            watched,
            retired: Retired::new(Handles::default(), Handles::default()),
            gone: Vec::new(),
        }
    }

    /// Takes what may go, of which nothing may be in use.
    fn take(&mut self) {
        loop {
            let taken = self.retired.take(&mut self.watched);
            if taken.is_empty() {
                return;
            }
            for handle in &taken.0 {
                let is_used = self.queues.iter().any(|queue| queue.borrow().uses(*handle));
                assert!(!is_used, "handle {handle} is in use");
            }
            self.gone.extend(taken.0);
        }
    }

    fn retire(&mut self, handle: u64) {
        self.retired.fresh().0.push(handle);
        self.take();
    }
}

#[derive(Clone, Debug)]
enum Act {
    Post {
        queue: usize,
        signals: Vec<bool>,
    },
    Complete {
        queue: usize,
        count: usize,
    },
    Drain {
        queue: usize,
    },
    Begin {
        queue: usize,
    },
    GoOn {
        queue: usize,
    },
    /// The handle that is posted to is dropped, and the next one is made.
    Retire,
    AddQueue,
    RemoveQueue,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = (
        0..8usize,
        0..4usize,
        prop::collection::vec(any::<bool>(), 1..4),
        0..6usize,
    );
    let act = act.prop_map(|(kind, queue, signals, count)| match kind {
        0 | 1 => Act::Post { queue, signals },
        2 | 3 => Act::Complete { queue, count },
        4 => Act::Retire,
        5 if count < 3 => Act::Begin { queue },
        5 => Act::GoOn { queue },
        6 if count == 0 => Act::Drain { queue },
        6 => Act::Retire,
        _ if count == 0 => Act::AddQueue,
        _ if count == 1 => Act::RemoveQueue,
        _ => Act::Complete { queue, count: 6 },
    });
    prop::collection::vec(act, 1..120)
}

proptest! {
    /// Whatever is posted, completed, drained and dropped in any order: no handle goes that a send
    /// on its way uses; all have gone when all queue pairs are drained.
    #[test]
    fn no_handle_goes_while_a_send_uses_it(acts in acts()) {
        let mut domain = Domain::new(2);
        let mut handle = 0;
        for act in acts {
            let count = domain.queues.len();
            match act {
                Act::Post { queue, signals } if count > 0 => {
                    domain.queues[queue % count].borrow_mut().post(handle, &signals);
                }
                Act::Complete { queue, count: sends } if count > 0 => {
                    domain.queues[queue % count].borrow_mut().complete(sends);
                }
                Act::Drain { queue } if count > 0 => {
                    domain.queues[queue % count].borrow_mut().drain();
                }
                Act::Begin { queue } if count > 0 => {
                    domain.queues[queue % count].borrow_mut().begin_other();
                }
                Act::GoOn { queue } if count > 0 => {
                    domain.queues[queue % count].borrow_mut().go_on();
                }
                Act::Retire => {
                    domain.retire(handle);
                    handle += 1;
                }
                Act::AddQueue => {
                    let queue = Queue::new();
                    domain.watched.push(Watched::new(Seen(queue.clone())));
                    domain.queues.push(queue);
                }
                Act::RemoveQueue if count > 1 => {
                    let queue = domain.queues.pop().unwrap();
                    queue.borrow_mut().drain();
                    domain.watched.pop();
                }
                _ => {}
            }
            domain.take();
        }
        for queue in &domain.queues {
            queue.borrow_mut().drain();
        }
        domain.take();
        prop_assert!(domain.retired.is_empty());
        prop_assert_eq!(domain.gone, (0..handle).collect::<Vec<_>>());
    }
}

#[test]
fn a_handle_goes_with_the_last_signaled_send() {
    let mut domain = Domain::new(1);
    let queue = domain.queues[0].clone();
    queue.borrow_mut().post(1, &[false, false, true]);
    domain.retire(1);
    queue.borrow_mut().complete(2);
    domain.take();
    assert_eq!(domain.gone, []);
    queue.borrow_mut().complete(1);
    domain.take();
    assert_eq!(domain.gone, [1]);
    // Nothing is on its way: the next one goes at once.
    domain.retire(2);
    assert_eq!(domain.gone, [1, 2]);
}

#[test]
fn one_with_unsignaled_sends_goes_with_a_signaled_one_behind_them() {
    let mut domain = Domain::new(1);
    let queue = domain.queues[0].clone();
    queue.borrow_mut().post(1, &[true, false]);
    domain.retire(1);
    queue.borrow_mut().complete(2);
    domain.take();
    assert_eq!(domain.gone, []);
    queue.borrow_mut().post(3, &[true]);
    domain.take();
    assert_eq!(domain.gone, []);
    queue.borrow_mut().complete(1);
    domain.take();
    assert_eq!(domain.gone, [1]);
}

#[test]
fn each_queue_pair_is_waited_for_and_no_longer_than_it_is_there() {
    let mut domain = Domain::new(3);
    for queue in &domain.queues {
        queue.borrow_mut().post(1, &[true]);
    }
    domain.retire(1);
    domain.queues[0].borrow_mut().complete(1);
    domain.queues[1].borrow_mut().drain();
    domain.take();
    assert_eq!(domain.gone, []);
    // The next sends of the others change nothing.
    domain.queues[0].borrow_mut().post(2, &[true]);
    domain.queues.pop();
    domain.watched.pop();
    domain.take();
    assert_eq!(domain.gone, [1]);
}

#[test]
fn a_drain_ends_what_was_posted_before_it_only() {
    let mut domain = Domain::new(1);
    let queue = domain.queues[0].clone();
    queue.borrow_mut().post(1, &[true, false]);
    queue.borrow_mut().drain();
    queue.borrow_mut().post(2, &[false, true]);
    domain.retire(2);
    assert_eq!(domain.gone, []);
    queue.borrow_mut().post(3, &[true]);
    queue.borrow_mut().complete(3);
    domain.take();
    assert_eq!(domain.gone, [2]);
}

#[test]
fn those_that_are_dropped_while_others_wait_wait_together() {
    let mut domain = Domain::new(1);
    let queue = domain.queues[0].clone();
    for handle in 0..1000 {
        assert_eq!(domain.retired.is_full(), handle as usize >= WAITING_MAX);
        queue.borrow_mut().post(handle, &[true]);
        domain.retire(handle);
    }
    queue.borrow_mut().complete(1);
    domain.take();
    assert_eq!(domain.gone, [0]);
    queue.borrow_mut().complete(999);
    domain.take();
    assert_eq!(domain.gone.len(), 1000);
    assert!(domain.retired.is_empty());
}

#[test]
fn few_wait_while_sends_go_on() {
    let mut domain = Domain::new(4);
    for handle in 0..10_000 {
        for queue in &domain.queues {
            let mut queue = queue.borrow_mut();
            queue.post(handle, &[false, true]);
            let late = queue.on_their_way.len().saturating_sub(64);
            queue.complete(late);
        }
        domain.retire(handle);
        assert!(
            domain.retired.len() <= 2 * 32 + 2,
            "{} wait",
            domain.retired.len()
        );
    }
}
