// SPDX-License-Identifier: GPL-2.0

//! The owner of a chunk.

use std::collections::BTreeMap;

use proto::gfarm::cache::{
    address::{
        Group,
        NodeId, //
    },
    excluded::EXCLUDED_MAX,
    owner::{
        hashes,
        parts,
        ChunkKey,
        Owners,
        Population,
        Ranking, //
    },
};

/// Nodes with numbers as mounts draw them.
fn nodes(count: usize) -> Vec<NodeId> {
    let mut state = 7u64;
    let mut draw = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        state
    };
    (0..count).map(|_| NodeId::new(draw()).unwrap()).collect()
}

fn ranking(hash: u64, nodes: &[NodeId]) -> Ranking {
    let mut ranking = Ranking::new(hash);
    nodes.iter().for_each(|node| ranking.offer(*node));
    ranking
}

fn owners(nodes: &[NodeId], chunk: u64, requester: NodeId) -> Owners {
    let key = ChunkKey::new(42, chunk);
    let (near, root) = hashes(key, requester, parts(nodes.len()));
    let first = |hash| ranking(hash, nodes).first(|_| false).unwrap();
    Owners {
        near: first(near),
        root: first(root),
    }
}

#[test]
fn the_order_of_the_nodes_does_not_matter() {
    let all = nodes(200);
    let mut other = all.clone();
    other.reverse();
    for chunk in 0..100 {
        assert_eq!(
            owners(&all, chunk, all[3]),
            owners(&other, chunk, all[3]),
            "chunk {chunk}"
        );
    }
}

#[test]
fn chunks_are_spread_evenly() {
    let all = nodes(20);
    let mut count = BTreeMap::new();
    for chunk in 0..20_000 {
        *count.entry(owners(&all, chunk, all[0]).root).or_insert(0) += 1;
    }
    let (least, most) = (count.values().min().unwrap(), count.values().max().unwrap());
    assert_eq!(count.len(), 20);
    assert!(*least > 850 && *most < 1150, "{least} to {most} of 1000");
}

#[test]
fn who_leaves_takes_only_its_own_chunks_along() {
    let all = nodes(50);
    let rest: Vec<NodeId> = all[1..].to_vec();
    let mut heirs = BTreeMap::new();
    for chunk in 0..20_000 {
        let (before, after) = (
            owners(&all, chunk, all[2]).root,
            owners(&rest, chunk, all[2]).root,
        );
        if before == all[0] {
            *heirs.entry(after).or_insert(0) += 1;
        } else {
            assert_eq!(before, after, "chunk {chunk}");
        }
    }
    assert!(heirs.len() > 45, "{} nodes have its chunks", heirs.len());
}

#[test]
fn few_nodes_have_one_owner() {
    assert_eq!(
        [0, 1, 64, 65, 128, 129, 1000, 4096].map(parts),
        [1, 1, 1, 2, 2, 4, 16, 64]
    );
    for count in [1, 2, 64] {
        let all = nodes(count);
        for (chunk, requester) in all.iter().enumerate() {
            let found = owners(&all, chunk as u64, *requester);
            assert_eq!(found.near, found.root);
        }
    }
}

#[test]
fn no_owner_is_asked_by_all() {
    let all = nodes(2000);
    let mut askers = BTreeMap::new();
    for requester in &all {
        *askers.entry(owners(&all, 5, *requester).near).or_insert(0) += 1;
    }
    let most = askers.values().max().unwrap();
    assert!(*most <= 128, "{most} ask one owner, which has 128 receives");
    // The owner of one of the groups is that of all.
    assert!(askers.contains_key(&owners(&all, 5, all[0]).root));
}

#[test]
fn without_nodes_there_is_no_owner() {
    assert_eq!(ranking(5, &[]).first(|_| false), None);
}

/// Nodes that are excluded are passed over, and a node that is offered twice has one place.
#[test]
fn the_owner_is_the_first_that_is_not_excluded() {
    let mut all = nodes(30);
    for hash in 0..100 {
        let twice: Vec<NodeId> = all.iter().chain(&all).copied().collect();
        let mut bad = Vec::new();
        for _ in 0..=EXCLUDED_MAX {
            let rest: Vec<NodeId> = all.iter().filter(|n| !bad.contains(*n)).copied().collect();
            let wanted = ranking(hash, &rest).first(|_| false);
            let found = ranking(hash, &twice).first(|node| bad.contains(&node));
            assert_eq!(found, wanted);
            bad.extend(found);
        }
        assert_eq!(bad.len(), EXCLUDED_MAX + 1);
        all.rotate_left(1);
    }
}

#[test]
fn nodes_are_counted_by_group() {
    let group = |number| Group::new(number).unwrap();
    let mut population = Population::NONE;
    assert_eq!((population.all(), population.of(group(1))), (0, 0));
    population.add(group(64));
    population.add(group(64));
    // All are of one group: then it is that of all, and nothing is different with groups.
    assert_eq!(population.near(group(64)), None);
    population.add(group(1));
    assert_eq!(population.all(), 3);
    assert_eq!([1, 2, 64].map(|n| population.of(group(n))), [1, 0, 2]);
    assert_eq!(population.near(group(64)), Some(group(64)));
}
