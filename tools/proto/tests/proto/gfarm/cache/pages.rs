// SPDX-License-Identifier: GPL-2.0

//! Sets of pages, against sets of the standard library.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proto::gfarm::cache::pages::PageSet;

fn set(pages: &BTreeSet<u8>) -> PageSet {
    let mut set = PageSet::EMPTY;
    for page in pages {
        set.insert(*page);
    }
    set
}

fn model() -> impl Strategy<Value = BTreeSet<u8>> {
    prop_oneof![
        prop::collection::btree_set(any::<u8>(), 0..8),
        prop::collection::btree_set(any::<u8>(), 0..=256),
        (any::<u8>(), any::<u8>()).prop_map(|(a, b)| (a..=b).collect()),
        Just((0..=255).collect()),
    ]
}

proptest! {
    #[test]
    fn a_set_is_a_set(a in model(), b in model(), page: u8, count in 0usize..300) {
        let (x, y) = (set(&a), set(&b));
        prop_assert!(x.iter().eq(a.iter().copied()));
        prop_assert_eq!(x.len(), a.len());
        prop_assert_eq!(x.is_empty(), a.is_empty());
        prop_assert_eq!(x.contains(page), a.contains(&page));
        prop_assert_eq!(x.union(y), set(&(&a | &b)));
        prop_assert_eq!(x.intersection(y), set(&(&a & &b)));
        prop_assert_eq!(x.difference(y), set(&(&a - &b)));
        prop_assert_eq!(x.is_subset(y), a.is_subset(&b));
        prop_assert_eq!(x.is_disjoint(y), a.is_disjoint(&b));
        prop_assert_eq!(x.rank(page), a.range(..page).count());
        prop_assert_eq!(x.run(page), (page..=255).take_while(|page| a.contains(page)).count());
        prop_assert_eq!(x.nth(count), a.iter().nth(count).copied());
        prop_assert_eq!(x.lowest(count), set(&a.iter().take(count).copied().collect()));
        let mut z = x;
        z.remove(page);
        prop_assert_eq!(z, x.difference(PageSet::range(page, 1)));
        prop_assert_eq!(PageSet::from_words(x.to_words()), x);
        let range = (page..=255).take(count).collect();
        prop_assert_eq!(PageSet::range(page, count), set(&range));
    }
}

#[test]
fn the_lowest_bit_of_a_message_is_page_0() {
    assert!(PageSet::from_words([1, 0, 0, 0]).iter().eq([0]));
    assert!(PageSet::from_words([0, 1 << 63, 0, 1])
        .iter()
        .eq([127, 192]));
}

#[test]
fn pages_of_a_file_end_with_it() {
    let mib = 1 << 20;
    for (chunk, size, len) in [
        (0, 0, 0),
        (0, 1, 1),
        (0, 4096, 1),
        (0, 4097, 2),
        (0, mib, 256),
        (0, u64::MAX, 256),
        (1, mib, 0),
        (1, mib + 1, 1),
        (7, 7 * mib + 5 * 4096, 5),
        ((1 << 44) - 1, u64::MAX, 256),
        (1 << 44, u64::MAX, 0),
        (u64::MAX, u64::MAX, 0),
    ] {
        assert_eq!(
            PageSet::of_file(chunk, size),
            PageSet::range(0, len),
            "chunk {chunk} of {size} bytes"
        );
    }
}
