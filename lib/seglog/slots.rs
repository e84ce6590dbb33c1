// SPDX-License-Identifier: GPL-2.0

//! The two slots of a member's superblock, as the member gives them.

use super::{
    devices::Devices,
    epoch::{
        choose_by_force,
        Choice,
        Held, //
    },
    fault::Fault,
    layout::{
        Layout,
        SLOTS, //
    },
    members::{
        Members,
        MEMBERS, //
    },
    superblock::{
        may_hide,
        newer,
        Refusal,
        Superblock,
        SUPERBLOCK_BYTES, //
    },
    Checksum, //
};

/// Content of each slot, or why it has none.
pub type Slots = [Result<Superblock, Refusal>; SLOTS as usize];

/// Reads the slots of a member. One that gives an error is taken for one that is damaged: both may
/// have had the newer superblock, and [`may_hide`] says so.
///
/// # Errors
///
/// Returns the error of a member that gives neither.
pub fn read<D: Devices>(
    devices: &mut D,
    member: usize,
    crc: &impl Checksum,
) -> Result<Slots, D::Error> {
    let mut found = [Err(Refusal::Unreadable); SLOTS as usize];
    let mut before = None;
    for (slot, to) in (0..SLOTS).zip(&mut found) {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        match devices.read(member, Layout::slot(slot), &mut bytes) {
            Ok(()) => *to = Superblock::parse(&bytes, slot, crc),
            Err(error) if before.is_some() => return Err(error),
            Err(error) => before = Some(error),
        }
    }
    Ok(found)
}

/// Writes the superblock of a new member, when both of its slots have been zeroed, and flushes.
/// `zeroes` are as long as a slot.
///
/// # Errors
///
/// Returns the member's error.
pub fn write_new<D: Devices>(
    devices: &mut D,
    own: &Superblock,
    zeroes: &[u8],
    crc: &impl Checksum,
) -> Result<(), D::Error> {
    for slot in 0..SLOTS {
        devices.write(own.member, Layout::slot(slot), zeroes, true)?;
    }
    devices.write(own.member, Layout::slot(own.slot()), &own.bytes(crc), true)?;
    devices.flush(own.member)
}

/// Doubts about the superblocks of the members that are there.
pub(crate) struct Hidden {
    /// Members of which a slot may hide a newer superblock.
    pub(crate) hiding: Members,
    /// All may be older than the log: a member is missing, and a slot of another one may hide what
    /// it knows; or two members have one slot each, and their newer ones may be damaged, or torn.
    pub(crate) may_be_older: bool,
    /// The epochs that members were told before those which they show, as their other slots say.
    pub(crate) before: Held,
}

/// Reads the superblocks of the members that are there.
///
/// # Errors
///
/// Returns why one has none.
// A frame of its own: a slot is half a kilobyte.
#[inline(never)]
pub(crate) fn superblocks<D: Devices>(
    devices: &mut D,
    present: Members,
    superblocks: &mut [Option<Superblock>; MEMBERS],
    crc: &impl Checksum,
) -> Result<Hidden, Fault<D::Error>> {
    let (mut hiding, mut alone) = (Members::NONE, Members::NONE);
    let mut layout = None;
    let mut before = [None; MEMBERS];
    for ((member, to), before) in (0..MEMBERS).zip(&mut *superblocks).zip(&mut before) {
        if present.contains(member) {
            let [one, other] = read(devices, member, crc).map_err(|e| Fault::Io(member, e))?;
            if may_hide([&one, &other]) {
                hiding = hiding.or(Members::of(member));
            }
            // One whose other slot is zeroes looks like a new member.
            if one.is_err() || other.is_err() {
                alone = alone.or(Members::of(member));
            }
            let found = newer(one, other).map_err(|why| Fault::Superblock(member, why))?;
            check(devices, member, &found)?;
            let mut each = [one, other].into_iter().flatten();
            *before = each
                .find(|slot| slot.writes != found.writes)
                .map(|slot| slot.epoch);
            layout = Some(found.layout);
            *to = Some(found);
        }
    }
    let replaced = replaced(superblocks);
    // What one slot knew that is gone, no other member of a log on one knows.
    let few = layout.map_or(1, |layout| layout.members_needed().saturating_sub(1));
    let unsure = unsure(superblocks, hiding);
    Ok(Hidden {
        hiding: hiding.minus(replaced),
        may_be_older: unsure.is_some() || alone.minus(replaced).count() > few,
        before,
    })
}

/// Returns the epochs of the devices that count: what one holds that another one has taken the
/// place of, by what the other members know, says nothing of the array as it is.
pub(crate) fn held(superblocks: &[Option<Superblock>; MEMBERS]) -> Held {
    let replaced = replaced(superblocks);
    superblocks.each_ref().map(|shown| {
        let counts = shown.as_ref().filter(|s| !replaced.contains(s.member));
        counts.map(|shown| shown.epoch)
    })
}

/// Chooses the epoch of members by what they show, if `hiding` are those of which a slot may hide
/// something. What only a member knows that is missing is given up by force.
///
/// # Errors
///
/// Returns that there is none, or that a slot may hide one which only such a member knows.
pub fn choose<E>(
    superblocks: &[Option<Superblock>; MEMBERS],
    hiding: Members,
    is_forced: bool,
) -> Result<Choice, Fault<E>> {
    let shown = superblocks.iter().flatten().next();
    let quorum = shown.map_or(MEMBERS, |shown| shown.layout.members_needed());
    let with = (hiding.minus(replaced(superblocks)), (quorum, is_forced));
    let choice = choose_by_force(&held(superblocks), with.0, with.1).map_err(Fault::NoQuorum)?;
    let unsure = unsure(superblocks, hiding).filter(|_| !is_forced);
    unsure.map_or(Ok(choice), |member| Err(Fault::Unsure(member)))
}

/// Returns the first member of which a slot may hide what only one that is missing knows, if
/// `hiding` are those of which a slot may hide anything. A device that was replaced is missing,
/// too, and hides nothing. Of an epoch in which those that are missing have failed the next one,
/// which may be hidden, relies on the others alone.
fn unsure(superblocks: &[Option<Superblock>; MEMBERS], hiding: Members) -> Option<usize> {
    let found = || superblocks.iter().flatten();
    let replaced = replaced(superblocks);
    let there = found().map(|shown| shown.member).collect::<Members>();
    let missing = |shown: &Superblock| shown.layout.members().minus(there.minus(replaced));
    let mut hiding = found().filter(|shown| hiding.minus(replaced).contains(shown.member));
    let unsure = hiding.find(|shown| !missing(shown).is_within(shown.epoch.failed));
    unsure.map(|shown| shown.member)
}

/// Returns the devices of which another member knows that a later one is that member.
///
/// A member that knows it is not older. What an assembly by force has told is later than what was
/// done since by others; it was cut off if no other one holds it, and each that was to hold it
/// knows the later device.
fn replaced(superblocks: &[Option<Superblock>; MEMBERS]) -> Members {
    let is_replaced = |own: &&Superblock| {
        let each = superblocks.iter().flatten();
        let mut others = each.filter(|other| other.member != own.member);
        let mut same = others.clone().filter(|other| other.is_of_same_array(own));
        let is_cut_off = others.all(|other| {
            let in_sync = own.epoch.in_sync().contains(other.member);
            !in_sync || other.epoch != own.epoch && knows_another(other, own)
        });
        same.any(|other| {
            let is_older = own.epoch.incarnation <= other.epoch.incarnation;
            let is_forced = is_cut_off && own.epoch.is_by_force_after(&other.epoch);
            knows_another(other, own) && (is_older || is_forced)
        })
    };
    let each = superblocks.iter().flatten();
    each.filter(is_replaced).map(|own| own.member).collect()
}

/// Whether a member knows that a later device is in the place of another one.
fn knows_another(other: &Superblock, own: &Superblock) -> bool {
    let of = |shown: &Superblock| shown.devices.get(own.member).copied();
    match (of(other), of(own)) {
        (Some(known), Some(device)) => known.id != device.id && known.since >= device.since,
        _ => false,
    }
}

/// Checks that a member is the one it was given as, and as long as it must be.
fn check<D: Devices>(
    devices: &D,
    member: usize,
    found: &Superblock,
) -> Result<(), Fault<D::Error>> {
    let (needed, has) = (found.layout.end_bytes(), devices.bytes(member));
    if has < needed {
        return Err(Fault::Truncated {
            member,
            needed,
            found: has,
        });
    }
    if found.member != member {
        return Err(Fault::OtherMember {
            given: member,
            found: found.member,
        });
    }
    Ok(())
}
