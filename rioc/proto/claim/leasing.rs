// SPDX-License-Identifier: GPL-2.0

//! Leases: how they begin, and who ends them.

use super::{
    super::slot::Memory,
    slot_of,
    Arrived,
    Claim,
    Claims,
    Denied,
    Kind,
    Use, //
};

/// The claims that are looked at in one step of the end of a client.
const STEP_CLAIMS: u32 = 4096;

impl<S: Memory<Claim>, B: Memory<u32>> Claims<S, B> {
    /// A client asks for a lease. It is answered with its number, at once or when it begins.
    ///
    /// # Errors
    ///
    /// Returns why it is refused: leases of one client exclude each other, too.
    pub fn lease(&mut self, (client, tag): (u32, u32), used: &Use) -> Result<Arrived, Denied> {
        let mut chain = self.chain(used.object);
        if chain.any(|(_, claim)| claim.kind == Kind::Lease && claim.excludes(used)) {
            return Err(Denied::Leased);
        }
        drop(chain);
        let arrival = self.arrivals.saturating_add(1);
        let slot = self.add(Kind::Lease, (client, tag), used, arrival)?;
        Ok(self.arrived(slot, arrival))
    }

    /// Whether a client has a lease: one that waits is none yet.
    pub fn has_lease(&self, client: u32, number: u32) -> bool {
        let found = self.find(number, Kind::Lease);
        found.is_some_and(|(_, claim)| claim.client == client && !claim.is_waiting)
    }

    /// A client ends a lease.
    ///
    /// # Errors
    ///
    /// Returns that it has no such one.
    pub fn release(&mut self, client: u32, number: u32) -> Result<(), Denied> {
        if !self.has_lease(client, number) {
            return Err(Denied::LeaseGone);
        }
        self.remove(slot_of(number));
        Ok(())
    }

    /// Ends a lease, also one that waits: `begins` is called with its tag then, and the request
    /// finds that it [has](Self::has_lease) none.
    fn end_lease(&mut self, slot: u32, begins: &mut impl FnMut(u32)) {
        if let Some(ended) = self.remove(slot).filter(|ended| ended.is_waiting) {
            begins(ended.tag);
        }
    }

    /// An administrator ends a lease; returns the client that had it. `begins` is called with its
    /// tag if it was waiting.
    pub fn revoke(&mut self, number: u32, mut begins: impl FnMut(u32)) -> Option<u32> {
        let (slot, claim) = self.find(number, Kind::Lease)?;
        self.end_lease(slot, &mut begins);
        Some(claim.client)
    }

    /// Takes a step of the end of the leases of a client that is gone, from a slot on, at first 0;
    /// returns where the next step begins, or `None` if it has none. Its operations stay until they
    /// have ended. `begins` is called with the tags of its leases that were waiting.
    pub fn end_client(
        &mut self,
        client: u32,
        from: u32,
        mut begins: impl FnMut(u32),
    ) -> Option<u32> {
        let end = from.saturating_add(STEP_CLAIMS);
        for slot in from..end {
            let claim = self.all.as_ref().get(slot as usize)?;
            if claim.kind == Kind::Lease && claim.client == client {
                self.end_lease(slot, &mut begins);
            }
        }
        Some(end)
    }
}
