// SPDX-License-Identifier: GPL-2.0

//! The notice that a read is over.

use proto::gfarm::cache::{
    have::Have,
    invalid::Invalid,
    pages::PageSet, //
};

use super::message::content;

#[test]
fn the_body_is_as_it_is_written_down() {
    let id = content(0x0102, 3);
    let have = Have::new(id, 4, PageSet::range(0, 9)).unwrap();
    let mut body = vec![2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
    body.extend([0xcd, 0xab, 0x89, 0x67, 0, 0, 0, 0, 0xb1, 0x68, 0xde, 0x3a]);
    body.extend([4, 0, 0, 0, 0, 0, 0, 0, 0xff, 1]);
    body.resize(Have::LEN, 0);
    assert_eq!(have.to_bytes()[..], body[..]);
    let read = Have::parse(&body).unwrap();
    assert_eq!((read.id(), read.chunk(), read.pages().len()), (id, 4, 9));
}

#[test]
fn each_rule_is_checked() {
    let id = content(1, 1);
    let honest = Have::new(id, 0, PageSet::range(5, 1)).unwrap().to_bytes();
    let mut nothing = honest;
    nothing[0] = 0;
    assert_eq!(Have::parse(&nothing), Err(Invalid::Object));
    let mut empty = honest;
    empty[36..].fill(0);
    assert_eq!(Have::parse(&empty), Err(Invalid::Pages));
    let mut later = honest;
    later[24..28].copy_from_slice(&1_000_000_000u32.to_le_bytes());
    assert_eq!(Have::parse(&later), Err(Invalid::Time));
    assert_eq!(Have::parse(&honest[1..]), Err(Invalid::Length));
    assert_eq!(
        Have::parse(&[&honest[..], &[0]].concat()),
        Err(Invalid::Length)
    );
    assert_eq!(Have::parse(&[]), Err(Invalid::Length));
}
