// SPDX-License-Identifier: GPL-2.0

//! Sets of requests, slots of PI blocks, and who carries out a request.

use proto::sidecar::{
    inline_submit::InlineSubmit,
    pi_cache::{
        PiCache,
        Slot, //
    },
    record::Unit,
    sectors::{
        Part,
        Sectors, //
    },
    tickets::{
        Tickets,
        TICKETS_MAX, //
    },
};

#[test]
fn a_set_has_what_was_added() {
    let mut set = Tickets::NONE;
    for ticket in 0..TICKETS_MAX {
        assert_eq!((set.first_free(), set.is_empty()), (ticket, ticket == 0));
        set.insert(ticket);
        assert!(set.iter().eq(0..=ticket));
    }
    assert_eq!((set.first_free(), set.len()), (TICKETS_MAX, 64));
    // Numbers that no request has are no members.
    let full = set;
    set.insert(TICKETS_MAX);
    set.remove(TICKETS_MAX);
    assert_eq!(set, full);
    for ticket in (0..TICKETS_MAX).rev() {
        set.remove(ticket);
        assert!(set.iter().eq(0..ticket) && set.first_free() == ticket);
    }
    let (mut even, mut odd) = (Tickets::NONE, Tickets::NONE);
    (0..8).for_each(|n| {
        if n % 2 == 0 {
            even.insert(n)
        } else {
            odd.insert(n)
        }
    });
    assert!(even.or(odd).iter().eq(0..8));
}

/// A group is given the same slot as long as that is free, and another one else.
#[test]
fn groups_have_a_first_choice() {
    let mut cache = PiCache::new([Slot::default(); 4]);
    let pin = |cache: &mut PiCache<_>, group| cache.pin([Some(group), None]).unwrap()[0].unwrap();
    assert_eq!([6, 1, 5].map(|group| pin(&mut cache, group)), [2, 1, 3]);
    // Again: the slot that it has, be it the first choice or not.
    assert_eq!([6, 1, 5].map(|group| pin(&mut cache, group)), [2, 1, 3]);
    // Two groups with the same first choice, at once: all or none.
    assert!(cache.pin([Some(0), Some(4)]).is_none());
    assert_eq!(cache.start_load(), Some((1, 1)));
    (0..2).for_each(|_| cache.unpin(3));
    cache.end_load(3, true);
    assert_eq!(cache.pin([Some(0), Some(4)]), Some([Some(0), Some(3)]));
}

#[test]
fn slots_are_counted_as_they_are() {
    let mut cache = PiCache::new([Slot::default(); 4]);
    let counts = |cache: &PiCache<[Slot; 4]>| (cache.dirty_count(), cache.writing_count());
    let write = |cache: &mut PiCache<_>| {
        let started = cache.start_write(Unit::BLOCK);
        started.map(|(slot, group, _)| (slot, group))
    };
    cache.pin([Some(0), Some(1)]).unwrap();
    assert_eq!(
        [cache.start_load(), cache.start_load()],
        [Some((0, 0)), Some((1, 1))]
    );
    assert_eq!(cache.start_load(), None);
    (0..2).for_each(|slot| cache.end_load(slot, true));
    cache.dirty(0, 0, 5);
    cache.dirty(0, 1, 4);
    cache.dirty(1, 0, 6);
    assert_eq!((counts(&cache), cache.floor()), ((2, 0), Some(4)));
    assert_eq!(write(&mut cache), Some((0, 0)));
    assert_eq!(counts(&cache), (2, 1));
    // It changes while it is written.
    cache.dirty(0, 2, 7);
    cache.end_write(0, true);
    assert_eq!((counts(&cache), cache.floor()), ((2, 0), Some(6)));
    assert_eq!(
        [write(&mut cache), write(&mut cache)],
        [Some((1, 1)), Some((0, 0))]
    );
    assert_eq!((counts(&cache), write(&mut cache)), ((2, 2), None));
    cache.end_write(1, false);
    cache.end_write(0, true);
    assert_eq!((counts(&cache), cache.floor()), ((1, 0), Some(6)));
    write(&mut cache).unwrap();
    cache.end_write(1, true);
    assert_eq!((counts(&cache), cache.floor()), ((0, 0), None));
}

/// Requests that come alone are carried out at once; the worker looks now and then.
#[test]
fn requests_that_come_alone_are_carried_out_at_once() {
    let first = InlineSubmit::default();
    assert_eq!(first.at_once(), None);
    let mut alone = first.after_worker(1);
    let mut at_once = 0;
    while let Some(next) = alone.at_once() {
        alone = InlineSubmit::from_raw(next.into_raw());
        at_once += 1;
    }
    assert_eq!(at_once, 16);
    let alone = first.after_worker(1);
    assert_eq!(alone.after_worker(0), alone);
    for together in [2, 64] {
        assert_eq!(alone.after_worker(together).at_once(), None);
    }
}

/// Each pair of tuples is in the part that is written back, which has no sector too much.
#[test]
fn a_part_has_the_sectors_that_have_changed() {
    assert_eq!(Sectors::default().part(Unit::SECTOR), Part::WHOLE);
    assert_eq!(Sectors::ALL.part(Unit::SECTOR), Part::WHOLE);
    for (a, b) in (0..=255).flat_map(|a| (a..=255).map(move |b| (a, b))) {
        let mut changed = Sectors::default();
        changed.add(b);
        changed.add(a);
        for unit in [64, 512].map(|bytes| Unit::new(bytes).unwrap()) {
            let part = changed.part(unit);
            let place = |index: u8| usize::from(index) * 16;
            let wanted = place(a) / 512 * 512..(place(b) / 512 + 1) * 512;
            assert_eq!(part.bytes(), wanted, "{a} {b}");
            assert_eq!(part.first_sector() * 512, wanted.start as u64);
        }
        assert_eq!(changed.part(Unit::BLOCK), Part::WHOLE);
    }
}

/// A tuple that changes while its PI block is being written is written the next time, and nothing
/// is left out after a write that has failed.
#[test]
fn a_write_back_has_what_has_changed_since_the_last_one() {
    let mut cache = PiCache::new([Slot::default(); 2]);
    cache.pin([Some(0), None]).unwrap();
    cache.start_load().unwrap();
    cache.end_load(0, true);
    let write = |cache: &mut PiCache<_>| cache.start_write(Unit::SECTOR).map(|(_, _, p)| p.bytes());
    cache.dirty(0, 40, 7);
    assert_eq!(write(&mut cache), Some(512..1024));
    cache.dirty(0, 255, 9);
    cache.dirty(0, 224, 8);
    assert_eq!((write(&mut cache), cache.floor()), (None, Some(7)));
    cache.end_write(0, true);
    assert_eq!(cache.floor(), Some(8));
    assert_eq!(write(&mut cache), Some(3584..4096));
    cache.end_write(0, false);
    assert_eq!((cache.floor(), cache.dirty_count()), (Some(8), 1));
    assert_eq!(write(&mut cache), Some(0..4096));
    cache.end_write(0, true);
    assert_eq!((cache.floor(), cache.dirty_count()), (None, 0));
}
