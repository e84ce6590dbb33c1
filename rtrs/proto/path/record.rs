// SPDX-License-Identifier: GPL-2.0

//! The records that a server writes of its paths.

use ferro_proto::{
    record::Machine,
    words, //
};

use super::{
    ClientState,
    ServerEffect,
    ServerEvent,
    ServerState, //
};

/// The next action of a server for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Queues a run of the teardown.
    QueueTearDown,
    /// Sends the info response.
    Respond,
    /// Runs the teardown.
    TearDown,
    /// Ends the run, which could not drain the connections, and queues another one.
    TearDownIn {
        /// Milliseconds.
        pause_ms: u32,
    },
    /// Says, to who asks by a fence message, that the connections are drained.
    Drained,
    /// Removes the path from its session.
    Release,
}

impl Machine for ServerState {
    const NAME: &'static str = "path";
    type Event = ServerEvent;
    type Effect = ServerEffect;
    type Operation = Operation;

    fn handle(&mut self, event: ServerEvent) -> ServerEffect {
        let (next, effect) = self.step(event);
        *self = next;
        effect
    }
}

words!(state ClientState);

words!(state ServerState);

words!(enum ServerEvent {
    1 => InfoRequest { complete },
    2 => Request,
    3 => Close,
    4 => TornDown,
});

words!(enum ServerEffect {
    0 => Ignore,
    1 => GoLive,
    2 => Serve,
    3 => TearDown,
    4 => Release,
});

words!(enum Operation {
    1 => QueueTearDown,
    2 => Respond,
    3 => TearDown,
    4 => TearDownIn { pause_ms },
    5 => Release,
    6 => Drained,
});
