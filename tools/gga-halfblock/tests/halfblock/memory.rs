// SPDX-License-Identifier: GPL-2.0

//! Members in memory, which lose their power after so many writes.

use std::io;
use std::sync::Mutex;

use gga_halfblock::initiator::{self, Session};
use gga_halfblock::io_message::{IoMessage, Kind};
use gga_halfblock::matrix::MatrixType;
use gga_halfblock::members::Storage;
use gga_halfblock::sbc::Geometry;
use gga_halfblock::service::{Service, Settings};
use gga_halfblock::worker::Recovery;

/// The counts that the three members of a test share.
#[derive(Debug)]
pub(crate) struct Power {
    /// Writes that are still done.
    pub(crate) writes: Mutex<u64>,
    /// Reads of each member.
    pub(crate) reads: Mutex<[u64; 3]>,
}

/// A member.
#[derive(Debug)]
pub(crate) struct Member<'a> {
    index: usize,
    bytes: &'a Mutex<Vec<u8>>,
    power: &'a Power,
}

/// Three members that outlive the service.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) bytes: [Mutex<Vec<u8>>; 3],
    pub(crate) power: Power,
    geometry: Geometry,
}

impl Storage for Member<'_> {
    fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        self.power.reads.lock().unwrap()[self.index] += 1;
        let bytes = self.bytes.lock().unwrap();
        to.copy_from_slice(&bytes[offset as usize..][..to.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let mut writes = self.power.writes.lock().unwrap();
        *writes = writes
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("no power"))?;
        let mut bytes = self.bytes.lock().unwrap();
        bytes[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) const ONE_CORE: Settings = Settings {
    cores_max: 1,
    matrix: MatrixType::Vandermonde,
    recovery: Recovery::EveryNth(0),
    is_written: true,
};

impl Members {
    pub(crate) fn new(half_bytes: u32, blocks: u32) -> Self {
        let geometry = Geometry { half_bytes, blocks };
        let empty = || Mutex::new(vec![0; geometry.content_bytes() as usize]);
        Self {
            bytes: [empty(), empty(), empty()],
            power: Power {
                writes: Mutex::new(u64::MAX),
                reads: Mutex::default(),
            },
            geometry,
        }
    }

    pub(crate) fn member(&self, index: usize) -> Member<'_> {
        Member {
            index,
            bytes: &self.bytes[index],
            power: &self.power,
        }
    }

    /// A service over them. Each is told another geometry by `change`.
    pub(crate) fn service_of(
        &self,
        settings: &Settings,
        change: impl Fn(usize, Geometry) -> Geometry,
    ) -> Service<Member<'_>> {
        let member = |index| (self.member(index), change(index, self.geometry));
        Service::new([member(0), member(1), member(2)], settings)
    }

    pub(crate) fn service(&self, settings: &Settings) -> Service<Member<'_>> {
        self.service_of(settings, |_, geometry| geometry)
    }

    /// Writes or reads blocks from the first one on, in a life of its own; returns why not.
    pub(crate) fn transfer(
        &self,
        settings: &Settings,
        kind: Kind,
        data: &mut [u8],
    ) -> Result<(), String> {
        let mut service = self.service(settings);
        let mut session = Session::connect(&mut service).unwrap();
        session.start(1, 1).unwrap();
        let (workers, path) = session.data_path();
        let message = io(kind, 0, data.len() as u32);
        let _ = initiator::request(&mut workers[0], path, &message, data);
        session.end().map_err(|refusal| refusal.text)
    }

    pub(crate) fn write(&self, data: &[u8]) -> Result<(), String> {
        self.transfer(&ONE_CORE, Kind::Write, &mut data.to_vec())
    }

    pub(crate) fn read(&self, recovery: Recovery, len: usize) -> Result<Vec<u8>, String> {
        let mut data = vec![0; len];
        let settings = Settings {
            recovery,
            ..ONE_CORE
        };
        self.transfer(&settings, Kind::Read, &mut data)?;
        Ok(data)
    }
}

pub(crate) fn io(kind: Kind, storage_offset: u64, io_bytes: u32) -> IoMessage {
    IoMessage {
        kind,
        user_data: 0,
        result: 0,
        io_bytes,
        requester_offset: 0,
        storage_offset,
    }
}
