// SPDX-License-Identifier: GPL-2.0

//! Nodes whose ports get another address: the subnet manager gives another LID, or the machine has
//! another IP address.

use super::{
    address,
    gid,
    joined,
    node,
    Address,
    Discarded,
    Net, //
};

/// Another address of a node: with another LID, or with another GID.
fn elsewhere(n: u8, is_lid: bool) -> Address {
    let mut gid = gid(n);
    gid[8] = if is_lid { 0 } else { 1 };
    Address::new(gid, if is_lid { 0x21 } else { 0 }, 17, 111, 0).unwrap()
}

fn move_to(net: &mut Net, n: u8, to: Address) {
    let now_us = net.now_us;
    let table = net.nodes[usize::from(n)].as_mut().unwrap();
    table.moved(to, now_us);
    assert_eq!(table.me().address, to);
}

/// Returns the number of the others that have this address of a node.
fn knowing(net: &Net, n: u8, at: Address) -> usize {
    let others = net.nodes.iter().flatten();
    let others = others.filter(|table| table.me().node != node(n));
    let known = others.filter_map(|table| Some(table.get(node(n))?.address()));
    known.filter(|known| *known == at).count()
}

#[test]
fn all_are_told_at_once_and_nobody_takes_it_for_dead() {
    for is_lid in [true, false] {
        for (loss, limit_ms) in [(0, 40), (5, 2_000)] {
            let (mut net, to) = (joined(30, loss), elsewhere(7, is_lid));
            // All that was to be told has been told. One is greeted in each step of the clock.
            net.run(20_000);
            move_to(&mut net, 7, to);
            let mut ms = 0;
            while knowing(&net, 7, to) < 29 {
                assert!(
                    ms < limit_ms,
                    "{} know it, loss {loss}",
                    knowing(&net, 7, to)
                );
                net.run(1);
                ms += 1;
                assert!(loss != 0 || net.agrees(), "after {ms} ms");
            }
            net.run(20_000);
            net.agree(5_000);
            assert_eq!(knowing(&net, 7, to), 29);
        }
    }
}

#[test]
fn what_comes_from_the_new_place_is_taken_and_from_the_old_one_is_not() {
    for is_lid in [true, false] {
        let (mut net, old, new) = (joined(4, 0), address(2), elsewhere(2, is_lid));
        // Within a subnet of InfiniBand a source has no GID.
        let port = |address: &Address| match is_lid {
            true => proto::gfarm::cache::address::Port::of_source(None, address.lid()),
            false => Some(address.port()),
        };
        move_to(&mut net, 2, new);
        net.run(100);
        let number = 1 + net.now_us;
        let table = net.nodes[1].as_mut().unwrap();
        let mut admit = |address: &Address, number| {
            let port = port(address)?;
            Some(table.admit(node(2), port, address.qpn(), number).err())
        };
        assert_ne!(admit(&old, number), Some(None));
        assert_eq!(admit(&new, number), Some(None));
        if !is_lid {
            assert_eq!(admit(&old, number + 1), Some(Some(Discarded::Address)));
        }
    }
}

#[test]
fn two_that_move_at_once_find_each_other_through_a_third() {
    let mut net = joined(3, 0);
    for n in [1, 2] {
        move_to(&mut net, n, elsewhere(n, true));
    }
    net.run(3_000);
    for n in [1, 2] {
        assert_eq!(knowing(&net, n, elsewhere(n, true)), 2);
    }
    net.agree(10_000);
}

#[test]
fn a_claim_about_the_old_place_is_contradicted_from_the_new_one() {
    let mut net = joined(10, 0);
    // It is away for long enough to be suspected.
    let away = net.nodes[7].take();
    net.run(5_500);
    net.nodes[7] = away;
    let to = elsewhere(7, true);
    move_to(&mut net, 7, to);
    net.agree(10_000);
    net.run(10_000);
    assert_eq!(knowing(&net, 7, to), 9);
    assert!(net.agrees());
}
