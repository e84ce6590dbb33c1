// SPDX-License-Identifier: GPL-2.0

//! The page of the protocol: its bytes are those of the golden vectors, its tables have no gaps.

use super::{
    message::hex,
    reply,
    request, //
};

const PAGE: &str = include_str!("../../../../../../Documentation/gfarm-cache-protocol.md");

/// The hexadecimal lines behind a mark.
fn quoted(name: &str) -> Vec<u8> {
    let mark = format!("<!-- golden: {name} -->\n<!-- figure -->\n\n");
    let (_, rest) = PAGE.split_once(&mark).unwrap();
    let (block, _) = rest.split_once("\n\n").unwrap();
    hex(block)
}

#[test]
fn the_page_has_the_bytes_of_the_vectors() {
    assert_eq!(quoted("request"), hex(request::GOLDEN));
    assert_eq!(quoted("data"), hex(reply::GOLDEN_DATA));
    assert_eq!(quoted("sums"), hex(reply::GOLDEN_SUMS));
    assert_eq!(quoted("redirect"), hex(reply::GOLDEN_REDIRECT));
}

#[test]
fn the_fields_of_each_layout_follow_each_other() {
    let mut tables = 0;
    for part in PAGE.split("| offset | field | bytes | what |").skip(1) {
        let (table, rest) = part.split_once("<!-- length: ").unwrap();
        let (len, _) = rest.split_once(" -->").unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| "));
        let mut end = 0;
        for row in rows {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            let (offset, bytes): (usize, usize) =
                (cells[1].parse().unwrap(), cells[3].parse().unwrap());
            assert_eq!(offset, end, "{row}");
            end += bytes;
        }
        assert_eq!(end, len.parse().unwrap());
        tables += 1;
    }
    assert!(tables >= 3);
}
