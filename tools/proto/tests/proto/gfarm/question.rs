// SPDX-License-Identifier: GPL-2.0

//! Questions to gfmd, each in one round trip.

use proto::gfarm::{
    attr::{
        FileId,
        FileType, //
    },
    closing::{
        Fds,
        FDS_MAX, //
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
        Readlink,
        ScheduleFile,
        Seek,
        Usage,
        VerifyType,
        Walk, //
    },
    name::{
        Name,
        Path, //
    },
    operation::ReplyError,
    question::{
        Answer,
        Kind,
        Part,
        Question, //
    },
    xdr::{
        Decoder,
        Encoder, //
    },
};

use super::{
    compound::{
        Compound,
        ListCompound, //
    },
    stream::{
        request,
        written, //
    },
    trace::{
        exchange,
        exchanges, //
    },
};

const DIRECTORY: VerifyType = VerifyType(FileType::Directory);
const REGULAR: VerifyType = VerifyType(FileType::Regular);

fn question(kind: Kind, path: &str) -> Question<'_> {
    Question::new(kind, Path::new(path.as_bytes()).unwrap())
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn walk(path: &str) -> Walk<'_> {
    Walk(Path::new(path.as_bytes()).unwrap())
}

fn fd(number: u32) -> Fd {
    Fd::new(number).unwrap()
}

fn closing(numbers: &[u32]) -> Kind {
    let mut fds = Fds::NONE;
    for number in numbers {
        assert!(fds.push(fd(*number)));
    }
    Kind::Close(fds)
}

/// The request, in a buffer of the length that the question says.
fn asked(question: &Question<'_>) -> Vec<u8> {
    let mut out = vec![0; question.len_max()];
    let mut to = Encoder::new(&mut out);
    question.encode(&mut to);
    let len = to.finish().unwrap();
    out.truncate(len);
    out
}

#[test]
fn the_requests_are_those_of_the_traces() {
    let (sent, _) = exchange("stat-root");
    assert_eq!(asked(&question(Kind::Attributes, "")), sent);
    let (sent, _) = exchange("statfs");
    assert_eq!(asked(&question(Kind::Usage, "")), sent);
    assert_eq!(asked(&question(closing(&[1]), "")), exchanges("end")[0].0);
}

#[test]
fn a_question_walks_by_names() {
    let deep = (
        Base::Root,
        walk("d1/d2"),
        Open::to_look_up(name("deep")),
        Fstat,
    );
    let asks = asked(&question(Kind::Attributes, "/d1/d2/deep"));
    assert_eq!(asks, request(&Compound(deep)));
    assert_eq!(asked(&question(Kind::Attributes, "d1//d2/deep/")), asks);
    // Whether it may be read, without a descriptor that would have to be closed.
    let permission = (Base::Root, (Open::to_read(name("f")), REGULAR), Fstat);
    assert_eq!(
        asked(&question(Kind::Permission, "f")),
        request(&Compound(permission))
    );
    let link = (
        Base::Root,
        walk("d1"),
        Open::to_look_up(name("link")),
        Readlink,
    );
    assert_eq!(
        asked(&question(Kind::Link, "/d1/link")),
        request(&Compound(link))
    );
    let open = ListCompound {
        head: (Base::Root, (Open::to_read(name("f")), REGULAR), Fstat),
        list: ScheduleFile,
        tail: GetFd,
    };
    assert_eq!(
        asked(&question(Kind::Open, "f")),
        written(|to| open.encode(to))
    );
}

#[test]
fn a_directory_is_opened_to_be_read() {
    let list = ListCompound {
        head: (Base::Root, walk("a"), Open::to_read(name("b")), DIRECTORY),
        list: GetDirEntsPlus(9),
        tail: (),
    };
    let begin = Kind::List { at: 0, max: 9 };
    assert_eq!(
        asked(&question(begin, "/a/b")),
        written(|to| list.encode(to))
    );
    let list = ListCompound {
        head: (Base::RootToRead, DIRECTORY, Seek(7)),
        list: GetDirEntsPlus(9),
        tail: (),
    };
    let later = Kind::List { at: 7, max: 9 };
    assert_eq!(asked(&question(later, "")), written(|to| list.encode(to)));
}

/// Bytes of an answer.
struct Told(Vec<u8>);

impl Told {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn add(mut self, put: impl FnOnce(&mut Encoder<'_>)) -> Self {
        self.0.extend(written(put));
        self
    }

    fn done(self) -> Self {
        self.add(|to| to.u32(0))
    }

    fn opened(self, inum: u64) -> Self {
        self.add(|to| {
            to.u32(0);
            to.u64(inum);
            to.u64(1);
            to.u32(0o100_644);
        })
    }

    /// Adds attributes without a status, as in an entry of a directory.
    fn attr(self, inum: u64) -> Self {
        self.add(|to| {
            to.u64(inum);
            to.u64(1);
            to.u32(0o100_644);
            to.u64(1);
            to.bytes(b"user");
            to.bytes(b"group");
            to.u64(5);
            to.u64(1);
            for _ in 0..3 {
                to.u64(0);
                to.u32(0);
            }
        })
    }

    fn host(self, host: &str) -> Self {
        self.add(|to| {
            to.bytes(host.as_bytes());
            for number in [600, 1, 2048] {
                to.u32(number);
            }
            to.raw(&[0; 36]);
            to.u32(3);
        })
    }
}

/// Reads an answer, `piece` bytes at a time, and returns its parts as text and the last error.
fn parts(question: &Question<'_>, told: &[u8], piece: usize) -> (Vec<String>, Option<ReplyError>) {
    let (mut answer, mut begin, mut end) = (Answer::new(question), 0, 0);
    let mut parts = Vec::new();
    while !answer.is_over() {
        let mut from = Decoder::new(&told[begin..end]);
        match answer.part(question, &mut from) {
            Ok(part) => parts.push(format!("{part:?}")),
            Err(ReplyError::NeedMore(more)) => {
                assert!(more > 0 && end < told.len(), "{parts:?}");
                end = told.len().min(end + piece);
                continue;
            }
            Err(error) => {
                assert_eq!(begin + from.consumed(), told.len(), "{error} {parts:?}");
                return (parts, Some(error));
            }
        }
        begin += from.consumed();
    }
    assert_eq!(begin, told.len());
    let mut from = Decoder::new(b"");
    assert_eq!(answer.part(question, &mut from), Ok(Part::Over));
    (parts, None)
}

/// The parts whatever the pieces.
fn answered(question: &Question<'_>, told: &[u8]) -> (Vec<String>, Option<ReplyError>) {
    let whole = parts(question, told, told.len());
    for piece in [1, 3, 64] {
        assert_eq!(parts(question, told, piece), whole);
    }
    whole
}

#[test]
fn the_answer_tells_which_directories_were_met() {
    let begin = || Told::new().done().done();
    let told = begin().opened(7).done().opened(8).done();
    let told = told.opened(9).done().attr(9).done();
    let asks = question(Kind::Attributes, "/d1/d2/deep");
    let (seen, error) = answered(&asks, &told.0);
    assert_eq!((seen.len(), error), (7, None));
    let id = |inum| FileId { inum, gen: 1 };
    assert_eq!(seen[2], format!("{:?}", Part::Directory(id(7))));
    assert_eq!(seen[3], format!("{:?}", Part::Directory(id(8))));
    assert!(seen[4].starts_with("Object") && seen[5].starts_with("Attr"));
}

#[test]
fn the_root_and_statfs_have_short_answers() {
    let told = Told::new().done().done().done().attr(2).done();
    let (seen, error) = answered(&question(Kind::Attributes, ""), &told.0);
    assert_eq!((seen.len(), error), (4, None));
    let (_, told) = exchange("statfs");
    let (seen, error) = answered(&question(Kind::Usage, ""), &told);
    assert_eq!((seen.len(), error), (1, None));
    let (_, told) = &exchanges("end")[0];
    let (seen, error) = answered(&question(closing(&[1]), ""), told);
    assert_eq!((seen.len(), error), (4, None));
}

#[test]
fn descriptors_are_closed_together() {
    let put = |number| (Base::Fd(fd(number)), Close);
    let three = (put(4), put(9), put(5));
    let asks = question(closing(&[4, 9, 5]), "");
    assert_eq!(asked(&asks), request(&Compound(three)));
    let all: Vec<u32> = (0..FDS_MAX as u32).collect();
    assert_eq!(asked(&question(closing(&all), "")).len(), 8 + 12 * FDS_MAX);
    let Kind::Close(mut full) = closing(&all) else {
        panic!();
    };
    assert!(!full.push(fd(99)) && full.len() == FDS_MAX);
    assert!(full.iter().map(Fd::get).eq(all));
    // A status for each request, and for the begin and the end.
    let told = (0..8).fold(Told::new(), |told, _| told.done());
    let (seen, error) = answered(&asks, &told.0);
    assert_eq!((seen.len(), error), (8, None));
    let told = (0..3).fold(Told::new(), |told, _| told.done());
    let (seen, error) = answered(&asks, &told.add(|to| to.u32(9)).0);
    let refused = ReplyError::Server(GfarmError::BAD_FILE_DESCRIPTOR);
    assert_eq!((seen.len(), error), (3, Some(refused)));
    let told = Told::new().done().done();
    let (seen, error) = answered(&question(Kind::Close(Fds::NONE), ""), &told.0);
    assert_eq!((seen.len(), error), (2, None));
}

#[test]
fn those_behind_a_refused_close_are_asked_for_again() {
    let numbers: Vec<u32> = (0..FDS_MAX as u32).collect();
    let Kind::Close(all) = closing(&numbers) else {
        panic!();
    };
    let asks = question(Kind::Close(all), "");
    // The status that is an error: of the begin, of the two of each, and of the end.
    for refused in 0..2 * FDS_MAX + 2 {
        let told = (0..refused).fold(Told::new(), |told, _| told.done());
        let told = told.add(|to| to.u32(9)).0;
        let mut from = Decoder::new(&told);
        let mut answer = Answer::new(&asks);
        while answer.part(&asks, &mut from).is_ok() {}
        let left = all.last(answer.left_open(all.len()));
        // Without a begin nothing was looked at.
        let behind = refused.div_ceil(2);
        let expected = numbers.get(behind..).unwrap_or_default();
        assert!(left.iter().map(Fd::get).eq(expected.iter().copied()));
        assert_eq!(left == all, refused == 0);
    }
    assert_eq!(all.last(FDS_MAX + 1), all);
}

#[test]
fn space_that_was_freed_twice_is_free() {
    let told = Told::new().done().add(|to| {
        to.i64(-5_134_932);
        to.i64(29_819_028);
        to.i64(2);
    });
    let asks = question(Kind::Usage, "");
    let mut from = Decoder::new(&told.0);
    let usage = Usage {
        used_kib: 0,
        avail_kib: 29_819_028,
        files: 2,
    };
    let answer = Answer::new(&asks).part(&asks, &mut from);
    assert_eq!(answer, Ok(Part::Usage(usage)));
}

#[test]
fn an_open_file_has_hosts_and_a_descriptor() {
    let told = Told::new().done().done().opened(9).done().done().attr(9);
    let told = told.add(|to| {
        to.u32(0);
        to.u32(2);
    });
    let told = told.host("fs1").host("fs2").add(|to| {
        to.u32(0);
        to.u32(4);
    });
    let (seen, error) = answered(&question(Kind::Open, "f"), &told.done().0);
    assert_eq!(error, None);
    let hosts = seen.iter().filter(|part| part.starts_with("Host")).count();
    assert_eq!(hosts, 2);
    assert_eq!(seen[8], format!("{:?}", Part::Exported(fd(4))));
}

#[test]
fn a_directory_has_entries_or_none() {
    let list = |at| question(Kind::List { at, max: 3 }, "d");
    let begin = || Told::new().done().done().opened(9).done();
    let count = |told: Told, entries: u32| {
        told.add(|to| {
            to.u32(0);
            to.u32(entries);
        })
    };
    let told = count(begin(), 2).add(|to| to.bytes(b".")).attr(9);
    let told = told.add(|to| to.bytes(b"name")).attr(10).done();
    let (seen, error) = answered(&list(0), &told.0);
    assert_eq!((seen.len(), error), (8, None));
    // At the end; the position is answered too.
    let told = begin().add(|to| {
        to.u32(0);
        to.u64(5);
    });
    let (seen, error) = answered(&list(5), &count(told, 0).done().0);
    assert_eq!((seen.len(), error), (7, None));
    // More entries than were asked for.
    let told = count(begin(), 4);
    let mut from = Decoder::new(&told.0);
    let mut answer = Answer::new(&list(0));
    let malformed = loop {
        match answer.part(&list(0), &mut from) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(malformed, ReplyError::Malformed(_)));
}

#[test]
fn an_error_on_the_way_is_not_one_of_the_name() {
    let gone = GfarmError::NO_SUCH_FILE_OR_DIRECTORY;
    let asks = question(Kind::Attributes, "d/f");
    // Whether the error that follows `told` is stale.
    let is_stale = |asks: &Question<'_>, told: Told, error: GfarmError| {
        let told = told.add(|to| to.u32(error.get()));
        let mut answer = Answer::new(asks);
        let mut from = Decoder::new(&told.0);
        loop {
            match answer.part(asks, &mut from) {
                Ok(_) => {}
                Err(ReplyError::Server(last)) => {
                    assert!(last == error && from.is_at_end());
                    return answer.is_stale(last);
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    let begin = || Told::new().done().done();
    assert!(is_stale(&asks, begin(), gone));
    assert!(is_stale(
        &asks,
        begin().opened(3),
        GfarmError::NOT_A_DIRECTORY
    ));
    assert!(!is_stale(&asks, begin().opened(3).done(), gone));
    // Another error on the way is what it is.
    assert!(!is_stale(
        &asks,
        begin(),
        GfarmError::OPERATION_NOT_PERMITTED
    ));
    // What is no file any more cannot be opened.
    let open = question(Kind::Open, "f");
    let told = begin().opened(3);
    assert!(is_stale(&open, told, GfarmError::IS_A_SYMBOLIC_LINK));
}

#[test]
fn no_object_has_the_number_0() {
    let asks = question(Kind::Attributes, "");
    let told = Told::new().done().done().done().attr(0);
    let mut from = Decoder::new(&told.0);
    let mut answer = Answer::new(&asks);
    let parts = [(); 3].map(|()| answer.part(&asks, &mut from));
    assert!(parts[..2].iter().all(Result::is_ok));
    assert!(matches!(parts[2], Err(ReplyError::Malformed(_))));
}
