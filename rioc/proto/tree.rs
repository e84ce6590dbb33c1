// SPDX-License-Identifier: GPL-2.0

//! The ranges of an object, in their order: a treap whose nodes are the slots.
//!
//! The priority of a node is a hash of its number with a random seed, so a client, which does not
//! know the seed, finds no order of writes that makes the tree deep. No step is recursive.

use super::slot::{
    Memory,
    Range,
    Slot,
    Slots,
    NONE, //
};

/// A link to a node.
#[derive(Clone, Copy)]
enum Link {
    Root,
    Left(u32),
    Right(u32),
}

/// Returns the priority of a node.
const fn priority(number: u32, seed: u32) -> u32 {
    // The finaliser of a 32-bit hash: each bit of the number changes half of the bits.
    let mut bits = number ^ seed;
    bits = (bits ^ bits >> 16).wrapping_mul(0x7feb_352d);
    bits = (bits ^ bits >> 15).wrapping_mul(0x846c_a68b);
    bits ^ bits >> 16
}

/// A tree that is changed.
struct Cut<'a, S> {
    slots: &'a mut Slots<S>,
    root: u32,
}

impl<S: Memory<Slot>> Cut<'_, S> {
    fn set(&mut self, link: Link, to: u32) {
        match link {
            Link::Root => self.root = to,
            Link::Left(parent) => {
                if let Some(range) = self.slots.range_mut(parent) {
                    range.left = to;
                }
            }
            Link::Right(parent) => {
                if let Some(range) = self.slots.range_mut(parent) {
                    range.right = to;
                }
            }
        }
    }
}

/// Returns the first range that ends behind a block.
pub(super) fn find<S: Memory<Slot>>(
    slots: &Slots<S>,
    root: u32,
    block: u32,
) -> Option<(u32, Range)> {
    let (mut node, mut found) = (root, None);
    while let Some(range) = slots.range(node) {
        if range.end() > block {
            found = Some((node, *range));
            node = range.left;
        } else {
            node = range.right;
        }
    }
    found
}

/// Adds a range that has no block in common with another one; returns the root.
pub(super) fn insert<S: Memory<Slot>>(
    slots: &mut Slots<S>,
    root: u32,
    number: u32,
    seed: u32,
) -> u32 {
    let Some(block) = slots.range(number).map(|range| range.block) else {
        return root;
    };
    let own = priority(number, seed);
    let (mut node, mut link) = (root, Link::Root);
    while let Some(range) = slots.range(node) {
        if priority(node, seed) < own {
            break;
        }
        (link, node) = if range.block < block {
            (Link::Right(node), range.right)
        } else {
            (Link::Left(node), range.left)
        };
    }
    let mut tree = Cut { slots, root };
    tree.set(link, number);
    // What was there is divided: the ranges before go to its left, the others to its right.
    let (mut before, mut behind) = (Link::Left(number), Link::Right(number));
    while let Some(range) = tree.slots.range(node).copied() {
        if range.block < block {
            tree.set(before, node);
            (before, node) = (Link::Right(node), range.right);
        } else {
            tree.set(behind, node);
            (behind, node) = (Link::Left(node), range.left);
        }
    }
    tree.set(before, NONE);
    tree.set(behind, NONE);
    tree.root
}

/// Removes a range; returns the root.
pub(super) fn remove<S: Memory<Slot>>(
    slots: &mut Slots<S>,
    root: u32,
    number: u32,
    seed: u32,
) -> u32 {
    let Some(removed) = slots.range(number).copied() else {
        return root;
    };
    let (mut node, mut link) = (root, Link::Root);
    while node != number {
        let Some(range) = slots.range(node) else {
            return root;
        };
        (link, node) = if range.block < removed.block {
            (Link::Right(node), range.right)
        } else {
            (Link::Left(node), range.left)
        };
    }
    let mut tree = Cut { slots, root };
    let (mut before, mut behind) = (removed.left, removed.right);
    loop {
        let pair = tree.slots.range(before).zip(tree.slots.range(behind));
        let Some((left, right)) = pair else {
            let rest = if before == NONE { behind } else { before };
            tree.set(link, rest);
            return tree.root;
        };
        if priority(before, seed) >= priority(behind, seed) {
            let next = left.right;
            tree.set(link, before);
            (link, before) = (Link::Right(before), next);
        } else {
            let next = right.left;
            tree.set(link, behind);
            (link, behind) = (Link::Left(behind), next);
        }
    }
}
