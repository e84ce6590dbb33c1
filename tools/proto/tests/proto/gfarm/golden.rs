// SPDX-License-Identifier: GPL-2.0

//! Bytes that a real gfmd and gfsd were sent, and sent: we make the same requests, and read the
//! replies.

use proto::gfarm::{
    attr::{
        EntryName,
        FileId,
        FileType, //
    },
    error::GfarmError,
    gfm::{
        Base,
        Close,
        Fd,
        Fstat,
        GetDirEntsPlus,
        GetFd,
        Open,
        Process,
        ProcessAlloc,
        ProcessFree,
        ProcessKey,
        Readlink,
        ScheduleFile,
        Seek,
        Statfs,
        Usage,
        Walk, //
    },
    gfs::{
        self,
        BulkPart,
        BulkRead,
        Pread,
        Range,
        ReadHeader, //
    },
    name::{
        Name,
        Path, //
    },
    operation::ReplyError,
    xdr::Decoder,
};

use super::{
    compound::{
        Catch,
        Caught,
        Compound,
        ListCompound,
        Part,
        VerifyTypeNot, //
    },
    stream::{
        parts,
        reply,
        request,
        written, //
    },
    trace::{
        exchange,
        exchanges,
        trace,
        Piece, //
    },
};

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn fd(number: u32) -> Fd {
    Fd::new(number).unwrap()
}

fn walk(path: &str) -> Walk<'_> {
    Walk(Path::new(path.as_bytes()).unwrap())
}

const LINK: VerifyTypeNot = VerifyTypeNot(FileType::SymbolicLink);

fn process() -> Process {
    let (sent, _) = exchange("process-alloc");
    let key = ProcessKey(sent[12..44].try_into().unwrap());
    Process { pid: 16, key }
}

#[test]
fn a_process_is_created_and_ended() {
    let (sent, answer) = exchange("process-alloc");
    let process = process();
    let alloc = ProcessAlloc(&process.key);
    assert_eq!(request(&alloc), sent);
    assert_eq!(reply(&alloc, &answer), Ok(16));
    assert_eq!(format!("{:?}", process.key), "ProcessKey(..)");
    let all = exchanges("end");
    let close = Compound((Base::Fd(fd(1)), Close));
    assert_eq!(request(&close), all[0].0);
    assert_eq!(reply(&close, &all[0].1), Ok(((), ())));
    assert_eq!(request(&ProcessFree), all[1].0);
    assert_eq!(reply(&ProcessFree, &all[1].1), Ok(()));
}

#[test]
fn the_root_has_attributes() {
    let (sent, answer) = exchange("stat-root");
    let stat = Compound((Base::Root, Fstat));
    assert_eq!(request(&stat), sent);
    let ((), attr) = reply(&stat, &answer).unwrap();
    assert_eq!(attr.id, FileId { inum: 2, gen: 0 });
    assert_eq!(attr.mode.file_type, FileType::Directory);
    assert_eq!((attr.mode.permissions, attr.nlink), (0o775, 3));
    assert_eq!(
        (attr.user, attr.group),
        (&b"gfarmadm"[..], &b"gfarmadm"[..])
    );
    assert_eq!((attr.size, attr.ncopy), (4, 1));
    assert_eq!(
        (attr.atime.sec, attr.atime.nsec),
        (1_795_219_689, 481_477_183)
    );
    assert_eq!(
        (attr.mtime.nsec, attr.ctime.nsec),
        (355_847_202, 137_102_587)
    );
    assert!(attr.ctime < attr.mtime);
}

#[test]
fn a_path_is_walked_in_one_round_trip() {
    let (sent, answer) = exchange("stat-path");
    let stat = Compound((
        Base::Root,
        walk("/d1/d2"),
        Open::to_look_up(name("deep")),
        LINK,
        Fstat,
    ));
    assert_eq!(request(&stat), sent);
    let ((), (), opened, (), attr) = reply(&stat, &answer).unwrap();
    assert_eq!(opened.id, FileId { inum: 9, gen: 1 });
    assert_eq!((attr.id, attr.mode), (opened.id, opened.mode));
    assert_eq!((attr.mode.file_type, attr.size), (FileType::Regular, 12));
}

#[test]
fn nothing_follows_the_first_error() {
    let (sent, answer) = exchange("enoent");
    let stat = Compound((
        Base::Root,
        walk("d1"),
        Open::to_look_up(name("nothere")),
        LINK,
        Fstat,
    ));
    assert_eq!(request(&stat), sent);
    let gone = ReplyError::Server(GfarmError::NO_SUCH_FILE_OR_DIRECTORY);
    assert_eq!(reply(&stat, &answer), Err(gone));
}

#[test]
fn a_symbolic_link_is_read_in_the_round_trip_that_finds_it() {
    let (sent, answer) = exchange("symlink");
    let stat = Catch {
        attempt: (
            Base::Root,
            walk("d1"),
            Open::to_look_up(name("link")),
            LINK,
            Fstat,
        ),
        error: GfarmError::IS_A_SYMBOLIC_LINK,
        instead: Readlink,
    };
    assert_eq!(request(&stat), sent);
    assert_eq!(reply(&stat, &answer), Ok(Caught::Instead(&b"big"[..])));
    // The same request for a file, whose attributes gfmd returns, and then answers the end.
    let (_, file) = exchange("stat-path");
    let stat = Catch {
        attempt: (
            Base::Root,
            walk("d1/d2"),
            Open::to_look_up(name("deep")),
            LINK,
            Fstat,
        ),
        error: GfarmError::IS_A_SYMBOLIC_LINK,
        instead: Readlink,
    };
    assert!(matches!(reply(&stat, &file), Ok(Caught::All((.., attr))) if attr.size == 12));
    // Another error is not caught.
    let (_, gone) = exchange("enoent");
    let stat = Catch {
        attempt: (
            Base::Root,
            walk("d1"),
            Open::to_look_up(name("nothere")),
            LINK,
            Fstat,
        ),
        error: GfarmError::IS_A_SYMBOLIC_LINK,
        instead: Readlink,
    };
    let error = ReplyError::Server(GfarmError::NO_SUCH_FILE_OR_DIRECTORY);
    assert_eq!(reply(&stat, &gone), Err(error));
}

#[test]
fn a_link_s_attributes_and_target_are_one_round_trip() {
    let (sent, answer) = exchange("lstat-readlink");
    let stat = Compound((
        Base::Root,
        walk("d1"),
        Open::to_look_up(name("link")),
        Fstat,
        Readlink,
    ));
    assert_eq!(request(&stat), sent);
    let ((), (), _, attr, target) = reply(&stat, &answer).unwrap();
    assert_eq!(
        (attr.mode.file_type, attr.size),
        (FileType::SymbolicLink, 0)
    );
    assert_eq!(target, b"big");
}

/// Returns the entries of a directory that `parts` finds, by name and inode.
fn entries<H>(
    list: &ListCompound<H, GetDirEntsPlus, ()>,
    bytes: &[u8],
    piece: usize,
) -> Vec<(String, u64)>
where
    H: proto::gfarm::operation::Operation,
{
    let (mut names, mut announced) = (Vec::new(), None);
    let done = parts(list, bytes, piece, |part| match part {
        Part::Head(_, count) => announced = Some(count as usize),
        Part::Item(entry) => {
            let text = match entry.name {
                EntryName::Current => b".",
                EntryName::Parent => &b".."[..],
                EntryName::Name(name) => name.as_bytes(),
            };
            names.push((
                String::from_utf8(text.to_vec()).unwrap(),
                entry.attr.id.inum,
            ));
        }
        Part::Tail(()) => {}
    });
    assert_eq!(done, Ok(()));
    assert_eq!(announced, Some(names.len()));
    names
}

#[test]
fn a_directory_is_read_in_parts_whatever_the_pieces() {
    let all = exchanges("readdir");
    let first = ListCompound {
        head: (
            Base::Root,
            // The trace opens with flags of a read, and looks at the type behind it.
            (Open::to_read(name("d1")), LINK, GetFd),
        ),
        list: GetDirEntsPlus(4),
        tail: (),
    };
    assert_eq!(written(|to| first.encode(to)), all[0].0);
    let more = ListCompound {
        head: Base::Fd(fd(1)),
        list: GetDirEntsPlus(4),
        tail: (),
    };
    for round in [1, 2] {
        assert_eq!(written(|to| more.encode(to)), all[round].0);
    }
    let named = |names: &[(&str, u64)]| -> Vec<(String, u64)> {
        names.iter().map(|(n, i)| (n.to_string(), *i)).collect()
    };
    for piece in 1..=all[0].1.len() {
        let names = entries(&first, &all[0].1, piece);
        assert_eq!(names, named(&[(".", 3), ("..", 2), ("big", 6), ("d2", 4)]));
        let names = entries(&more, &all[1].1, piece);
        let expected = [("empty", 8), ("link", 10), ("odd", 7), ("small", 5)];
        assert_eq!(names, named(&expected));
        assert_eq!(entries(&more, &all[2].1, piece), []);
    }
    let seek = Compound((Base::Fd(fd(1)), Seek(0)));
    assert_eq!(request(&seek), all[3].0);
    assert_eq!(reply(&seek, &all[3].1), Ok(((), 0)));
}

#[test]
fn a_file_is_opened_scheduled_read_and_closed() {
    let all = trace("open-read-small");
    let bytes = |turn: usize| all[turn].bytes();
    // A name in an open directory.
    let open = Compound((Base::Fd(fd(1)), Open::to_read(name("small")), GetFd, Fstat));
    assert_eq!(request(&open), bytes(0));
    let answer = bytes(1);
    let ((), opened, number, attr) = reply(&open, &answer).unwrap();
    assert_eq!((opened.id.inum, number, attr.size), (5, fd(0), 12));
    let schedule = ListCompound {
        head: Base::Fd(number),
        list: ScheduleFile,
        tail: (),
    };
    assert_eq!(written(|to| schedule.encode(to)), bytes(2));
    // What follows is the greeting of the gfsd.
    let answer = bytes(3);
    let answer = answer.strip_suffix(b"\0\0\0\x01\x01").unwrap();
    for piece in 1..=answer.len() {
        let mut hosts = 0;
        let done = parts(&schedule, answer, piece, |part| {
            if let Part::Item(host) = part {
                hosts += 1;
                assert_eq!((host.name, host.port), (&b"fs1"[..], 10600));
                assert_eq!((host.ncpu, host.load), (1, 10283));
                assert!(host.is_available && host.has_load);
            }
        });
        assert_eq!((done, hosts), (Ok(()), 1));
    }
    // The gfsd, behind its authentication.
    let at = all
        .iter()
        .position(|turn| turn.is_client && turn.bytes().starts_with(&[0, 0, 0, 0, 0, 0, 0, 1]))
        .unwrap();
    let process = process();
    let join = gfs::ProcessSet(&process);
    assert_eq!(request(&join), bytes(at));
    assert_eq!(reply(&join, &bytes(at + 1)), Ok(()));
    assert_eq!(request(&gfs::Open(number)), bytes(at + 2));
    assert_eq!(reply(&gfs::Open(number), &bytes(at + 3)), Ok(()));
    assert_eq!(request(&gfs::Fstat(number)), bytes(at + 4));
    let answer = bytes(at + 5);
    let live = reply(&gfs::Fstat(number), &answer).unwrap();
    assert_eq!((live.size, live.mtime), (12, attr.mtime));
    for (turn, offset, data) in [(at + 6, 0, &b"hello gfarm\n"[..]), (at + 8, 12, b"")] {
        let range = Range::new(offset, 1 << 20).unwrap();
        let read = Pread { fd: number, range };
        assert_eq!(request(&read), bytes(turn));
        let answer = bytes(turn + 1);
        let header = reply(&read, &answer[..8]).unwrap();
        let len = data.len() as u32;
        assert_eq!(header, ReadHeader { len, is_eof: true });
        assert_eq!(&answer[8..], data);
    }
    let all = exchanges("close-big");
    assert_eq!(request(&gfs::Close(fd(0))), all[0].0);
    assert_eq!(reply(&gfs::Close(fd(0)), &all[0].1), Ok(()));
    let close = Compound((Base::Fd(fd(0)), Close));
    assert_eq!(request(&close), all[1].0);
}

#[test]
fn two_replicas_are_two_hosts() {
    let schedule = ListCompound {
        head: Base::Fd(fd(0)),
        list: ScheduleFile,
        tail: (),
    };
    let sent = written(|to| schedule.encode(to));
    let turns = trace("open-read-big");
    let at = turns
        .iter()
        .position(|t| t.is_client && t.bytes() == sent)
        .unwrap();
    let mut hosts = Vec::new();
    let done = parts(&schedule, &turns[at + 1].bytes(), 7, |part| {
        if let Part::Item(host) = part {
            hosts.push(host.name.to_vec());
        }
    });
    hosts.sort();
    assert_eq!(
        (done, hosts),
        (Ok(()), vec![b"fs1".to_vec(), b"fs2".to_vec()])
    );
}

#[test]
fn reads_are_cut_at_a_mebibyte_and_at_the_end() {
    let turns = trace("pread-edges");
    // Asked for 4 MiB there; ours asks for what it can get.
    let read = |offset, len| {
        let range = Range::new(offset, len).unwrap();
        Pread { fd: fd(0), range }
    };
    assert_eq!(request(&read(0, 1 << 22))[8..12], [0, 0x10, 0, 0]);
    assert_eq!(turns[1].pieces[1], Piece::File(1 << 20));
    let header = reply(&read(0, 1 << 22), &turns[1].bytes()).unwrap();
    assert_eq!(
        header,
        ReadHeader {
            len: 1 << 20,
            is_eof: false
        }
    );
    let near = read((8 << 20) - 100, 4096);
    assert_eq!(request(&near), turns[2].bytes());
    let header = reply(&near, &turns[3].bytes()).unwrap();
    assert_eq!(
        header,
        ReadHeader {
            len: 100,
            is_eof: true
        }
    );
    let past = read((8 << 20) + 5, 4096);
    assert_eq!(request(&past), turns[4].bytes());
    let header = reply(&past, &turns[5].bytes()).unwrap();
    assert_eq!(
        header,
        ReadHeader {
            len: 0,
            is_eof: true
        }
    );
    let closed = ReplyError::Server(GfarmError::BAD_FILE_DESCRIPTOR);
    assert_eq!(reply(&read(0, 4096), &turns[7].bytes()), Err(closed));
}

#[test]
fn a_bulk_read_is_chunks_an_end_and_an_error() {
    let turns = trace("bulkread");
    let range = Range::new(100, (3 << 20) + 17).unwrap();
    let read = BulkRead { fd: fd(0), range };
    assert_eq!(request(&read), turns[0].bytes());
    // The 17 bytes of the last chunk were recorded: they are in the stream, before the end.
    let stream = turns[1].bytes();
    let mut from = Decoder::new(&stream);
    let mut bulk = proto::gfarm::operation::Operation::decode(&read, &mut from).unwrap();
    for len in [1 << 20, 1 << 20, 1 << 20, 17] {
        assert_eq!(bulk.decode(&mut from), Ok(BulkPart::Chunk(len)));
        if len == 17 {
            from.raw(17).unwrap();
        }
    }
    let end = BulkPart::End { is_eof: false };
    assert_eq!(bulk.decode(&mut from), Ok(end));
    assert_eq!(from.consumed(), stream.len());
    assert_eq!(bulk.decode(&mut from), Ok(end));
}

#[test]
fn the_wrong_gfsd_says_so() {
    let turns = trace("wrong-host");
    let open = request(&gfs::Open(fd(0)));
    let at = turns
        .iter()
        .position(|t| t.is_client && t.bytes() == open)
        .unwrap();
    let migrated = ReplyError::Server(GfarmError::FILE_MIGRATED);
    assert_eq!(
        reply(&gfs::Open(fd(0)), &turns[at + 1].bytes()),
        Err(migrated)
    );
}

#[test]
fn the_file_system_has_a_size() {
    let (sent, answer) = exchange("statfs");
    assert_eq!(request(&Statfs), sent);
    let usage = Usage {
        used_kib: 55_294_364,
        avail_kib: 135_277_412,
        files: 9,
    };
    assert_eq!(reply(&Statfs, &answer), Ok(usage));
}
