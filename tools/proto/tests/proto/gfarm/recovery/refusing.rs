// SPDX-License-Identifier: GPL-2.0

//! Gfsds that say no, while others have the file.

use ferro_proto::errno::Errno;
use proto::gfarm::{
    attr::ReplicaHost,
    auth::AuthError,
    error::GfarmError,
    gfmd::{
        self,
        Gfmd, //
    },
    open_file::{
        Effect,
        Event,
        OpenFile, //
    },
    replica::{
        Choice,
        Connecting,
        Health,
        HostId,
        Rank, //
    },
    retry::{
        Fault,
        GfsdRequest, //
    },
};

use super::{
    descriptor,
    failed,
    failure,
    open_file,
    ready,
    refused,
    server,
    TIMEOUT_MS, //
};

/// The behaviour of a gfsd.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Work,
    Refuse,
    /// Is silent.
    Hang,
    /// Is not there, and gfmd, to which it has no connection, does not name it.
    Restart,
}

/// Gfsds that all have a file, and the mount that knows them.
struct Hosts {
    hosts: Vec<(Does, Health)>,
    now_ms: u64,
    /// A connection to each that works is there.
    is_connected: bool,
    /// The number of times that each was asked.
    asked: Vec<u32>,
}

impl Hosts {
    fn new(does: &[Does]) -> Self {
        Self {
            hosts: does.iter().map(|does| (*does, Health::default())).collect(),
            now_ms: 1000,
            is_connected: false,
            asked: vec![0; does.len()],
        }
    }

    /// Chooses among all of them, as a driver does.
    fn choose(&self, file: &OpenFile, random: u32) -> Choice {
        let mut choice = Choice::NONE;
        let told = ReplicaHost {
            name: b"h",
            port: 600,
            ncpu: 1,
            load: 0,
            is_available: true,
            has_load: true,
        };
        for (n, (does, health)) in self.hosts.iter().enumerate() {
            if *does == Does::Restart {
                continue;
            }
            let host = HostId(n as u32);
            let mut rank = Rank::new(&told, true);
            rank.note(health, self.is_connected, file.since_ms(), self.now_ms);
            rank.has_failed |= file.has_failed(host);
            choice.offer(host, rank, random.wrapping_mul(n as u32));
        }
        choice
    }

    /// Opens the file, and returns the gfsd that reads it, or the error.
    fn open(&mut self, file: &mut OpenFile) -> Result<HostId, Errno> {
        let effect = file.step(Event::Start);
        self.carry_out(file, effect, |_| {})
    }

    /// Does so from an effect on. `changes` is called before gfmd is asked.
    fn carry_out(
        &mut self,
        file: &mut OpenFile,
        mut effect: Effect,
        mut changes: impl FnMut(&mut Self),
    ) -> Result<HostId, Errno> {
        let fd = descriptor(3, 1);
        loop {
            let event = match effect {
                Effect::Open(_) => {
                    changes(self);
                    let random: u32 = self.asked.iter().sum();
                    let choice = self.choose(file, random);
                    match choice.refusal() {
                        Some(refusal) => {
                            let down = Fault::Server(GfarmError::NO_FILESYSTEM_NODE);
                            Event::AllRefuse(fd, refusal, failure(down, self.now_ms))
                        }
                        None => Event::Opened(fd, choice.get()),
                    }
                }
                Effect::Connect(HostId(n)) => {
                    let (does, health) = &mut self.hosts[n as usize];
                    self.asked[n as usize] += 1;
                    let fault = match does {
                        Does::Work => return Ok(HostId(n)),
                        Does::Refuse => refused(AuthError::Denied),
                        Does::Hang | Does::Restart => Fault::TimedOut,
                    };
                    let failure = failure(fault, self.now_ms);
                    self.now_ms += 1;
                    health.failed(self.now_ms, fault.refusal());
                    Event::GfsdFailed(GfsdRequest::Connect, failure)
                }
                Effect::StartIn { pause_ms } => {
                    self.now_ms += u64::from(pause_ms);
                    Event::Timer
                }
                Effect::Fail(errno) => return Err(errno),
                effect => panic!("{effect:?}"),
            };
            effect = file.step(event);
        }
    }
}

#[test]
fn a_gfsd_that_refuses_the_key_makes_way_for_another() {
    for others in [1, 3, 4, 9, 63] {
        for works in [0, others / 2, others] {
            let mut does = vec![Does::Refuse; others];
            does.insert(works, Does::Work);
            let (mut hosts, mut file) = (Hosts::new(&does), OpenFile::NEW);
            assert_eq!(hosts.open(&mut file), Ok(HostId(works as u32)));
            assert!(hosts.asked.iter().all(|asked| *asked <= 1));
            assert!(hosts.now_ms <= 1000 + others as u64, "without a pause");
        }
    }
}

#[test]
fn all_gfsds_refuse_the_key_however_many_they_are() {
    for count in [1, 2, 4, 5, 6, 16, 1000] {
        let (mut hosts, mut file) = (Hosts::new(&vec![Does::Refuse; count]), OpenFile::NEW);
        let errno = refused(AuthError::Denied).errno();
        for time in 1..=3 {
            // That is what the reader is told, and not after a while; the next read tries again.
            hosts.now_ms += 1;
            let since_ms = hosts.now_ms;
            assert_eq!(hosts.open(&mut file), Err(errno));
            assert_eq!(hosts.asked, vec![time; count]);
            assert!(hosts.now_ms <= since_ms + count as u64, "without a pause");
        }
        // Those that ask at the same time need not ask each of them.
        let mut other = file;
        other.step(Event::Start);
        other.step(Event::Opened(descriptor(3, 1), Some(HostId(0))));
        let no = failure(refused(AuthError::Denied), 0);
        other.step(Event::GfsdFailed(GfsdRequest::Connect, no));
        let refusal = hosts.choose(&other, 1).refusal().unwrap();
        assert_eq!((refusal.errno, refusal.may_accept), (errno, None));
        // All have refused, however long ago the first one was asked.
        hosts.now_ms += 9_999;
        let refusal = hosts.choose(&other, 1).refusal().unwrap();
        assert_eq!(refusal.errno, errno);
        assert!(refusal.may_accept.is_some() || count == 1);
    }
}

#[test]
fn one_that_is_only_down_is_waited_for() {
    for down in [0, 3, 8] {
        let mut does = [Does::Refuse; 9];
        does[down] = Does::Hang;
        let (mut hosts, mut file) = (Hosts::new(&does), OpenFile::NEW);
        let gone = Fault::TimedOut.errno();
        assert_eq!(hosts.open(&mut file), Err(gone));
        assert!(hosts.asked[down] > 5, "{:?}", hosts.asked);
        hosts.asked[down] = 1;
        assert!(
            hosts.asked.iter().all(|asked| (1..=4).contains(asked)),
            "seldom"
        );
        assert!(hosts.now_ms >= 1000 + TIMEOUT_MS);
        hosts.hosts[down].0 = Does::Work;
        assert_eq!(hosts.open(&mut file), Ok(HostId(down as u32)));
    }
}

#[test]
fn one_that_is_restarted_is_waited_for_although_the_others_refuse() {
    for others in [1, 3, 4, 9] {
        for takes_ms in [6_000, TIMEOUT_MS * 2] {
            let mut does = vec![Does::Refuse; others];
            does.insert(0, Does::Restart);
            let (mut hosts, mut file) = (Hosts::new(&does), OpenFile::NEW);
            file.step(Event::Start);
            file.step(Event::Opened(descriptor(3, 1), Some(HostId(0))));
            let since_ms = hosts.now_ms;
            hosts.hosts[0].1.failed(since_ms, None);
            let lost = failure(Fault::Disconnected, since_ms);
            let effect = file.step(Event::GfsdFailed(GfsdRequest::Connect, lost));
            let got = hosts.carry_out(&mut file, effect, |hosts| {
                if hosts.now_ms > since_ms + takes_ms {
                    hosts.hosts[0].0 = Does::Work;
                }
            });
            if takes_ms < TIMEOUT_MS {
                assert_eq!(got, Ok(HostId(0)), "{others} others");
                continue;
            }
            assert_eq!(got, Err(refused(AuthError::Denied).errno()));
            assert!(hosts.now_ms >= since_ms + TIMEOUT_MS);
        }
    }
}

#[test]
fn a_key_that_is_renewed_during_a_read_is_taken() {
    // The other one hangs, or is restarted, and does not come back.
    for other in [Does::Hang, Does::Restart] {
        let mut hosts = Hosts::new(&[Does::Refuse, other]);
        let mut file = OpenFile::NEW;
        file.step(Event::Start);
        file.step(Event::Opened(descriptor(3, 1), Some(HostId(1))));
        let lost = failure(Fault::TimedOut, hosts.now_ms);
        let effect = file.step(Event::GfsdFailed(GfsdRequest::Connect, lost));
        let got = hosts.carry_out(&mut file, effect, |hosts| {
            if hosts.now_ms > 3000 {
                hosts.hosts[0].0 = Does::Work;
            }
        });
        assert_eq!(got, Ok(HostId(0)), "at {} ms", hosts.now_ms);
        assert!(hosts.now_ms < 1000 + TIMEOUT_MS / 2 && hosts.asked[0] == 2);
    }
}

#[test]
fn one_that_takes_the_key_again_has_not_refused() {
    let mut health = Health::default();
    assert_eq!(health.refusal_since(Some(0)), None);
    let errno = refused(AuthError::Denied).errno();
    health.failed(10, Some(errno));
    assert_eq!(health.refusal_since(Some(10)), Some(errno));
    assert_eq!(health.refusal_since(Some(11)), None, "before this read");
    assert_eq!(health.refusal_since(None), None, "nothing has failed yet");
    // A connection that was made before goes on, and then does not.
    health.answered();
    health.failed(20, None);
    assert_eq!(health.refusal_since(Some(10)), Some(errno));
    health.accepted();
    assert_eq!(health.refusal_since(Some(10)), None);
}

#[test]
fn a_gfsd_that_refuses_the_key_is_read_by_a_connection_from_before() {
    let mut hosts = Hosts::new(&[Does::Refuse]);
    let mut file = OpenFile::NEW;
    hosts.is_connected = true;
    // A second one is made, in vain: it is busy with another file.
    let effect = file.step(Event::Start);
    let got = hosts.carry_out(&mut file, effect, |hosts| {
        let (does, health) = &mut hosts.hosts[0];
        let now_ms = hosts.now_ms;
        match health.connecting(Some(1), true, now_ms) {
            Connecting::Take => *does = Does::Work,
            connecting => assert_eq!(connecting, Connecting::Make),
        }
    });
    assert_eq!((got, &hosts.asked[..]), (Ok(HostId(0)), &[2][..]));
}

#[test]
fn a_file_gets_a_connection_of_its_own_if_one_can_be_made() {
    use Connecting::{
        Make,
        Take,
        Wait, //
    };
    let (fine, mut refuses) = (Health::default(), Health::default());
    refuses.failed(1000, Some(refused(AuthError::Denied).errno()));
    for (users, has_room, expected, if_refused) in [
        (None, true, Make, Make),
        (None, false, Wait, Wait),
        (Some(0), true, Take, Take),
        (Some(0), false, Take, Take),
        (Some(1), true, Make, Take),
        (Some(1), false, Take, Take),
    ] {
        assert_eq!(fine.connecting(users, has_room, 1000), expected);
        assert_eq!(refuses.connecting(users, has_room, 10_999), if_refused);
        assert_eq!(
            refuses.connecting(users, has_room, 11_000),
            expected,
            "of long ago"
        );
    }
    refuses.accepted();
    assert_eq!(refuses.connecting(Some(1), true, 1000), Make);
}

/// A file that was opened, for which gfmd had to be asked twice, and that was not read yet.
fn opened_late() -> OpenFile {
    let mut file = OpenFile::NEW;
    file.step(Event::Start);
    file.step(Event::GfmdFailed(failure(server(105), 1000)));
    let effect = file.step(Event::Opened(descriptor(3, 1), Some(HostId(0))));
    assert_eq!(effect, Effect::Connect(HostId(0)));
    // open(2) has succeeded.
    file.begin_anew();
    file
}

#[test]
fn the_first_read_has_its_time_however_late_it_comes() {
    let (mut hosts, mut file) = (Hosts::new(&[Does::Hang, Does::Work]), opened_late());
    hosts.now_ms += 2 * TIMEOUT_MS;
    let got = hosts.carry_out(&mut file, Effect::Connect(HostId(0)), |_| {});
    assert_eq!(got, Ok(HostId(1)));
}

#[test]
fn what_was_refused_between_open_and_read_does_not_end_the_read() {
    let (mut hosts, mut file) = (Hosts::new(&[Does::Work]), opened_late());
    hosts.now_ms += 10_000;
    let errno = refused(AuthError::Expired).refusal();
    hosts.hosts[0].1.failed(hosts.now_ms, errno);
    hosts.now_ms += 3_600_000;
    // gfmd was restarted: the file is opened in its new process.
    let effect = file.step(Event::Connected { epoch: 2 });
    let got = hosts.carry_out(&mut file, effect, |_| {});
    assert_eq!(got, Ok(HostId(0)));
}

/// gfmd is connected again, after the process was left for `fault`.
fn connect_again(gfmd: &mut Gfmd, fault: Fault, now_ms: u64) {
    assert!(matches!(
        gfmd.step(failed(fault, now_ms)),
        gfmd::Effect::StartIn { .. }
    ));
    for event in [
        gfmd::Event::Timer,
        gfmd::Event::Connected,
        gfmd::Event::Authenticated,
        gfmd::Event::Joined { now_ms },
    ] {
        gfmd.step(event);
    }
}

#[test]
fn a_gfsd_that_tells_of_each_process_that_it_is_gone_is_believed_once() {
    let (gone, now_ms) = (server(98), 100_000);
    let mut gfmd = ready();
    assert!(gfmd.is_gone(1, now_ms));
    connect_again(&mut gfmd, gone, now_ms);
    // Others that have not heard of it yet wait for the new one.
    assert!(gfmd.is_gone(1, now_ms));
    assert!(!gfmd.is_gone(2, now_ms) && !gfmd.is_gone(2, now_ms + 59_999));
    assert!(
        gfmd.is_gone(2, now_ms + 60_000),
        "gfmd may be restarted again"
    );
    // The connection has shown by itself that gfmd was.
    connect_again(&mut gfmd, Fault::Disconnected, now_ms);
    assert!(gfmd.is_gone(3, now_ms));

    let mut file = open_file();
    let wrong = Event::GfsdWrong(failure(gone, 0));
    assert_eq!(file.step(wrong), Effect::Open(Some(descriptor(3, 1))));
    assert!(file.has_failed(HostId(1)), "another one is preferred");
}
