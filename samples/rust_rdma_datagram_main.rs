// SPDX-License-Identifier: GPL-2.0

//! Sends a datagram to itself over the first port of rxe0.

use kernel::prelude::*;
use rdma::*;

module! {
    type: Talk,
    name: "rust_rdma_datagram",
    authors: ["The Ferrofabric developers"],
    description: "RDMA datagram",
    license: "GPL",
}

/// Slot 0 is for the datagram that is sent, slot 1 for what comes, with the header before it.
struct Memory(MessageBuffers);

impl QpHandler for Memory {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;
    type Transport = Datagram;

    fn completed(qp: &Qp<Self>, tag: u32, completion: &WorkCompletion) {
        let mut text = [0; 4];
        let memory = &qp.handler().0;
        if tag == 1 && completion.is_success() && memory.read(1, GRH_LEN, &mut text).is_ok() {
            pr_info!("heard {:?}\n", core::str::from_utf8(&text));
        }
    }
}

struct Talk(#[expect(dead_code)] OwnedQp<Memory>);

impl kernel::Module for Talk {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let device = Device::find(c"rxe0").ok_or(ENODEV)?;
        let (port, gid_index, qkey) = (1, 1, 0x1234);
        let pd = Pd::new(&device)?;
        let config = QpConfig::new(1, 1, 2);
        let cq = Cq::new(&device, config.cq_entries(), 0, PollContext::Softirq, None)?;
        let memory = Memory(MessageBuffers::new(&pd, 2, GRH_LEN + 4)?);
        let place = DatagramPort {
            port,
            gid_index,
            pkey_index: 0,
            qkey,
        };
        let qp = Qp::datagram(&pd, (&cq, &cq), &config, &place, memory)?;
        qp.post_receive(1, Some(qp.handler().0.segment(1, 0, GRH_LEN + 4)))?;
        let to_itself = PortAddress::own(&device, port, gid_index)?;
        let to = Peer {
            address: &AddressHandle::new(&pd, &to_itself)?,
            qp_number: qp.number(),
            qkey,
        };
        qp.handler().0.write(0, 0, b"ping")?;
        let ping = qp.handler().0.segment(0, 0, 4);
        qp.send_to(0, [ping], to, None, SendFlags::SIGNALED)?;
        Ok(Talk(qp))
    }
}
