// SPDX-License-Identifier: GPL-2.0

//! The records that a driver writes of a session's paths and outages.

use ferro_proto::{
    record::Machine,
    words, //
};

use super::{
    super::outage::{
        self,
        FastIoFail,
        Outage, //
    },
    Admission,
    Availability,
    Conditions,
    Effect,
    Event,
    Reopening, //
};

type OutageEffect = outage::Effect;
type OutageEvent = outage::Event;

/// The next action of a driver for a session; with its mutex held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Admits IO to a path that is connected.
    Admit(Admission),
    /// Has the upper layer requeue its requests.
    Requeue,
    /// Starts the timer of the outage.
    StartTimer {
        /// The time when it expires.
        until_ms: u64,
    },
    /// Stops the timer of the outage.
    StopTimer,
    /// Has the upper layer fail the queued IO.
    FailQueued,
    /// Queues the work item that has the upper layer make the session usable.
    ReopenIn {
        /// Milliseconds.
        pause_ms: u32,
    },
    /// Has the upper layer make the session usable; without the mutex.
    Reopen(Reopening),
}

impl Machine for Availability {
    const NAME: &'static str = "availability";
    type Event = Event;
    type Effect = Effect;
    type Operation = Operation;

    fn handle(&mut self, event: Event) -> Effect {
        self.step(event)
    }
}

words!(struct Availability { is_open, paths, outage, outages });

words!(struct Admission { outages });

words!(struct Reopening { outages });

words!(struct Conditions { now_ms, setting, is_away });

words!(enum FastIoFail { 0 => Off, 1 => After(seconds) });

words!(enum Outage {
    0 => Up,
    1 => Queueing { since_ms, until_ms },
    2 => Failing { since_ms },
    3 => Closed,
});

words!(enum OutageEvent {
    1 => PathUp,
    2 => LastPathDown { now_ms, setting },
    3 => DeadlinePassed { now_ms },
    4 => SettingChanged { now_ms, setting },
    5 => Closed,
});

words!(enum OutageEffect {
    0 => Ignore,
    1 => Queue { until_ms },
    2 => Resume,
    3 => FailQueued,
});

words!(enum Event {
    1 => Opened(conditions),
    2 => PathUp,
    3 => PathDown(conditions),
    4 => Reopened { reopening, succeeded },
    5 => Outage(event),
});

words!(enum Effect {
    0 => Ignore,
    1 => BeginOutage(effect),
    2 => Outage(effect),
    3 => ReopenIn { pause_ms },
});

words!(enum Operation {
    1 => Admit(admission),
    2 => Requeue,
    3 => StartTimer { until_ms },
    4 => StopTimer,
    5 => FailQueued,
    6 => ReopenIn { pause_ms },
    7 => Reopen(reopening),
});
