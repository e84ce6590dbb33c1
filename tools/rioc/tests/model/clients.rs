// SPDX-License-Identifier: GPL-2.0

//! Limits of a client, and what it sends again.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rioc::proto::{
    claim::{
        Claim,
        Claims,
        Denied,
        Use, //
    },
    index::Refused,
    limits::{
        Account,
        Exceeded,
        Limits, //
    },
    slot::NONE,
    span::Span,
    ticket::{
        Found,
        Lane,
        Outcome,
        Ticket,
        Tickets, //
    },
};

use crate::world::id;

proptest! {
    /// Clients never have more than their limits, and what they have is what has not ended.
    #[test]
    fn a_client_has_no_more_than_its_limits(
        steps in prop::collection::vec((0..4u8, 0..100u64), 1..200),
        operations_max in 1..10u32,
        bytes_max in 0..300u64,
        leases_max in 0..5u32,
    ) {
        let limits = Limits { operations_max, bytes_max, leases_max };
        let (mut account, mut begun, mut leases) = (Account::default(), Vec::new(), 0u32);
        for (step, bytes) in steps {
            let sum = begun.iter().sum::<u64>();
            match step {
                0 => {
                    let done = account.begin(bytes, &limits);
                    let expected = if begun.len() as u32 >= operations_max {
                        Err(Exceeded::Operations)
                    } else if !begun.is_empty() && sum + bytes > bytes_max {
                        Err(Exceeded::Bytes)
                    } else {
                        begun.push(bytes);
                        Ok(())
                    };
                    prop_assert_eq!(done, expected);
                }
                1 => if let Some(bytes) = begun.pop() {
                    account.end(bytes);
                },
                2 => {
                    let done = account.begin_lease(&limits);
                    prop_assert_eq!(done.is_ok(), leases < leases_max);
                    leases += u32::from(done.is_ok());
                }
                _ => if leases > 0 {
                    account.end_lease();
                    leases -= 1;
                },
            }
            let state = (begun.len() as u32, begun.iter().sum(), leases);
            prop_assert_eq!(account.state(), state);
        }
    }

    /// A client with lanes, over a net that loses, repeats and delays: each operation is carried
    /// out at most once, what is answered was carried out, and the answer is its own.
    #[test]
    fn an_operation_that_is_sent_again_is_carried_out_once(
        steps in prop::collection::vec((0..5u8, 0..3u16, any::<prop::sample::Index>()), 1..300),
    ) {
        let mut server = Tickets::new([Lane::UNUSED; 3]);
        let mut next = [1u64; 3];
        let (mut waits, mut net) = ([None; 3], Vec::new());
        let mut carried_out = BTreeMap::<Ticket, Option<u32>>::new();
        let mut count = 0;
        for (step, lane, choice) in steps {
            let own = &mut waits[usize::from(lane)];
            match step {
                // The client begins an operation, or sends it again.
                0 => {
                    let ticket = own.get_or_insert_with(|| {
                        let sequence = next[usize::from(lane)];
                        next[usize::from(lane)] += 1;
                        Ticket::new(lane, sequence).unwrap()
                    });
                    net.push(*ticket);
                }
                // It gives one up.
                1 => *own = None,
                // A message arrives, and may arrive again.
                2 | 3 if !net.is_empty() => {
                    let at = choice.index(net.len());
                    let ticket = if step == 2 { net.swap_remove(at) } else { net[at] };
                    match server.begin(ticket) {
                        Found::New => {
                            prop_assert!(carried_out.insert(ticket, None).is_none());
                        }
                        Found::Done(outcome) => {
                            prop_assert_eq!(carried_out[&ticket], Some(outcome.lease));
                            let own = &mut waits[usize::from(ticket.lane())];
                            if *own == Some(ticket) {
                                *own = None;
                            }
                        }
                        Found::Late => {
                            prop_assert_ne!(waits[usize::from(ticket.lane())], Some(ticket));
                        }
                        Found::Wait => {
                            let mut lane = carried_out.iter();
                            let is_busy = lane.any(|(other, done)| {
                                other.lane() == ticket.lane() && done.is_none()
                            });
                            prop_assert!(is_busy);
                        }
                        Found::NoLane => prop_assert!(false),
                    }
                }
                // An operation ends at the server.
                _ => {
                    let mut busy = carried_out.iter_mut().filter(|(_, done)| done.is_none());
                    if let Some((ticket, done)) = busy.next() {
                        count += 1;
                        let outcome = Outcome { errno: 0, lease: count };
                        server.end(*ticket, outcome);
                        // One that has ended does not end otherwise.
                        server.end(*ticket, Outcome::default());
                        *done = Some(count);
                    }
                }
            }
        }
    }
}

#[test]
fn a_ticket_is_a_lane_and_a_number() {
    let last = Ticket::new(u16::MAX, Ticket::SEQUENCE_MAX).unwrap();
    assert_eq!(last.word(), u64::MAX);
    assert_eq!(Ticket::from_word(u64::MAX), Some(last));
    assert_eq!(Ticket::from_word(0x1_0002).map(Ticket::lane), Some(2));
    assert_eq!(Ticket::from_word(0xffff), None);
    assert_eq!(Ticket::new(0, Ticket::SEQUENCE_MAX + 1), None);
    let mut none = Tickets::new([Lane::UNUSED; 2]);
    assert_eq!(none.begin(Ticket::new(2, 1).unwrap()), Found::NoLane);
}

/// Clients that have what they may by their limits leave the others what these may have.
#[test]
fn claims_are_enough_for_all_clients() {
    let limits = Limits {
        operations_max: 3,
        bytes_max: 0,
        leases_max: 5,
    };
    for clients in 1..6u32 {
        let count = limits.claims_of(clients);
        let memory = vec![Claim::FREE; count as usize];
        let mut claims = Claims::new(memory, vec![NONE; 4], ([5, 6], 7));
        let used = |object, is_write| Use {
            object: id(u64::from(object)),
            span: Span::ALL,
            is_write,
        };
        for client in 0..clients {
            for lease in 0..limits.leases_max {
                let used = used(client * 100 + lease, true);
                claims.lease((client, 0), &used).unwrap();
            }
        }
        for client in 0..clients {
            for operation in 0..limits.operations_max {
                let copied = used(client * 100 + 50 + operation, true);
                let both = (copied, Some(used(client * 100, false)));
                claims.operation((client, 0, 0), both).unwrap();
            }
        }
        // The store has one of its own, and there are no more.
        let own = (used(1 << 20, true), None);
        claims.operation((u32::MAX, 0, 0), own).unwrap();
        let denied = claims.operation((0, 0, 0), own);
        assert_eq!(denied, Err(Denied::NoClaims));
    }
}

#[test]
fn every_refusal_has_an_errno() {
    let refused = [
        Refused::NoObject,
        Refused::Exists,
        Refused::NoSlots,
        Refused::TooLong,
        Refused::TooManyRanges,
        Refused::Misaligned,
        Refused::Overlaps,
        Refused::Shrinking,
        Refused::NoPlace,
    ];
    let denied = [
        Denied::Leased,
        Denied::LeaseGone,
        Denied::LeaseElsewhere,
        Denied::NoClaims,
    ];
    let exceeded = [Exceeded::Operations, Exceeded::Bytes, Exceeded::Leases];
    let numbers: Vec<_> = refused
        .iter()
        .map(|refused| refused.errno())
        .chain(denied.iter().map(|denied| denied.errno()))
        .chain(exceeded.iter().map(|exceeded| exceeded.errno()))
        .map(|errno| errno.get())
        .collect();
    let expected = [
        2, 17, 28, 90, 90, 22, 22, 11, 5, 16, 116, 22, 12, 11, 11, 122,
    ];
    assert_eq!(numbers, expected);
}
