// SPDX-License-Identifier: GPL-2.0

//! Nodes that join late.

use super::{
    address,
    joined,
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
