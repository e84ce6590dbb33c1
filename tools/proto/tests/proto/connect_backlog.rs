// SPDX-License-Identifier: GPL-2.0

//! The order in which connect requests are answered.

use proto::rtrs::{
    addr::Addr,
    connect_backlog::{
        next,
        replaced,
        Left,
        LEFT_MAX,
        WAITING_MAX, //
    },
    handshake::Connect,
    timeouts::ConnectTimeouts,
};

fn request(path: usize, recon_cnt: u16) -> Connect {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&path.to_ne_bytes());
    Connect {
        cid: 0,
        cid_num: 2,
        recon_cnt,
        sess_uuid: uuid,
        paths_uuid: [7; 16],
        first_conn: true,
        fences: true,
    }
}

#[test]
fn the_newest_that_may_be_answered_is_next() {
    assert_eq!(next([].into_iter()), None);
    assert_eq!(next([true, true, false].into_iter()), Some(1));
    assert_eq!(next([false; 3].into_iter()), None);
}

const fn source(last: u8) -> Addr {
    Addr::V4([10, 0, 0, last])
}

/// Returns what is given up for a request if these wait, all from one address.
fn replaced_of(newer: &Connect, waiting: &[Connect]) -> Option<usize> {
    replaced(newer, waiting.iter().map(|older| (older, source(1))))
}

#[test]
fn a_path_has_one_request_that_waits() {
    let waiting = [request(1, 1), request(2, 1), request(3, 1)];
    assert_eq!(replaced_of(&request(2, 2), &waiting), Some(1));
    assert_eq!(replaced_of(&request(4, 1), &waiting), None);
    // Who does not know the session takes no request of it away.
    let foreign = Connect {
        paths_uuid: [8; 16],
        ..request(2, 2)
    };
    assert_eq!(replaced_of(&foreign, &waiting), None);
    let full: Vec<Connect> = (0..WAITING_MAX).map(|path| request(path, 1)).collect();
    assert_eq!(replaced_of(&request(5, 2), &full), Some(5));
    assert_eq!(replaced_of(&request(WAITING_MAX, 1), &full), Some(0));
    assert_eq!(replaced_of(&request(WAITING_MAX, 1), &full[1..]), None);
}

#[test]
fn who_asks_without_end_takes_no_place_of_others() {
    // Twenty clients of two paths wait, and one asks for more and more paths.
    let mut waiting: Vec<(Connect, Addr)> = Vec::new();
    for path in 0..40 {
        waiting.push((request(path, 1), source(path as u8 / 2 + 1)));
    }
    for path in 40..2000 {
        let newest = request(path, 1);
        let list = waiting.iter().map(|(older, source)| (older, *source));
        if let Some(index) = replaced(&newest, list) {
            waiting.remove(index);
        }
        waiting.push((newest, source(200)));
    }
    assert_eq!(waiting.len(), WAITING_MAX);
    let others = waiting.iter().filter(|(_, from)| *from != source(200));
    assert_eq!(others.count(), 40);
    // The newest of those that ask for too much stay.
    assert!(waiting.iter().any(|(older, _)| *older == request(1999, 1)));
}

/// A client's path that asks until it is answered in time.
struct Asking {
    attempts: u32,
    gives_up_at_ms: u32,
    is_connected: bool,
}

/// Returns after how many milliseconds all of so many paths are connected to a server that has just
/// started, and takes `each_ms` for each; `take` chooses its next request of those that wait, of
/// which each is given up at its time. [`None`] after ten minutes.
fn all_connected_ms(
    paths: usize,
    each_ms: u32,
    take: impl Fn(&mut Vec<(usize, u32)>, u32) -> Option<usize>,
) -> Option<u32> {
    let new = |_| Asking {
        attempts: 0,
        gives_up_at_ms: 0,
        is_connected: false,
    };
    let mut clients: Vec<Asking> = (0..paths).map(new).collect();
    // By path, and when its client gives it up.
    let mut waiting: Vec<(usize, u32)> = Vec::new();
    let mut busy: Option<(usize, u32, u32)> = None;
    for now in 0..600_000 {
        for (path, client) in clients.iter_mut().enumerate() {
            // They do not ask in the same millisecond.
            let asks = now >= client.gives_up_at_ms && now % 97 == path as u32 % 97;
            if client.is_connected || !asks {
                continue;
            }
            client.gives_up_at_ms = now + ConnectTimeouts::again(client.attempts).step_ms;
            client.attempts += 1;
            waiting.push((path, client.gives_up_at_ms));
        }
        if let Some((path, gives_up_at_ms, _)) = busy.filter(|(_, _, ends)| *ends <= now) {
            clients[path].is_connected |= gives_up_at_ms > now;
            busy = None;
        }
        if busy.is_none() {
            busy = take(&mut waiting, now).map(|index| {
                let (path, gives_up_at_ms) = waiting.remove(index);
                (path, gives_up_at_ms, now + each_ms)
            });
        }
        if clients.iter().all(|client| client.is_connected) {
            return Some(now);
        }
    }
    None
}

#[test]
fn a_server_that_starts_serves_all_its_clients() {
    // Twenty clients of two paths; a path takes from a twentieth of a second to one.
    for each_ms in [50, 100, 200, 300, 500, 1000] {
        let newest = |waiting: &mut Vec<(usize, u32)>, now| {
            // The driver is told of what is given up, and drops it.
            waiting.retain(|(_, gives_up_at_ms)| *gives_up_at_ms > now);
            next(waiting.iter().map(|_| true))
        };
        let took_ms = all_connected_ms(40, each_ms, newest).expect("they are connected at last");
        // Some requests are given up while they are answered.
        let most_ms = 40 * each_ms * 3 / 2 + 1500;
        assert!(took_ms <= most_ms, "{each_ms} ms each: {took_ms} ms");
        // In their order, none is answered in time, in ten minutes.
        let oldest = |waiting: &mut Vec<(usize, u32)>, _| (!waiting.is_empty()).then_some(0);
        let in_order_ms = all_connected_ms(40, each_ms, oldest);
        println!("{each_ms} ms each: {took_ms} ms, in their order {in_order_ms:?}");
        if each_ms >= 300 {
            assert_eq!(in_order_ms, None, "{each_ms} ms each, in their order");
        }
    }
}

#[test]
fn requests_given_up_faster_than_they_are_dropped_have_a_bound() {
    let mut left = Left::NONE;
    let most = (0..10_000).filter(|_| left.add(source(1))).count();
    assert_eq!(most, LEFT_MAX / 2);
    // One that is dropped makes room for one.
    for _ in 0..3 {
        left.dropped(source(1));
        assert!(left.add(source(1)) && !left.add(source(1)));
    }
    (0..most).for_each(|_| left.dropped(source(1)));
    assert_eq!(left, Left::NONE);
    left.dropped(source(1));
    assert_eq!(left, Left::NONE);
}

#[test]
fn who_asks_without_end_has_no_request_of_others_rejected() {
    // So many do, and others ask for a path anew.
    for many in 1..8 {
        let mut left = Left::NONE;
        for _ in 0..100 {
            for one in 0..many {
                let _ = left.add(source(100 + one));
            }
        }
        let room = LEFT_MAX / (usize::from(many) + 1);
        for one in 0..room {
            assert!(left.add(source(one as u8)), "{many} {one}");
        }
    }
    // All together have a bound.
    let mut left = Left::NONE;
    let all = (0..=255).filter(|one| left.add(source(*one))).count();
    assert_eq!(all, LEFT_MAX);
}
