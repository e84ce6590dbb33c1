// SPDX-License-Identifier: GPL-2.0

//! Connections and open files: each fault leads somewhere, and not for ever.

mod full;
mod refusing;

use ferro_proto::errno::Errno;
use proto::gfarm::{
    attr::{
        FileId,
        ReplicaHost, //
    },
    auth::{
        AuthError,
        AuthFailure, //
    },
    error::GfarmError,
    gfm::Fd,
    gfmd::{
        self,
        Gfmd, //
    },
    gfsd::{
        self,
        Gfsd,
        Use, //
    },
    open_file::{
        Descriptor,
        Effect,
        Event,
        Failure,
        OpenFile,
        State, //
    },
    replica::{
        Choice,
        Health,
        HostId,
        Rank, //
    },
    retry::{
        AtGfmd,
        AtGfsd,
        Fault,
        GfsdRequest, //
    },
};

const TIMEOUT_MS: u64 = 30_000;

fn server(raw: u32) -> Fault {
    Fault::Server(GfarmError::new(raw).unwrap())
}

fn refused(error: AuthError) -> Fault {
    Fault::Auth(AuthFailure::Refused(error))
}

/// Every fault that there is.
fn faults() -> Vec<Fault> {
    let malformed = Fault::malformed("mode");
    let mut all = vec![Fault::Disconnected, Fault::TimedOut, malformed];
    all.extend((1..120).map(server));
    all.extend((1..8).map(|raw| refused(AuthError::new(raw).unwrap())));
    all
}

#[test]
fn faults_of_gfmd_are_decided() {
    for fault in faults() {
        let expected = match fault {
            Fault::Server(error) => match error.get() {
                3 | 32 | 52..=57 | 59..=62 | 71 | 76 | 98 => AtGfmd::Reconnect,
                11 | 12 | 78 | 96 | 105 => AtGfmd::Wait,
                _ => AtGfmd::Fail(error.errno()),
            },
            Fault::Auth(failure) if !failure.is_temporary() => AtGfmd::Fail(failure.errno()),
            _ => AtGfmd::Reconnect,
        };
        assert_eq!(AtGfmd::decide(fault), expected, "{fault:?}");
        assert_eq!(fault.ends_connection(), !matches!(fault, Fault::Server(_)));
    }
}

#[test]
fn faults_of_a_gfsd_are_decided() {
    use GfsdRequest::{
        Connect,
        Open,
        Read, //
    };
    for (fault, request) in faults()
        .into_iter()
        .flat_map(|f| [(f, Connect), (f, Open), (f, Read)])
    {
        let expected = match fault {
            Fault::Server(error) => match (error.get(), request) {
                (98, _) => AtGfsd::Reconnect,
                (3 | 9, _) | (1, Open) => AtGfsd::Reopen,
                (2 | 5 | 65 | 74 | 79 | 83 | 102, _) => AtGfsd::OtherReplica,
                (32 | 52..=57 | 59..=62 | 71 | 76, _) => AtGfsd::OtherReplica,
                (11 | 12 | 24 | 78 | 96 | 105, _) => AtGfsd::Wait,
                _ => AtGfsd::Fail(error.errno()),
            },
            _ => AtGfsd::OtherReplica,
        };
        assert_eq!(AtGfsd::decide(request, fault), expected, "{fault:?}");
    }
}

fn failed(fault: Fault, now_ms: u64) -> gfmd::Event {
    gfmd::Event::Failed {
        fault,
        now_ms,
        timeout_ms: TIMEOUT_MS,
        random: 0,
    }
}

/// A connection that is ready, for the first time.
fn ready() -> Gfmd {
    use gfmd::Event;
    let mut gfmd = Gfmd::NEW;
    assert_eq!(gfmd.ready(), None);
    assert_eq!(
        gfmd.step(Event::Wanted { now_ms: 0 }),
        gfmd::Effect::Connect
    );
    assert_eq!(gfmd.step(Event::Wanted { now_ms: 1 }), gfmd::Effect::Ignore);
    assert_eq!(gfmd.step(Event::Connected), gfmd::Effect::Authenticate);
    assert_eq!(gfmd.step(Event::Authenticated), gfmd::Effect::Join);
    assert_eq!(
        gfmd.step(Event::Joined { now_ms: 2 }),
        gfmd::Effect::SendWaiting
    );
    assert_eq!((gfmd.ready(), gfmd.epoch()), (Some(1), 1));
    gfmd
}

#[test]
fn a_restarted_gfmd_is_connected_again_with_another_process() {
    let mut gfmd = ready();
    let mut now_ms = 100_000;
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let gfmd::Effect::StartIn { pause_ms } = gfmd.step(failed(Fault::Disconnected, now_ms))
        else {
            panic!("{gfmd:?}");
        };
        assert_eq!((gfmd.state(), gfmd.ready()), (gfmd::State::Waiting, None));
        pauses.push(pause_ms);
        now_ms += u64::from(pause_ms);
        assert_eq!(gfmd.step(gfmd::Event::Timer), gfmd::Effect::Connect);
    }
    assert_eq!(pauses, [0, 100, 200, 400, 800]);
    gfmd.step(gfmd::Event::Connected);
    gfmd.step(gfmd::Event::Authenticated);
    assert_eq!(
        gfmd.step(gfmd::Event::Joined { now_ms }),
        gfmd::Effect::SendWaiting
    );
    assert_eq!(gfmd.ready(), Some(2));
}

#[test]
fn a_gfmd_that_dies_with_each_process_is_not_connected_in_a_loop() {
    let mut gfmd = ready();
    let mut now_ms = 100_000;
    let mut attempts = 0;
    loop {
        match gfmd.step(failed(Fault::Disconnected, now_ms)) {
            gfmd::Effect::StartIn { pause_ms } => now_ms += u64::from(pause_ms) + 1,
            gfmd::Effect::FailWaiting(_) => break,
            effect => panic!("{effect:?}"),
        }
        attempts += 1;
        gfmd.step(gfmd::Event::Timer);
        gfmd.step(gfmd::Event::Connected);
        gfmd.step(gfmd::Event::Authenticated);
        gfmd.step(gfmd::Event::Joined { now_ms });
    }
    assert!((8..20).contains(&attempts), "{attempts}");
    assert!(now_ms < 100_000 + TIMEOUT_MS + 5002);
}

#[test]
fn requests_do_not_wait_for_a_gfmd_that_stays_away() {
    let mut gfmd = ready();
    let mut now_ms = 100_000;
    let errno = loop {
        match gfmd.step(failed(Fault::TimedOut, now_ms)) {
            gfmd::Effect::StartIn { pause_ms } => {
                assert!(now_ms < 100_000 + TIMEOUT_MS);
                now_ms += u64::from(pause_ms) + 1000;
                assert_eq!(gfmd.step(gfmd::Event::Timer), gfmd::Effect::Connect);
            }
            gfmd::Effect::FailWaiting(errno) => break errno,
            effect => panic!("{effect:?}"),
        }
    };
    assert!(errno.get() == 5 && now_ms >= 100_000 + TIMEOUT_MS);
    assert_eq!(gfmd.state(), gfmd::State::Down);
    assert_eq!(gfmd.step(gfmd::Event::Timer), gfmd::Effect::Ignore);
    // The next request begins anew.
    let wanted = gfmd::Event::Wanted { now_ms: now_ms + 1 };
    assert_eq!(gfmd.step(wanted), gfmd::Effect::Connect);
    assert_eq!(
        gfmd.step(failed(Fault::Disconnected, now_ms + 2)),
        gfmd::Effect::StartIn { pause_ms: 0 }
    );
}

#[test]
fn a_user_that_is_refused_does_not_wait() {
    for (error, errno) in [
        (AuthError::InvalidCredential, 129),
        (AuthError::Expired, 127),
    ] {
        let mut gfmd = Gfmd::NEW;
        gfmd.step(gfmd::Event::Wanted { now_ms: 0 });
        gfmd.step(gfmd::Event::Connected);
        let gfmd::Effect::FailWaiting(told) = gfmd.step(failed(refused(error), 1)) else {
            panic!("{gfmd:?}");
        };
        assert_eq!((told.get(), gfmd.state()), (errno, gfmd::State::Down));
    }
    let mut gfmd = Gfmd::NEW;
    gfmd.step(gfmd::Event::Wanted { now_ms: 0 });
    gfmd.step(gfmd::Event::Connected);
    let later = gfmd.step(failed(refused(AuthError::Temporary), 1));
    assert_eq!(later, gfmd::Effect::StartIn { pause_ms: 0 });
}

#[test]
fn nothing_follows_the_end_of_a_mount() {
    let mut gfmd = ready();
    assert_eq!(gfmd.step(gfmd::Event::Close), gfmd::Effect::Release);
    for event in [
        gfmd::Event::Timer,
        gfmd::Event::Close,
        failed(Fault::malformed("mode"), 0),
    ] {
        assert_eq!(gfmd.step(event), gfmd::Effect::Ignore);
    }
    assert_eq!(
        gfmd.step(gfmd::Event::Wanted { now_ms: 0 }),
        gfmd::Effect::Ignore
    );
}

#[test]
fn a_gfsd_connection_has_one_request() {
    let mut conn = Gfsd::new(1);
    assert_eq!(conn.take(1), Use::Unusable);
    conn.joined();
    assert_eq!(
        conn.state(),
        gfsd::State::Connecting,
        "joined before it may"
    );
    conn.authenticated();
    conn.joined();
    assert_eq!(conn.take(1), Use::Send);
    assert_eq!(
        conn.take(1),
        Use::Unusable,
        "a second request would never be answered"
    );
    conn.answered();
    // gfmd was restarted meanwhile.
    assert_eq!(conn.take(2), Use::Reset);
    assert_eq!((conn.take(2), conn.epoch()), (Use::Unusable, 2));
    conn.joined();
    assert_eq!(conn.take(2), Use::Send);
    conn.abandon();
    conn.answered();
    conn.joined();
    assert_eq!(
        (conn.take(2), conn.state()),
        (Use::Unusable, gfsd::State::Broken)
    );
}

fn descriptor(fd: u32, epoch: u32) -> Descriptor {
    let id = FileId { inum: 5, gen: 1 };
    Descriptor {
        fd: Fd::new(fd).unwrap(),
        epoch,
        id,
    }
}

fn failure(fault: Fault, now_ms: u64) -> Failure {
    Failure {
        fault,
        now_ms,
        timeout_ms: TIMEOUT_MS,
        random: 0,
    }
}

/// A file that the gfsd 1 reads, by descriptor 3 of process 1.
fn open_file() -> OpenFile {
    let mut file = OpenFile::NEW;
    assert_eq!(file.step(Event::Start), Effect::Open(None));
    assert_eq!(file.readable(), None);
    let fd = descriptor(3, 1);
    assert_eq!(
        file.step(Event::Opened(fd, Some(HostId(1)))),
        Effect::Connect(HostId(1))
    );
    assert_eq!(
        file.step(Event::Connected { epoch: 1 }),
        Effect::OpenAtGfsd(fd)
    );
    assert_eq!(file.step(Event::OpenedAtGfsd), Effect::Read(fd));
    assert_eq!(file.step(Event::Progress), Effect::Ignore);
    assert_eq!(file.readable(), Some(fd));
    file
}

#[test]
fn a_descriptor_is_not_opened_in_another_process() {
    // gfmd was connected again while the connection to the gfsd was made: the number 3 of the new
    // process may be another file. Found by `sim::no_fault_makes_a_wrong_byte_and_all_reads_end`.
    let mut file = OpenFile::NEW;
    file.step(Event::Start);
    let fd = descriptor(3, 1);
    assert_eq!(
        file.step(Event::Opened(fd, Some(HostId(1)))),
        Effect::Connect(HostId(1))
    );
    let other = Event::Connected { epoch: 2 };
    assert_eq!(file.step(other), Effect::Open(Some(fd)));
}

#[test]
fn a_dead_gfsd_makes_way_for_another() {
    let mut file = open_file();
    let dead = Event::GfsdFailed(GfsdRequest::Read, failure(Fault::Disconnected, 0));
    assert_eq!(
        file.step(dead),
        Effect::Open(Some(descriptor(3, 1))),
        "at once"
    );
    assert!(file.has_failed(HostId(1)) && !file.has_failed(HostId(2)));
    let fd = descriptor(4, 1);
    assert_eq!(
        file.step(Event::Opened(fd, Some(HostId(2)))),
        Effect::Connect(HostId(2))
    );
    let dead = Event::GfsdFailed(GfsdRequest::Connect, failure(Fault::TimedOut, 10));
    assert_eq!(file.step(dead), Effect::StartIn { pause_ms: 100 });
    assert!(file.has_failed(HostId(1)) && file.has_failed(HostId(2)));
    assert_eq!(file.step(Event::Timer), Effect::Open(Some(fd)));
    file.step(Event::Opened(fd, Some(HostId(1))));
    file.step(Event::Connected { epoch: 1 });
    file.step(Event::OpenedAtGfsd);
    file.step(Event::Progress);
    assert!(!file.has_failed(HostId(1)), "it has read since");
}

#[test]
fn a_restarted_gfmd_s_files_are_opened_again() {
    let mut file = open_file();
    let over = Event::GfsdFailed(GfsdRequest::Read, failure(server(98), 0));
    assert_eq!(file.step(over), Effect::AwaitGfmd(Some(1)));
    assert_eq!(
        file.step(Event::GfmdReady),
        Effect::Open(Some(descriptor(3, 1)))
    );
    assert!(!file.has_failed(HostId(1)), "the gfsd is not to blame");
    // gfmd is lost while it opens.
    let lost = Event::GfmdFailed(failure(Fault::Disconnected, 5));
    assert_eq!(file.step(lost), Effect::AwaitGfmd(None));
    let gone = Fault::Disconnected.errno();
    assert_eq!(file.step(Event::GfmdGivenUp(gone)), Effect::Fail(gone));
    assert_eq!(file.state(), State::Failed(gone));
    assert_eq!(
        file.step(Event::Start),
        Effect::Open(None),
        "the next read tries again"
    );
}

#[test]
fn reads_fail_when_the_time_is_over_and_not_before() {
    for fault in [Fault::Disconnected, server(79), server(11), server(9)] {
        let mut file = open_file();
        let mut now_ms = 1000;
        let mut attempts = 0;
        loop {
            let event = Event::GfsdFailed(GfsdRequest::Read, failure(fault, now_ms));
            match file.step(event) {
                Effect::StartIn { pause_ms } => {
                    now_ms += u64::from(pause_ms);
                    assert!(matches!(file.step(Event::Timer), Effect::Open(_)));
                }
                Effect::Open(_) => {}
                Effect::Fail(errno) => {
                    assert_eq!(errno.get(), 5);
                    break;
                }
                effect => panic!("{effect:?}"),
            }
            attempts += 1;
            file.step(Event::Opened(descriptor(3, 1), Some(HostId(1))));
            file.step(Event::Connected { epoch: 1 });
            file.step(Event::OpenedAtGfsd);
        }
        assert!((1000 + TIMEOUT_MS..1000 + TIMEOUT_MS + 5001).contains(&now_ms));
        assert!((8..20).contains(&attempts), "{attempts}");
    }
}

#[test]
fn a_file_that_is_gone_fails_at_once() {
    let mut file = OpenFile::NEW;
    file.step(Event::Start);
    let Effect::Fail(errno) = file.step(Event::GfmdFailed(failure(server(2), 0))) else {
        panic!("{file:?}");
    };
    assert_eq!(errno.get(), 2);
    let mut file = OpenFile::NEW;
    file.step(Event::Start);
    let nowhere = file.step(Event::Opened(descriptor(1, 1), None));
    assert!(matches!(nowhere, Effect::Fail(errno) if errno.get() == 5));
    assert_eq!(
        file.step(Event::Close),
        Effect::Release(Some(descriptor(1, 1)))
    );
    assert_eq!(file.step(Event::Start), Effect::Ignore);
}

#[test]
fn a_content_that_is_never_the_cache_s_does_not_spin() {
    let mut file = open_file();
    let outdated = |now_ms| Event::Outdated(failure(Fault::malformed("gen"), now_ms));
    assert_eq!(file.step(outdated(0)), Effect::Open(Some(descriptor(3, 1))));
    file.step(Event::Opened(descriptor(3, 1), Some(HostId(1))));
    file.step(Event::Connected { epoch: 1 });
    file.step(Event::OpenedAtGfsd);
    assert_eq!(file.step(outdated(1)), Effect::StartIn { pause_ms: 100 });
}

#[test]
fn the_best_gfsd_is_chosen() {
    let host = |is_available, has_load, load, ncpu| ReplicaHost {
        name: b"h",
        port: 600,
        ncpu,
        load,
        is_available,
        has_load,
    };
    let local = Rank::new(&host(true, true, 9999, 1), false);
    let idle = Rank::new(&host(true, true, 2048, 4), true);
    let loaded = Rank::new(&host(true, true, 2048, 2), true);
    let unknown = Rank::new(&host(true, false, 0, 1), true);
    let down = Rank::new(&host(false, true, 0, 0), false);
    let (mut suspect, mut failed, mut refuses, mut health) =
        (local, local, local, Health::default());
    suspect.is_suspect = true;
    failed.has_failed = true;
    health.failed(0, Some(Errno::EACCES));
    refuses.note(&health, false, Some(0), 0);
    let order = [local, idle, loaded, unknown, down, suspect, failed, refuses];
    assert!(order.is_sorted());
    assert_eq!(Choice::NONE.get(), None);
    for start in 0..order.len() {
        let mut choice = Choice::NONE;
        for i in (0..order.len()).map(|i| (i + start) % order.len()) {
            choice.offer(HostId(i as u32), order[i], 7);
        }
        assert_eq!(choice.get(), Some(HostId(0)));
    }
    // Of equals each is chosen as often.
    let mut chosen = [0; 3];
    for random in 0..6 {
        let mut choice = Choice::NONE;
        for i in 0..3 {
            choice.offer(HostId(i), idle, random);
        }
        chosen[choice.get().unwrap().0 as usize] += 1;
    }
    assert_eq!(chosen, [2, 2, 2]);
}

#[test]
fn a_gfsd_is_suspect_for_a_while() {
    let mut health = Health::default();
    assert!(!health.is_suspect(0));
    health.failed(1000, None);
    assert!(health.is_suspect(1000) && health.is_suspect(10_999) && !health.is_suspect(11_000));
    health.answered();
    assert!(!health.is_suspect(1001));
}
