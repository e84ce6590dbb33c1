// SPDX-License-Identifier: GPL-2.0

//! A store in memory.

use std::collections::HashMap;

use super::{
    objects::{
        Look,
        Seen, //
    },
    random::Random,
    rig::{
        id,
        in_memory, //
    }, //
};
use crate::proto::message::Operation as Asked;

/// Zeroes are before what was written, and nothing behind it.
#[test]
fn what_is_written_is_read() {
    let (mut server, mut random) = (in_memory(1000), Random::new(1));
    let (client, _) = server.attach(1).unwrap();
    let written = server.write((client, 0), 1, (5, 100), &[7; 9000]);
    assert_eq!(server.run(&mut random, written).errno, 0);
    let look = Look {
        object: 5,
        at: 0,
        bytes: 12_000,
    };
    let read = server.read((client, 0), 5, (0, 12_000));
    let right = [vec![0; 100], vec![7; 9000]].concat();
    let answer = server.run(&mut random, read);
    assert_eq!(look.judge(&answer), Seen::Bytes(right));
}

/// Whoever waits for the room of what was deleted gets it, beside a reader that keeps all of its
/// chunks busy.
#[test]
fn a_delete_makes_room_beside_a_reader() {
    let mut server = in_memory(4);
    let [(writer, _), (reader, _)] = [1, 2].map(|name| server.attach(name).unwrap());
    let mut random = Random::new(1);
    server.write((writer, 0), 1, (1, 0), &[1; 8192]);
    let last = server.write((writer, 1), 1, (2, 0), &[2; 8192]);
    server.run(&mut random, last);
    let delete = Asked::Delete { object: id(1) };
    server.send((writer, 2), (1, 0), delete, &[]);
    let mut chunks = HashMap::new();
    for chunk in 0..64 {
        chunks.insert(server.read((reader, chunk), 2, (0, 4096)), chunk);
    }
    // The delete.
    server.go_on(0);
    let written = server.write((writer, 3), 1, (3, 0), &[3; 8192]);
    for _ in 0..20_000 {
        server.go_on(0);
        for answer in server.take_answers() {
            assert_eq!(answer.errno, 0);
            if answer.number == written {
                return;
            }
            // Each answer brings the next read of its chunk.
            if let Some(chunk) = chunks.remove(&answer.number) {
                chunks.insert(server.read((reader, chunk), 2, (0, 4096)), chunk);
            }
        }
    }
    panic!("the write has not ended");
}
