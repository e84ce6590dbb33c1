// SPDX-License-Identifier: GPL-2.0

//! Records of state machines in the kernel log. `tools/replay` gives their events to the same
//! machines and compares what was decided with what the driver did.
//!
//! ```text
//! rtrs_client: path 1a2b3c4d 12 did 1 64
//! ```
//!
//! The name of the machine, a random number, the number of the line, and an [`Entry`].

use core::{
    fmt,
    marker::PhantomData,
    ops::Deref, //
};

use ferro_proto::record::{
    Entry,
    Machine, //
};
use kernel_ext::random;

/// The kernel log, as far as a module's records go there: see [`trace_log!`](crate::trace_log).
pub trait Log {
    /// Returns whether records are logged.
    fn is_on() -> bool;

    /// Logs a line at the debug level.
    fn debug(line: fmt::Arguments<'_>);
}

/// A state machine whose steps are recorded: they are made through this type only.
///
/// The lock that guards it orders the lines of its record. Records are for tests: a line is logged
/// with that lock held.
pub struct Traced<M, L> {
    machine: M,
    number: u32,
    /// Lines are counted also while they are not logged: a replay sees what it lacks.
    next_line: u32,
    log: PhantomData<fn(L)>,
}

impl<M: Machine, L: Log> Traced<M, L> {
    /// Begins the record of a machine in its first state.
    pub fn new(machine: M) -> Self {
        let mut number = [0; 4];
        random::fill(&mut number);
        Self {
            machine,
            number: u32::from_ne_bytes(number),
            next_line: 0,
            log: PhantomData,
        }
    }

    /// Handles an event and records what was decided.
    pub fn step(&mut self, event: M::Event) -> M::Effect {
        let effect = self.machine.handle(event);
        let (number, line) = self.next_line();
        Self::log(
            number,
            line,
            Entry::Step {
                event,
                effect,
                after: &self.machine,
            },
        );
        effect
    }

    /// Records what the driver is about to do.
    pub fn did(&mut self, operation: M::Operation) {
        let (number, line) = self.next_line();
        Self::log(number, line, Entry::Did(operation));
    }

    /// Returns the number of the machine and that of its next line.
    fn next_line(&mut self) -> (u32, u32) {
        let line = self.next_line;
        self.next_line = line.wrapping_add(1);
        (self.number, line)
    }

    fn log(number: u32, line: u32, entry: Entry<'_, M>) {
        if L::is_on() {
            L::debug(format_args!("{} {number:08x} {line} {entry}\n", M::NAME));
        }
    }
}

/// The machine, for questions that change nothing.
impl<M, L> Deref for Traced<M, L> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.machine
    }
}

/// Defines the module's parameter `trace`, `TraceLog`, which is the [`Log`] of its records, and
/// `Traced`, a state machine that is recorded there.
#[macro_export]
macro_rules! trace_log {
    () => {
        ::kernel_ext::module_param_ranged!(
            TRACE: 0, 1,
            "trace",
            0,
            "Log each step of the module's state machines at the debug level, 0 or 1 (default: 0)"
        );

        /// The records of this module in the kernel log.
        pub(crate) struct TraceLog;

        /// A state machine of this module.
        pub(crate) type Traced<M> = $crate::trace::Traced<M, TraceLog>;

        impl $crate::trace::Log for TraceLog {
            fn is_on() -> bool {
                TRACE.get() != 0
            }

            fn debug(line: ::core::fmt::Arguments<'_>) {
                // `pr_debug!` of 7.2 does nothing in a kernel without debug assertions.
                ::kernel::print_macro!(
                    ::kernel::print::format_strings::DEBUG,
                    false,
                    "{}",
                    line
                );
            }
        }
    };
}
