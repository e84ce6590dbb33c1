// SPDX-License-Identifier: GPL-2.0

//! Keys of memory regions, and what they allow.

/// The bit of `enum ib_access_flags` by which the own device may write to the region.
pub const LOCAL_WRITE: u32 = 1;
/// The bit of `enum ib_access_flags` by which the peer may write to the region.
pub const REMOTE_WRITE: u32 = 1 << 1;
/// The bit of `enum ib_access_flags` by which the peer may read the region.
pub const REMOTE_READ: u32 = 1 << 2;

/// The bits of a key that the consumer chooses at each registration.
pub const VARIANT_BITS: u32 = 8;

/// The key that names all memory of the machine; for local use only.
pub const LOCAL_DMA_KEY: u32 = 0;

/// The reason why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No valid region has this key.
    NoKey,
    /// The region belongs to another protection domain.
    OtherDomain,
    /// The region does not allow this access.
    NotAllowed,
    /// The access is not within the region.
    OutOfRange,
}

/// The extent of a region, as a registration gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The address of the first byte.
    pub iova: u64,
    /// The length in bytes.
    pub len: u64,
    /// The size of a page, a power of two.
    pub page_bytes: u32,
}

impl Extent {
    /// Returns where in its page the first byte is.
    fn offset_in_page(&self) -> Result<u64, Refusal> {
        self.iova
            .checked_rem(u64::from(self.page_bytes))
            .ok_or(Refusal::OutOfRange)
    }
}

/// A memory region: its key, and what it allows while it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    domain: u32,
    index: u32,
    registered: Option<Registered>,
    /// The key that was invalidated while the region was not registered.
    early: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Registered {
    key: u32,
    access: u32,
    extent: Extent,
}

impl Region {
    /// Creates a region of a protection domain that is not registered. `index` is its number in the
    /// table of the device.
    pub const fn new(domain: u32, index: u32) -> Self {
        Self {
            domain,
            index,
            registered: None,
            early: None,
        }
    }

    /// Returns the number of the region that a key names.
    pub const fn index_of(key: u32) -> u32 {
        key >> VARIANT_BITS
    }

    /// Returns the first key of the region number `index`; [`None`] if there is no such key.
    pub fn first_key(index: u32) -> Option<u32> {
        let key = index.checked_shl(VARIANT_BITS)?;
        (Self::index_of(key) == index && key != LOCAL_DMA_KEY).then_some(key)
    }

    /// Registers the region; the queue pair that asks for it belongs to `domain`.
    ///
    /// # Errors
    ///
    /// Returns why not: the region is registered already, or is of another domain, or the key does
    /// not name it, or its pages make no sense.
    pub fn register(
        &mut self,
        domain: u32,
        key: u32,
        access: u32,
        extent: Extent,
        pages: usize,
    ) -> Result<(), Refusal> {
        if domain != self.domain {
            return Err(Refusal::OtherDomain);
        }
        if self.registered.is_some() || Self::index_of(key) != self.index {
            return Err(Refusal::NoKey);
        }
        if !extent.page_bytes.is_power_of_two() || extent.iova.checked_add(extent.len).is_none() {
            return Err(Refusal::OutOfRange);
        }
        let pages = u64::try_from(pages).map_err(|_| Refusal::OutOfRange)?;
        let room = pages
            .checked_mul(u64::from(extent.page_bytes))
            .ok_or(Refusal::OutOfRange)?;
        let first = extent.offset_in_page()?;
        if first
            .checked_add(extent.len)
            .is_none_or(|needed| needed > room)
        {
            return Err(Refusal::OutOfRange);
        }
        self.registered = Some(Registered {
            key,
            access,
            extent,
        });
        Ok(())
    }

    /// Ends the registration under `key`.
    ///
    /// # Errors
    ///
    /// Returns [`Refusal::NoKey`] if the region is not registered under it, and
    /// [`Refusal::OtherDomain`].
    pub fn invalidate(&mut self, domain: u32, key: u32) -> Result<(), Refusal> {
        if domain != self.domain {
            return Err(Refusal::OtherDomain);
        }
        if self.registered.map(|known| known.key) != Some(key) {
            return Err(Refusal::NoKey);
        }
        self.registered = None;
        Ok(())
    }

    /// Notes that `key` was invalidated though it is not registered, as the adapter of mlx5 does
    /// that its driver does not ask to check.
    ///
    /// # Errors
    ///
    /// Returns [`Refusal::NoKey`] if it does not name the region, and [`Refusal::OtherDomain`].
    pub fn invalidate_early(&mut self, domain: u32, key: u32) -> Result<(), Refusal> {
        if domain != self.domain {
            return Err(Refusal::OtherDomain);
        }
        if Self::index_of(key) != self.index {
            return Err(Refusal::NoKey);
        }
        self.early = Some(key);
        Ok(())
    }

    /// Returns whether the region is registered under a key that was invalidated before.
    pub fn is_late(&self) -> bool {
        let key = self.registered.map(|known| known.key);
        key.is_some() && key == self.early
    }

    /// Returns where in the region an access of `len` bytes at `addr` begins, counted from the
    /// start of its first page, and the size of its pages.
    ///
    /// # Errors
    ///
    /// Returns why the access is refused.
    pub fn access(
        &self,
        domain: u32,
        key: u32,
        wanted: u32,
        addr: u64,
        len: u64,
    ) -> Result<(u64, u32), Refusal> {
        let known = self
            .registered
            .filter(|known| known.key == key)
            .ok_or(Refusal::NoKey)?;
        if domain != self.domain {
            return Err(Refusal::OtherDomain);
        }
        if known.access & wanted != wanted {
            return Err(Refusal::NotAllowed);
        }
        let extent = known.extent;
        let offset = addr.checked_sub(extent.iova).ok_or(Refusal::OutOfRange)?;
        if offset.checked_add(len).is_none_or(|end| end > extent.len) {
            return Err(Refusal::OutOfRange);
        }
        let first = extent.offset_in_page()?;
        let start = first.checked_add(offset).ok_or(Refusal::OutOfRange)?;
        Ok((start, extent.page_bytes))
    }
}
