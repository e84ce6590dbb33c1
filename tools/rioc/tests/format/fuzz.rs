// SPDX-License-Identifier: GPL-2.0

//! Bytes that are nearly right, a million of each kind, from the same seed each time.

use std::time::{
    Duration,
    Instant, //
};

use rioc::proto::{
    answer::{
        Attached,
        Listed,
        ReadHead,
        Short, //
    },
    message::Direction,
    wire, //
};
use zerocopy::IntoBytes;

use crate::{
    random::Random,
    targets,
    vectors::messages, //
};

const CASES: usize = 1_000_000;
/// A host that is busy ends earlier.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Runs cases until there are enough, or the time is over.
fn cases(mut case: impl FnMut()) {
    let begun = Instant::now();
    for number in 0..CASES {
        if number % 4096 == 0 && begun.elapsed() > TIME_MAX {
            println!("{number} cases");
            return;
        }
        case();
    }
}

/// Returns a number at which something may end, or any.
fn number(random: &mut Random) -> u64 {
    const ENDS: [u64; 12] = [
        0,
        1,
        4095,
        4096,
        114_688,
        114_689,
        1 << 31,
        u32::MAX as u64,
        u32::MAX as u64 * 4096,
        1 << 44,
        1 << 63,
        u64::MAX,
    ];
    let end = ENDS[random.below(ENDS.len())];
    match random.below(4) {
        0 => random.next(),
        1 => random.next() >> random.below(64),
        2 => end,
        _ => end.wrapping_add(random.next() % 3).wrapping_sub(1),
    }
}

/// Changes some fields, or bytes, or the length.
fn damage(bytes: &mut Vec<u8>, fields: &[(usize, usize)], random: &mut Random) {
    for _ in 0..=random.below(3) {
        match random.below(8) {
            0 => bytes.truncate(random.below(bytes.len() + 1)),
            1 => bytes.extend(random.next().to_le_bytes()),
            2 => {
                let at = random.below(bytes.len().max(1));
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            _ => {
                let (at, len) = fields[random.below(fields.len())];
                if let Some(field) = bytes.get_mut(at..at + len) {
                    field.copy_from_slice(&number(random).to_le_bytes()[..len]);
                }
            }
        }
    }
}

#[test]
fn a_message_is_refused_or_keeps_its_promises() {
    const FIELDS: [(usize, usize); 11] = [
        (0, 1),
        (1, 1),
        (2, 2),
        (4, 4),
        (8, 8),
        (16, 8),
        (24, 8),
        (32, 8),
        (40, 8),
        (48, 8),
        (64, 8),
    ];
    let all: Vec<_> = messages()
        .into_iter()
        .map(|(message, direction, _)| {
            let mut bytes = vec![0; wire::REQUEST_BYTES_MAX];
            let len = message.write(&mut bytes).unwrap();
            bytes.truncate(len);
            (bytes, direction, message.operation.data_bytes())
        })
        .collect();
    let (mut random, mut taken) = (Random::new(1), 0);
    cases(|| {
        let (mut bytes, mut direction, mut data) = all[random.below(all.len())].clone();
        damage(&mut bytes, &FIELDS, &mut random);
        match random.below(8) {
            0 => data = number(&mut random) as u32,
            1 => direction = Direction::Read,
            _ => (),
        }
        taken += u32::from(targets::message(&bytes, (direction, data)));
    });
    assert!(taken > 1000);
}

#[test]
fn an_answer_is_refused_or_keeps_its_promises() {
    const FIELDS: [(usize, usize); 8] = [
        (0, 1),
        (1, 1),
        (2, 2),
        (4, 4),
        (8, 8),
        (16, 8),
        (24, 8),
        (40, 8),
    ];
    let asked = targets::asked();
    let head = ReadHead {
        bytes: 8194,
        size: 20_000,
        sums: [0; wire::READ_SUMS],
    };
    let attached = Attached {
        is_durable: true,
        has_backing: false,
        io_bytes_max: 4096,
        boot: 1,
        client: 1,
        incarnation: 3,
        identity: 1,
    };
    let listed = Listed {
        count: 2,
        next: None,
    };
    let mut list = listed.to_wire().as_bytes().to_vec();
    list.extend([7; 48]);
    let short = Short::default().to_wire(wire::STAT);
    let all = [
        head.to_wire(&asked).as_bytes().to_vec(),
        attached.to_wire().as_bytes().to_vec(),
        short.as_bytes().to_vec(),
        list,
    ];
    let mut random = Random::new(2);
    cases(|| {
        let mut bytes = all[random.below(all.len())].clone();
        damage(&mut bytes, &FIELDS, &mut random);
        targets::answer(&bytes);
    });
}

/// A table of any entries is refused, or an index that ends its steps and can be made empty.
#[test]
fn entries_are_refused_or_an_index() {
    const SLOTS: usize = 8;
    let (mut random, mut taken) = (Random::new(3), 0);
    cases(|| {
        let mut entries = [[0; 32]; SLOTS];
        for entry in &mut entries {
            entry[0] = [0, 1, 2, 2, 3, 3][random.below(6)];
            match entry[0] {
                1 => {
                    entry[1] = random.below(4) as u8 / 2;
                    entry[9] = (random.below(4) * 16) as u8;
                    entry[24] = random.below(3) as u8;
                }
                2 => {
                    entry[1] = random.below(2) as u8;
                    entry[2] = random.below(4) as u8;
                    entry[4] = random.below(SLOTS) as u8;
                    entry[8] = random.below(6) as u8;
                    entry[12] = random.below(SLOTS) as u8;
                }
                3 => entry[1] = random.below(5) as u8,
                _ => (),
            }
            if random.below(64) == 0 {
                entry[random.below(32)] = random.next() as u8;
            }
        }
        taken += u32::from(targets::table(&entries));
    });
    assert!(taken > 100, "{taken}");
}
