// SPDX-License-Identifier: GPL-2.0

//! A store on a log whose power fails: after each crash there are the objects of one batch, none
//! before the last one of which an answer has told, and a request that is sent again is carried out
//! once.

use crate::{
    random::Random,
    requests::Ask,
    rig::{
        Fault,
        Rig,
        Tally,
        CLIENTS, //
    },
};

/// Slots of each life: in every third one they are too few.
const SLOTS: [usize; 3] = [140, 140, 40];

/// Returns a request, at one of so many blocks.
pub(crate) fn ask(random: &mut Random, blocks: usize) -> Ask {
    let object = random.below(3) as u64;
    let other = random.below(3) as u64;
    let offset = [0, 2048][random.below(2)] + random.below(blocks) as u64 * 4096;
    let bytes = [4096, 8192, 1000, 12288][random.below(4)];
    match random.below(16) {
        0..7 => Ask::Write(object, offset, bytes, random.below(8) > 0),
        7..10 => {
            let to = offset % 4096 + random.below(blocks) as u64 * 4096;
            Ask::Copy(object, offset, bytes, other, to, random.below(8) > 0)
        }
        10 | 11 => Ask::Truncate(object, offset),
        12 => Ask::Delete(object),
        13 => Ask::Create(object, random.below(2) == 0),
        14 => Ask::Snapshot(object, other, random.below(2) == 0),
        _ => Ask::Flush(object),
    }
}

/// Lives a life; returns what came of it.
fn live(seed: u64, has_cache: bool, fault: Fault) -> Tally {
    let mut rig = Rig::on_log(SLOTS[seed as usize % 3], seed + 77, (has_cache, fault));
    // In others there is too little room for all blocks.
    let blocks = [6, 18, 6][seed as usize % 3];
    rig.slow_flushes = seed % 4 == 0;
    for _ in 0..rig.random.below(4) + 1 {
        for _ in 0..rig.random.below(5000) {
            match rig.random.below(16) {
                0..4 => {
                    let client = rig.random.below(CLIENTS);
                    if rig.is_idle(client) && rig.in_flight() < 6 {
                        let ask = ask(&mut rig.random, blocks);
                        let request = rig.request(client, ask, 0);
                        rig.send(request).unwrap();
                    }
                }
                4..8 => rig.step_some(false),
                8 | 9 => {
                    rig.end_io();
                    rig.settle();
                }
                10 => rig.settle(),
                11 => {
                    rig.answer();
                }
                12 if rig.held() < 2 => {
                    let (object, block) = (rig.random.below(3) as u64, rig.random.below(6));
                    rig.begin_read(object, block as u64 * 4096, 12288);
                }
                12 | 13 => {
                    let at = rig.random.below(60);
                    rig.end_read(at);
                }
                14 => rig.reap(),
                _ => {
                    let wanted = rig.random.below(8) == 0;
                    rig.collect(wanted);
                }
            }
        }
        rig.check();
        match rig.random.below(4) {
            0 => {
                rig.drain();
                rig.check();
            }
            _ => rig.crash(),
        }
    }
    rig.tally
}

/// Lives as many lives as `RIOC_LIVES` says; each one that fails is named.
fn live_all(lives: u64, has_cache: bool) {
    let wanted = std::env::var("RIOC_LIVES");
    let lives = wanted.map_or(lives, |lives| lives.parse().unwrap());
    let mut sum = Tally::default();
    for seed in 0..lives {
        let life = std::panic::catch_unwind(|| live(seed, has_cache, Fault::None));
        let life = life.unwrap_or_else(|_| panic!("life {seed} has failed"));
        sum.done += life.done;
        sum.refused += life.refused;
        sum.full += life.full;
        sum.crashes += life.crashes;
        sum.moved += life.moved;
        sum.batches += life.batches;
        sum.sent_again += life.sent_again;
        sum.carried_out_before += life.carried_out_before;
    }
    println!("{sum:?}");
    assert!(sum.crashes > lives && sum.moved > lives / 4 && sum.batches < sum.done);
    assert!(sum.carried_out_before > lives / 20 && sum.sent_again > sum.carried_out_before);
}

#[test]
fn what_was_answered_is_there_after_every_crash() {
    live_all(150, false);
}

#[test]
fn what_was_answered_is_there_after_every_crash_of_a_cache() {
    live_all(150, true);
}

/// Knowledge of the newer slot of the superblock is not given up without a word.
#[test]
fn a_damaged_slot_of_the_superblock_is_told() {
    let (mut told, mut harmless) = (0, 0);
    for seed in 0..300 {
        let mut rig = Rig::on_log(SLOTS[0], seed + 77, (true, Fault::None));
        for _ in 0..rig.random.below(150) {
            let ask = ask(&mut rig.random, 6);
            let request = rig.request(0, ask, 0);
            rig.send(request).unwrap();
            rig.drain();
        }
        match rig.tells_of_a_damaged_slot() {
            true => told += 1,
            false => harmless += 1,
        }
    }
    println!("{told} told, {harmless} harmless");
    assert!(told > 0 && harmless > 0);
}

/// Mistakes of a device are found by these lives.
#[test]
fn mistakes_are_found() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let found = [Fault::DumpNotFlushed, Fault::FlushNotDone].map(|fault| {
        let fails = |seed: &u64| std::panic::catch_unwind(|| live(*seed, true, fault)).is_err();
        ((0..300).find(fails), fault)
    });
    std::panic::set_hook(before);
    for (life, fault) in found {
        println!("{fault:?}: life {life:?}");
        assert!(life.is_some(), "{fault:?} is not found");
    }
}
