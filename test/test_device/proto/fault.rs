// SPDX-License-Identifier: GPL-2.0

//! Faults on demand: rules that say which work request meets which fault.

use ferro_proto::text;

/// The kind of a work request, to a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A send.
    Send,
    /// An RDMA write.
    Write,
    /// An RDMA read.
    Read,
    /// An invalidation of an own key.
    Invalidate,
    /// A registration.
    Register,
}

/// The fault that happens instead of what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The work request is not posted; the call returns this error number.
    Post(i32),
    /// The peer's answer to a request comes before the request is posted: the registration waits
    /// for the write behind it; then a receive completes as by a write whose immediate is `imm`
    /// with the number in it that the request's has, moved by `shift` bits; and a little later both
    /// are posted.
    Answer {
        /// The immediate of an answer to number 0.
        imm: u32,
        /// The bits behind the number in a request's immediate.
        shift: u32,
    },
    /// The work request is not executed and completes with this `enum ib_wc_status`; the queue pair
    /// enters the error state.
    Status(u32),
    /// The work request completes with success and never reaches the peer.
    Lose,
    /// The RDMA write or send arrives with this bit flipped, counted from the start of its bytes.
    Flip(u32),
    /// The work request is executed; its completion is lost, as by a queue that is full.
    Overrun,
    /// The work request is executed; then the device gives the queue pair up: it says so by an
    /// event (`IB_EVENT_QP_FATAL`), and the queue pair enters the error state.
    Fatal,
    /// The queue pair refuses to enter the error state when it is asked to; the call returns this
    /// error number. Lasts until the rules are forgotten.
    Refuse(i32),
    /// The queue pair does not flush what is posted to it while it is in the error state. Lasts
    /// until the rules are forgotten.
    NoFlush,
    /// The queue pair is in the error state once more when a call has moved it from there to the
    /// reset state, as where the device's software still works off the former.
    LateError,
    /// The completions of the queue pair's receives stay in the completion queue, and those behind
    /// them, as if its software stood still; the peer's sends complete. Lasts until the rules are
    /// forgotten.
    HoldReceives,
    /// The device fails, and says so by an event (`IB_EVENT_DEVICE_FATAL`): nothing is executed,
    /// and nothing more can be posted, created or changed. Only its driver's drain flushes what is
    /// posted. Lasts until the rules are forgotten.
    DeviceFatal,
}

/// The place where a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The call that posts.
    Post,
    /// The execution in the device.
    Execution,
    /// The completion queue.
    Completion,
    /// The call that asks for the error state.
    ErrorState,
    /// The flush of the work requests of a queue pair in the error state.
    Flush,
    /// The call that asks for the reset state.
    Reset,
    /// The call that polls the completion queue.
    Poll,
    /// The whole device.
    Device,
}

/// A rule that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRule;

/// A rule: of the work requests that fit, the `nth` and those after it, `times` in all, have the
/// fault. One that lasts has neither, and is for all that its queue pair does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    fault: Fault,
    kind: Option<Kind>,
    qp: Option<u32>,
    /// The bytes of the work request.
    bytes: Option<u32>,
    /// Work requests that fit and come before the first fault.
    before: u32,
    /// Faults to come.
    times: u32,
}

/// The rules of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    rules: [Option<Rule>; Self::MAX],
    done: u32,
}

impl Fault {
    /// Returns the immediate of the answer to the request with this immediate.
    pub fn answer(self, request: u32) -> Option<u32> {
        match self {
            Self::Answer { imm, shift } => {
                let number = request & ((1 << IMM_BITS) - 1);
                Some(imm | number.checked_shr(shift)?)
            }
            _ => None,
        }
    }

    /// Returns where it happens.
    pub const fn place(self) -> Place {
        match self {
            Self::Post(_) | Self::Answer { .. } => Place::Post,
            Self::Status(_) | Self::Lose | Self::Flip(_) => Place::Execution,
            Self::Overrun | Self::Fatal => Place::Completion,
            Self::Refuse(_) => Place::ErrorState,
            Self::NoFlush => Place::Flush,
            Self::LateError => Place::Reset,
            Self::HoldReceives => Place::Poll,
            Self::DeviceFatal => Place::Device,
        }
    }

    /// Returns whether it is one of a queue pair, or of the device, which lasts, and not of a work
    /// request.
    const fn lasts(self) -> bool {
        matches!(
            self,
            Self::Refuse(_) | Self::NoFlush | Self::HoldReceives | Self::DeviceFatal
        )
    }
}

/// The bits of a request's immediate, below those of its type.
const IMM_BITS: u32 = 28;

/// Reads a decimal number.
fn number(text: &[u8]) -> Option<u32> {
    text::parse_u64(text, 10)
        .ok()
        .and_then(|number| u32::try_from(number).ok())
}

impl Rule {
    /// Reads a rule: `name=value` words, of which `fault` must be there.
    fn parse(text: &[u8]) -> Option<Self> {
        let (mut name, mut status, mut errno, mut bit) = (None, None, None, None);
        let (mut imm, mut shift) = (None, None);
        let (mut kind, mut qp, mut bytes) = (None, None, None);
        let (mut nth, mut times) = (None, None);
        let words = text.split(u8::is_ascii_whitespace);
        for word in words.filter(|word| !word.is_empty()) {
            let at = word.iter().position(|c| *c == b'=')?;
            let (key, value) = (word.get(..at)?, word.get(at.checked_add(1)?..)?);
            match key {
                b"fault" => name = Some(value),
                b"status" => status = Some(number(value)?),
                b"errno" => errno = Some(text::parse_i32(value, 10).ok()?),
                b"bit" => bit = Some(number(value)?),
                b"bytes" => bytes = Some(number(value)?),
                b"imm" => imm = Some(number(value)?),
                b"shift" => shift = Some(number(value)?),
                b"on" => kind = Some(Kind::parse(value)?),
                b"qp" => qp = Some(number(value)?),
                b"nth" => nth = Some(number(value)?),
                b"times" => times = Some(number(value)?),
                _ => return None,
            }
        }
        let fault = match (name?, status, errno, bit) {
            (b"answer", None, None, None) if kind == Some(Kind::Register) => Fault::Answer {
                imm: imm.take()?,
                shift: shift.take().filter(|shift| *shift < IMM_BITS)?,
            },
            (b"post", None, Some(errno @ 1..=4095), None) => Fault::Post(errno),
            (b"status", Some(status @ 1..=22), None, None) => Fault::Status(status),
            (b"lose", None, None, None) => Fault::Lose,
            (b"flip", None, None, Some(bit)) if matches!(kind, Some(Kind::Write | Kind::Send)) => {
                Fault::Flip(bit)
            }
            (b"overrun", None, None, None) => Fault::Overrun,
            (b"fatal", None, None, None) => Fault::Fatal,
            (b"refuse_error_state", None, Some(errno @ 1..=4095), None) => Fault::Refuse(errno),
            (b"no_flush", None, None, None) => Fault::NoFlush,
            (b"late_error", None, None, None) if kind.is_none() => Fault::LateError,
            (b"hold_receives", None, None, None) => Fault::HoldReceives,
            (b"device_fatal", None, None, None) if qp.is_none() => Fault::DeviceFatal,
            _ => return None,
        };
        let counts = kind.is_some() || nth.is_some() || times.is_some();
        // Only where it is executed is the length of a work request known.
        let is_sized = bytes.is_some() && fault.place() != Place::Execution;
        let is_answered = imm.is_some() || shift.is_some();
        if is_answered || fault.lasts() && counts || times == Some(0) || is_sized {
            return None;
        }
        Some(Self {
            fault,
            kind,
            qp,
            bytes,
            before: nth.unwrap_or(1).checked_sub(1)?,
            times: times.unwrap_or(1),
        })
    }

    /// Returns the fault of a work request of `bytes` bytes, and counts it.
    fn ask(&mut self, place: Place, qp: u32, kind: Kind, bytes: u64) -> Option<Fault> {
        let fits = self.kind.is_none_or(|wanted| wanted == kind)
            && self.bytes.is_none_or(|wanted| u64::from(wanted) == bytes);
        if fits {
            self.count(place, qp)
        } else {
            None
        }
    }

    /// Returns the fault of what the queue pair does at a place, and counts it.
    fn count(&mut self, place: Place, qp: u32) -> Option<Fault> {
        let fits = self.fault.place() == place
            && self.times > 0
            && self.qp.is_none_or(|wanted| wanted == qp);
        if !fits {
            return None;
        }
        if let Some(before) = self.before.checked_sub(1) {
            self.before = before;
            return None;
        }
        self.times = self.times.saturating_sub(1);
        Some(self.fault)
    }
}

impl Kind {
    fn parse(text: &[u8]) -> Option<Self> {
        Some(match text {
            b"send" => Self::Send,
            b"write" => Self::Write,
            b"read" => Self::Read,
            b"invalidate" => Self::Invalidate,
            b"register" => Self::Register,
            _ => return None,
        })
    }
}

impl Faults {
    /// The rules at most.
    pub const MAX: usize = 16;

    /// Adds a rule. A rule whose faults have all happened makes room.
    ///
    /// # Errors
    ///
    /// Returns [`BadRule`] if the text is none, or all places are in use.
    pub fn add(&mut self, text: &str) -> Result<(), BadRule> {
        let rule = Rule::parse(text.as_bytes()).ok_or(BadRule)?;
        let free = |place: &&mut Option<Rule>| place.is_none_or(|known| known.times == 0);
        *self.rules.iter_mut().find(free).ok_or(BadRule)? = Some(rule);
        Ok(())
    }

    /// Forgets all rules.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the fault that a work request of the queue pair `qp` meets at this place. Each rule
    /// that fits counts it, until one applies. `bytes` is its length where it is executed.
    pub fn ask(&mut self, place: Place, qp: u32, kind: Kind, bytes: u64) -> Option<Fault> {
        let mut rules = self.rules.iter_mut().flatten();
        let fault = rules.find_map(|rule| rule.ask(place, qp, kind, bytes))?;
        self.done = self.done.saturating_add(1);
        Some(fault)
    }

    /// Returns whether the queue pair `qp` is in the error state after it was reset. Each rule that
    /// fits counts the reset, until one applies.
    pub fn is_late_error(&mut self, qp: u32) -> bool {
        let mut rules = self.rules.iter_mut().flatten();
        let is_late = rules.any(|rule| rule.count(Place::Reset, qp).is_some());
        self.done = self.done.saturating_add(is_late.into());
        is_late
    }

    /// Returns the fault that lasts for the queue pair `qp` at this place. One that is not
    /// connected has only those of rules that name it.
    pub fn lasting(&self, place: Place, qp: u32, is_connected: bool) -> Option<Fault> {
        let mut rules = self.rules.iter().flatten();
        let rule = rules.find(|rule| {
            rule.fault.lasts()
                && rule.fault.place() == place
                && rule.qp.map_or(is_connected, |wanted| wanted == qp)
        })?;
        Some(rule.fault)
    }

    /// Returns whether the device has failed.
    pub fn is_device_dead(&self) -> bool {
        let mut rules = self.rules.iter().flatten();
        rules.any(|rule| rule.fault == Fault::DeviceFatal)
    }

    /// Returns how many faults have happened.
    pub const fn done(&self) -> u32 {
        self.done
    }

    /// Returns how many faults are to come; each rule that lasts is one.
    pub fn to_come(&self) -> u32 {
        let times = self.rules.iter().flatten().map(|rule| rule.times);
        times.fold(0, u32::saturating_add)
    }
}
