// SPDX-License-Identifier: GPL-2.0

//! An RDMA device in memory, for tests: queue pairs of one machine, which execute by copying.
//!
//! `modprobe rdma_test_device netdev=eth0` adds `testdev0` on the addresses of `eth0`, with the
//! limits that further parameters set. Built with the other modules, used by the tests in virtual
//! machines, not installed.
//!
//! With `infiniband=N` it adds N devices, from `testdev0` on, each with a port of one subnet of
//! InfiniBand, and no network device. What a subnet manager would give them is set by a write to
//! `/sys/class/rdma_test_device/control/ports` (see `proto::fabric`), as `port=0 lid=0x21`.
//!
//! `/sys/class/rdma_test_device/control/counts` has what its queue pairs have done; a write lets
//! the counts begin at 0. A rule that is written to `faults` beside it (see `proto::fault`), as
//! `fault=status status=12 on=write nth=3`, is for the sends or the queue pairs of connections; one
//! that lasts may name a queue pair of datagrams. `give_up 17` has the device give it up.
//!
//! `engines` and `vectors` beside it tell which engine has executed how many sends, and on which
//! processor the completions of each vector were told and taken.
//!
//! The network device must stay as long as the module is loaded.

mod device;
pub mod proto;

use device::{
    Folder,
    Network,
    TestDevice, //
};
use kernel::{
    prelude::*,
    str::CString, //
};
use kernel_ext::{
    module_param_int,
    module_param_ranged,
    module_param_string, //
};
use verbs_provider::{
    DmaDevice,
    Limits,
    NetDevice,
    Registration, //
};

module! {
    type: Module,
    name: "rdma_test_device",
    authors: ["The Ferrofabric developers"],
    description: "RDMA device in memory, for tests",
    license: "GPL",
}

module_param_string!(
    NETDEV: 16,
    "netdev",
    "eth0",
    "Network device whose addresses the RDMA device has (default: eth0)"
);

module_param_ranged!(
    INFINIBAND: 0,
    4,
    "infiniband",
    0,
    "Devices with a port of InfiniBand, instead of one on netdev (0 to 4; default: 0)"
);

module_param_int!(MAX_QP_WR: u16, "max_qp_wr", 16_384, "Work requests of a queue");
module_param_int!(MAX_SGE: u16, "max_sge", 32, "Segments of a work request (1 to 256)");
module_param_int!(
    MAX_FAST_REG_PAGES: u32,
    "max_fast_reg_page_list_len",
    512,
    "Pages of a fast registration"
);
module_param_int!(MAX_CQE: u32, "max_cqe", 1 << 20, "Places of a completion queue");
module_param_int!(
    MAX_QP_RD_ATOM: u8,
    "max_qp_rd_atom",
    16,
    "RDMA reads of a queue pair in flight"
);
module_param_int!(
    PAGE_SIZE_CAP: u64,
    "page_size_cap",
    0xffff_f000,
    "Page sizes of registrations, one bit each"
);

module_param_int!(
    MAX_SQ_BLOCKS: u32,
    "max_sq_blocks",
    0,
    "Blocks of 64 bytes of a send queue, of which mlx5 needs as many (default: 0, no limit)"
);

module_param_ranged!(
    REFUSE_INVALIDATIONS: 0,
    1,
    "refuse_invalidations",
    0,
    "Invalidations fail, as those of keys that there are not (0 or 1; default: 0)"
);

module_param_ranged!(
    CHECK_INVALIDATIONS: 0,
    1,
    "check_invalidations",
    1,
    "Invalidations of keys that are not registered fail (0 or 1; default: 1)"
);

module_param_ranged!(
    REGION_MS: 0,
    10000,
    "region_ms",
    0,
    "Milliseconds that it takes to allocate a region (0 to 10000; default: 0)"
);

module_param_ranged!(
    VECTORS: 1,
    256,
    "vectors",
    2,
    "Completion vectors (1 to 256; default: 2)"
);

module_param_ranged!(
    ENGINES: 1,
    4,
    "engines",
    1,
    "Engines, which execute the work requests of their queue pairs at once (1 to 4; default: 1)"
);

module_param_ranged!(
    ACK_US: 0,
    10000,
    "ack_us",
    0,
    "Microseconds until the end of a send that has arrived is told (0 to 10000; default: 0)"
);

module_param_ranged!(
    TURN: 1,
    64,
    "turn",
    64,
    "Work requests of a queue pair before another one has its turn (1 to 64; default: 64)"
);

module_param_ranged!(
    DRAINS: 0,
    1,
    "drains",
    0,
    "The device has functions that drain a queue pair (0 or 1; default: 0)"
);

module_param_ranged!(
    MAPS_MEMORY: 0,
    1,
    "maps_memory",
    0,
    "Memory is mapped for a platform device; with swiotlb=force it bounces (0 or 1; default: 0)"
);

module_param_int!(
    MIN_ALIGN_MASK: u32,
    "min_align_mask",
    0,
    "Bits of an address that bounce buffers keep, with maps_memory=1 (default: 0)"
);

/// The segments of a work request at most: each has a place for every work request.
const MAX_SGE_MAX: u16 = 256;

const MAX_FAST_REG_PAGES_MAX: u32 = 1 << 18;

const MAX_CQE_MAX: u32 = 1 << 22;

struct Module {
    _folder: Folder,
    _devices: KVec<Registration<TestDevice>>,
}

/// Returns what the parameters ask for.
fn limits() -> Result<Limits> {
    let in_range = MAX_QP_WR.get() > 0
        && (1..=MAX_SGE_MAX).contains(&MAX_SGE.get())
        && (1..=MAX_FAST_REG_PAGES_MAX).contains(&MAX_FAST_REG_PAGES.get())
        && (1..=MAX_CQE_MAX).contains(&MAX_CQE.get())
        && PAGE_SIZE_CAP.get() != 0;
    if !in_range {
        pr_err!("a limit of the device is out of range\n");
        return Err(EINVAL);
    }
    Ok(Limits {
        qp_wr: u32::from(MAX_QP_WR.get()),
        send_sge: u32::from(MAX_SGE.get()),
        recv_sge: u32::from(MAX_SGE.get()),
        fast_reg_pages: MAX_FAST_REG_PAGES.get(),
        cqe: MAX_CQE.get(),
        page_sizes: PAGE_SIZE_CAP.get(),
        rd_atom: MAX_QP_RD_ATOM.get(),
        vectors: VECTORS.get(),
    })
}

impl kernel::Module for Module {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let limits = limits()?;
        let ports = INFINIBAND.get() as usize;
        let network = Network::new(ports, ENGINES.get(), VECTORS.get())?;
        let mut devices = KVec::new();
        let mut add = |netdev: Option<&NetDevice>, port| -> Result {
            let device = TestDevice::new(limits, network.clone(), port)?;
            let dma_device = match MAPS_MEMORY.get() {
                0 => None,
                _ => Some(DmaDevice::new(c"rdma_test_device", MIN_ALIGN_MASK.get())?),
            };
            let device = Registration::new(c"testdev%d", netdev, dma_device, device, module)?;
            Ok(devices.push(device, GFP_KERNEL)?)
        };
        if ports == 0 {
            let name = CString::try_from_fmt(fmt!("{}", NETDEV.get()))?;
            let netdev = NetDevice::find(&name)
                .inspect_err(|_| pr_err!("there is no network device '{}'\n", NETDEV.get()))?;
            add(Some(&netdev), None)?;
        }
        (0..ports).try_for_each(|port| add(None, Some(port)))?;
        Ok(Module {
            _folder: Folder::new(network)?,
            _devices: devices,
        })
    }
}
