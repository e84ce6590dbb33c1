// SPDX-License-Identifier: GPL-2.0

//! Tests of mapped scatterlists and memory regions.

use super::{
    super::check,
    identifier::Idle,
    *, //
};
use ::rdma::sg::Unmapper;
use kernel_ext::{
    errno::ESHUTDOWN,
    pages::PageBlock,
    scatterlist::SgTable, //
};

const PAGE_LEN: u32 = 4096;

/// The domain of a queue pair that was closed.
struct ClosedBefore<'a>(&'a Pd);

// SAFETY: `read_only_mapping` makes it when the only queue pair that it posts on is drained, and
// the region was not registered since.
unsafe impl Unmapper for ClosedBefore<'_> {
    fn device(&self) -> &Device {
        self.0.device()
    }
}

/// A page that the device may only read is not registered for writing, by itself or by the peer.
pub(crate) fn read_only_mapping(address: &SocketAddress) -> Result {
    let create: Create<Idle> = |id| {
        queue_pair(id, &QpConfig::new(4, 4, 1), PollContext::Softirq, |_, _| {
            Ok(Idle)
        })
    };
    let (active, _passive) = connect(address, create)?;
    let qp = &active.qp;
    let pd = qp.pd();
    let mut region = Mr::new(pd, 1, false)?;
    let mut list = SgTable::new(1)?;
    list.push(Arc::new(PageBlock::new(0)?, GFP_KERNEL)?, 0, PAGE_LEN)?;
    check(
        region.map(&list) == Err(EINVAL),
        "a list that is not mapped",
    )?;
    let register = |region: &mut Mr, access| {
        region.update_key();
        let mut space = WrBuffer::new();
        let mut batch = qp.batch::<1, 0>(&mut space);
        batch.reg_mr(0, region, access, SendFlags::SIGNALED);
        batch.post()
    };
    sg::map(pd.device(), &mut list, DmaDirection::ToDevice)?;
    check(region.map(&list) == Ok(PAGE_LEN), "a list for reading")?;
    for access in [Access::REMOTE_WRITE, Access::LOCAL_WRITE] {
        let posted = register(&mut region, access);
        check(posted == Err(EINVAL), "registered for writing")?;
    }
    check(
        register(&mut region, Access::LOCAL_READ).is_ok(),
        "for reading",
    )?;
    active.qp.close()?;
    let closed = ClosedBefore(pd);
    sg::unmap(&closed, &mut list);
    sg::map(pd.device(), &mut list, DmaDirection::FromDevice)?;
    region.map(&list)?;
    let posted = register(&mut region, Access::REMOTE_WRITE);
    check(posted == Err(ESHUTDOWN), "a list for writing is refused")?;
    sg::unmap(&closed, &mut list);
    Ok(())
}
