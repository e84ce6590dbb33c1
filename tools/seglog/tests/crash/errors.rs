// SPDX-License-Identifier: GPL-2.0

//! Members that cannot be read at some places, after a crash.

use seglog::{
    fault::Fault,
    members::Members, //
};

use crate::{
    assembly::{
        assemble,
        assemble_with_errors,
        Assembled,
        Errors,
        Unreadable, //
    },
    disk::{
        Disks,
        Shape, //
    },
    history::History,
    search::assemblies,
    Mistake,
};

/// Counts of the arrays of which some places could not be read, by how they fared.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Arrays of which one member could not be read at one place.
    pub(crate) assembled: usize,
    pub(crate) refused: usize,
    /// Arrays of which two could not be, of one batch or of one page.
    pub(crate) assembled_of_two: usize,
    pub(crate) refused_of_two: usize,
}

impl Figures {
    /// Each place that an assembly reads cannot be read, on one member, and on another one as well:
    /// all that was flushed is there, or the array is refused. If all members are in sync it is
    /// not, for one.
    pub(crate) fn check(
        &mut self,
        shape: &Shape,
        disks: &Disks,
        history: &History,
    ) -> Result<(), String> {
        for present in assemblies() {
            let (Ok(whole), _) = assemble(shape, (disks, present), Mistake::None, false) else {
                continue;
            };
            if whole.is_forced {
                continue;
            }
            let is_whole = whole.opened.log.live() == Members::ALL;
            for &(member, place) in &whole.errors.seen {
                let others = Members::ALL.minus(Members::of(member)).and(present);
                let of_two = others
                    .iter()
                    .map(|other| vec![(member, place), (other, place)]);
                for bad in of_two.chain([vec![(member, place)]]) {
                    let errors = Errors {
                        bad: bad.iter().copied().collect(),
                        ..Errors::default()
                    };
                    let result = assemble_with_errors(shape, (disks, present), errors);
                    let judged = judge(shape, (result, is_whole, bad.len()), history);
                    let is_assembled =
                        judged.map_err(|why| format!("{present:?} without {bad:?}: {why}"))?;
                    self.count(bad.len(), is_assembled);
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, bad: usize, is_assembled: bool) {
        let count = match (bad, is_assembled) {
            (1, true) => &mut self.assembled,
            (1, false) => &mut self.refused,
            (_, true) => &mut self.assembled_of_two,
            (_, false) => &mut self.refused_of_two,
        };
        *count += 1;
    }
}

/// Whether an array is assembled, as it may be. It has to be if it `is_whole` but for one place.
fn judge(
    shape: &Shape,
    (result, is_whole, bad): (Result<Assembled, Fault<Unreadable>>, bool, usize),
    history: &History,
) -> Result<bool, String> {
    let assembled = match result {
        Ok(assembled) => assembled,
        // The other slot is torn, or was never written: the two others are to be named.
        Err(Fault::Superblock(..)) => return Ok(false),
        // One of another member is torn.
        Err(Fault::NoQuorum(_)) if shape.torn => return Ok(false),
        // Two are, so who has failed may be hidden.
        Err(Fault::Unreadable { .. }) if shape.torn => return Ok(false),
        Err(why) if is_whole && bad == 1 => return Err(format!("{why:?}")),
        Err(_) => return Ok(false),
    };
    let found = assembled.versions;
    if !history.allows(&found) {
        return Err(format!("{found:?} and may be {:?}", history.states));
    }
    // What was found once is found again, by those that have it, and when all can be read.
    let live = assembled.opened.log.live();
    let again = if bad == 1 { assemblies().len() } else { 0 };
    for present in assemblies().into_iter().take(again) {
        for errors in [Errors::default(), assembled.errors.clone()] {
            let is_readable = errors.bad.is_empty();
            match assemble_with_errors(shape, (&assembled.disks, present), errors) {
                Ok(again) if again.versions != found => {
                    return Err(format!(
                        "{present:?}: {found:?}, and then {:?}",
                        again.versions
                    ));
                }
                Err(why) if is_readable && live.is_within(present) => {
                    return Err(format!("{present:?}: {why:?} at the next assembly"));
                }
                _ => {}
            }
        }
    }
    Ok(true)
}
