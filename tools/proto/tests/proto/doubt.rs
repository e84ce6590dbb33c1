// SPDX-License-Identifier: GPL-2.0

//! The doubts of a client about an OPEN whose answer it has not got, and a server's numbers.

use ferro_proto::errno::Errno;
use proto::{
    rnbd::{
        control::DeviceState,
        doubt::{
            has_nothing_open,
            Doubt,
            Heard,
            Settle,
            END_MS, //
        },
        io_state::IoState,
        slot::{
            Known,
            Slot, //
        },
    },
    rtrs::{
        HEARTBEAT_INTERVAL_MS,
        HEARTBEAT_MISSED_MAX, //
    },
};

const STATES: [DeviceState; 5] = [
    DeviceState::Init,
    DeviceState::Mapped,
    DeviceState::Disconnected,
    DeviceState::Unmapped,
    DeviceState::Fenced,
];

fn after(heard: &[Heard]) -> Doubt {
    let mut doubt = Doubt::NONE;
    heard.iter().for_each(|heard| doubt.hear(*heard));
    doubt
}

#[test]
fn a_doubt_is_what_the_server_may_have_done() {
    use Heard::{
        Closed,
        NotSent,
        Nothing,
        Number,
        Refused, //
    };
    assert!(!Doubt::NONE.is_any());
    for (heard, is_any) in [
        (&[NotSent][..], false),
        (&[Refused], false),
        (&[Nothing], true),
        (&[Number(0)], true),
        // The first is under way still.
        (&[Nothing, NotSent], true),
        // The first one may be of another writer.
        (&[Nothing, Refused], true),
        (&[Refused, Nothing], true),
        (&[Closed(0)], false),
        // Answers to validations of a path, of which the first comes while the device is unmapped.
        (&[Number(0), Closed(0)], false),
        (&[Number(1), Number(0), Closed(0)], false),
        // It was opened anew, and the other number has nothing open.
        (&[Number(0), Number(1), Closed(0)], true),
        // The OPEN without an answer may be carried out after the CLOSE.
        (&[Nothing, Closed(0)], true),
        (&[Nothing, Number(0), Closed(0)], true),
        (&[Number(0), Nothing, Closed(0)], true),
    ] {
        assert_eq!(after(heard).is_any(), is_any, "{heard:?}");
        let mut doubt = after(heard);
        doubt.end();
        assert!(!doubt.is_any());
    }
}

#[test]
fn a_doubt_ends_with_the_message_that_has_begun_it() {
    let mut doubt = after(&[Heard::Nothing]);
    let killed = doubt.generation();
    let mut other = doubt;
    doubt.refuse(killed);
    assert!(!doubt.is_any());
    // Another writer is killed while the end of that message is waited for.
    other.hear(Heard::Nothing);
    other.refuse(killed);
    assert!(other.is_any());
    other.refuse(other.generation());
    assert!(!other.is_any());
}

#[test]
fn a_client_asks_for_no_name_that_another_device_has() {
    let doubt = after(&[Heard::Nothing]);
    let namesakes = [
        Some(IoState::Open(3)),
        Some(IoState::OpenForceFua(3)),
        Some(IoState::Queueing),
        Some(IoState::Failing),
    ];
    for namesake in namesakes {
        let settle = doubt.settle(DeviceState::Unmapped, namesake);
        let is_used = namesake.is_some_and(|state| state.remote_id().is_some());
        let wanted = match is_used {
            // The OPEN of that one came later, and has found or ended what was open.
            true => Settle::Nothing,
            false => Settle::HandOver,
        };
        assert_eq!(settle, wanted, "{namesake:?}");
    }
    assert_eq!(doubt.settle(DeviceState::Unmapped, None), Settle::Ask);
}

#[test]
fn a_device_that_is_opened_in_the_end_is_asked_for_by_that() {
    for state in STATES {
        assert_eq!(Doubt::NONE.settle(state, None), Settle::Nothing, "{state}");
        let wanted = match state {
            DeviceState::Init | DeviceState::Disconnected => Settle::Nothing,
            // Its writer of remap_device may be gone, and nobody opens it any more.
            DeviceState::Mapped | DeviceState::Fenced | DeviceState::Unmapped => Settle::Ask,
        };
        assert_eq!(after(&[Heard::Nothing]).settle(state, None), wanted);
    }
}

#[test]
fn an_unmapped_device_that_the_server_has_not_closed_is_in_doubt() {
    for was in STATES {
        for closed in [None, Some(0)] {
            let may_be_open = matches!(was, DeviceState::Mapped | DeviceState::Disconnected);
            let unmap = Heard::after_unmap(was, closed);
            let is_any = may_be_open && closed.is_none();
            assert_eq!(after(&[unmap]).is_any(), is_any, "{was} {closed:?}");
            // An OPEN without an answer is another matter.
            assert!(after(&[Heard::Nothing, unmap]).is_any());
            // Of one that was answered while the device was being unmapped, nothing is left.
            let is_any = closed.is_none();
            let validated = after(&[Heard::Number(0), unmap]);
            assert_eq!(validated.is_any(), is_any, "{was} {closed:?}");
        }
    }
}

#[test]
fn nothing_is_asked_over_a_session_that_is_being_closed() {
    for is_closing in [false, true] {
        assert!(Doubt::NONE.is_settled(is_closing));
        for heard in [Heard::Nothing, Heard::Number(0)] {
            assert_eq!(after(&[heard]).is_settled(is_closing), is_closing);
        }
    }
}

#[test]
fn an_error_ends_a_settlement_unless_the_server_has_not_looked() {
    for number in 1..200 {
        let error = Errno::new(number).unwrap();
        let has_looked = ![Errno::EAGAIN, Errno::ENOMEM].contains(&error);
        assert_eq!(has_nothing_open(error), has_looked, "{error:?}");
    }
}

/// Settles as the client does: it asks until it is answered, and then closes until that is
/// answered. `lost` says of each message whether it is lost before the server has it, or its answer
/// is. Returns the number of messages.
fn settle(doubt: &mut Doubt, server: &mut Numbers, lost: &mut dyn FnMut() -> [bool; 2]) -> usize {
    let mut sent = 0;
    while doubt.settle(DeviceState::Unmapped, None) == Settle::Ask {
        let [message, answer] = lost();
        sent += 1;
        let open = (!message).then(|| server.open("dm-0", true, |_| {}));
        let Some(number) = open.filter(|_| !answer) else {
            doubt.hear(Heard::Nothing);
            continue;
        };
        doubt.hear(Heard::Number(number as u32));
        let [message, answer] = lost();
        sent += 1;
        if !message {
            assert!(server.0[number].close(false, |_| true).is_some());
        }
        if !message && !answer {
            doubt.end();
        }
    }
    sent
}

#[test]
fn what_an_outage_has_left_open_is_closed_however_often_messages_are_lost() {
    // Both paths are lost at the client only, before its CLOSE comes: the session goes on for the
    // server. Each way in which the next six messages are lost.
    for losses in 0..1_u32 << 12 {
        let mut server = Numbers::default();
        let number = server.open("dm-0", true, |_| {});
        let mut doubt = after(&[Heard::after_unmap(DeviceState::Disconnected, None)]);
        let mut left = losses;
        let mut lost = || {
            let now = [left & 1 != 0, left & 2 != 0];
            left >>= 2;
            now
        };
        let sent = settle(&mut doubt, &mut server, &mut lost);
        assert!(sent <= 8, "{losses:#x}: {sent} messages");
        assert_eq!(
            server.0[number].device(),
            None,
            "{losses:#x}: it is open for no one"
        );
    }
}

/// The server: what it has open under each number, by name and whether it may be written.
#[derive(Default)]
struct Numbers(Vec<Slot<(&'static str, bool)>>);

impl Numbers {
    /// Carries out an OPEN; `meanwhile` runs while the device itself is opened, or fails to.
    fn open(
        &mut self,
        name: &'static str,
        writes: bool,
        meanwhile: impl FnOnce(&mut Self),
    ) -> usize {
        let known = |slot: &Slot<(&str, bool)>| slot.device().is_some_and(|known| known.0 == name);
        let mut reserved = None;
        if let Some(number) = self.0.iter().position(known) {
            let is_asked_for = self.0[number].device().unwrap().1 == writes;
            match Known::new(is_asked_for, true) {
                Known::Answer => return number,
                Known::Close { retire } => {
                    assert!(self.0[number].close(retire, |_| true).is_some());
                    reserved = (!retire).then_some(number);
                }
            }
        }
        meanwhile(self);
        let number = reserved.unwrap_or_else(|| self.reserve());
        self.0[number].open((name, writes)).unwrap();
        number
    }

    fn reserve(&mut self) -> usize {
        let free = self.0.iter_mut().position(Slot::reserve);
        free.unwrap_or_else(|| {
            self.0.push(Slot::Reserved);
            self.0.len() - 1
        })
    }
}

#[test]
fn what_a_killed_writer_asked_for_takes_no_disk_from_the_next_writer() {
    // `is_first`: the first device settles before the second has asked.
    for is_first in [false, true] {
        let mut server = Numbers::default();
        let mut killed = Doubt::NONE;
        // A writer of map_device, access_mode=ro, is killed: its OPEN is answered to no one.
        let open = server.open("dm-0", false, |_| {});
        killed.hear(Heard::Nothing);
        let settle = |server: &mut Numbers, next: Option<usize>| {
            let namesake = Some(next.map_or(IoState::Queueing, |id| IoState::Open(id as u32)));
            match killed.settle(DeviceState::Unmapped, namesake) {
                Settle::Ask => server.open("dm-0", false, |_| {}),
                Settle::Nothing | Settle::HandOver => open,
            }
        };
        if is_first {
            settle(&mut server, None);
        }
        // The user maps it with access_mode=rw.
        let used = server.open("dm-0", true, |_| {});
        settle(&mut server, Some(used));
        assert_eq!(server.0[used].device(), Some(&("dm-0", true)));
    }
}

#[test]
fn a_number_goes_to_no_other_disk_while_its_own_is_opened_anew() {
    let mut server = Numbers::default();
    let used = server.open("dm-0", true, |_| {});
    // A client that does so has its reasons, and uses the number all the same.
    let mut other = None;
    let again = server.open("dm-0", false, |server| {
        other = Some(server.open("ram1", true, |_| {}));
    });
    assert_eq!(again, used);
    assert_ne!(
        other,
        Some(used),
        "requests of dm-0 and of ram1 have one number"
    );
}

// Who settles waits until a lost path is noticed.
const _: () = assert!(END_MS >= HEARTBEAT_INTERVAL_MS * (HEARTBEAT_MISSED_MAX + 1));
