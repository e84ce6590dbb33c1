// SPDX-License-Identifier: GPL-2.0

//! Claims on bytes of objects: operations in flight, and leases.
//!
//! All claims have one order, that of their arrival. An *operation* that changes blocks begins when
//! each one before it has ended that has a block in common with it; so two never change one block
//! at a time, and none waits for one that waits for it. A read is no claim, as it sees the blocks
//! of one moment; what a copy reads is one.
//!
//! A *lease* is held from its arrival on: operations of other clients that it excludes are refused.
//! The server answers it when those of them have ended that had arrived before. So a lease can end
//! at any moment, with its client or by an administrator: the next one is not answered before the
//! operations of the client that had it have ended.

mod denied;
mod leasing;

use super::{
    slot::{
        Memory,
        NONE, //
    },
    span::{
        ObjectId,
        Span, //
    },
};

pub use self::denied::Denied;

/// The claims that there can be at a time at most.
pub const CLAIMS_MAX: u32 = 1 << NUMBER_BITS;
/// The bytes of memory for a claim.
pub const CLAIM_BYTES: usize = 72;

const NUMBER_BITS: u32 = 14;

/// The bytes that an operation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The object.
    pub object: ObjectId,
    /// The bytes.
    pub span: Span,
    /// Whether they are changed.
    pub is_write: bool,
}

/// The kind of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No claim.
    Free,
    /// Bytes that an operation uses.
    Operation,
    /// A lease.
    Lease,
}

/// A claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The kind.
    pub kind: Kind,
    /// The client.
    pub client: u32,
    /// The bytes. A lease for writing excludes all others of them.
    pub used: Use,
    /// The number of its request, by which its user is told that it begins.
    tag: u32,
    /// Whether it waits for claims before it.
    pub is_waiting: bool,
    /// Whether it is the second claim of its operation, whose number is that of the first one.
    is_second: bool,
    /// The place in the order of arrivals.
    arrival: u64,
    /// The number by which it ends.
    number: u32,
    /// The next one in its bucket, or the next free one.
    next: u32,
    /// The other claim of an operation that has two.
    other: u32,
}

const _: () = assert!(size_of::<Claim>() <= CLAIM_BYTES);

impl Claim {
    /// The memory of no claim.
    pub const FREE: Self = Self {
        kind: Kind::Free,
        client: 0,
        used: Use {
            object: ObjectId { high: 0, low: 0 },
            span: Span::ALL,
            is_write: false,
        },
        tag: 0,
        is_waiting: false,
        is_second: false,
        arrival: 0,
        number: 0,
        next: NONE,
        other: NONE,
    };

    /// Whether an operation waits for this claim, of an operation before it.
    fn delays_operation(&self, used: &Use) -> bool {
        self.kind == Kind::Operation
            && (self.used.is_write || used.is_write)
            && self.used.object == used.object
            && self
                .used
                .span
                .whole_blocks()
                .overlaps(&used.span.whole_blocks())
    }

    /// Whether this claim and another use, of which one is a lease, exclude each other.
    fn excludes(&self, used: &Use) -> bool {
        (self.used.is_write || used.is_write)
            && self.used.object == used.object
            && self.used.span.overlaps(&used.span)
    }
}

/// A claim that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The number by which it ends; of a lease it is on the wire, and not 0.
    pub number: u32,
    /// Whether it waits: it is told when it begins.
    pub is_waiting: bool,
}

/// The claims.
#[derive(Clone, Debug)]
pub struct Claims<S, B> {
    all: S,
    /// The first claim of each hash of objects.
    buckets: B,
    free: u32,
    arrivals: u64,
    /// The leases that there were; it begins elsewhere in each life.
    leases: u32,
    key: [u64; 2],
}

/// Returns the slot of a number.
const fn slot_of(number: u32) -> u32 {
    number % CLAIMS_MAX
}

/// Returns a number of what is in a slot, by a count; it is not 0.
const fn number_of(slot: u32, count: u64) -> u32 {
    let counts = u32::MAX >> NUMBER_BITS;
    // CAST: Below the number of counts.
    let count = (count % counts as u64) as u32;
    count.wrapping_add(1) << NUMBER_BITS | slot
}

impl<S: Memory<Claim>, B: Memory<u32>> Claims<S, B> {
    /// Begins without claims. `claims` bounds how many there can be, `key` is random. `leases` is
    /// another random number: those of this life are counted from it on, so that one of a life
    /// before is not taken for one of them.
    pub fn new(mut claims: S, mut buckets: B, (key, leases): ([u64; 2], u32)) -> Self {
        buckets.as_mut().fill(NONE);
        let count = u32::try_from(claims.as_ref().len()).unwrap_or(NONE);
        let count = count.min(CLAIMS_MAX);
        for (number, claim) in (0..count).zip(claims.as_mut()) {
            let next = number.saturating_add(1);
            *claim = Claim {
                next: if next < count { next } else { NONE },
                ..Claim::FREE
            };
        }
        Self {
            all: claims,
            buckets,
            free: if count > 0 { 0 } else { NONE },
            arrivals: 0,
            leases,
            key,
        }
    }

    /// Returns a claim by its slot, which is below [`CLAIMS_MAX`], and its number.
    pub fn get(&self, slot: u32) -> Option<(u32, &Claim)> {
        let claim = self.all.as_ref().get(slot as usize);
        let claim = claim.filter(|claim| claim.kind != Kind::Free)?;
        Some((claim.number, claim))
    }

    fn get_mut(&mut self, slot: u32) -> Option<&mut Claim> {
        self.all.as_mut().get_mut(slot as usize)
    }

    /// Returns the claim of a number that has not ended.
    fn find(&self, number: u32, kind: Kind) -> Option<(u32, Claim)> {
        let slot = slot_of(number);
        let (found, claim) = self.get(slot)?;
        (found == number && claim.kind == kind && !claim.is_second).then_some((slot, *claim))
    }

    fn bucket(&self, object: ObjectId) -> usize {
        object.bucket(self.key, self.buckets.as_ref().len())
    }

    /// Returns the last claim of a bucket, which the first one follows.
    fn last(&self, bucket: usize) -> u32 {
        self.buckets.as_ref().get(bucket).copied().unwrap_or(NONE)
    }

    fn set_last(&mut self, bucket: usize, slot: u32) {
        if let Some(last) = self.buckets.as_mut().get_mut(bucket) {
            *last = slot;
        }
    }

    /// Goes through the claims of the bucket of an object, in the order of their arrival.
    fn chain(&self, object: ObjectId) -> impl Iterator<Item = (u32, &Claim)> {
        let last = self.last(self.bucket(object));
        let mut next = self.get(last).map_or(NONE, |(_, claim)| claim.next);
        core::iter::from_fn(move || {
            let slot = next;
            let (_, claim) = self.get(slot)?;
            next = if slot == last { NONE } else { claim.next };
            Some((slot, claim))
        })
    }

    /// Whether a claim has to wait for those before it.
    fn must_wait(&self, claim: &Claim) -> bool {
        let mut chain = self.chain(claim.used.object);
        chain.any(|(_, before)| {
            before.arrival < claim.arrival
                && match claim.kind {
                    Kind::Lease => {
                        before.kind == Kind::Operation
                            && before.client != claim.client
                            && before.excludes(&claim.used)
                    }
                    _ => before.delays_operation(&claim.used),
                }
        })
    }

    fn add(
        &mut self,
        kind: Kind,
        (client, tag): (u32, u32),
        used: &Use,
        arrival: u64,
    ) -> Result<u32, Denied> {
        let (slot, bucket) = (self.free, self.bucket(used.object));
        let last = self.last(bucket);
        let first = self.get(last).map_or(slot, |(_, last)| last.next);
        let mut claim = Claim {
            kind,
            client,
            used: *used,
            tag,
            is_waiting: false,
            is_second: false,
            arrival,
            number: 0,
            next: first,
            other: NONE,
        };
        claim.is_waiting = self.must_wait(&claim);
        // Leases have their own count: operations do not bring back the number of one.
        let count = match kind {
            Kind::Lease => u64::from(self.leases.wrapping_add(1)),
            _ => arrival,
        };
        claim.number = number_of(slot, count);
        let to = self.get_mut(slot).ok_or(Denied::NoClaims)?;
        self.free = core::mem::replace(to, claim).next;
        if let Some(last) = self.get_mut(last) {
            last.next = slot;
        }
        self.set_last(bucket, slot);
        if kind == Kind::Lease {
            self.leases = self.leases.wrapping_add(1);
        }
        Ok(slot)
    }

    fn remove(&mut self, slot: u32) -> Option<Claim> {
        let (_, claim) = self.get(slot)?;
        let claim = *claim;
        let bucket = self.bucket(claim.used.object);
        let mut chain = self.chain(claim.used.object);
        let before = chain.find_map(|(before, other)| (other.next == slot).then_some(before));
        drop(chain);
        let before = before.filter(|before| *before != slot);
        if self.last(bucket) == slot {
            self.set_last(bucket, before.unwrap_or(NONE));
        }
        if let Some(before) = before.and_then(|before| self.get_mut(before)) {
            before.next = claim.next;
        }
        let free = self.free;
        if let Some(to) = self.get_mut(slot) {
            *to = Claim {
                next: free,
                ..Claim::FREE
            };
        }
        self.free = slot;
        Some(claim)
    }

    /// Checks what a client uses against the leases; `lease` is the one that it names, or 0. A read
    /// needs nothing else.
    ///
    /// # Errors
    ///
    /// Returns why it is refused.
    pub fn check(&self, (client, lease): (u32, u32), uses: &[Use]) -> Result<(), Denied> {
        if lease != 0 {
            let named = self.find(lease, Kind::Lease);
            let named = named.filter(|(_, named)| named.client == client && !named.is_waiting);
            let (_, named) = named.ok_or(Denied::LeaseGone)?;
            let mut uses = uses.iter();
            let is_covered = |used: &Use| {
                named.used.object == used.object
                    && named.used.span.contains(&used.span)
                    && (named.used.is_write || !used.is_write)
            };
            if !uses.any(is_covered) {
                return Err(Denied::LeaseElsewhere);
            }
        }
        for used in uses {
            let mut chain = self.chain(used.object);
            let is_excluded = |claim: &Claim| {
                claim.kind == Kind::Lease && claim.client != client && claim.excludes(used)
            };
            if chain.any(|(_, claim)| is_excluded(claim)) {
                return Err(Denied::Leased);
            }
        }
        Ok(())
    }

    /// An operation arrives that changes something; `other` is the second thing that it uses, as
    /// the source of a copy is. It ends by [`Self::end`], also if it was never told to begin.
    ///
    /// # Errors
    ///
    /// Returns why it is refused.
    pub fn operation(
        &mut self,
        (client, lease, tag): (u32, u32, u32),
        (used, other): (Use, Option<Use>),
    ) -> Result<Arrived, Denied> {
        let both = [used, other.unwrap_or(used)];
        self.check((client, lease), &both)?;
        let arrival = self.arrivals.saturating_add(1);
        let slot = self.add(Kind::Operation, (client, tag), &used, arrival)?;
        if let Some(other) = other {
            match self.add(Kind::Operation, (client, tag), &other, arrival) {
                Ok(other) => self.join(slot, other),
                Err(denied) => {
                    self.remove(slot);
                    return Err(denied);
                }
            }
        }
        Ok(self.arrived(slot, arrival))
    }

    fn arrived(&mut self, slot: u32, arrival: u64) -> Arrived {
        self.arrivals = arrival;
        Arrived {
            number: self.get(slot).map_or(0, |(number, _)| number),
            is_waiting: self.is_waiting(slot),
        }
    }

    /// Whether an operation waits, for the one or the other.
    fn is_waiting(&self, slot: u32) -> bool {
        let Some((_, claim)) = self.get(slot) else {
            return false;
        };
        let other = self.get(claim.other);
        claim.is_waiting || other.is_some_and(|(_, other)| other.is_waiting)
    }

    /// An operation has ended, also one that was waiting. `begins` is called with the tag of
    /// each operation and lease that does not wait any more.
    pub fn end(&mut self, number: u32, mut begins: impl FnMut(u32)) {
        let Some((slot, claim)) = self.find(number, Kind::Operation) else {
            return;
        };
        let other = self.remove(claim.other);
        self.remove(slot);
        for ended in [Some(claim), other].into_iter().flatten() {
            self.begin_all(&ended.used, &mut begins);
        }
    }

    /// Lets begin what waited for something that was used and is not any more.
    fn begin_all(&mut self, ended: &Use, begins: &mut impl FnMut(u32)) {
        loop {
            let mut chain = self.chain(ended.object);
            let ready = |claim: &Claim| {
                claim.is_waiting && claim.used.object == ended.object && !self.must_wait(claim)
            };
            let Some((slot, _)) = chain.find(|(_, claim)| ready(claim)) else {
                return;
            };
            drop(chain);
            if let Some(claim) = self.get_mut(slot) {
                claim.is_waiting = false;
            }
            // An operation is known by its first claim.
            let first = match self.get(slot) {
                Some((_, claim)) if claim.is_second => claim.other,
                _ => slot,
            };
            if let (false, Some((_, claim))) = (self.is_waiting(first), self.get(first)) {
                begins(claim.tag);
            }
        }
    }

    /// Two claims are of one operation.
    fn join(&mut self, slot: u32, second: u32) {
        if let Some(claim) = self.get_mut(slot) {
            claim.other = second;
        }
        if let Some(claim) = self.get_mut(second) {
            claim.other = slot;
            claim.is_second = true;
        }
    }
}
