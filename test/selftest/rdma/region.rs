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

/// A domain whose queue pairs have posted no registration, or are drained.
struct Unregistered<'a>(&'a Pd);

// SAFETY: `read_only_mapping` makes one before the only queue pair that it posts on has posted
// anything; it makes another when that is drained, and no region was registered since.
unsafe impl Unmapper for Unregistered<'_> {
    fn device(&self) -> &Device {
        self.0.device()
    }
}

/// Tries to register `region` with `access`.
fn register(qp: &Qp<Idle>, region: &mut Mr, access: Access) -> Result {
    region.update_key();
    let mut space = WrBuffer::new();
    let mut batch = qp.batch::<1, 0>(&mut space);
    batch.reg_mr(0, region, access, SendFlags::SIGNALED);
    batch.post()
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
    read_only_blocks(qp)?;
    too_long(qp)?;
    let mut region = Mr::new(pd, 1)?;
    let mut list = SgTable::new(1)?;
    list.push(Arc::new(PageBlock::new(0)?, GFP_KERNEL)?, 0, PAGE_LEN)?;
    let not_yet = Unregistered(pd);
    check(
        region.map(&list, &not_yet) == Err(EINVAL),
        "a list that is not mapped",
    )?;
    sg::map(pd.device(), &mut list, DmaDirection::ToDevice)?;
    check(
        region.map(&list, &not_yet) == Ok(PAGE_LEN),
        "a list for reading",
    )?;
    for access in [Access::REMOTE_WRITE, Access::LOCAL_WRITE] {
        let posted = register(qp, &mut region, access);
        check(posted == Err(EINVAL), "registered for writing")?;
    }
    check(
        register(qp, &mut region, Access::LOCAL_READ).is_ok(),
        "for reading",
    )?;
    active.qp.close()?;
    let no_more = Unregistered(pd);
    sg::unmap(&no_more, &mut list);
    sg::map(pd.device(), &mut list, DmaDirection::FromDevice)?;
    region.map(&list, &no_more)?;
    let posted = register(qp, &mut region, Access::REMOTE_WRITE);
    check(posted == Err(ESHUTDOWN), "a list for writing is refused")?;
    sg::unmap(&no_more, &mut list);
    region.renew()?;
    let posted = register(qp, &mut region, Access::REMOTE_WRITE);
    check(posted == Err(EINVAL), "what is not mapped is registered")
}

/// Returns a list of so many pages, mapped in `direction`.
fn mapped(pd: &Pd, pages: u16, direction: DmaDirection) -> Result<SgTable> {
    let mut list = SgTable::new(pages)?;
    for _ in 0..pages {
        list.push(Arc::new(PageBlock::new(0)?, GFP_KERNEL)?, 0, PAGE_LEN)?;
    }
    sg::map(pd.device(), &mut list, direction)?;
    Ok(list)
}

/// The first page of a list that does not fit is not registered as the one that it replaced. Posts
/// nothing.
fn too_long(qp: &Qp<Idle>) -> Result {
    let pd = qp.pd();
    let unmapper = Unregistered(pd);
    let mut writable = mapped(pd, 1, DmaDirection::FromDevice)?;
    let mut read_only = mapped(pd, 2, DmaDirection::ToDevice)?;
    let mut region = Mr::new(pd, 1)?;
    let fitted = [&writable, &read_only].map(|list| region.map(list, &unmapper));
    let posted = register(qp, &mut region, Access::REMOTE_WRITE);
    for list in [&mut writable, &mut read_only] {
        sg::unmap(&unmapper, list);
    }
    check(fitted == [Ok(PAGE_LEN), Err(EINVAL)], "two pages in one")?;
    check(
        posted == Err(EINVAL),
        "the page of a list that does not fit",
    )
}

/// Blocks are mapped once, when their region is made.
fn read_only_blocks(qp: &Qp<Idle>) -> Result {
    let pd = qp.pd();
    let block = |direction| {
        let block = Arc::new(PageBlock::new(0)?, GFP_KERNEL)?;
        PageMapping::new(pd, block, direction)
    };
    let blocks = [
        block(DmaDirection::Bidirectional)?,
        block(DmaDirection::ToDevice)?,
    ];
    let base = Mr::IOVA_BASE;
    let mut region = Mr::of_blocks(pd, &blocks, PAGE_LEN, base)?;
    check(region.remote().addr == base, "another address")?;
    check(region.len() == 2 * u64::from(PAGE_LEN), "another length")?;
    let posted = register(qp, &mut region, Access::REMOTE_WRITE);
    check(posted == Err(EINVAL), "a block for reading is registered")?;
    let other = Pd::new(pd.device())?;
    let refused = [
        (pd, &blocks[..0], PAGE_LEN, base),
        (pd, &blocks[..], PAGE_LEN / 2, base),
        (pd, &blocks[..], 2 * PAGE_LEN, base),
        (pd, &blocks[..], 3 * PAGE_LEN, base),
        (pd, &blocks[..], PAGE_LEN, base + 1),
        (pd, &blocks[..], PAGE_LEN, 1 << 56),
        (&other, &blocks[..], PAGE_LEN, base),
    ];
    for (pd, blocks, page_size, iova) in refused {
        let made = Mr::of_blocks(pd, blocks, page_size, iova);
        check(made.is_err_and(|e| e == EINVAL), "blocks that do not fit")?;
    }
    Ok(())
}
