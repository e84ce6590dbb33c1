// SPDX-License-Identifier: GPL-2.0

//! Operations that come to another life of their store than the one that they were sent to.

use ferro_proto::errno::Errno;
use proptest::prelude::*;
use rioc::proto::{
    medium::Ram,
    message::{
        Message,
        Operation, //
    },
    retry::{
        Again,
        Life,
        Sendings, //
    },
    store::{
        Arrived,
        Client,
        Op,
        Store, //
    },
    ticket::{
        Lane,
        Outcome,
        Ticket, //
    },
};

use crate::{
    requests::Ask,
    rig::{
        Fault,
        Rig,
        Tables,
        LANES,
        LIMITS, //
    },
    serving::{
        in_memory,
        on_log,
        Heap,
        WRITE, //
    },
    world::id,
};

const ELSEWHERE: Arrived = Arrived::Answer(Outcome {
    errno: Errno::ENODEV.get(),
    lease: 0,
});

/// Nothing is done for it, and its number is not taken.
#[test]
fn what_is_for_another_incarnation_is_not_carried_out() {
    let mut rig = on_log(100);
    assert_eq!(rig.errno(0, WRITE, 0), 0);
    for ask in [
        Ask::Delete(1),
        Ask::Read(1, 0, 1),
        Ask::Flush(1),
        Ask::Lease(1, 0, 1, true),
    ] {
        let mut request = rig.request(0, ask, 0);
        let right = std::mem::take(&mut request.incarnation);
        for other in [0, right ^ 1, right ^ 1 << 63] {
            request.incarnation = other;
            assert_eq!(rig.send(request.clone()), Err(ELSEWHERE), "{ask:?}");
        }
        request.incarnation = right;
        let tag = rig.send(request).unwrap();
        assert_eq!(rig.answer_of(tag).errno, 0);
    }
}

/// Two logs give their first clients the same place in the order, and may the same random bits.
#[test]
fn incarnations_of_two_logs_differ() {
    let logs = [1, 2].map(|seed| Rig::on_log(100, seed, (true, Fault::None)));
    let [one, other] = logs.map(|rig| rig.clients[0].incarnation());
    assert_ne!(one, other);
}

/// A store in memory, and the client that has attached to it.
struct Begun {
    store: Store<Tables, Ram<Heap>>,
    client: Client<Vec<Lane>>,
    life: Life,
}

fn begin(number: u64) -> Begun {
    let lanes = vec![Lane::UNUSED; LANES.into()];
    // As numbers by chance are: each is another one.
    let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Begun {
        store: in_memory(20, 4, 1).store,
        client: Client::new((0, [7, 0], random), lanes, LIMITS),
        life: Life {
            incarnation: random,
            store: number,
        },
    }
}

/// A change that is on its way, and the store of the file over which it was asked for.
struct Sent {
    sequence: u64,
    incarnation: u64,
    store: u64,
}

impl Sent {
    fn arrive(&self, at: &mut Begun) -> Arrived {
        let operation = Operation::Create {
            object: id(1),
            is_new: false,
        };
        let message = Message {
            lease: 0,
            ticket: Ticket::new(0, self.sequence),
            incarnation: self.incarnation,
            operation,
        };
        let mut op = Op::new(1);
        let arrived = at.store.arrive(&mut at.client, &mut op, &message);
        if arrived == Arrived::Begins {
            let of = (&op, &message);
            at.store.answered(&mut at.client, of, Outcome::default());
        }
        arrived
    }
}

proptest! {
    /// Tasks send changes while the store is deleted and made anew, another task attaches to that,
    /// and the server has done so before its client knows: each change is carried out in the store
    /// of its file, or nowhere.
    #[test]
    fn a_change_that_another_task_overtakes_is_for_its_own_store(
        steps in prop::collection::vec((0..8u8, any::<prop::sample::Index>()), 1..120),
    ) {
        let mut now = begin(1);
        // The store of the session at the server, and that which the client knows.
        let (mut attached, mut known) = (1, now.life);
        let (mut files, mut net) = (vec![1], Vec::new());
        let mut sequence = 0;
        for (step, choice) in steps {
            match step {
                0 => now = begin(now.life.store + 1),
                1 => attached = now.life.store,
                2 if attached == now.life.store => known = now.life,
                3 => files.push(known.store),
                4 | 5 => {
                    let store = files[choice.index(files.len())];
                    if Sendings::new(true, store).send(known) != Again::Refused {
                        sequence += 1;
                        let incarnation = known.incarnation;
                        net.push(Sent { sequence, incarnation, store });
                    }
                }
                // Of a store that was deleted it is answered that it is.
                _ if net.is_empty() || attached != now.life.store => (),
                _ => {
                    let sent = net.swap_remove(choice.index(net.len()));
                    let is_its_own = sent.store == now.life.store;
                    match sent.arrive(&mut now) {
                        ELSEWHERE => prop_assert!(!is_its_own),
                        _ => prop_assert!(is_its_own, "done in another store"),
                    }
                }
            }
        }
    }
}
