// SPDX-License-Identifier: GPL-2.0

//! Connects to itself over RDMA, sends "ping" and receives "pong". Parameter: address=10.0.0.1

use kernel::{
    prelude::*,
    sync::SetOnce, //
};
use kernel_ext::module_param_string;
use rdma::{
    cm::*,
    *, //
};

module! {
    type: Ping,
    name: "rust_rdma_ping",
    authors: ["The Ferrofabric developers"],
    description: "RDMA ping",
    license: "GPL",
}

module_param_string!(
    ADDRESS: 40,
    "address",
    "10.0.0.1",
    "IPv4 address of an RDMA device"
);

/// Slot 0 is for sent messages, slot 1 for received ones.
struct Talk(MessageBuffers);

impl Talk {
    fn open(id: &Id) -> Result<OwnedQp<Talk>> {
        let pd = Pd::new(id.device().ok_or(ENODEV)?)?;
        let config = QpConfig::new(1, 1, 2);
        let entries = config.cq_entries();
        let cq = Cq::new(pd.device(), entries, 0, PollContext::Softirq, None)?;
        let qp = id.create_qp(
            &pd,
            &cq,
            &cq,
            &config,
            Talk(MessageBuffers::new(&pd, 2, 4)?),
        )?;
        qp.post_receive(1, Some(qp.handler().0.segment(1, 0, 4)))?;
        Ok(qp)
    }

    fn say(qp: &Qp<Talk>, text: &[u8; 4]) -> Result {
        qp.handler().0.write(0, 0, text)?;
        qp.send(0, [qp.handler().0.segment(0, 0, 4)], SendFlags::SIGNALED)
    }
}

impl QpHandler for Talk {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;
    type Transport = Reliable;

    fn completed(qp: &Qp<Talk>, tag: u32, completion: &WorkCompletion) {
        let mut text = [0; 4];
        if tag == 1 && completion.is_success() && qp.handler().0.read(1, 0, &mut text).is_ok() {
            pr_info!("heard {:?}\n", core::str::from_utf8(&text));
            let _ = text == *b"pong" || Talk::say(qp, b"pong").is_ok();
        }
    }
}

/// Dropping it closes both ends.
struct Ping(#[expect(dead_code)] CmId, #[expect(dead_code)] Listener);

impl kernel::Module for Ping {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let to = SocketAddress::v4(ADDRESS.get().parse().map_err(|_| EINVAL)?, 7471);

        let accepted = SetOnce::new();
        let listener = Listener::new(&to, 1, move |request: ConnectRequest<'_>| {
            let pending = request.prepare(())?;
            let qp = Talk::open(pending.id()?)?;
            accepted.populate((qp, pending.accept(&ConnectParam::default(), b"")?));
            Ok(())
        })?;

        let end = SetOnce::new();
        let connect = move |id: &Id, event: Event<'_>| match event {
            Event::AddressResolved => {
                end.populate(Talk::open(id)?);
                id.resolve_route(1000)
            }
            Event::RouteResolved => id.connect(&ConnectParam::default(), b""),
            Event::Established { .. } => Talk::say(end.as_ref().ok_or(EINVAL)?, b"ping"),
            _ => Ok(()),
        };
        let id = CmId::new(connect, PortSpace::Tcp)?;
        id.resolve_address(None, &to, 1000)?;
        Ok(Ping(id, listener))
    }
}
