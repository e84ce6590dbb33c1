// SPDX-License-Identifier: GPL-2.0

//! Answers whose pages come from several places and in any order (`-o lend`), and a look at what
//! the kernel has cached (`-o look`).

use super::{
    tree,
    Ferrotest,
    Mount, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};
use kernel_ext::{
    scatterlist::{
        Loan,
        SgBuffer, //
    },
    sync::atomic::Ordering::Relaxed, //
};
use vfs_ext::{
    End,
    Folios,
    Key,
    Lent,
    Subrequest,
    SuperBlock,
    LENT_PAGES_MAX, //
};

/// Each second answer has this page left, and asks for a retry. Each fourth one is completed in the
/// order of the file.
const GAP: u16 = 2;

/// Fills a subrequest up to the end of the file, and ends it.
pub(super) fn serve(subrequest: Subrequest<Ferrotest>, turn: u64) -> Result<u64> {
    let start = subrequest.position();
    let left = subrequest.inode().size().saturating_sub(start);
    let lent = subrequest.lend().map_err(drop);
    let Ok(lent) = lent else {
        return Err(EINVAL);
    };
    let whole = whole_pages(&lent, left);
    let has_gap = turn % 2 == 0 && whole > GAP;
    let lent = from_a_loan(lent, |page| page < whole && page % 3 == 0)?;
    let end = start.saturating_add(left);
    let subrequest = match turn % 4 {
        1 => in_order(lent, end)?,
        _ => from_holes(lent, whole, has_gap).into_subrequest(end),
    };
    let written = subrequest.position().saturating_sub(start);
    subrequest.end(match () {
        () if has_gap => End::Retry,
        () if left <= written => End::EndOfFile,
        () => End::Read,
    });
    Ok(written)
}

/// The pages that the file has to their end.
fn whole_pages(lent: &Lent<Ferrotest>, left: u64) -> u16 {
    let skip = lent.subrequest().position() % PAGE_SIZE as u64;
    let pages = left.saturating_add(skip) / PAGE_SIZE as u64;
    lent.pages().min(u16::try_from(pages).unwrap_or(u16::MAX))
}

/// Writes pages through their scatter list, the last one first.
fn from_a_loan(lent: Lent<Ferrotest>, pages: impl Fn(u16) -> bool) -> Result<Lent<Ferrotest>> {
    let key = lent.subrequest().inode().key();
    let start = lent.subrequest().position();
    let first = lent.first_page();
    let selection = lent.select(pages);
    let mut places = KVec::new();
    // Where the page is in the row, and in the file.
    let mut at = 0;
    for page in selection.pages() {
        let begin = first.saturating_add(page.into()) * PAGE_SIZE as u64;
        let position = begin.max(start);
        // CAST: Within a page.
        let len = PAGE_SIZE - (position - begin) as usize;
        places.push((page, at, position, len), GFP_KERNEL)?;
        at += len;
    }
    if places.is_empty() {
        return Ok(selection.into_lent());
    }
    // CAST: From 64 bits to 64; both are within a page.
    let skip = (start % PAGE_SIZE as u64) as u32;
    let has_begin = places.first().is_some_and(|(page, ..)| *page == 0);
    super::check(selection.skip() == if has_begin { skip } else { 0 })?;
    let loan = Loan::new(SgBuffer::new(LENT_PAGES_MAX)?, selection);
    let mut loan = loan.map_err(|(error, _, _)| error)?;
    let mut bytes = KVec::from_elem(0, PAGE_SIZE, GFP_KERNEL)?;
    for (_, at, position, len) in places.iter().rev() {
        // The last page of the subrequest may end before the file's does.
        let len = (*len).min((loan.len_bytes() as usize).saturating_sub(*at));
        let bytes = bytes.get_mut(..len).ok_or(EINVAL)?;
        tree::data(key, *position, bytes);
        loan.write(*at, bytes)?;
    }
    let (_, selection) = loan.end();
    let lent = selection.into_lent();
    for (page, ..) in &places {
        super::check(lent.is_filled(*page))?;
    }
    Ok(lent)
}

/// Writes the other pages, and what is left behind the last whole one.
fn from_holes(mut lent: Lent<Ferrotest>, whole: u16, has_gap: bool) -> Lent<Ferrotest> {
    let key = lent.subrequest().inode().key();
    let start = lent.subrequest().position();
    let size = lent.subrequest().inode().size();
    let first = lent.first_page();
    for page in 0..lent.pages() {
        if lent.is_filled(page) || (has_gap && page == GAP) {
            continue;
        }
        let begin = first.saturating_add(page.into()) * PAGE_SIZE as u64;
        let mut position = begin.max(start);
        let end = match page < whole {
            true => begin.saturating_add(PAGE_SIZE as u64),
            false => size,
        };
        let mut hole = lent.hole(page..page + 1);
        let mut part = [0; 256];
        while position < end {
            // CAST: At most the length of the array.
            let len = (end - position).min(part.len() as u64) as usize;
            let Some(piece) = part.get_mut(..len) else {
                break;
            };
            tree::data(key, position, piece);
            let written = hole.destination().write(piece);
            position += written as u64;
            if written < len {
                break;
            }
        }
    }
    lent
}

/// Writes what is left up to `end` from the begin on, and passes over what is there; once again
/// from the begin, as if the first attempt had failed.
fn in_order(lent: Lent<Ferrotest>, end: u64) -> Result<Subrequest<Ferrotest>> {
    let key = lent.subrequest().inode().key();
    let mut partial = lent.into_partial();
    let begin = partial.subrequest().position();
    let mut has_failed = false;
    let mut bytes = [0; 256];
    loop {
        let position = partial.subrequest().position();
        let page = position / PAGE_SIZE as u64;
        let page_end = page.saturating_add(1) * PAGE_SIZE as u64;
        // CAST: At most a page.
        let of_page = page_end.min(end).saturating_sub(position) as usize;
        let of_page = of_page.min(partial.subrequest().len());
        if of_page == 0 {
            if core::mem::replace(&mut has_failed, true) {
                return Ok(partial.into_subrequest());
            }
            partial.rewind();
            super::check(partial.subrequest().position() == begin)?;
            continue;
        }
        // The page behind one that is filled is not.
        super::check(!partial.pass(of_page + 1))?;
        if partial.pass(of_page) {
            super::check(partial.is_filled(page))?;
            continue;
        }
        super::check(!partial.is_filled(page))?;
        let len = of_page.min(bytes.len());
        let piece = bytes.get_mut(..len).ok_or(EINVAL)?;
        tree::data(key, position, piece);
        super::check(partial.destination().write(piece) == len)?;
    }
}

/// The most pages that are looked at.
const LOOK_MAX: u16 = 256;

/// Compares what is cached of a file before `position` with what it holds.
pub(super) fn look(mount: &Mount, key: Key, position: u64) -> Result {
    let found = mount.active_refs.with(|sb| cached(sb, key, position));
    let (mut folios, numbers, size) = found.ok_or(EINVAL)??;
    let stats = &mount.stats;
    stats.cached.fetch_add(folios.pages().into(), Relaxed);
    if numbers.is_empty() {
        folios.clear();
        return Ok(());
    }
    let loan = Loan::new(SgBuffer::new(LOOK_MAX)?, folios);
    let mut loan = loan.map_err(|(error, _, _)| error)?;
    super::check(loan.copy_in(0, &[0]).is_err())?;
    let mut found = KVec::from_elem(0, PAGE_SIZE, GFP_KERNEL)?;
    let mut wanted = KVec::from_elem(0, PAGE_SIZE, GFP_KERNEL)?;
    for (index, number) in numbers.iter().enumerate() {
        let begin = number * PAGE_SIZE as u64;
        let len = size.saturating_sub(begin).min(PAGE_SIZE as u64) as usize;
        wanted.fill(0);
        tree::data(key, begin, wanted.get_mut(..len).ok_or(EINVAL)?);
        let count = loan.copy_out(index * PAGE_SIZE, &mut found);
        if count != PAGE_SIZE || found != wanted {
            stats.wrong.fetch_add(1, Relaxed);
        }
    }
    Ok(())
}

/// Takes what is cached of a file before `position`; returns also the numbers of the pages, and the
/// size of the file.
fn cached(sb: &SuperBlock<Ferrotest>, key: Key, position: u64) -> Result<(Folios, KVec<u64>, u64)> {
    let other = Key {
        number: key.number + 1000,
        ..key
    };
    super::check(sb.find_inode(other).is_none())?;
    let inode = sb.find_inode(key).ok_or(EINVAL)?;
    let mut folios = Folios::new(LOOK_MAX)?;
    let mut numbers = KVec::new();
    let page = position / PAGE_SIZE as u64;
    // The page that is being read is not up to date.
    if folios.take(&inode, page, 1) != 0 {
        sb.data().stats.wrong.fetch_add(1, Relaxed);
    }
    folios.clear();
    let mut number = page.saturating_sub(LOOK_MAX.into());
    while number < page {
        let left = u16::try_from(page - number).unwrap_or(u16::MAX);
        let taken = folios.take(&inode, number, left);
        for _ in 0..taken.max(1) {
            if taken > 0 {
                numbers.push(number, GFP_KERNEL)?;
            }
            number += 1;
        }
    }
    Ok((folios, numbers, inode.size()))
}
