// SPDX-License-Identifier: GPL-2.0

//! Gfsds that say no, while others have the file.

use proto::gfarm::{
    auth::AuthError,
    gfmd::{
        self,
        Gfmd, //
    },
    open_file::{
        Effect,
        Event,
        OpenFile, //
    },
    replica::HostId,
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
    server, //
};

#[test]
fn a_gfsd_that_refuses_the_key_makes_way_for_another() {
    let fault = refused(AuthError::Denied);
    let no = Event::GfsdFailed(GfsdRequest::Connect, failure(fault, 0));
    let mut file = OpenFile::NEW;
    file.step(Event::Start);
    let choose = |file: &mut OpenFile, host| {
        let opened = Event::Opened(descriptor(3, 1), Some(HostId(host)));
        match file.step(opened) {
            Effect::Fail(errno) => Err(errno),
            effect => {
                assert_eq!(effect, Effect::Connect(HostId(host)));
                Ok(())
            }
        }
    };
    assert_eq!(choose(&mut file, 1), Ok(()));
    assert_eq!(file.step(no), Effect::Open(Some(descriptor(3, 1))));
    assert!(file.has_failed(HostId(1)), "another one is preferred");
    assert_eq!(choose(&mut file, 2), Ok(()));
    // One that is only down may come back.
    let down = Event::GfsdFailed(GfsdRequest::Connect, failure(Fault::TimedOut, 0));
    let mut waits = file;
    assert_eq!(waits.step(down), Effect::StartIn { pause_ms: 100 });
    waits.step(Event::Timer);
    assert_eq!(choose(&mut waits, 1), Ok(()));
    // All of them refuse it: that is what the reader is told, and not after a while.
    assert_eq!(file.step(no), Effect::StartIn { pause_ms: 100 });
    file.step(Event::Timer);
    assert_eq!(choose(&mut file, 1), Err(fault.errno()));
    assert_eq!(
        file.step(Event::Start),
        Effect::Open(Some(descriptor(3, 1)))
    );
    assert_eq!(choose(&mut file, 1), Ok(()), "the next read tries again");
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
