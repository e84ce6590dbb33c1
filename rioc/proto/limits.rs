// SPDX-License-Identifier: GPL-2.0

//! Limits of what a client has at a time, so that none takes what the others need.

use ferro_proto::errno::Errno;

/// The limits of a client, which its administrator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The operations in flight.
    pub operations_max: u32,
    /// The bytes of the data of operations in flight. One operation alone may have more.
    pub bytes_max: u64,
    /// The leases.
    pub leases_max: u32,
}

/// The claims of one operation at most: what it changes, and what it reads beside that.
const OPERATION_CLAIMS: u32 = 2;
/// The claims of the store itself.
const OWN_CLAIMS: u32 = 1;

impl Limits {
    /// Returns the claims that are enough for so many clients: what each has by its limits leaves
    /// the others theirs.
    pub const fn claims_of(&self, clients: u32) -> u32 {
        let operations = self.operations_max.saturating_mul(OPERATION_CLAIMS);
        let each = self.leases_max.saturating_add(operations);
        clients.saturating_mul(each).saturating_add(OWN_CLAIMS)
    }
}

/// The limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// The operations in flight: one that ends makes room.
    Operations,
    /// The bytes of operations in flight: one that ends makes room.
    Bytes,
    /// The leases: the client has to end one.
    Leases,
}

impl Exceeded {
    /// Returns the error that the client gets.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Operations | Self::Bytes => Errno::EAGAIN,
            Self::Leases => Errno::EDQUOT,
        }
    }
}

/// The account of what a client has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    operations: u32,
    bytes: u64,
    leases: u32,
}

impl Account {
    /// Returns the operations in flight, their bytes, and the leases.
    pub const fn state(&self) -> (u32, u64, u32) {
        (self.operations, self.bytes, self.leases)
    }

    /// An operation with so many bytes of data begins.
    ///
    /// # Errors
    ///
    /// Returns the limit that it would exceed; nothing has changed.
    pub fn begin(&mut self, bytes: u64, limits: &Limits) -> Result<(), Exceeded> {
        if self.operations >= limits.operations_max {
            return Err(Exceeded::Operations);
        }
        let sum = self.bytes.saturating_add(bytes);
        if self.operations > 0 && sum > limits.bytes_max {
            return Err(Exceeded::Bytes);
        }
        self.operations = self.operations.saturating_add(1);
        self.bytes = sum;
        Ok(())
    }

    /// An operation that has begun has ended.
    pub fn end(&mut self, bytes: u64) {
        self.operations = self.operations.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// A lease begins.
    ///
    /// # Errors
    ///
    /// Returns that there are as many as there may be; nothing has changed.
    pub fn begin_lease(&mut self, limits: &Limits) -> Result<(), Exceeded> {
        if self.leases >= limits.leases_max {
            return Err(Exceeded::Leases);
        }
        self.leases = self.leases.saturating_add(1);
        Ok(())
    }

    /// A lease has ended.
    pub fn end_lease(&mut self) {
        self.leases = self.leases.saturating_sub(1);
    }
}
