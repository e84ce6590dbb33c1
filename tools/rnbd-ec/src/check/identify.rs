// SPDX-License-Identifier: GPL-2.0

//! Finds which member each device is.

use anyhow::{
    bail,
    Result, //
};
use seglog::{
    layout::Layout,
    members::{
        Members,
        MEMBERS, //
    },
    superblock::{
        Refusal,
        Superblock, //
    },
};

use super::{
    Report,
    State, //
};
use crate::{
    media::{
        Media,
        Medium, //
    },
    slots::{
        Slots,
        Unusable, //
    },
};

/// Puts devices into the order of the members that they are, and returns the layout of the array if
/// one of them has it. One of which the superblock is damaged is left out, and so is one that is
/// too small.
///
/// # Errors
///
/// Returns that they are not of one array, or that two are the same member.
pub(super) fn identify(given: Vec<Medium>, report: &mut Report) -> Result<(Media, Option<Layout>)> {
    let mut media = Media::default();
    let mut first: Option<(Superblock, String)> = None;
    let mut damaged = Vec::new();
    for medium in given {
        let path = medium.path.display().to_string();
        let slots = Slots::read(&medium);
        let superblock = match slots.superblock() {
            Ok(superblock) => superblock,
            Err(why @ Unusable::Refused(Refusal::NotFormatted | Refusal::OtherVersion(_))) => {
                bail!("{path}: {why}: leave it out to check the others")
            }
            Err(why) => {
                damaged.push((path, why.to_string()));
                continue;
            }
        };
        let (of, before) = first.get_or_insert_with(|| (superblock, path.clone()));
        if !of.is_of_same_array(&superblock) {
            bail!("{path} is of another array than {before}");
        }
        let number = superblock.member;
        let Some(member) = report.members.get_mut(number) else {
            continue;
        };
        if let Some(other) = &member.device {
            bail!(
                "{other} and {path} are both member {number}: leave out the one that was replaced"
            );
        }
        member.device = Some(path.clone());
        let each = slots.iter().filter(|(_, slot)| slot.is_damaged());
        member.damaged_slots = each.map(|(number, _)| number).collect();
        let (needed, has) = (superblock.layout.end_bytes(), medium.bytes());
        if has < needed {
            member.state = State::Unusable;
            member.why = Some(format!(
                "it has {has} bytes, and {needed} are needed: it was truncated"
            ));
            continue;
        }
        media.set(number, medium);
    }
    if let Some((superblock, _)) = &first {
        report.describe(superblock);
    }
    place_damaged(damaged, report);
    Ok((media, first.map(|(superblock, _)| superblock.layout)))
}

/// Says which member a device is that does not say so, if it can be one only.
fn place_damaged(damaged: Vec<(String, String)>, report: &mut Report) {
    let is_open = |member: &usize| {
        let member = report.members.get(*member);
        member.is_some_and(|member| member.device.is_none())
    };
    let open: Members = (0..MEMBERS).filter(is_open).collect();
    for (path, why) in damaged {
        let is_sure = open.count() == 1;
        report.note(|| format!("{path}: {why}"));
        report.each(open, |member| {
            if is_sure {
                member.device = Some(path.clone());
                member.state = State::Unusable;
                member.why = Some(why.clone());
            }
        });
    }
}
