// SPDX-License-Identifier: GPL-2.0

//! Advances of a server's claim: one test for each rule.

use proto::sidecar::{
    claim::{
        advance::{
            rest_ms,
            Advance,
            Beside,
            End,
            Errand,
            Next,
            SOON_MS,
            STEPS_MAX, //
        },
        mark::Found,
        Claim,
        Timing, //
    },
    layout::{
        Layout,
        SUPERBLOCK, //
    },
    superblock::{
        Superblock,
        Version, //
    },
    BLOCK_BYTES, //
};

use super::super::Sum;

const TIMES: Timing = Timing::SERVERS;
const OWN: u64 = 7;

const fn mark(opening: u64, stamp: u64) -> Found {
    Found::Marked { opening, stamp }
}

/// A device and a server: what is there, and what it does.
struct World {
    claim: Claim,
    sector: Found,
    beside: Beside,
    is_permitted: bool,
    /// The other server writes its mark while this one waits.
    other_lives: bool,
    /// A reading and a writing take so long, in milliseconds.
    slowness_ms: u32,
    /// The number of the IO that fails.
    fails: Option<usize>,
    did: Vec<Next>,
}

impl World {
    fn new(sector: Found) -> Self {
        Self {
            claim: Claim::new(OWN, TIMES),
            sector,
            beside: Beside::Same,
            is_permitted: true,
            other_lives: false,
            slowness_ms: 0,
            fails: None,
            did: Vec::new(),
        }
    }

    /// A device that the server has open.
    fn held() -> Self {
        let mut world = Self::new(Found::Free);
        assert_eq!(world.go(Errand::Take), Some(End::Held));
        world.did.clear();
        world.claim.pass(TIMES.interval_ms);
        world
    }

    /// Does an errand; `None`: an IO has failed.
    fn go(&mut self, errand: Errand) -> Option<End> {
        let mut advance = Advance::new(errand, &mut self.claim);
        loop {
            let next = advance.next(&mut self.claim, self.is_permitted);
            if let Next::End(end) = next {
                return Some(end);
            }
            let is_io = !matches!(next, Next::Wait { .. });
            let ios = self
                .did
                .iter()
                .filter(|did| !matches!(did, Next::Wait { .. }));
            let fails = is_io && self.fails == Some(ios.count());
            self.did.push(next);
            if is_io {
                self.claim.pass(self.slowness_ms);
            }
            if fails {
                advance.failed(&mut self.claim);
                return None;
            }
            match next {
                Next::Read if !advance.read(&mut self.claim, self.sector, self.beside) => {
                    advance.failed(&mut self.claim);
                    return None;
                }
                Next::Read | Next::End(_) => {}
                Next::Write { .. } => {
                    self.sector = mark(OWN, self.did.len() as u64);
                    advance.written(&mut self.claim);
                }
                Next::Remove => {
                    self.sector = Found::Free;
                    advance.written(&mut self.claim);
                }
                Next::Wait { ms, .. } => {
                    self.claim.pass(ms);
                    if let (true, Found::Marked { opening, stamp }) =
                        (self.other_lives, self.sector)
                    {
                        self.sector = mark(opening, stamp + 1);
                    }
                    advance.waited(&mut self.claim);
                }
            }
        }
    }
}

const fn wait(ms: u32, is_watching: bool) -> Next {
    Next::Wait { ms, is_watching }
}

const FIRST: Next = Next::Write { durable: true };

#[test]
fn a_device_that_was_closed_is_marked_durably_and_looked_at_once_more() {
    let mut world = World::new(Found::Free);
    assert_eq!(world.go(Errand::Take), Some(End::Held));
    let settle = wait(TIMES.settle_ms, false);
    assert_eq!(world.did, [Next::Read, FIRST, settle, Next::Read]);
    assert_ne!(world.claim.lease_ms(), 0);
}

#[test]
fn the_mark_of_another_one_is_waited_for_and_that_is_told() {
    let mut world = World::new(mark(1, 1));
    assert_eq!(world.go(Errand::Take), Some(End::Held));
    assert_eq!(world.did[1], wait(TIMES.stale_ms, true));
    assert!(world.did[2..]
        .iter()
        .all(|did| *did != wait(TIMES.stale_ms, true)));
}

#[test]
fn a_mark_that_changes_is_of_one_that_has_the_device() {
    let mut world = World::new(mark(1, 1));
    world.other_lives = true;
    let end = world.go(Errand::Take);
    assert_eq!(end, Some(End::Busy));
    assert!(end.unwrap().is_lost());
    assert_eq!(
        world.did,
        [Next::Read, wait(TIMES.stale_ms, true), Next::Read]
    );
}

#[test]
fn no_first_mark_is_written_where_there_is_no_sidecar() {
    let mut world = World::new(Found::Free);
    world.beside = Beside::Nothing;
    assert_eq!(world.go(Errand::Take), Some(End::NoSidecar));
    assert_eq!(world.did, [Next::Read]);
    assert_eq!(world.claim.lease_ms(), 0);
}

#[test]
fn a_device_that_is_always_late_is_given_up() {
    let mut world = World::new(Found::Free);
    world.slowness_ms = TIMES.settle_ms;
    assert_eq!(world.go(Errand::Take), Some(End::TooSlow));
    assert_eq!(world.did.len() as u32, STEPS_MAX);
    assert_eq!(world.claim.lease_ms(), 0);
}

#[test]
fn a_mark_is_looked_at_before_it_is_written_anew_and_that_need_not_be_durable() {
    let mut world = World::held();
    assert_eq!(world.go(Errand::Renew), Some(End::Held));
    assert_eq!(world.did, [Next::Read, Next::Write { durable: false }]);
    assert_eq!(world.claim.lease_ms(), TIMES.lease_ms);
}

#[test]
fn a_mark_that_is_not_ones_own_is_not_written_over() {
    for other in [mark(1, 1), Found::Free] {
        let mut world = World::held();
        world.sector = other;
        let end = world.go(Errand::Renew);
        assert_eq!(end, Some(End::Lost));
        assert!(end.unwrap().is_lost() && !End::Held.is_lost() && !End::TooSlow.is_lost());
        assert_eq!(world.did, [Next::Read]);
        // Nor is it removed.
        let mut world = World::held();
        world.sector = other;
        assert_eq!(world.go(Errand::Release), Some(End::Left));
        assert_eq!((world.did, world.sector), (vec![Next::Read], other));
    }
}

/// Its mark came late to a device that another machine has formatted.
#[test]
fn a_mark_beside_another_sidecar_is_no_permission() {
    for errand in [Errand::Renew, Errand::Release] {
        let mut world = World::held();
        world.beside = Beside::Another;
        let (sector, end) = (world.sector, world.go(errand));
        assert!(matches!(end, Some(End::Lost | End::Left)), "{end:?}");
        assert_eq!((world.did, world.sector), (vec![Next::Read], sector));
        assert_eq!(world.claim.lease_ms(), 0, "a lease of another sidecar");
    }
    // While it is being formatted nothing is there. In a lease that is damage, or a bad reading.
    let mut world = World::held();
    world.beside = Beside::Nothing;
    assert_eq!(world.go(Errand::Renew), Some(End::Held));
    world.claim.pass(TIMES.lease_ms);
    assert_eq!(world.go(Errand::Renew), Some(End::Lost));
    // Who opens the device has none yet, and takes what is there.
    let mut world = World::new(mark(1, 1));
    world.beside = Beside::Another;
    assert_eq!(world.go(Errand::Take), Some(End::Held));
}

#[test]
fn a_sidecar_is_known_by_its_uuid() {
    let (uuid, mut block) = (*b"the uuid of this", [0; BLOCK_BYTES]);
    let superblock = Superblock {
        uuid,
        version: Version::default(),
        layout: Layout::new(700, 4).unwrap(),
    };
    assert_eq!(Beside::of(&block, None, 700, &Sum), Beside::Nothing);
    superblock.write(&mut block, SUPERBLOCK, &Sum);
    let beside = |opened: Option<&[u8; 16]>, blocks| Beside::of(&block, opened, blocks, &Sum);
    assert_eq!(beside(None, 700), Beside::Same);
    assert_eq!(beside(None, 699), Beside::Nothing, "it is not opened");
    assert_eq!(beside(Some(&uuid), 699), Beside::Same, "it was truncated");
    assert_eq!(beside(Some(&[1; 16]), 700), Beside::Another);
}

#[test]
fn an_error_of_the_device_says_nothing_of_others() {
    for fails in [0, 1] {
        let mut world = World::held();
        let lease_ms = world.claim.lease_ms();
        world.fails = Some(fails);
        assert_eq!(world.go(Errand::Renew), None);
        assert_eq!(world.claim.lease_ms(), lease_ms, "the lease is what it was");
        (world.fails, world.did) = (None, Vec::new());
        assert_eq!(world.go(Errand::Renew), Some(End::Held));
        assert_eq!(world.claim.lease_ms(), TIMES.lease_ms);
    }
}

#[test]
fn what_makes_no_sense_is_an_error_of_the_device_in_a_lease() {
    let mut world = World::held();
    world.sector = Found::Unknown(1);
    assert_eq!(world.go(Errand::Renew), None);
    assert_ne!(world.claim.lease_ms(), 0);
}

#[test]
fn ones_own_mark_is_removed_while_the_lease_lasts_only() {
    let mut world = World::held();
    assert_eq!(world.go(Errand::Release), Some(End::Removed));
    assert_eq!(world.did, [Next::Read, Next::Remove]);
    let mut world = World::held();
    world.is_permitted = false;
    assert_eq!(world.go(Errand::Release), Some(End::Left));
    assert_eq!(world.did, [Next::Read]);
}

#[test]
fn the_rest_is_to_the_next_look_and_never_none() {
    let mut world = World::held();
    assert_eq!(rest_ms(&world.claim), SOON_MS);
    world.go(Errand::Renew);
    assert_eq!(rest_ms(&world.claim), TIMES.interval_ms);
    world.claim.pass(TIMES.interval_ms - 1);
    assert_eq!(rest_ms(&world.claim), SOON_MS);
}
