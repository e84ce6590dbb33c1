// SPDX-License-Identifier: GPL-2.0

//! The owners that a table of members knows.

use std::collections::HashSet;

use proto::gfarm::cache::{
    address::{
        Address,
        Group,
        NodeId, //
    },
    members::{
        Members,
        PeerPlace, //
    },
    owner::{
        hashes,
        parts,
        ChunkKey,
        Owners,
        Ranking, //
    },
    peer::{
        Claim,
        Peer,
        Record,
        Standing, //
    },
};

use super::{
    super::address::{
        address,
        gid, //
    },
    group,
    joined,
    node,
    record,
    Net,
    Table,
    GROUPS, //
};

/// The owners by the rule itself, with a look at each node.
fn owners_of(
    table: &Table,
    key: ChunkKey,
    requester: NodeId,
    is_excluded: impl Fn(NodeId) -> bool,
) -> Owners {
    let live = table.peers().filter(|peer| peer.is_live());
    let mut live: Vec<(NodeId, Group)> = live
        .filter_map(|peer| Some((peer.node()?, peer.group()?)))
        .collect();
    let me = (table.me().node, table.me().group);
    live.push(me);
    // Of a node that is not known any more it is that of the one that looks.
    let group = table.peers().find(|peer| peer.node() == Some(requester));
    let group = group.and_then(|peer| peer.group()).unwrap_or(me.1);
    let left = |(node, _): &&(NodeId, Group)| *node == me.0 || !is_excluded(*node);
    let of_group = live.iter().filter(|(_, of)| *of == group);
    let (near, root) = hashes(key, requester, parts(of_group.clone().count()));
    let first = |hash, nodes: &mut dyn Iterator<Item = &(NodeId, Group)>| {
        let mut ranking = Ranking::new(hash);
        nodes.for_each(|(node, _)| ranking.offer(*node));
        ranking.first(|_| false)
    };
    let root = first(root, &mut live.iter().filter(left)).unwrap();
    let near = first(near, &mut of_group.filter(left)).unwrap_or(root);
    Owners { near, root }
}

/// All nodes tell the same owners of a chunk for a node, and it asks one of its own group.
#[test]
fn nodes_of_a_group_agree_on_an_owner_of_it() {
    let mut net = joined(20, 0);
    let (mut near, mut roots) = (HashSet::new(), HashSet::new());
    for chunk in 0..50 {
        let key = ChunkKey::new(5, chunk);
        for requester in 0..20 {
            let mut tables: Vec<&mut Table> = net.nodes.iter_mut().flatten().collect();
            let asked = usize::from(requester);
            let owners = tables[asked].owners(key, node(requester), |_| false);
            for table in &mut tables {
                let others = table.owners(key, node(requester), |_| false);
                assert_eq!(others, owners, "chunk {chunk} for {requester}");
            }
            let group = group(requester % GROUPS + 1);
            assert_eq!(tables[asked].group_of(owners.near), group);
            assert_eq!(tables[0].group_of(node(requester)), group);
            near.insert((chunk, group.get(), owners.near));
            roots.insert((chunk, owners.root));
        }
    }
    assert_eq!(near.len(), 50 * usize::from(GROUPS), "one for each group");
    assert_eq!(roots.len(), 50, "one for all");
}

#[test]
fn owners_are_live_and_not_excluded() {
    let mut net = joined(12, 0);
    for chunk in 0..200 {
        let key = ChunkKey::new(5, chunk);
        let mut tables: Vec<&mut Table> = net.nodes.iter_mut().flatten().collect();
        let owner = tables[0].owners(key, node(0), |_| false).root;
        for table in &mut tables {
            assert_eq!(table.owners(key, node(3), |_| false).root, owner);
        }
        let next = tables[1].owners(key, node(1), |node| node == owner).root;
        // A node does not exclude itself.
        assert_eq!(next == owner, owner == node(1));
    }
}

/// Checks that the owners that are remembered are those that the rule gives.
pub(super) fn compare(table: &mut Table, turn: usize) {
    for chunk in 0..3 {
        let key = ChunkKey::new(9, chunk);
        let bad = [node(11), node(12), node(13), node(14)];
        for bad in [&bad[..0], &bad[..1], &bad[..]] {
            let is_excluded = |node| bad.contains(&node);
            let wanted = owners_of(table, key, node(5), is_excluded);
            let found = table.owners(key, node(5), is_excluded);
            assert_eq!(found, wanted, "turn {turn}, chunk {chunk}");
        }
    }
}

/// The owners that are remembered are those that a look at each node gives, after each change.
#[test]
fn owners_are_those_of_now() {
    let mut net = Net::new(20, 10);
    let mut deaths = 0;
    for n in 1..20 {
        let table = net.nodes[usize::from(n)].as_mut().unwrap();
        table.add(address(n - 1), 0).unwrap();
    }
    for turn in 0..400 {
        net.run(100);
        match turn {
            100 | 150 | 200 => net.nodes[turn / 10 - 1] = None,
            250 => net.nodes[3].as_mut().unwrap().remove(address(4)).unwrap(),
            300 => net.nodes[7].as_mut().unwrap().leave(),
            _ => {}
        }
        for table in net.nodes.iter_mut().flatten() {
            compare(table, turn);
            deaths += table
                .peers()
                .filter(|p| p.standing() == Some(Standing::Dead))
                .count();
        }
    }
    assert!(deaths > 0, "some have died, and others have noticed");
}

/// Ranks each of 4,000 nodes once for all nodes that ask for the chunks of one file.
#[test]
fn few_nodes_are_looked_at_for_owners() {
    const NODES: u64 = 4_000;
    let mut places = vec![PeerPlace::EMPTY; NODES as usize];
    for (n, place) in (1u16..).zip(&mut places) {
        let (high, low) = ((n >> 8) as u8, n as u8);
        let mut gid = gid(low);
        gid[12] = high;
        let record = Record {
            node: NodeId::new(1_000_000 + u64::from(n)).unwrap(),
            address: Address::new(gid, 0, 17, 1, 0).unwrap(),
            boot: 1,
            claim: Claim::FIRST,
            group: group(1),
        };
        *place = PeerPlace::of(Some(Peer::heard_of(&record, false, 1, 0)));
    }
    let mut table = Members::new(record(0, Claim::FIRST), places, 0, 0);
    let ask = |table: &mut Table, requester: u64| {
        let requester = NodeId::new(1_000_000 + requester).unwrap();
        let key = ChunkKey::new(77, 3);
        let found = table.owners(key, requester, |_| false);
        assert_eq!(found, owners_of(table, key, requester, |_| false));
    };
    // One whole group and this node's own requests: of no more it is the owner.
    let mine: Vec<u64> = (1..=NODES)
        .filter(|n| hashes_of(*n) == hashes_of(1))
        .collect();
    assert!((40..100).contains(&mine.len()), "{}", mine.len());
    for requester in &mine {
        ask(&mut table, *requester);
    }
    // Who lives, who is best for the group, and who for all: of these this node is one.
    assert_eq!(table.looks(), 3 * NODES + 2);
    for requester in &mine {
        table.gave(NodeId::new(1_000_000 + requester).unwrap(), 1);
        table.next_sequence(NodeId::new(1_000_000 + requester), 0);
        ask(&mut table, *requester);
    }
    assert_eq!(table.looks(), 3 * NODES + 2);
    let first = table.peers().next().unwrap().address();
    table.remove(first).unwrap();
    ask(&mut table, mine[0]);
    assert_eq!(table.looks(), 3 * (2 * NODES - 1) + 4);
}

fn hashes_of(requester: u64) -> (u64, u64) {
    let requester = NodeId::new(1_000_000 + requester).unwrap();
    hashes(ChunkKey::new(77, 3), requester, parts(4_001))
}
