// SPDX-License-Identifier: GPL-2.0

//! Epochs: who is in sync, by the word of the members that are there.
//!
//! A change of members is durable on each in-sync member that is left before anything that relies
//! on it is acknowledged. "The highest number with two members" would lose acknowledged writes: two
//! assemblies in a row with different members absent make two epochs of equal number that
//! contradict. Hence an epoch has an identifier, and names its parent.

use core::fmt;

use super::members::{
    Members,
    MEMBERS, //
};

/// The fewest members in sync that an array is assembled from.
const QUORUM: usize = 2;

/// The number of incarnations that are left out where epochs may be given up, which are not known:
/// more than there are assemblies between two writes of a superblock.
pub(crate) const GIVEN_UP_MAX: u64 = 1 << 16;

/// An epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// A number that no other epoch of the array has: a random one.
    pub id: u64,
    /// The identifier of the epoch before.
    pub parent: u64,
    /// The number of the assembly in which it began; batches carry it.
    pub incarnation: u64,
    /// The members that are not in sync.
    pub failed: Members,
}

impl Epoch {
    /// Whether it is one of an assembly by force, if the other one is of those that were given up:
    /// [`Choice::behind_what_is_given_up`] has made it later than all assemblies since.
    pub(crate) const fn is_by_force_after(&self, other: &Self) -> bool {
        self.incarnation.saturating_sub(other.incarnation) >= GIVEN_UP_MAX / 2
    }

    /// Whether another one is a child of the same parent.
    fn excludes(&self, other: &Self) -> bool {
        other != self && other.parent == self.parent
    }

    /// Returns the first epoch of an array.
    pub const fn first(id: u64) -> Self {
        Self::first_of(id, Members::ALL)
    }

    /// Returns the first epoch of a log on these members.
    pub(crate) const fn first_of(id: u64, members: Members) -> Self {
        Self {
            id,
            parent: 0,
            incarnation: 0,
            failed: Members::ALL.minus(members),
        }
    }

    /// Returns the epoch after this one, in which members have failed, in the same incarnation.
    pub const fn without(&self, id: u64, members: Members) -> Self {
        Self {
            id,
            parent: self.id,
            incarnation: self.incarnation,
            failed: self.failed.or(members),
        }
    }

    /// Returns the epoch after this one, in which a member is in sync again, in the same
    /// incarnation.
    pub const fn with(&self, id: u64, member: usize) -> Self {
        Self {
            id,
            parent: self.id,
            incarnation: self.incarnation,
            failed: self.failed.minus(Members::of(member)),
        }
    }

    /// Returns the members that it calls in sync.
    pub const fn in_sync(&self) -> Members {
        Members::ALL.minus(self.failed)
    }
}

/// The epoch that each member holds; `None` of a member that is not there.
pub type Held = [Option<Epoch>; MEMBERS];

/// The epoch that an array is assembled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    /// The epoch.
    pub epoch: Epoch,
    /// The members that are there and in sync.
    pub in_sync: Members,
    /// The members of these that hold its parent: they are given the epoch before the next one.
    pub behind: Members,
    /// The highest incarnation that a member which is there holds.
    pub incarnation: u64,
    /// Whether members hold epochs after it that exclude each other, so that none counts.
    pub is_forked: bool,
    /// The incarnation of another epoch, which does not count only if nothing was written in it.
    pub unless_begun: Option<u64>,
}

impl Choice {
    /// Returns the choice of an assembly that gives up what may be newer: its incarnation is later
    /// than all of that, so that no batch of it is taken for one of the log again. `begun` is the
    /// latest one that has left batches: of one that was given up before they alone may know.
    pub(crate) fn behind_what_is_given_up(&self, begun: u64) -> Self {
        Self {
            incarnation: self.incarnation.max(begun).saturating_add(GIVEN_UP_MAX),
            ..*self
        }
    }

    /// Returns the epoch of this assembly: all members that are absent or stale have failed in it.
    pub const fn assembly(&self, id: u64) -> Epoch {
        Epoch {
            id,
            parent: self.epoch.id,
            incarnation: self.incarnation.saturating_add(1),
            failed: Members::ALL.minus(self.in_sync),
        }
    }
}

/// The reason why an array cannot be assembled: of the members that are there too few are in sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoQuorum {
    /// The members that are there.
    pub present: Members,
    /// Whether they are assembled by force: an epoch that one of them was not told counts then.
    pub force_helps: bool,
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.present.count();
        write!(
            f,
            "{count} of {MEMBERS} members are there, of which fewer than {QUORUM} are in sync: "
        )?;
        f.write_str(match (self.present == Members::ALL, self.force_helps) {
            (true, false) => "name two of them, if need be with force=1",
            (true, true) => "name two of them, or all with force=1",
            (false, false) => {
                "add the member that is missing; if it is lost, rnbd-ec dump --log lists what is \
                 left"
            }
            (false, true) => {
                "add the member that is missing, or give up what it alone may know: force=1"
            }
        })
    }
}

/// Chooses an epoch.
///
/// One can be chosen if at least two members that it calls in sync are there, and either two of
/// them hold it, or each of them holds it or its parent. Of several it is that of the highest
/// incarnation, and of one incarnation the one with more failed members, which is the later one.
/// Who is called in sync and holds neither is stale.
///
/// # Errors
///
/// Returns that there is none.
pub fn choose(held: &Held) -> Result<Choice, NoQuorum> {
    choose_by(held, QUORUM)
}

/// Chooses an epoch, of a log whose epochs count with so many members: that of one member is alone.
///
/// # Errors
///
/// Returns that there is none.
fn choose_by(held: &Held, quorum: usize) -> Result<Choice, NoQuorum> {
    let present = those(held, |_| true);
    // Two of all help as well; of all the log may have to be asked.
    let is_asked = |by: &Choice| {
        let may_be = present == Members::ALL && others_by_force(held, by, None).is_some();
        may_be || by.unless_begun.is_some()
    };
    newest(possible_ones(held, quorum)).ok_or(NoQuorum {
        present,
        force_helps: forked_by_force(held, quorum).is_some_and(|by| !is_asked(&by)),
    })
}

/// Returns the members that hold an epoch for which `test` holds.
fn those(held: &Held, test: impl Fn(&Epoch) -> bool) -> Members {
    let each = (0..MEMBERS).zip(held);
    each.filter(|(_, epoch)| epoch.as_ref().is_some_and(&test))
        .map(|(member, _)| member)
        .collect()
}

/// Returns the incarnations that members hold.
fn incarnations(held: &Held, members: Members) -> impl Iterator<Item = u64> + use<'_> {
    let of = move |member: usize| Some((*held.get(member)?)?.incarnation);
    members.iter().filter_map(of)
}

/// Returns the latest one of these.
fn latest(held: &Held, members: Members) -> u64 {
    incarnations(held, members).max().unwrap_or_default()
}

/// Returns the choice of one epoch, if that is possible.
fn possible(held: &Held, epoch: &Epoch, quorum: usize) -> Option<Choice> {
    let in_sync = those(held, |_| true).minus(epoch.failed);
    let holders = those(held, |other| other == epoch).and(in_sync);
    let behind = those(held, |other| other != epoch && other.id == epoch.parent).and(in_sync);
    let current = holders.or(behind);
    let is_possible =
        current.count() >= quorum && (holders.count() >= quorum || current == in_sync);
    is_possible.then_some(Choice {
        epoch: *epoch,
        in_sync: current,
        behind,
        incarnation: latest(held, Members::ALL),
        is_forked: false,
        unless_begun: None,
    })
}

/// Returns the choice of the epoch of each member, where it is possible.
fn possible_ones(held: &Held, quorum: usize) -> [Option<Choice>; MEMBERS] {
    held.map(|epoch| possible(held, &epoch?, quorum))
}

/// Returns the choice where members hold epochs that exclude each other, and those that are missing
/// have failed by all of them: one could not be read when another one was told. Who is called in
/// sync by such an epoch and does not hold it was not told it, so nothing relies on it: their
/// parent counts. It is held, or they call the same members in sync, and each of these has one:
/// then one is as good as the other.
fn forked(held: &Held) -> Option<Choice> {
    let present = those(held, |_| true);
    let missing = Members::ALL.minus(present);
    let failed = those(held, |epoch| missing.is_within(epoch.failed));
    newest(held.map(|epoch| {
        let epoch = epoch.filter(|_| failed == present)?;
        let in_sync = epoch.in_sync();
        let is_twin = |other: &Epoch| other.parent == epoch.parent && other.failed == epoch.failed;
        let holders = those(held, |other| *other == epoch).and(in_sync);
        let children = those(held, |other| other.parent == epoch.id).and(in_sync);
        let twins = those(held, is_twin).and(in_sync);
        let is_parent = holders.or(children) == in_sync;
        let is_possible = in_sync.count() >= QUORUM && (is_parent || twins == in_sync);
        is_possible.then_some(Choice {
            epoch,
            in_sync,
            behind: in_sync.minus(holders),
            incarnation: latest(held, Members::ALL),
            is_forked: true,
            unless_begun: None,
        })
    }))
}

/// Returns the choice by force where members hold epochs that exclude each other, children of one,
/// and [`forked`] does not decide: an assembly, which may have been by force, was cut off when it
/// had told some of them, as a slot of another one hid what that one shows now. Nothing relies on
/// an epoch that one was not told which it calls in sync. What that one shows instead calls the
/// same ones in sync, so these have all that relies on it; or it was to be given up, as it is older
/// by more than all that force leaves out, and not by force itself ([`others_by_force`]); or
/// nothing was written in it. Else its members have gone on since then.
fn forked_by_force(held: &Held, quorum: usize) -> Option<Choice> {
    let present = those(held, |_| true);
    newest(held.map(|epoch| {
        let epoch = epoch?;
        let in_sync = present.minus(epoch.failed);
        let is_sibling = |other: &Epoch| epoch.excludes(other);
        let is_harmless = |other: &Epoch| {
            let is_older = other.incarnation.saturating_add(GIVEN_UP_MAX) < epoch.incarnation;
            is_older || in_sync.is_within(other.in_sync())
        };
        let holders = those(held, |other| *other == epoch).and(in_sync);
        let behind = those(held, |other| other.id == epoch.parent || is_sibling(other));
        let doubtful = those(held, |other| is_sibling(other) && !is_harmless(other)).and(in_sync);
        let is_possible = in_sync.count() >= quorum && holders.or(behind.and(in_sync)) == in_sync;
        is_possible.then_some(Choice {
            epoch,
            in_sync,
            behind: in_sync.minus(holders),
            // If a doubtful one were counted, which leaves out others itself, what its own siblings
            // write would look as old as what is left out.
            incarnation: latest(held, Members::ALL.minus(doubtful)),
            is_forked: true,
            unless_begun: incarnations(held, doubtful).min(),
        })
    }))
}

/// Returns the earliest incarnation of another child of the parent of an epoch, of which members in
/// sync show that they have gone on by force, if that parent is of the incarnation `from`. One of
/// force is later than all that they knew, so it says not which of both was told first; nor is that
/// known if no slot shows the parent.
pub(crate) fn others_by_force(held: &Held, choice: &Choice, from: Option<u64>) -> Option<u64> {
    let is_by_force = |incarnation: u64| {
        let last = from.map(|from| from.saturating_add(GIVEN_UP_MAX));
        last.is_none_or(|last| incarnation > last)
    };
    let others = those(held, |other| {
        let has_all = choice.in_sync.is_within(other.in_sync());
        choice.is_forked
            && choice.epoch.excludes(other)
            && !has_all
            && is_by_force(other.incarnation)
    });
    incarnations(held, others.and(choice.in_sync)).min()
}

/// Returns the choice of the newest epoch.
fn newest(choices: [Option<Choice>; MEMBERS]) -> Option<Choice> {
    let each = choices.into_iter().flatten();
    each.max_by_key(|choice| (choice.epoch.incarnation, choice.epoch.failed.count()))
}

/// Chooses an epoch as [`choose_by`] does, where slots of some members may hide newer superblocks.
///
/// An epoch is told when all that it calls in sync hold its parent. So if it is of a later
/// incarnation than what the one member of these shows that hides something, that hides the parent,
/// or the epoch itself, and nothing else, as a slot hides one write: it is one of those that are
/// behind. Else what all have flushed since would be given up where a stale member agrees with what
/// it shows, also if that one hides something, too.
///
/// Within one incarnation what it shows may be the later one. If nothing is chosen it does not
/// count then: the others are enough.
///
/// # Errors
///
/// Returns that there is none.
fn choose_of(held: &Held, hiding: Members, quorum: usize) -> Result<Choice, NoQuorum> {
    let chosen = choose_by(held, quorum);
    if hiding.is_empty() {
        return chosen.or_else(|why| forked(held).ok_or(why));
    }
    match (chosen, newest(told(held, hiding, quorum))) {
        (Ok(chosen), Some(told)) if chosen.epoch.incarnation >= told.epoch.incarnation => {
            Ok(chosen)
        }
        (Ok(chosen), Some(told)) if is_cut_off(held, hiding, &chosen.epoch, &told.epoch) => {
            // Or that one was cut off, and the parent of the other one went on.
            let unless_begun = Some(chosen.epoch.incarnation);
            Ok(Choice {
                unless_begun,
                ..chosen
            })
        }
        (_, Some(told)) => Ok(told),
        (Ok(chosen), None) => Ok(chosen),
        (Err(why), None) => {
            let mut others = *held;
            let hidden = one(hiding).and_then(|member| others.get_mut(member));
            *hidden.ok_or(why)? = None;
            choose_by(&others, quorum).map_err(|_| why)
        }
    }
}

/// Chooses an epoch as [`choose_of`] does; by force also one that members were not told.
///
/// # Errors
///
/// Returns that there is none.
pub(crate) fn choose_by_force(
    held: &Held,
    hiding: Members,
    (quorum, is_forced): (usize, bool),
) -> Result<Choice, NoQuorum> {
    let chosen = choose_of(held, hiding, quorum);
    let chosen = chosen.map(|chosen| in_doubt(held, (hiding, quorum), chosen));
    chosen.or_else(|why| {
        forked_by_force(held, quorum)
            .filter(|_| is_forced)
            .ok_or(why)
    })
}

/// Returns a choice that does not count if something was written since another one, which is as
/// possible: both have come from one epoch, and a member hides which of both it was told.
fn in_doubt(held: &Held, (hiding, quorum): (Members, usize), chosen: Choice) -> Choice {
    let Choice { epoch, in_sync, .. } = chosen;
    let (from, _) = come_from(held, hiding, &chosen);
    let since = |other: &Choice| {
        let both = other.in_sync.and(in_sync);
        let (parent, since) = come_from(held, hiding, other);
        // Of one incarnation the log is followed by what its batches say.
        let is_sibling = since < epoch.incarnation && parent == from;
        let is_other = is_sibling && !both.and(hiding).is_empty();
        (is_other && !in_sync.is_within(other.in_sync)).then_some(since)
    };
    let shown = possible_ones(held, quorum).into_iter();
    let possible = shown.chain(told(held, hiding, quorum)).flatten();
    let earliest = possible.filter_map(|other| since(&other)).min();
    Choice {
        unless_begun: chosen.unless_begun.or(earliest),
        ..chosen
    }
}

/// Returns the epoch that a choice has come from, and the incarnation from which on what relies on
/// it was written: its parent, and its own. If a member hides that parent, it shows the one before.
fn come_from(held: &Held, hiding: Members, choice: &Choice) -> (u64, u64) {
    let Epoch {
        parent,
        incarnation,
        ..
    } = choice.epoch;
    let hiding = hiding.and(choice.in_sync).iter();
    let mut shown = hiding.filter_map(|member| *held.get(member)?);
    let is_before = |shown: &Epoch| {
        let is_known = *shown == choice.epoch || shown.id == parent || shown.parent == parent;
        !is_known && shown.incarnation < incarnation
    };
    let before = shown.find(is_before);
    before.map_or((parent, incarnation), |shown| (shown.id, shown.incarnation))
}

/// Returns the member that alone hides something.
fn one(hiding: Members) -> Option<usize> {
    hiding.iter().next().filter(|_| hiding.count() == 1)
}

/// Chooses anew where the log has a batch that only `lived` were written with, and a choice calls
/// others in sync: another epoch of that incarnation, which it can be of; else the same one, of
/// which a later one that is hidden says that the others have failed. `None` if too few are left.
pub(crate) fn choose_again(
    held: &Held,
    (hiding, quorum): (Members, usize),
    (before, lived): (&Choice, Members),
) -> Option<Choice> {
    let is_other = |choice: &Choice| {
        choice.epoch.incarnation == before.epoch.incarnation && choice.in_sync.is_within(lived)
    };
    let others = |choices: [Option<Choice>; MEMBERS]| newest(choices.map(|c| c.filter(is_other)));
    let shown = others(possible_ones(held, quorum));
    let hidden = others(told(held, hiding, quorum));
    let other = newest([shown, hidden, None]);
    let rest = Choice {
        in_sync: before.in_sync.and(lived),
        behind: before.behind.and(lived),
        ..*before
    };
    other.or((rest.in_sync.count() >= quorum).then_some(rest))
}

/// Returns whether an epoch was rather cut off than told after `chosen`, which went on without all
/// that hold it. Were it later they would be in sync again by an epoch between both, of which all
/// were told that hold `chosen`, and one of them hides nothing. Or it is one of an assembly by
/// force, of which the incarnation says nothing: [`Choice::behind_what_is_given_up`] has made it
/// later than those of all assemblies since.
fn is_cut_off(held: &Held, hiding: Members, chosen: &Epoch, epoch: &Epoch) -> bool {
    let holders = those(held, |other| other == epoch);
    let in_sync = chosen.in_sync();
    let was_told = in_sync.is_within(those(held, |other| other == chosen));
    let is_known = was_told && !in_sync.is_within(hiding);
    let is_by_force = epoch.is_by_force_after(chosen);
    !chosen.failed.and(holders).is_empty() && (is_known || is_by_force)
}

/// Returns the choices of epochs whose parent the members that they call in sync of those that hide
/// something must have been told, and hide. One that shows that the holders had failed was told
/// before that they are back, or has gone on without them: the log tells.
fn told(held: &Held, hiding: Members, quorum: usize) -> [Option<Choice>; MEMBERS] {
    held.map(|epoch| {
        let epoch = epoch?;
        let holders = those(held, |other| *other == epoch);
        let behind = hiding.and(epoch.in_sync()).minus(holders);
        let mut hidden = *held;
        let mut unless_begun = None;
        for member in behind.iter() {
            let shown = hidden.get_mut(member)?.as_mut()?;
            let is_later = epoch.incarnation > shown.incarnation;
            // Who shows another child of its parent held that before, and went on.
            let is_known = epoch.parent == shown.id || epoch.parent == shown.parent;
            if !is_later || is_known || is_cut_off(held, hiding, shown, &epoch) {
                return None;
            }
            if !shown.failed.and(holders).is_empty() {
                unless_begun = Some(shown.incarnation);
            }
            shown.id = epoch.parent;
        }
        let choice = possible(&hidden, &epoch, quorum).filter(|_| !behind.is_empty())?;
        Some(Choice {
            unless_begun,
            ..choice
        })
    })
}
