// SPDX-License-Identifier: GPL-2.0

//! Every target with many inputs, each a damaged version of an honest one: of a fixed seed, and of
//! one that is new in each run, which `PROTO_SEED` sets. The long runs, which learn from coverage,
//! are in `tools/fuzz`.

use std::{
    env,
    time::{
        Duration,
        Instant,
        SystemTime,
        UNIX_EPOCH, //
    },
};

use zerocopy::IntoBytes;

use proto::{
    rnbd::{access::AccessMode, wire as rnbd_wire},
    rtrs::{geometry::Geometry, wire},
};

use crate::{
    chance::Chance,
    targets::{
        Target,
        TARGETS, //
    },
};

/// Inputs for each target and seed, and the time after which a slow machine stops early.
const INPUTS: usize = 50_000;
const TIME_MAX: Duration = Duration::from_millis(250);

/// The seed of each run.
const FIXED_SEED: u64 = 0x7274_7273;

/// The seed of this run: `PROTO_SEED`, else the clock.
fn fresh_seed() -> u64 {
    match env::var("PROTO_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            // CAST: the low half varies.
            now.as_nanos() as u64
        }
    }
}

fn connect() -> proto::rtrs::handshake::Connect {
    proto::rtrs::handshake::Connect {
        cid: 1,
        cid_num: 3,
        recon_cnt: 1,
        sess_uuid: [1; 16],
        paths_uuid: [2; 16],
        first_conn: true,
        fences: true,
    }
}

/// Honest inputs to start from, not only for the target that they belong to.
fn seeds() -> Vec<Vec<u8>> {
    let descriptor = wire::Descriptor::new(0x10_0000, 5, 4096);
    let open = rnbd_wire::Open::new(b"disk/ram0", AccessMode::ReadWrite, None).unwrap();
    let io = rnbd_wire::Io::new(1, 8, 0x100, 4096, 0x4004);
    let connect = connect();
    let life = proto::rtrs::fence::Life::new(7, 1);
    let accept = wire::ConnectResponse::accept(&Geometry::new(512, 131_072).unwrap(), true, life);
    let info = wire::InfoResponse::new(2);
    // Behind what a target takes off the front for itself.
    let head = wire::ReadMessage::new(32, descriptor);
    let chunk = [
        &4128u16.to_le_bytes()[..],
        &[0; 4096],
        io.as_bytes(),
        head.as_bytes(),
    ]
    .concat();
    let write = wire::WriteHead::new(32);
    let short = [&[32, 0][..], io.as_bytes(), write.as_bytes(), &[0; 99]];
    vec![
        connect.to_wire().as_bytes().to_vec(),
        [&512u16.to_le_bytes(), accept.as_bytes()].concat(),
        wire::InfoRequest::new(b"session")
            .unwrap()
            .as_bytes()
            .to_vec(),
        [
            &[1, 3],
            info.as_bytes(),
            descriptor.as_bytes(),
            descriptor.as_bytes(),
        ]
        .concat(),
        vec![0x20, 0x10, 8, 0, 0, 17, 2],
        chunk,
        short.concat(),
        [&[2, 0, 0, 16], io.as_bytes()].concat(),
        [&[2, 0, 56, 0], open.as_bytes()].concat(),
        [
            &[2, 0, 36, 0],
            rnbd_wire::SessInfo::request(1 << 40).as_bytes(),
        ]
        .concat(),
        [&[2, 1, 0, 0], rnbd_wire::Close::new(7).as_bytes()].concat(),
        rnbd_wire::SessInfo::response(2).as_bytes().to_vec(),
        rnbd_wire::SessInfo::response_to(2, 7, None)
            .as_bytes()
            .to_vec(),
        b"dest_port=1 sessname=s path=ip:10.0.0.1@ip:fd00::1 path=gid:fe80::1 \
          device_path=/dev/ram0 access_mode=ro nr_poll_queues=-1 nr_io_queues=2\n"
            .to_vec(),
        b"ip:::ffff:192.0.2.1".to_vec(),
        b"gid:fe80:0000:0000:0000:0002:c903:00ef:5ab1".to_vec(),
        b"min-latency\n".to_vec(),
        b"0xffffffffffffffff".to_vec(),
        b"user=alice,key=k,uid=1,hosts=fs1/10.0.0.1+fs2/fd00::2,ra_sync=0,ib_mtu=1024".to_vec(),
        b"6ce20b9e d698611bf555ed9594ff12c5126f2c49e2342579ba2c4e4cb24aaa98a604ebd7\n".to_vec(),
        Vec::new(),
    ]
    .into_iter()
    .chain(crate::gfarm::seeds())
    .chain(crate::sidecar::seeds())
    .collect()
}

/// Values that parsers are wrong about.
const CORNERS: [u64; 10] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x8000_0000,
    0xffff_ffff,
    u64::MAX,
];

/// Damages an input in one to eight places.
fn damage(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], chance: &mut Chance) {
    for _ in 0..=chance.below(8) {
        let at = chance.below(bytes.len() + 1);
        match chance.below(7) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, chance.number() as u8),
            2 if at < bytes.len() => {
                bytes.remove(at);
            }
            3 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
            4 => {
                let value = CORNERS[chance.below(CORNERS.len())].to_le_bytes();
                let width = 1 << chance.below(4);
                for (to, from) in bytes[at..].iter_mut().take(width).zip(value) {
                    *to = from;
                }
            }
            5 => {
                // A piece of another input.
                let other = &seeds[chance.below(seeds.len())];
                let from = chance.below(other.len() + 1);
                let len = chance.below(other.len() - from + 1).min(64);
                bytes.splice(at..at, other[from..from + len].iter().copied());
            }
            _ => {
                if let Some(b) = bytes.get_mut(at) {
                    *b = chance.number() as u8;
                }
            }
        }
    }
}

fn run(name: &str, target: Target, seed: u64) -> usize {
    let seeds = seeds();
    let mut chance = Chance::new(seed);
    let start = Instant::now();
    for honest in &seeds {
        target(honest);
    }
    let mut bytes = Vec::new();
    for i in 0..INPUTS {
        if i > 0 && i % 1024 == 0 && start.elapsed() > TIME_MAX {
            return i;
        }
        // Half of the time what comes out is damaged further, for a while.
        if i % 16 == 0 || chance.below(2) == 0 {
            bytes.clone_from(&seeds[chance.below(seeds.len())]);
        }
        damage(&mut bytes, &seeds, &mut chance);
        let seen = std::panic::catch_unwind(|| target(&bytes));
        assert!(
            seen.is_ok(),
            "{name}, input {i}: {bytes:02x?}; again: PROTO_SEED={seed} cargo test -p \
             ferrofabric-proto no_bytes"
        );
    }
    INPUTS
}

#[test]
fn no_bytes_break_a_promise() {
    let fresh_seed = fresh_seed();
    println!("PROTO_SEED={fresh_seed}");
    for (name, target) in TARGETS {
        for seed in [FIXED_SEED, fresh_seed] {
            let inputs = run(name, target, seed);
            assert!(
                inputs >= 1024,
                "{name}: only {inputs} inputs in {TIME_MAX:?}"
            );
        }
    }
}

#[test]
fn every_target_can_be_run_for_long() {
    let listed = include_str!("../../../fuzz/Cargo.toml");
    for (name, _) in TARGETS {
        assert!(
            listed.contains(&format!("name = \"{name}\"")),
            "{name} is not in tools/fuzz"
        );
    }
}
