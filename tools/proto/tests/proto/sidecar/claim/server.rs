// SPDX-License-Identifier: GPL-2.0

//! A server of the model: what it may do next.

use proto::sidecar::claim::{
    mark::Found,
    Claim,
    Step,
    Timing, //
};

const TICKS: Timing = Timing {
    interval_ms: 1,
    settle_ms: 1,
    lease_ms: 2,
    stale_ms: 4,
};
/// The ticks after its last use of the device in which something of a server may still be written.
pub(super) const IN_FLIGHT: u8 = (TICKS.stale_ms - TICKS.lease_ms) as u8 - 1;

/// A mistake that the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    /// The device is used when the lease has ended.
    LeaseNotKept,
    /// Others that have found the same are not waited for.
    NotSettled,
    /// Nobody sees how late a write was.
    LateNotNoticed,
    /// A mark is of a server that is down as soon as its lease ends.
    StaleTooEarly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Io {
    None,
    Reading,
    Read(Found),
    Writing(Found),
    Written,
}

/// The life of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Life {
    Up,
    /// Uses the device no more, and is about to remove its mark.
    Closing,
    Closed,
    Down,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub(super) opening: u64,
    claim: Claim,
    io: Io,
    /// The age of a write that removes the mark.
    io_age: u8,
    life: Life,
    /// The ticks that are left of a wait.
    wait: Option<u32>,
    has_renewed: bool,
    /// The mark that it has read last, which it may compare with what it reads next.
    seen: Found,
    /// No other one has had the device since it has it.
    pub(super) is_latest: bool,
    /// The ticks since it has used the device.
    unused: Option<u8>,
}

/// A server after a step, what is on the disk then, and whether it has the device from now on.
pub(super) type After = (Server, Found, bool);

impl Server {
    pub(super) fn new(opening: u64) -> Self {
        Self {
            opening,
            claim: Claim::new(opening, TICKS),
            io: Io::None,
            io_age: 0,
            life: Life::Up,
            wait: None,
            has_renewed: false,
            seen: Found::Free,
            is_latest: false,
            unused: None,
        }
    }

    /// Returns whether it has the device, and may do IO.
    pub(super) fn uses(&self, mistake: Mistake) -> bool {
        let has_lease = self.claim.lease_ms() != 0;
        let is_permitted = has_lease || (mistake == Mistake::LeaseNotKept && self.is_latest);
        self.life == Life::Up && is_permitted
    }

    /// Returns it as it uses the device now.
    pub(super) fn used(&self) -> Self {
        Self {
            unused: Some(0),
            ..*self
        }
    }

    /// Another one has the device from now on.
    pub(super) fn relieved(self) -> Self {
        Self {
            is_latest: false,
            ..self
        }
    }

    /// Returns whether something may still come that was in flight when it used the device last.
    pub(super) fn may_write(&self) -> bool {
        self.life == Life::Up && self.unused.is_some_and(|ticks| ticks <= IN_FLIGHT)
    }

    /// Returns whether it has read a mark, or is about to write it.
    pub(super) fn knows(&self, mark: Found) -> bool {
        let of_io = match self.io {
            Io::Read(of_io) | Io::Writing(of_io) => of_io,
            _ => Found::Free,
        };
        [self.seen, of_io].contains(&mark)
    }

    fn without_io(self) -> Self {
        Self {
            io: Io::None,
            ..self
        }
    }

    /// Returns it as one that will do nothing more; a write may be on the way.
    fn ended(self, life: Life) -> Self {
        let io = match self.io {
            Io::Writing(mark) if life == Life::Down => Io::Writing(mark),
            _ => Io::None,
        };
        Self {
            life,
            io,
            ..Self::new(self.opening)
        }
    }

    /// Returns it closed if it was about to be.
    fn closed_if_closing(self) -> Self {
        match self.life {
            Life::Closing => self.ended(Life::Closed),
            _ => self,
        }
    }

    /// Returns the steps that it can take, but for those of time, with a mark on the disk; the next
    /// one that it writes is new.
    pub(super) fn steps(self, [sector, fresh]: [Found; 2], mistake: Mistake) -> Vec<After> {
        let is_down = matches!(self.life, Life::Down | Life::Closed);
        let mut all = match self.io {
            // A server that is down may have written it, or not.
            Io::Writing(mark) if is_down => [sector, mark]
                .map(|sector| (self.without_io(), sector, false))
                .to_vec(),
            _ if is_down => return Vec::new(),
            Io::None => self.begun([sector, fresh], mistake),
            Io::Reading => self.reading(sector),
            Io::Read(found) => vec![self.read(found, sector)],
            Io::Writing(mark) => self.writing(mark, sector),
            Io::Written => {
                let mut server = self.without_io();
                server.claim.written();
                vec![(server.closed_if_closing(), sector, false)]
            }
        };
        if !is_down {
            all.push((self.ended(Life::Down), sector, false));
        }
        all
    }

    fn reading(self, sector: Found) -> Vec<After> {
        let mut failed = self.without_io();
        failed.claim.failed();
        let io = Io::Read(sector);
        let mut all = vec![
            (Self { io, ..self }, sector, false),
            (failed, sector, false),
        ];
        if self.claim.lease_ms() != 0 {
            let io = Io::Read(Found::Unknown(0));
            all.push((Self { io, ..self }, sector, false));
        }
        all
    }

    fn read(self, found: Found, sector: Found) -> After {
        let had_lease = self.claim.lease_ms() != 0;
        let mut server = self.without_io();
        let lease_ms = server.claim.lease_ms();
        let counts = server.claim.read(found);
        if counts {
            server.seen = found;
        }
        // Nobody takes the device in a lease.
        let is_bad = had_lease && matches!(found, Found::Unknown(_));
        assert!(!is_bad || (!counts && server.claim.lease_ms() == lease_ms));
        // It had none until now: what it knows of the device it reads from now on, once.
        let has_taken = server.claim.lease_ms() != 0 && !had_lease && server.unused.is_none();
        server.is_latest |= has_taken;
        (server, sector, has_taken)
    }

    fn writing(self, mark: Found, sector: Found) -> Vec<After> {
        let mut failed = self.without_io();
        failed.claim.failed();
        let failed = failed.closed_if_closing();
        let io = Io::Written;
        vec![
            (Self { io, ..self }, mark, false),
            (failed, sector, false),
            (failed, mark, false),
        ]
    }

    /// A server without an IO does what its claim wants.
    fn begun(self, [sector, fresh]: [Found; 2], mistake: Mistake) -> Vec<After> {
        let mut server = self;
        let is_closing = server.life == Life::Closing;
        let mut all = Vec::new();
        match server.claim.step() {
            Step::Read => server.io = Io::Reading,
            Step::Write { .. } if is_closing && server.claim.lease_ms() == 0 => {
                server = server.ended(Life::Closed);
            }
            Step::Write { .. } => {
                server.io = Io::Writing(if is_closing { Found::Free } else { fresh });
                server.io_age = 0;
            }
            Step::Wait(ticks) => match server.wait {
                None => {
                    server.wait = Some(match mistake {
                        Mistake::NotSettled if ticks == TICKS.settle_ms => 0,
                        Mistake::StaleTooEarly => ticks.min(TICKS.lease_ms - 1),
                        _ => ticks,
                    });
                }
                Some(0) => {
                    server.wait = None;
                    server.claim.waited();
                }
                Some(_) => return all,
            },
            Step::Rest if !server.has_renewed => {
                server.has_renewed = true;
                server.claim.renew();
                let life = Life::Closing;
                all.push((Self { life, ..server }, sector, false));
            }
            Step::Rest => return all,
            Step::Busy | Step::Lost => server = server.ended(Life::Closed),
        }
        all.push((server, sector, false));
        all
    }

    /// A tick passes; `None` if what is limited would last longer.
    pub(super) fn tick(mut self, mistake: Mistake) -> Option<Self> {
        let is_removal = self.io == Io::Writing(Found::Free);
        if is_removal && self.io_age == IN_FLIGHT {
            return None;
        }
        self.io_age = if is_removal { self.io_age + 1 } else { 0 };
        let is_write = matches!(self.io, Io::Writing(_) | Io::Written);
        if !(is_write && mistake == Mistake::LateNotNoticed) {
            self.claim.pass(1);
        }
        self.wait = self.wait.map(|ticks| ticks.saturating_sub(1));
        self.has_renewed = false;
        self.unused = self.unused.map(|ticks| (ticks + 1).min(IN_FLIGHT + 1));
        Some(self)
    }
}
