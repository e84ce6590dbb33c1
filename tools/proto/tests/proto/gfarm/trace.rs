// SPDX-License-Identifier: GPL-2.0

//! The recorded messages of `tests/data/gfarm.txt`.

/// A piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Bytes that were recorded.
    Bytes(Vec<u8>),
    /// The number of bytes of a file, which were not recorded.
    File(u32),
}

/// The pieces that one side sent before the other one did.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) is_client: bool,
    pub(crate) pieces: Vec<Piece>,
}

impl Turn {
    /// The bytes of a turn without those of files.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let bytes = self.pieces.iter().map(|piece| match piece {
            Piece::Bytes(bytes) => bytes.as_slice(),
            Piece::File(_) => &[],
        });
        bytes.collect::<Vec<_>>().concat()
    }
}

/// Reads bytes from hexadecimal digits.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits
        .chars()
        .map(|c| c.to_digit(16).unwrap() as u8)
        .collect();
    digits.chunks(2).map(|d| (d[0] << 4) | d[1]).collect()
}

/// The turns of the trace `name`.
pub(crate) fn trace(name: &str) -> Vec<Turn> {
    let all = include_str!("../../data/gfarm.txt");
    let head = format!("[{name}]\n");
    let (_, rest) = all.split_once(&head).unwrap_or_else(|| panic!("no {name}"));
    let section = rest.split_once("\n[").map_or(rest, |(section, _)| section);
    let mut turns = Vec::new();
    for line in section.lines().filter(|line| !line.starts_with('#')) {
        let (mark, words) = line.split_at_checked(1).unwrap_or_default();
        if matches!(mark, "<" | ">") {
            let (is_client, pieces) = (mark == ">", Vec::new());
            turns.push(Turn { is_client, pieces });
        }
        for word in words.split_whitespace() {
            let pieces = &mut turns.last_mut().unwrap().pieces;
            match (word.strip_prefix('*'), pieces.last_mut()) {
                (Some(len), _) => pieces.push(Piece::File(len.parse().unwrap())),
                (None, Some(Piece::Bytes(bytes))) => bytes.extend(hex(word)),
                (None, _) => pieces.push(Piece::Bytes(hex(word))),
            }
        }
    }
    turns
}

/// The request and the reply of a trace that starts with them.
pub(crate) fn exchange(name: &str) -> (Vec<u8>, Vec<u8>) {
    exchanges(name).remove(0)
}

/// The requests and replies of a trace without bytes of files.
pub(crate) fn exchanges(name: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let turns = trace(name);
    assert!(turns
        .iter()
        .zip([true, false].iter().cycle())
        .all(|(t, is)| t.is_client == *is));
    turns
        .chunks(2)
        .map(|pair| (pair[0].bytes(), pair.get(1).map_or(Vec::new(), Turn::bytes)))
        .collect()
}
