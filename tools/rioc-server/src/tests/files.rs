// SPDX-License-Identifier: GPL-2.0

//! A store in memory whose objects have files: its engine, and what is done with them.

use super::{
    super::files,
    filed::{
        name,
        Filed, //
    },
    rig::id, //
};
use crate::{
    file::Folder,
    proto::{
        message::Operation as Asked,
        span::{
            Span,
            BLOCK_BYTES, //
        }, //
    },
};

const IO: usize = 28 * BLOCK_BYTES as usize;
const EIO: i32 = 5;
const ENODEV: i32 = 19;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

/// Objects are four times the memory, are read back, and are there when power has failed.
#[test]
fn what_was_flushed_is_there_when_power_fails() {
    let folder = Folder::empty();
    let mut filed = Filed::new(&folder, 256);
    for object in 0..36 {
        assert_eq!(filed.write(object, 50, &[object as u8 + 1; IO]), 0);
    }
    for object in 0..36 {
        assert_eq!(filed.write(object, 9000, b"part"), 0);
        assert_eq!(filed.flush(object), 0);
    }
    assert_eq!(filed.ask(Asked::Delete { object: id(3) }), 0);
    assert_eq!(filed.flush(3), 0);
    // This is not flushed.
    assert_eq!(filed.write(40, 0, b"lost"), 0);
    for is_again in [false, true] {
        if is_again {
            folder.lose_power();
            filed = Filed::new(&folder, 256);
        }
        for object in (0..36).filter(|object| *object != 3) {
            let mut right = [&[0; 50][..], &[object as u8 + 1; IO]].concat();
            right[9000..9004].copy_from_slice(b"part");
            let (one, other) = right.split_at(IO);
            assert!(filed.read(object, 0, IO).unwrap() == one, "{object}");
            assert_eq!(filed.read(object, IO as u64, 50).unwrap(), other);
        }
        assert_eq!(filed.read(3, 0, 10), Err(2));
        assert_eq!(filed.read(40, 0, 4).is_ok(), !is_again);
    }
    assert!(filed.server.engine.store.index().usage().blocks <= 256);
}

/// A folder that fails loses nothing, and is tried again.
#[test]
fn a_folder_that_fails_loses_nothing() {
    let folder = Folder::empty();
    let mut filed = Filed::new(&folder, 256);
    assert_eq!(filed.write(1, 0, &[1; IO]), 0);
    folder.fail(Some(crate::error::code::EIO));
    assert_eq!(filed.flush(1), EIO);
    assert!(filed.server.engine.store.failing().is_some());
    assert_eq!(filed.read(1, 0, IO), Ok(vec![1; IO]));
    folder.fail(Some(crate::error::code::ENOSPC));
    let errnos: Vec<_> = (2..20).map(|o| filed.write(o, 0, &[o as u8; IO])).collect();
    assert!(
        errnos.iter().all(|errno| [0, ENOSPC].contains(errno)),
        "{errnos:?}"
    );
    assert!(errnos.contains(&ENOSPC));
    folder.fail(None);
    assert_eq!(filed.write(30, 0, &[30; IO]), 0);
    for (object, errno) in (2..20).zip(errnos) {
        let right = if errno == 0 {
            Ok(vec![object as u8; IO])
        } else {
            Err(2)
        };
        assert!(filed.read(object, 0, IO) == right, "{object}");
    }
    for object in 1..31 {
        assert_eq!(filed.flush(object), 0);
    }
    assert_eq!(filed.server.engine.store.failing(), None);
}

/// A flush that succeeds after one that has failed, at whatever step, is durable: so is the name of
/// the file, which that one may have made.
#[test]
fn a_flush_behind_one_that_has_failed_is_durable() {
    for times in 0..10 {
        let folder = Folder::empty();
        let mut filed = Filed::new(&folder, 256);
        assert_eq!(filed.write(1, 0, &[1; IO]), 0);
        folder.fail_after(times, crate::error::code::ENOSPC);
        let failed = filed.flush(1);
        folder.fail(None);
        assert!(failed == ENOSPC || times > 5, "{times}: {failed}");
        assert_eq!(filed.flush(1), 0, "{times}");
        folder.lose_power();
        let mut filed = Filed::new(&folder, 256);
        assert_eq!(filed.read(1, 0, IO), Ok(vec![1; IO]), "{times}");
    }
}

/// A file system has errors that mean something else for clients, as ENOENT of a flush.
#[test]
fn errors_of_files_mean_nothing_else() {
    use crate::error::code;
    let folder = Folder::empty();
    let mut filed = Filed::new(&folder, 256);
    assert_eq!(filed.write(1, 0, &[1; IO]), 0);
    for (error, told) in [
        (code::ENOENT, EIO),
        (code::ENODEV, EIO),
        (code::EAGAIN, EIO),
        (code::ENOSPC, ENOSPC),
        (code::EROFS, EROFS),
    ] {
        folder.fail(Some(error));
        assert_eq!(filed.flush(1), told);
        // One that is not there.
        assert_eq!(filed.flush(9), told);
    }
    folder.fail(None);
    assert_eq!(filed.flush(1), 0);
    let mut filed = Filed::new(&folder, 256);
    folder.remove_behind(&name(1));
    assert_eq!(filed.read(1, 0, IO), Err(EIO));
}

/// Files are read when their file system is mounted for reading only.
#[test]
fn files_are_read_where_none_can_be_written() {
    let folder = Folder::empty();
    let mut filed = Filed::new(&folder, 256);
    assert_eq!(filed.write(1, 0, &[1; IO]), 0);
    assert_eq!(filed.flush(1), 0);
    folder.read_only(true);
    let mut filed = Filed::new(&folder, 256);
    assert_eq!(filed.read(1, 0, IO), Ok(vec![1; IO]));
    assert_eq!(filed.write(1, 0, &[2; IO]), 0);
    assert_eq!(filed.flush(1), EROFS);
}

/// A file that is shorter than what was written to it is EIO, and not zeroes.
#[test]
fn a_file_that_was_cut_is_an_error() {
    let folder = Folder::empty();
    let mut filed = Filed::new(&folder, 256);
    assert_eq!(filed.write(1, 0, &[1; IO]), 0);
    assert_eq!(filed.flush(1), 0);
    let mut filed = Filed::new(&folder, 256);
    folder.damage(&name(1));
    assert_eq!(filed.read(1, 0, IO), Err(EIO));
    // What follows does not make zeroes of what is lost, until nothing of that is left.
    for is_removed in [false, true] {
        if is_removed {
            folder.remove_behind(&name(1));
        }
        assert_eq!(filed.write(1, 5 * BLOCK_BYTES, &[2; 4096]), 0);
        assert_eq!(filed.flush(1), EIO);
        assert_eq!(filed.read(1, 0, IO), Err(EIO));
    }
    let (object, size) = (id(1), 0);
    assert_eq!(filed.ask(Asked::Truncate { object, size }), 0);
    assert_eq!(filed.write(1, 0, &[3; IO]), 0);
    assert_eq!(filed.flush(1), 0);
    assert_eq!(filed.read(1, 0, IO), Ok(vec![3; IO]));
}

/// A file has the size of its object, of before or now, whichever step of a job fails.
#[test]
fn a_file_has_no_size_that_its_object_never_had() {
    for times in 0..12 {
        let folder = Folder::empty();
        let mut filed = Filed::new(&folder, 256);
        assert_eq!(filed.write(1, 0, &[1; 5000]), 0);
        assert_eq!(filed.flush(1), 0);
        assert_eq!(filed.write(1, 20_000, &[2; 9000]), 0);
        assert_eq!(filed.write(1, 50_000, &[2; 9000]), 0);
        folder.fail_after(times, crate::error::code::ENOSPC);
        filed.flush(1);
        folder.fail(None);
        let filed = Filed::new(&folder, 256);
        let stat = filed.server.engine.store.index().stat(id(1)).unwrap();
        assert!(
            [5000, 59_000].contains(&stat.size),
            "{times}: {}",
            stat.size
        );
    }
}

/// A snapshot that is larger than the memory is ENOSPC, and holds up no one.
#[test]
fn a_snapshot_that_has_no_room_is_an_error() {
    let folder = Folder::empty();
    let mut filed = Filed::new(&folder, 256);
    for at in 0..11 {
        assert_eq!(filed.write(1, at * IO as u64, &[at as u8 + 1; IO]), 0);
    }
    assert_eq!(filed.flush(1), 0);
    assert_eq!(filed.snapshot(1, 2), ENOSPC);
    assert_eq!(filed.write(3, 0, &[1; IO]), 0);
    assert_eq!(filed.read(1, 0, IO), Ok(vec![1; IO]));
}

/// A job beside which the end of its object is removed leaves a file of which all is read.
#[test]
fn a_job_writes_nothing_behind_the_end() {
    for steps in 0..6 {
        let folder = Folder::empty();
        let mut filed = Filed::new(&folder, 300);
        for block in 0..200 {
            assert_eq!(filed.write_now(1, block * BLOCK_BYTES, &[7; 4096]), 0);
        }
        filed.sequence += 1;
        let (object, size) = (id(1), 0);
        let asked = Asked::Truncate { object, size };
        let of = (filed.client, 0);
        let number = filed.server.send(of, (filed.sequence, 0), asked, &[]);
        for _ in 0..steps {
            filed.server.go_on(0);
        }
        filed.file_one();
        assert_eq!(filed.end(number).errno, 0);
        assert_eq!(filed.write(1, 0, &[8; 4096]), 0);
        let read = filed
            .read(1, 0, IO)
            .unwrap_or_else(|errno| panic!("{steps}: {errno}"));
        assert!(read[..4096] == [8; 4096], "{steps}");
        assert_eq!(filed.snapshot(1, 2), 0);
    }
}

/// A name of an object that is of no file is told, and not opened.
#[test]
fn what_is_no_object_is_named() {
    let folder = Folder::empty();
    let objects =
        || files::objects(&mut folder.clone(), 3).map(|(found, others)| (found.len(), others));
    let mut filed = Filed::new(&folder, 256);
    for object in 1..3 {
        assert_eq!(filed.write(object, 0, &[1; 100]), 0);
        assert_eq!(filed.flush(object), 0);
    }
    folder.be_odd(b"of somebody else");
    assert_eq!(objects(), Ok((2, 1)));
    folder.be_odd(&name(3));
    assert_eq!(objects(), Err((crate::error::code::EINVAL, Some(id(3)))));
}

/// A flush syncs its file, and the folder when the file is new.
#[test]
fn a_flush_is_a_sync() {
    let folder = Folder::empty();
    let mut filed = Filed::new(&folder, 256);
    for (syncs, byte) in [(2, 1), (3, 2)] {
        assert_eq!(filed.write(1, 0, &[byte; 100]), 0);
        assert_eq!(filed.flush(1), 0);
        assert_eq!(folder.syncs(), syncs);
    }
}

/// A store is deleted while a file hangs: who waits for files is told that it is no store, none of
/// what was not synced is called durable, and the job that comes to its end is for nobody.
#[test]
fn a_store_that_is_deleted_waits_for_no_file() {
    const ENODEV: i32 = 19;
    let folder = Folder::empty();
    let mut filed = Filed::new(&folder, 256);
    for object in 0..3 {
        assert_eq!(filed.write(object, 0, &[1; 100]), 0);
    }
    for (object, chunk) in (0..3).zip(4..) {
        let flush = Asked::Flush {
            object: id(object),
            span: Span::ALL,
        };
        filed.server.send((filed.client, chunk), (0, 0), flush, &[]);
    }
    while filed.server.go_on(0) {}
    assert!(filed.server.engine.begin_filing());
    let hangs = filed.server.engine.begin_file().unwrap();
    assert!(hangs.0.is_some());
    filed.server.engine.end_waiting();
    while filed.server.go_on(0) {}
    let answers = filed.server.take_answers();
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|answer| answer.errno == ENODEV));
    assert!(filed.server.engine.is_idle());
    filed.server.engine.end_file(hangs, Ok(&[]));
    filed.server.engine.store.end_files();
    while filed.server.engine.goes_on_filing() {
        filed.file_one();
    }
    assert_eq!(filed.server.take_answers().len(), 0);
}

/// Files that cannot be removed keep no memory, and no other file: a store that ends removes those
/// that it can.
#[test]
fn a_file_that_stays_keeps_no_memory() {
    let folder = Folder::empty();
    let mut filed = Filed::new(&folder, 256);
    for object in 1..5 {
        assert_eq!(filed.write(object, 0, &[1; IO]), 0);
        assert_eq!(filed.flush(object), 0);
    }
    folder.keep(&[name(2), name(4)]);
    for object in 1..5 {
        assert_eq!(filed.ask(Asked::Delete { object: id(object) }), 0);
    }
    // Something else is asked for, and all of it ends.
    assert_eq!(filed.write(9, 0, &[9; IO]), 0);
    assert_eq!(filed.flush(9), 0);
    let usage = *filed.server.engine.store.index().usage();
    assert_eq!(usage.blocks, 28, "{usage:?}");
    filed.server.engine.store.end_files();
    while filed.server.go_on(0) || filed.file_one() {}
    assert_eq!(folder.names(), [name(2), name(4), name(9)]);
    folder.keep(&[]);
    assert_eq!(filed.flush(2), 0);
    assert_eq!(filed.flush(4), 0);
    assert_eq!(folder.names(), [name(9)]);
}

/// A read of bytes across an end, which was cut while the read was waiting for files, has those
/// that are left.
#[test]
fn a_read_waits_while_its_object_is_cut() {
    let folder = Folder::empty();
    let mut filed = Filed::new(&folder, 256);
    assert_eq!(filed.write(1, 0, &[1; IO]), 0);
    assert_eq!(filed.flush(1), 0);
    let mut filed = Filed::new(&folder, 256);
    let (all, of) = (IO as u64, filed.client);
    let read = filed.server.read((of, 1), 1, (0, all));
    while filed.server.go_on(0) {}
    let object = id(1);
    let size = 10 * BLOCK_BYTES;
    let cut = filed
        .server
        .send((of, 0), (1, 0), Asked::Truncate { object, size }, &[]);
    while filed.server.go_on(0) {}
    assert_eq!(filed.server.take_answers()[0].number, cut);
    // As another flush does that is before it in the queue.
    folder.resize(&name(1), size as usize);
    let answer = filed.end(read);
    assert_eq!(answer.errno, 0);
    let data = &answer.data[crate::proto::wire::READ_ANSWER_BYTES as usize..];
    assert!(data[..size as usize] == [1; IO][..size as usize]);
}

/// A store that ends while a snapshot waits for room has lost nothing.
#[test]
fn a_snapshot_that_is_ended_is_no_loss() {
    let folder = Folder::empty();
    let mut filed = Filed::new(&folder, 256);
    for at in 0..11 {
        assert_eq!(filed.write(1, at * IO as u64, &[at as u8 + 1; IO]), 0);
    }
    assert_eq!(filed.flush(1), 0);
    let asked = Asked::Snapshot {
        source: id(1),
        destination: id(2),
        is_new: false,
    };
    filed.sequence += 1;
    let of = (filed.client, 0);
    let number = filed.server.send(of, (filed.sequence, 0), asked, &[]);
    while filed.server.engine.store.index().usage().dirty < 100 {
        while filed.server.go_on(0) {}
        filed.file_one();
    }
    filed.server.engine.end_waiting();
    assert_eq!(filed.end(number).errno, ENODEV);
    filed.server.engine.store.end_files();
    while filed.server.go_on(0) || filed.file_one() {}
    assert_eq!(filed.server.engine.store.index().unwritten(), 0);
    assert_eq!(filed.server.engine.store.index().usage().dirty, 0);
    assert_eq!(folder.names(), [name(1)]);
}
