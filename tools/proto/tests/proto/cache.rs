// SPDX-License-Identifier: GPL-2.0

//! Losses of a server's volatile cache: every order of a few events, against a model that remembers
//! each write and each flush.

use proto::rnbd::{
    boot::Boot,
    cache::{
        Cache,
        Note,
        Owed, //
    },
    flags::{
        Op,
        Rw,
        RwFlags, //
    },
};

/// An event; the number is that of a flush that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    WriteDone,
    FlushSent,
    FlushDone(usize),
    FlushFailed(usize),
    Reopened { restarted: bool },
}

/// The model, which has everything by its time.
#[derive(Clone, Debug, Default)]
struct Model {
    now: u32,
    /// The times when writes were acknowledged that may be lost.
    writes: Vec<u32>,
    owes: bool,
    losses: u32,
}

#[derive(Clone, Debug)]
struct Both {
    model: Model,
    cache: Cache,
    /// The times when flushes were sent that are under way, and what they were told.
    flushes: Vec<(u32, Note)>,
}

impl Both {
    fn new() -> Self {
        let (cache, lost) = Cache::new().opened(false, true);
        assert!(!lost);
        Self {
            model: Model::default(),
            cache,
            flushes: Vec::new(),
        }
    }

    fn events(&self) -> Vec<Event> {
        let mut events = vec![
            Event::WriteDone,
            Event::Reopened { restarted: false },
            Event::Reopened { restarted: true },
        ];
        if self.flushes.len() < 3 {
            events.push(Event::FlushSent);
        }
        for index in 0..self.flushes.len() {
            events.extend([Event::FlushDone(index), Event::FlushFailed(index)]);
        }
        events
    }

    fn happens(&mut self, event: Event) {
        self.model.now += 1;
        let now = self.model.now;
        match event {
            Event::WriteDone => {
                self.model.writes.push(now);
                self.cache = self.cache.acknowledged(Note::Write);
            }
            Event::FlushSent => {
                let (cache, sent) = self.cache.flush_begins();
                self.cache = cache;
                let owed = std::mem::take(&mut self.model.owes);
                assert_eq!(sent == Err(Owed), owed);
                if let Ok(covered) = sent {
                    self.flushes.push((now, Note::Flush(covered)));
                }
            }
            Event::FlushDone(index) => {
                let (sent, note) = self.flushes.remove(index);
                self.model.writes.retain(|write| *write > sent);
                self.cache = self.cache.acknowledged(note);
            }
            Event::FlushFailed(index) => {
                self.flushes.remove(index);
            }
            Event::Reopened { restarted } => {
                // What is under way is given back before, and sent anew.
                self.flushes.clear();
                let lost = restarted && !self.model.writes.is_empty();
                if lost {
                    self.model.writes.clear();
                    self.model.owes = true;
                    self.model.losses += 1;
                }
                assert_eq!(self.cache.will_owe(restarted), self.model.owes);
                let (cache, told) = self.cache.opened(restarted, true);
                self.cache = cache;
                assert_eq!(told, lost);
            }
        }
        let at_risk = !self.model.writes.is_empty();
        assert_eq!(self.cache.opened(true, true).1, at_risk, "{self:?}");
        assert_eq!(self.cache.will_owe(false), self.model.owes);
        assert_eq!(Cache::from_word(self.cache.to_word()), self.cache);
    }
}

fn explore(state: &Both, left: u32, count: &mut u64) {
    *count += 1;
    if left == 0 {
        return;
    }
    for event in state.events() {
        let mut next = state.clone();
        next.happens(event);
        explore(&next, left - 1, count);
    }
}

#[test]
fn every_order_of_events_is_as_in_the_model() {
    let mut count = 0;
    explore(&Both::new(), 9, &mut count);
    assert!(count > 1_000_000, "{count} states");
}

#[test]
fn a_flush_of_the_last_boot_covers_nothing_of_this_one() {
    let write = |cache: Cache| cache.acknowledged(Note::Write);
    let (cache, _) = Cache::new().opened(false, true);
    let (cache, sent) = write(cache).flush_begins();
    let old = Note::Flush(sent.unwrap());
    let (cache, lost) = cache.opened(true, true);
    assert!(lost);
    let (cache, owed) = cache.flush_begins();
    assert_eq!(owed, Err(Owed));
    for generations in 0..4 {
        let mut now = cache;
        for _ in 0..generations {
            now = write(now).flush_begins().0;
        }
        now = write(now).flush_begins().0;
        assert_eq!(now.acknowledged(old), now);
    }
}

#[test]
fn a_device_without_a_cache_and_a_forced_write_have_nothing_to_lose() {
    let (plain, _) = Cache::new().opened(false, false);
    let (cached, _) = Cache::new().opened(false, true);
    let all = [
        (Op::Read, false),
        (Op::Write, true),
        (Op::Flush, false),
        (Op::Discard, false),
        (Op::SecureErase, true),
        (Op::WriteZeroes, true),
    ];
    for (op, writes) in all {
        let wanted = if writes { Note::Write } else { Note::Nothing };
        assert_eq!(cached.note_of(&Rw::new(op)), wanted, "{op:?}");
        assert_eq!(plain.note_of(&Rw::new(op)), Note::Nothing);
        assert_eq!(Cache::is_flush(&Rw::new(op)), op == Op::Flush);
    }
    let forced = Rw {
        op: Op::Write,
        flags: RwFlags::FUA,
    };
    assert_eq!(cached.note_of(&forced), Note::Nothing);
    let first = Rw {
        op: Op::Write,
        flags: RwFlags::FUA.and(RwFlags::PREFLUSH),
    };
    assert!(Cache::is_flush(&first));
    // A cache that is switched off has not written what was in it.
    let written = cached.acknowledged(Note::Write);
    let (off, _) = written.opened(false, false);
    assert!(off.opened(true, false).1);
}

#[test]
fn a_server_that_tells_no_boot_has_restarted_if_that_is_assumed() {
    let all = [None, Boot::from_number(1), Boot::from_number(2)];
    for before in all {
        for now in all {
            let known = before.is_some() && now.is_some();
            for assume in [false, true] {
                let wanted = if known { before != now } else { assume };
                assert_eq!(Boot::has_restarted(before, now, assume), wanted);
            }
        }
    }
}
