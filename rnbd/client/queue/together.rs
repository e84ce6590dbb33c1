// SPDX-License-Identifier: GPL-2.0

//! Sends requests that a task has submitted together.

use block_ext::mq::{
    HwQueue,
    RequestList, //
};
use rtrs_client::Submission;

use crate::client::{
    device::Device,
    queue::{
        chunk_of,
        compose,
        direction_of,
        given_back,
        io_queue_of,
        usual,
        InFlight,
        Queue, //
    }, //
};
use crate::proto::{
    io_state::IoState,
    wire::Io, //
};

/// Sends requests that are [`usual`], each hardware queue's together, up to the first other one.
/// The block layer passes the rest one by one; a single one as well, which takes less so.
pub(super) fn queue(mut list: RequestList<'_, Queue>) {
    while let Some(first) = list.first() {
        if list.is_single() || !queue_some(&mut list, first.hw) {
            return;
        }
    }
}

/// Sends the first requests of a list, those of one hardware queue. Returns whether there were any.
fn queue_some(list: &mut RequestList<'_, Queue>, hw: HwQueue<'_, Queue>) -> bool {
    let device = hw.queue();
    let taken = device.rtrs().submit_together(
        io_queue_of(&hw),
        || next(list, hw, device),
        |back| {
            let again = given_back(hw, device, back.error, back.transfer.into());
            if let Err(rejected) = again {
                rejected.requeue();
            }
        },
    );
    taken != 0
}

/// Takes the next request of a hardware queue from the list, if it is a [`usual`] one.
#[inline(always)]
fn next(
    list: &mut RequestList<'_, Queue>,
    hw: HwQueue<'_, Queue>,
    device: &Device,
) -> Option<Submission<InFlight, Io>> {
    let first = list
        .first()
        .filter(|first| first.hw.index() == hw.index())?;
    // It may have changed since the last one.
    let (Some(rw), IoState::Open(remote_id)) = (usual(first.command), device.io_state()) else {
        return None;
    };
    let note = device.cache().get().note_of(&rw);
    let (request, message) = compose(list.pop()?, (remote_id, rw, note));
    Some(Submission {
        tag: chunk_of(&request),
        direction: direction_of(rw.op),
        message,
        transfer: InFlight(request),
    })
}
