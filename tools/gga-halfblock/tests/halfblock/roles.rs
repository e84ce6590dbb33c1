// SPDX-License-Identifier: GPL-2.0

//! Service, targets and initiator over memory.

use std::collections::BTreeSet;

use gga_halfblock::control::{code, Body, Message, Refusal};
use gga_halfblock::initiator::{self, pattern, Plan, Session, Strategy};
use gga_halfblock::io_message::{IoMessage, Kind};
use gga_halfblock::matrix::MatrixType;
use gga_halfblock::sbc::Geometry;
use gga_halfblock::service::{Service, Settings};
use gga_halfblock::worker::Recovery;

use crate::memory::{io, Member, Members, ONE_CORE};
use crate::noise;

fn plan(strategy: Strategy) -> Plan {
    Plan {
        strategy,
        operations: 10,
        transactions: 4,
        blocks_per_io: 1,
        cpus: Vec::new(),
        plain: Vec::new(),
    }
}

fn ask(service: &mut Service<Member<'_>>, body: Body) -> Result<Body, Refusal> {
    let request = Message {
        id: 5,
        correlation: 6,
        body,
    };
    let answer = service.control(&request.encode());
    let (answer, _) = Message::decode(&answer).unwrap();
    assert_eq!((answer.id, answer.correlation), (5, 6));
    match answer.body {
        Body::Error(refusal) => Err(refusal),
        body => Ok(body),
    }
}

fn init(transactions: u32, cores: u32) -> Body {
    Body::InitRequest {
        transactions,
        cores,
        memory: Vec::new(),
    }
}

/// The specification's example: 64K in blocks of 2K become 128K in blocks of 4K.
#[test]
fn the_size_is_twice_that_of_a_target() {
    let members = Members::new(2 << 10, 32);
    let mut service = members.service(&ONE_CORE);
    let expected = Body::QueryResponse {
        total_bytes: 128 << 10,
        block_bytes: 4 << 10,
    };
    assert_eq!(ask(&mut service, Body::QueryRequest), Ok(expected));
}

#[test]
fn targets_that_differ_are_refused() {
    let members = Members::new(2 << 10, 32);
    for odd in 0..3 {
        for blocks in [true, false] {
            let mut service =
                members.service_of(&ONE_CORE, |index, geometry| match (index, blocks) {
                    (index, true) if index == odd => Geometry {
                        blocks: 31,
                        ..geometry
                    },
                    (index, false) if index == odd => Geometry {
                        half_bytes: 1 << 10,
                        blocks: 64,
                    },
                    _ => geometry,
                });
            let refusal = ask(&mut service, Body::QueryRequest).unwrap_err();
            assert_eq!(refusal.code, code::INVALID_VALUE);
            assert!(
                refusal.text.starts_with("the targets differ: data_1 has "),
                "{refusal}"
            );
            // It was not carried out: nothing has changed.
            let again = ask(&mut service, init(1, 1)).unwrap_err();
            assert_eq!(again.code, code::BAD_STATE);
        }
    }
}

#[test]
fn cores_and_memory_are_limited() {
    let members = Members::new(2 << 10, 32);
    let settings = Settings {
        cores_max: 2,
        ..ONE_CORE
    };
    let mut service = members.service(&settings);
    ask(&mut service, Body::QueryRequest).unwrap();
    for (transactions, cores) in [
        (1, 0),
        (1, 3),
        (0, 1),
        (u32::MAX, 1),
        (1 << 31, 1),
        (1 << 20, 1),
    ] {
        let refusal = ask(&mut service, init(transactions, cores)).unwrap_err();
        assert_eq!(refusal.code, code::INVALID_VALUE);
    }
    ask(&mut service, init(64, 2)).unwrap();
    // It connects to the targets itself.
    ask(&mut service, Body::StartRequest).unwrap();
    assert_eq!(service.data_path().0.len(), 2);
}

#[test]
fn a_transaction_has_its_memory_and_there_are_twice_as_many() {
    let members = Members::new(2 << 10, 32);
    for (is_written, chunk) in [(true, 10 << 10), (false, 6 << 10)] {
        let settings = Settings {
            is_written,
            ..ONE_CORE
        };
        let mut service = members.service(&settings);
        let mut session = Session::connect(&mut service).unwrap();
        session.start(3, 1).unwrap();
        let (workers, path) = session.data_path();
        assert_eq!(path.chunk_bytes(), chunk);
        let mut memory = vec![0; 4 << 10];
        let kind = if is_written { Kind::Write } else { Kind::Read };
        let message = |user_data| IoMessage {
            user_data,
            ..io(kind, 0, 4 << 10)
        };
        // The last of six is taken, one more is not.
        let worker = &mut workers[0];
        let last = initiator::request(worker, path, &message(5), &mut memory);
        assert_eq!(last, Ok(()));
        let more = initiator::request(worker, path, &message(6), &mut memory);
        assert_eq!(more, Err(code::INVALID_VALUE));
        assert_eq!(worker.failure(), Some("the transaction is 6: there are 6"));
    }
}

#[test]
fn nothing_is_served_before_the_start_and_after_the_stop() {
    let members = Members::new(2 << 10, 32);
    let mut service = members.service(&ONE_CORE);
    assert!(ask(&mut service, Body::StartRequest).is_err());
    ask(&mut service, Body::QueryRequest).unwrap();
    ask(&mut service, init(1, 1)).unwrap();
    assert!(service.data_path().0.is_empty());
    assert!(ask(&mut service, Body::QueryRequest).is_err());
    ask(&mut service, Body::StartRequest).unwrap();
    assert!(!service.data_path().0.is_empty());
    assert!(ask(&mut service, Body::ShutdownRequest).is_err());
    ask(&mut service, Body::StopRequest).unwrap();
    assert!(service.data_path().0.is_empty());
    assert!(ask(&mut service, Body::StopRequest).is_err());
    ask(&mut service, Body::ShutdownRequest).unwrap();
    assert!(ask(&mut service, Body::ShutdownRequest).is_err());
}

/// Both matrices, writes of several blocks, three threads: what is read is what was written.
#[test]
fn the_validity_test_passes() {
    for matrix in [MatrixType::Vandermonde, MatrixType::Cauchy] {
        for (every, blocks_per_io) in [(0, 1), (1, 7), (3, 255)] {
            let members = Members::new(2 << 10, 100);
            let settings = Settings {
                cores_max: 3,
                matrix,
                recovery: Recovery::EveryNth(every),
                is_written: true,
            };
            let plan = Plan {
                blocks_per_io,
                cpus: vec![0, 0, 0],
                ..plan(Strategy::ReadWriteDataValidityTest)
            };
            let mut service = members.service(&settings);
            let report = initiator::run(&mut service, &plan).unwrap();
            assert_eq!(report.failure, None);
            assert_eq!(report.cores.len(), 3);
            let recoveries: u64 = report.cores.iter().map(|core| core.recoveries).sum();
            let expected = match every {
                0 => 0,
                1 => 100,
                _ => 34 / 3 + 34 / 3 + 32 / 3,
            };
            assert_eq!(recoveries, expected);
            let targets: u64 = report.cores.iter().map(|core| core.target_operations).sum();
            assert_eq!(targets, 100 * 3 + 100 * 2);
        }
    }
}

/// Reads ten blocks: the third, the sixth and the ninth are rebuilt, the first half, the second,
/// the first.
#[test]
fn every_third_read_is_rebuilt_alternately() {
    let members = Members::new(2 << 10, 5);
    let writes = plan(Strategy::WriteThroughputTest);
    let report = initiator::run(&mut members.service(&ONE_CORE), &writes).unwrap();
    assert_eq!(
        (
            report.cores[0].operations,
            report.cores[0].target_operations
        ),
        (10, 30)
    );
    let settings = Settings {
        recovery: Recovery::EveryNth(3),
        is_written: false,
        ..ONE_CORE
    };
    let reads = plan(Strategy::ReadThroughputTest);
    let report = initiator::run(&mut members.service(&settings), &reads).unwrap();
    assert_eq!(report.failure, None);
    let core = report.cores[0];
    assert_eq!(
        (core.operations, core.recoveries, core.target_operations),
        (10, 3, 20)
    );
    assert_eq!(*members.power.reads.lock().unwrap(), [8, 9, 3]);
    assert_eq!(report.initiator.operations, 10);
    assert!(report.initiator.latency_min_us <= report.initiator.latency_mean_us);
    assert!(report.initiator.latency_mean_us <= report.initiator.latency_max_us);
}

/// The specification's behaviour: the service stops. The half blocks stay as they were.
#[test]
fn a_block_that_cannot_be_compressed_stops_the_service() {
    let members = Members::new(2 << 10, 2);
    let mut old = vec![0; 8 << 10];
    for (number, block) in (0..).zip(old.chunks_mut(4 << 10)) {
        pattern(number, block);
    }
    members.write(&old).unwrap();
    let mut service = members.service(&ONE_CORE);
    let mut session = Session::connect(&mut service).unwrap();
    session.start(1, 1).unwrap();
    let (workers, path) = session.data_path();
    let mut data = noise(1, 4 << 10);
    let write = initiator::request(
        &mut workers[0],
        path,
        &io(Kind::Write, 0, 4 << 10),
        &mut data,
    );
    assert_eq!(write, Err(code::NOT_SUPPORTED));
    let read = initiator::request(
        &mut workers[0],
        path,
        &io(Kind::Read, 0, 4 << 10),
        &mut data,
    );
    assert_eq!(read, Err(code::BAD_STATE));
    let end = session.end().unwrap_err().text;
    assert!(
        end.starts_with("block 0: the size of its stream is 4100: "),
        "{end}"
    );
    assert_eq!(members.read(Recovery::EveryNth(0), 8 << 10), Ok(old));
}

#[test]
fn a_service_for_reads_refuses_writes() {
    let members = Members::new(2 << 10, 2);
    let settings = Settings {
        is_written: false,
        ..ONE_CORE
    };
    let refused = members
        .transfer(&settings, Kind::Write, &mut [0; 4096])
        .unwrap_err();
    assert_eq!(
        refused,
        "a write, but the service was started for reads only"
    );
}

#[test]
fn a_failure_ends_the_run_and_is_told() {
    let members = Members::new(2 << 10, 8);
    *members.power.writes.lock().unwrap() = 4;
    let writes = plan(Strategy::WriteThroughputTest);
    let report = initiator::run(&mut members.service(&ONE_CORE), &writes).unwrap();
    assert_eq!(report.failure.as_deref(), Some("block 1: data_2: error 17"));
    assert_eq!(report.initiator.operations, 1);
    // Data that are not those of the plain content.
    *members.power.writes.lock().unwrap() = u64::MAX;
    let mut old = vec![0; 32 << 10];
    members.write(&old).unwrap();
    let reads = |plain: &[u8]| Plan {
        plain: plain.to_vec(),
        ..plan(Strategy::ReadOnlyDataValidityTest)
    };
    let run = |plain: &[u8]| initiator::run(&mut members.service(&ONE_CORE), &reads(plain));
    assert_eq!(run(&old[..31 << 10]).unwrap().failure, None);
    old[9000] = 1;
    let wrong = "block 2: byte 808 is not what was written";
    assert_eq!(run(&old).unwrap().failure.as_deref(), Some(wrong));
    assert!(run(&old[..28 << 10]).is_err());
}

#[test]
fn a_plan_is_checked() {
    let members = Members::new(2 << 10, 8);
    let run = |transactions, blocks_per_io| {
        let plan = Plan {
            transactions,
            blocks_per_io,
            ..plan(Strategy::ReadThroughputTest)
        };
        initiator::run(&mut members.service(&ONE_CORE), &plan).map(|report| report.failure)
    };
    for (transactions, blocks) in [(0, 1), (1, 0), (1, 256), (65_535, 255)] {
        assert!(run(transactions, blocks).is_err());
    }
}

#[test]
fn blocks_of_the_pattern_differ_and_can_be_stored() {
    let block = |number| {
        let mut block = vec![0; 4096];
        pattern(number, &mut block);
        block
    };
    let all: BTreeSet<Vec<u8>> = (0..200).map(block).collect();
    assert_eq!(all.len(), 200);
    for block in all {
        let mut area = vec![0; 6 << 10];
        assert!(gga_halfblock::stored::encode(&block, &mut area).is_ok());
    }
}
