// SPDX-License-Identifier: GPL-2.0

//! Nodes that join late, and whom they probe.

use std::collections::BTreeSet;

use proto::gfarm::cache::{
    gossip::BODY_LEN_MAX,
    members::{
        Members,
        PeerPlace,
        ROUND_US, //
    },
    peer::{
        Claim,
        Peer, //
    },
};

use super::{
    address,
    joined,
    record,
    table, //
};

/// A node that is told of the first other one long after its mount makes itself known as well.
#[test]
fn who_joins_late_greets_all() {
    let mut net = joined(20, 0);
    net.nodes.push(Some(table(20, 100)));
    net.run(15_000);
    let now_us = net.now_us;
    let late = net.nodes[20].as_mut().unwrap();
    late.add(address(0), now_us).unwrap();
    net.run(500);
    assert!(net.agrees());
    let late = net.nodes[20].as_ref().unwrap();
    assert!(late.peers().all(|peer| peer.is_met()));
}

/// Nodes that have the same list probe different ones at a time, so that news reach all.
#[test]
fn nodes_that_know_the_same_begin_with_different_ones() {
    let mut first = BTreeSet::new();
    for n in 0..40u8 {
        let peers = (0..40).filter(|other| *other != n);
        let places = peers.map(|other| {
            let mut peer = Peer::heard_of(&record(other, Claim::FIRST), false, 0, 0);
            peer.met();
            PeerPlace::of(Some(peer))
        });
        let random = u32::from(n).wrapping_mul(2_654_435_761);
        let mut table = Members::new(
            record(n, Claim::FIRST),
            places.collect::<Vec<_>>(),
            0,
            random,
        );
        let mut out = [0; BODY_LEN_MAX];
        let hello = table.poll(ROUND_US, 0, &mut out).unwrap();
        first.insert(hello.to.gid()[15]);
    }
    assert!(first.len() > 15, "{first:?}");
}
