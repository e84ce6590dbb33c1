// SPDX-License-Identifier: GPL-2.0

//! The life of a path: every history of events up to a depth, on either side.

use proto::rtrs::path::{
    ClientEffect,
    ClientEvent,
    ClientState,
    ServerEffect,
    ServerEvent,
    ServerState, //
};

const CLIENT_EVENTS: [ClientEvent; 8] = [
    ClientEvent::Established,
    ClientEvent::Failed,
    ClientEvent::Retry,
    ClientEvent::Start,
    ClientEvent::Reconnect,
    ClientEvent::Close,
    ClientEvent::TornDown,
    ClientEvent::Remove,
];

const CLIENT_STATES: [ClientState; 7] = [
    ClientState::Connecting,
    ClientState::ConnectingErr,
    ClientState::Connected,
    ClientState::Reconnecting,
    ClientState::Closing,
    ClientState::Closed,
    ClientState::Dead,
];

/// The driver's belongings of a path, which effects change.
#[derive(Clone, Copy, Default)]
struct Client {
    live: bool,
    connections: bool,
    tearing_down: bool,
    released: bool,
}

impl Client {
    fn carry_out(&mut self, effect: ClientEffect) {
        assert!(!self.released, "{effect:?} on a path that is gone");
        match effect {
            ClientEffect::Ignore | ClientEffect::Busy | ClientEffect::ScheduleStart => {}
            ClientEffect::Connect => {
                assert!(
                    !self.connections && !self.tearing_down,
                    "connects over connections"
                );
                self.connections = true;
            }
            ClientEffect::GoLive => {
                assert!(
                    self.connections && !self.live,
                    "goes live twice or on nothing"
                );
                self.live = true;
            }
            ClientEffect::AbortConnect => {
                assert!(!self.live);
                // The connector tears down before it says anything else.
                self.connections = false;
            }
            ClientEffect::Recover => {
                assert!(self.live, "recovers what was not live");
                (self.live, self.connections) = (false, false);
            }
            ClientEffect::TearDown => {
                assert!(!self.tearing_down, "tears down twice at a time");
                (self.tearing_down, self.live, self.connections) = (true, false, false);
            }
            ClientEffect::AnnounceClosed => {
                assert!(self.tearing_down);
                self.tearing_down = false;
            }
            ClientEffect::Release => {
                assert!(!self.live && !self.connections && !self.tearing_down);
                self.released = true;
            }
        }
    }
}

fn client_histories(state: ClientState, client: Client, depth: u32, count: &mut u64) {
    *count += 1;
    assert_eq!(state.carries_io(), client.live, "{state:?}");
    if depth == 0 {
        return;
    }
    for event in CLIENT_EVENTS {
        let (next, effect) = state.step(event);
        let mut client = client;
        if effect != ClientEffect::Ignore && effect != ClientEffect::Busy {
            client.carry_out(effect);
        } else {
            assert_eq!(next, state, "a change without an action");
        }
        client_histories(next, client, depth - 1, count);
    }
}

#[test]
fn no_history_of_a_client_s_path_does_anything_twice_or_out_of_order() {
    let start = Client {
        connections: true,
        ..Client::default()
    };
    let mut count = 0;
    client_histories(ClientState::Connecting, start, 7, &mut count);
    assert_eq!(count, (0..=7).map(|n| 8u64.pow(n)).sum());
}

#[test]
fn a_client_s_path_changes_as_in_the_c_driver() {
    use ClientState::{
        Closed,
        Closing,
        Connected,
        Connecting,
        ConnectingErr,
        Dead,
        Reconnecting, //
    };
    // rtrs_clt_change_state().
    let allowed = [
        (Connecting, Connected),
        (Connecting, ConnectingErr),
        (Connecting, Closing),
        (Connected, Reconnecting),
        (Connected, Closing),
        (ConnectingErr, Reconnecting),
        (ConnectingErr, Closing),
        (Reconnecting, Connecting),
        (Reconnecting, Closing),
        (Closing, Closed),
        (Closed, Reconnecting),
        (Closed, Dead),
    ];
    let mut seen = Vec::new();
    for state in CLIENT_STATES {
        for event in CLIENT_EVENTS {
            let (next, _) = state.step(event);
            if next != state {
                assert!(
                    allowed.contains(&(state, next)),
                    "{state:?} {event:?} {next:?}"
                );
                seen.push((state, next));
            }
        }
    }
    for change in allowed {
        assert!(seen.contains(&change), "{change:?} never happens");
    }
}

#[test]
fn every_path_can_be_removed_from_every_state() {
    for state in CLIENT_STATES {
        // As remove_path does: close, wait, remove.
        let (state, _) = state.step(ClientEvent::Close);
        let (state, _) = state.step(ClientEvent::TornDown);
        let (state, _) = state.step(ClientEvent::Remove);
        assert_eq!(state, ClientState::Dead);
    }
    for event in CLIENT_EVENTS {
        assert_eq!(ClientState::Dead.step(event).0, ClientState::Dead);
    }
}

#[test]
fn a_lost_path_comes_back_by_itself() {
    let mut state = ClientState::Connected;
    for (event, effect) in [
        (ClientEvent::Failed, ClientEffect::Recover),
        (ClientEvent::Failed, ClientEffect::Ignore),
        (ClientEvent::Start, ClientEffect::Connect),
        (ClientEvent::Failed, ClientEffect::AbortConnect),
        (ClientEvent::Retry, ClientEffect::ScheduleStart),
        (ClientEvent::Start, ClientEffect::Connect),
        (ClientEvent::Established, ClientEffect::GoLive),
    ] {
        let (next, done) = state.step(event);
        assert_eq!(done, effect, "{state:?} {event:?}");
        state = next;
    }
    assert_eq!(state, ClientState::Connected);
}

#[test]
fn sysfs_shows_one_of_two_words() {
    for state in CLIENT_STATES {
        let shown = if state == ClientState::Connected {
            "connected"
        } else {
            "disconnected"
        };
        assert_eq!(state.to_string(), shown);
        assert_eq!(ClientState::from_u8(state as u8), Some(state));
    }
    assert_eq!(ClientState::from_u8(7), None);
    assert_eq!(ServerState::from_u8(4), None);
}

const SERVER_EVENTS: [ServerEvent; 5] = [
    ServerEvent::InfoRequest { complete: true },
    ServerEvent::InfoRequest { complete: false },
    ServerEvent::Request,
    ServerEvent::Close,
    ServerEvent::TornDown,
];

fn server_histories(state: ServerState, torn: bool, live: bool, depth: u32, count: &mut u64) {
    *count += 1;
    if depth == 0 {
        return;
    }
    for event in SERVER_EVENTS {
        let (next, effect) = state.step(event);
        let (mut torn, mut live) = (torn, live);
        match effect {
            ServerEffect::Ignore => assert_eq!(next, state),
            ServerEffect::GoLive => {
                assert!(!live && !torn);
                live = true;
            }
            ServerEffect::Serve => assert!(live && !torn, "serves on a path that is not live"),
            ServerEffect::TearDown => {
                assert!(!torn, "tears down twice");
                (torn, live) = (true, false);
            }
            ServerEffect::Release => assert!(torn && !live),
        }
        assert_eq!(ServerState::from_u8(next as u8), Some(next));
        server_histories(next, torn, live, depth - 1, count);
    }
}

#[test]
fn no_history_of_a_server_s_path_serves_too_early_or_too_late() {
    let mut count = 0;
    server_histories(ServerState::Connecting, false, false, 9, &mut count);
    assert_eq!(count, (0..=9).map(|n| 5u64.pow(n)).sum());
}

#[test]
fn an_info_request_before_all_connections_closes_the_path() {
    // CVE-2024-50062: C dereferenced the connections that were not there yet.
    let early = ServerState::Connecting.step(ServerEvent::InfoRequest { complete: false });
    assert_eq!(early, (ServerState::Closing, ServerEffect::TearDown));
}

#[test]
fn a_connected_path_serves_requests_and_no_other_does() {
    let served = ServerState::Connected.step(ServerEvent::Request);
    assert_eq!(served, (ServerState::Connected, ServerEffect::Serve));
    for raw in [0, 2, 3] {
        let (_, effect) = ServerState::from_u8(raw)
            .unwrap()
            .step(ServerEvent::Request);
        assert_ne!(effect, ServerEffect::Serve, "state {raw}");
    }
}

#[test]
fn d11_a_request_on_a_path_that_is_not_connected_closes_it() {
    let early = ServerState::Connecting.step(ServerEvent::Request);
    assert_eq!(early, (ServerState::Closing, ServerEffect::TearDown));
    // The path is closing: its connections are in error, so the client hears.
    let late = ServerState::Closing.step(ServerEvent::Request);
    assert_eq!(late, (ServerState::Closing, ServerEffect::Ignore));
}
