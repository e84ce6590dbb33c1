// SPDX-License-Identifier: GPL-2.0

//! The state of a mapped device.

use proto::{
    common::errno::Errno,
    rnbd::{
        control::DeviceState,
        io_state::IoState, //
    },
};

const STATES: [DeviceState; 5] = [
    DeviceState::Init,
    DeviceState::Mapped,
    DeviceState::Disconnected,
    DeviceState::Unmapped,
    DeviceState::Fenced,
];

#[test]
fn only_a_mapped_device_is_fenced_by_an_answer() {
    let io_states = [
        IoState::Open(1),
        IoState::OpenForceFua(1),
        IoState::Queueing,
    ];
    for state in STATES {
        for io_state in io_states {
            assert_eq!(state.seen(io_state), state);
        }
        let seen = state.seen(IoState::Failing);
        if state == DeviceState::Mapped {
            assert_eq!(seen, DeviceState::Fenced);
        } else {
            assert_eq!(seen, state);
        }
    }
}

#[test]
fn a_device_is_opened_unless_it_is_unmapped_or_an_outage_has_begun() {
    for state in STATES {
        let opened = state.check_opened(true);
        match state {
            DeviceState::Unmapped => assert_eq!(opened, Err(Errno::ENOENT)),
            DeviceState::Init => assert_eq!(opened, Ok(false)),
            _ => assert_eq!(opened, Ok(true)),
        }
        let late = state.check_opened(false);
        match state {
            DeviceState::Unmapped => assert_eq!(late, Err(Errno::ENOENT)),
            _ => assert_eq!(late, Err(Errno::ECONNABORTED)),
        }
    }
}

#[test]
fn an_outage_takes_a_mapped_device_and_gives_it_back() {
    for state in STATES {
        assert_eq!(state.queues_in_outage(), state == DeviceState::Mapped);
        let is_out = state == DeviceState::Disconnected;
        assert_eq!(state.fails_with_outage(), is_out);
        // A fenced device stays closed until it is asked for.
        assert_eq!(state.is_opened_after_outage(), is_out);
        let may_be_asked_for = is_out || state == DeviceState::Fenced;
        assert_eq!(state.check_remap().is_ok(), may_be_asked_for);
        // What the server has closed since the last request is open by the client's state.
        assert_eq!(state.asks_before_remap(), state == DeviceState::Mapped);
    }
}
