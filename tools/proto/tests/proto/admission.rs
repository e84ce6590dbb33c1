// SPDX-License-Identifier: GPL-2.0

//! Admission of a connect request: the path of a session that it is for, and the paths that make
//! room for it.

use ferro_proto::errno::Errno;
use proptest::prelude::*;
use proto::rtrs::{
    admission::{
        admit,
        claim_name,
        is_decided_anew,
        is_unchanged,
        Admission,
        Holder,
        Known,
        NameClaim,
        NAME_WAIT_MS,
        ROUNDS, //
    },
    handshake::{
        Connect,
        Refusal, //
    },
    path::ServerState,
    PATHS_MAX, //
};

const STATES: [ServerState; 4] = [
    ServerState::Connecting,
    ServerState::Connected,
    ServerState::Closing,
    ServerState::Closed,
];

fn connect(cid: u16, recon_cnt: u16) -> Connect {
    Connect {
        cid,
        cid_num: 3,
        recon_cnt,
        sess_uuid: [1; 16],
        paths_uuid: [2; 16],
        first_conn: true,
        fences: false,
    }
}

/// The path that the request names, at the same addresses.
fn same(recon_cnt: u16, state: ServerState) -> Known {
    Known {
        same_path: true,
        same_addresses: true,
        recon_cnt,
        state,
        silent: false,
    }
}

/// A path of the session that has nothing to do with the request.
fn apart(state: ServerState) -> Known {
    Known {
        same_path: false,
        same_addresses: false,
        ..same(1, state)
    }
}

fn ask(connect: &Connect, known: &[Known]) -> Result<Admission, Refusal> {
    admit(connect, known.iter().copied())
}

#[test]
fn a_session_without_paths_gets_one() {
    assert_eq!(ask(&connect(0, 1), &[]), Ok(Admission::Begin));
    assert_eq!(ask(&connect(1, 1), &[]), Err(Refusal::NotAdminFirst(1)));
}

#[test]
fn a_newer_attempt_takes_the_place_of_the_old_one_in_every_state() {
    for state in STATES {
        assert_eq!(
            ask(&connect(0, 8), &[same(7, state)]),
            Ok(Admission::Begin),
            "{state:?}"
        );
        // What is left of a half-made path on the client is no path.
        let refused = ask(&connect(2, 8), &[same(7, state)]);
        assert_eq!(refused, Err(Refusal::NotAdminFirst(2)), "{state:?}");
    }
}

#[test]
fn an_attempt_that_is_not_newer_never_replaces_anything() {
    for state in STATES {
        for old in [6, 0, 7_u16.wrapping_sub(0x7fff), 7 + 0x8000] {
            let refused = ask(&connect(0, old), &[same(7, state)]);
            assert_eq!(refused, Err(Refusal::Stale(old)), "{state:?}");
        }
        let again = ask(&connect(0, 7), &[same(7, state)]);
        assert_eq!(again, Ok(Admission::Join(0)), "{state:?}");
    }
}

#[test]
fn further_connections_find_the_newest_of_their_path() {
    let known = [
        same(7, ServerState::Closing),
        apart(ServerState::Connected),
        same(8, ServerState::Connecting),
    ];
    assert_eq!(ask(&connect(1, 8), &known), Ok(Admission::Join(2)));
    assert_eq!(ask(&connect(0, 9), &known), Ok(Admission::Begin));
}

#[test]
fn addresses_are_given_up_by_those_who_are_silent_or_ending() {
    for state in STATES {
        for silent in [false, true] {
            let other = Known {
                same_path: false,
                silent,
                ..same(5, state)
            };
            let gives_way = match state {
                ServerState::Connecting => false,
                ServerState::Connected => silent,
                ServerState::Closing | ServerState::Closed => true,
            };
            let expected = if gives_way {
                Ok(Admission::Begin)
            } else {
                Err(Refusal::AddressTaken)
            };
            let what = format!("{state:?}, silent {silent}");
            assert_eq!(ask(&connect(0, 1), &[other]), expected, "{what}");
        }
    }
}

#[test]
fn all_paths_can_come_back_but_no_more_of_them() {
    let full = vec![apart(ServerState::Connected); PATHS_MAX];
    assert_eq!(ask(&connect(0, 1), &full), Err(Refusal::TooManyPaths));
    let mut mine = full.clone();
    mine[3] = same(1, ServerState::Connected);
    assert_eq!(ask(&connect(0, 2), &mine), Ok(Admission::Begin));
    let ending = vec![apart(ServerState::Closing); 2 * PATHS_MAX];
    assert_eq!(ask(&connect(0, 1), &ending[1..]), Ok(Admission::Begin));
    assert_eq!(ask(&connect(0, 1), &ending), Err(Refusal::TooManyPaths));
}

fn known() -> impl Strategy<Value = Known> {
    let bits = (any::<bool>(), any::<bool>(), any::<bool>());
    (bits, any::<u16>(), 0..4_usize).prop_map(|(bits, recon_cnt, state)| Known {
        same_path: bits.0,
        same_addresses: bits.1,
        recon_cnt,
        state: STATES[state],
        silent: bits.2,
    })
}

proptest! {
    #[test]
    fn whoever_gets_in_is_newer_than_all_that_it_replaces(
        known in proptest::collection::vec(known(), 0..6),
        cid in 0..3_u16,
        recon_cnt in any::<u16>(),
    ) {
        match ask(&connect(cid, recon_cnt), &known) {
            Ok(Admission::Join(index)) => {
                prop_assert!(known[index].same_path);
                prop_assert_eq!(known[index].recon_cnt, recon_cnt);
            }
            Ok(Admission::Begin) => {
                prop_assert_eq!(cid, 0);
                for old in known.iter().filter(|old| old.same_path) {
                    let ahead = recon_cnt.wrapping_sub(old.recon_cnt);
                    prop_assert!(ahead != 0 && ahead < 0x8000);
                }
            }
            Err(_) => {}
        }
    }
}

/// All that can be said of one path of the session that has the name.
fn holders() -> impl Iterator<Item = Holder> {
    STATES
        .into_iter()
        .flat_map(|state| [false, true].map(|heard| Holder { state, heard }))
}

#[test]
fn a_name_is_refused_at_once_if_and_only_if_its_client_is_heard() {
    for one in holders() {
        for two in holders() {
            let used = [one, two]
                .iter()
                .any(|h| h.heard && h.state == ServerState::Connected);
            for waited_ms in [0, 100, NAME_WAIT_MS - 1] {
                let expected = if used {
                    NameClaim::Refused(Errno::EPERM)
                } else {
                    NameClaim::Wait
                };
                assert_eq!(claim_name([one, two].into_iter(), waited_ms), expected);
            }
        }
    }
}

#[test]
fn nobody_waits_for_a_name_for_ever() {
    for one in holders() {
        for waited_ms in [NAME_WAIT_MS, u32::MAX] {
            let claim = claim_name([one].into_iter(), waited_ms);
            assert!(matches!(claim, NameClaim::Refused(_)), "{one:?}");
        }
    }
    // A session that is about to lose its last path, or has none yet.
    assert_eq!(claim_name([].into_iter(), 0), NameClaim::Wait);
    let late = claim_name([].into_iter(), NAME_WAIT_MS);
    assert_eq!(late, NameClaim::Refused(Errno::EBUSY));
}

/// The progress of a connect request of one new session: it looks for the session, prepares a path
/// without the locks, and adds it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Request {
    Looks { round: usize },
    Prepares { round: usize, known: Option<u8> },
    HasPath { session: u8 },
    GivesUp,
}

/// A server that several connect requests of one session reach at a time. Sessions have numbers.
#[derive(Clone, Debug)]
struct Table {
    session: Option<u8>,
    created: u8,
    requests: [Request; 3],
    /// The session may end so many times.
    ends: u8,
}

impl Table {
    fn step(&mut self, who: usize) -> bool {
        let next = match self.requests[who] {
            Request::Looks { round } if round == ROUNDS => Request::GivesUp,
            Request::Looks { round } => Request::Prepares {
                round,
                known: self.session,
            },
            Request::Prepares { round, known } => {
                // Who knows none has created one.
                let own = known.unwrap_or(100 + self.created);
                let found = self.session.map(|session| session == own);
                if is_unchanged(known.is_some(), found) {
                    self.created += u8::from(known.is_none());
                    assert!(self.session.is_none_or(|session| session == own));
                    self.session = Some(own);
                    Request::HasPath { session: own }
                } else {
                    Request::Looks { round: round + 1 }
                }
            }
            Request::HasPath { .. } | Request::GivesUp => return false,
        };
        self.requests[who] = next;
        true
    }

    /// The last path of the session ends.
    fn end(&mut self) -> bool {
        if self.ends == 0 || self.session.is_none() {
            return false;
        }
        self.ends -= 1;
        let ended = self.session.take();
        for request in &mut self.requests {
            if matches!(request, Request::HasPath { session } if Some(*session) == ended) {
                // It had a path, and is over.
                *request = Request::HasPath { session: 0 };
            }
        }
        true
    }
}

#[test]
fn requests_that_create_one_session_at_a_time_get_one() {
    let start = Table {
        session: None,
        created: 0,
        requests: [Request::Looks { round: 0 }; 3],
        ends: 1,
    };
    let (mut tables, mut done) = (vec![start], 0);
    while let Some(table) = tables.pop() {
        let before = tables.len();
        for who in 0..table.requests.len() {
            let mut next = table.clone();
            if next.step(who) {
                tables.push(next);
            }
        }
        if tables.len() == before {
            done += 1;
            for request in table.requests {
                let Request::HasPath { session } = request else {
                    panic!("{request:?} in {table:?}");
                };
                assert!(session == 0 || Some(session) == table.session, "{table:?}");
            }
        }
        let mut next = table.clone();
        if next.end() {
            tables.push(next);
        }
    }
    assert!(done > 20, "{done}");
}

#[test]
fn who_had_no_memory_for_a_session_of_its_own_joins_that_of_another_request() {
    for refusal in [Refusal::MemoryLimit, Refusal::NoMemory] {
        assert!(is_decided_anew(&refusal, false, true));
        // Nobody created one; or it was known, and the path has no room.
        assert!(!is_decided_anew(&refusal, false, false));
        assert!(!is_decided_anew(&refusal, true, true));
        assert!(!is_decided_anew(&refusal, true, false));
    }
    assert!(!is_decided_anew(&Refusal::AddressTaken, false, true));
}
