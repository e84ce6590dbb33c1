// SPDX-License-Identifier: GPL-2.0

//! A server's path: `rtrs/server/path.rs`.

use proto::rtrs::path::{
    record::Operation,
    ServerEffect,
    ServerEvent,
    ServerState, //
};

use crate::replay::Rules;

/// The state of the driver of a server's path, as far as the record shows it.
#[derive(Default)]
pub(crate) struct ServerPath {
    /// The teardown runs.
    is_running: bool,
    /// Has drained the connections.
    is_drained: bool,
}

impl Rules for ServerPath {
    type Machine = ServerState;

    const FIRST: ServerState = ServerState::Connecting;

    fn operations(_event: &ServerEvent, effect: &ServerEffect) -> Vec<Operation> {
        match effect {
            // What a client sends before it has the info response is not served.
            ServerEffect::Ignore | ServerEffect::Serve => vec![],
            ServerEffect::GoLive => vec![Operation::Respond],
            ServerEffect::TearDown => vec![Operation::QueueTearDown],
            ServerEffect::Release => vec![Operation::Release],
        }
    }

    fn is_under_lock(_operation: &Operation) -> bool {
        false
    }

    /// Set-up and teardown are one work item, which runs once at a time.
    fn check(&self, _state: &ServerState, event: &ServerEvent) -> Result<(), String> {
        match event {
            ServerEvent::InfoRequest { .. } if self.is_running => {
                Err("set up while it is torn down".into())
            }
            ServerEvent::TornDown if !self.is_running => Err("no teardown runs".into()),
            ServerEvent::TornDown if !self.is_drained => Err("torn down, not drained".into()),
            _ => Ok(()),
        }
    }

    fn stepped(&mut self, event: &ServerEvent, _effect: &ServerEffect) {
        if *event == ServerEvent::TornDown {
            self.is_running = false;
        }
    }

    fn may(&self, state: &ServerState, operation: &Operation) -> Result<bool, String> {
        match operation {
            Operation::TearDown if *state == ServerState::Closing && !self.is_running => Ok(true),
            Operation::TearDownIn { .. } | Operation::Drained
                if self.is_running && !self.is_drained =>
            {
                Ok(true)
            }
            Operation::TearDown | Operation::TearDownIn { .. } | Operation::Drained => {
                let Self {
                    is_running,
                    is_drained,
                } = self;
                Err(format!(
                    "{operation:?} in {state:?}, running: {is_running}, drained: {is_drained}"
                ))
            }
            Operation::QueueTearDown | Operation::Respond | Operation::Release => Ok(false),
        }
    }

    fn done(&mut self, operation: &Operation) {
        match operation {
            Operation::TearDown => self.is_running = true,
            Operation::TearDownIn { .. } => self.is_running = false,
            Operation::Drained => self.is_drained = true,
            Operation::QueueTearDown | Operation::Respond | Operation::Release => {}
        }
    }

    fn end(&self, state: &ServerState) -> Result<(), String> {
        if self.is_running || *state == ServerState::Closing {
            return Err("the teardown has no end".into());
        }
        Ok(())
    }
}
