// SPDX-License-Identifier: GPL-2.0

//! Gfsds that say no, while others have the file.

use proto::gfarm::{
    auth::AuthError,
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
    failure,
    refused, //
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
