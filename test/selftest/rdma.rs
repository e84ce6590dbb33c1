// SPDX-License-Identifier: GPL-2.0

//! Two connected queue pairs of one machine, and what the tests do with them.

pub(super) mod by_driver;
pub(super) mod datagram;
pub(super) mod handles;
pub(super) mod identifier;
pub(super) mod queue_pair;
pub(super) mod region;
pub(super) mod transfer;

use ::rdma::{
    cm::*,
    *, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    errno::ENOTCONN,
    sync::Completion, //
};

/// The time that a step of a connection may take.
const STEP_MS: u32 = 5_000;

/// The bytes of a message.
const MESSAGE_LEN: u32 = 4;

/// One end of a connection.
pub(super) struct End<H: QpHandler> {
    /// Dropped before the identifier.
    pub(super) qp: OwnedQp<H>,
    pub(super) id: CmId,
}

/// The two ends while they are being connected.
#[pin_data]
struct Ends<H: QpHandler> {
    #[pin]
    active: Mutex<Option<OwnedQp<H>>>,
    #[pin]
    passive: Mutex<Option<End<H>>>,
    #[pin]
    connected: Completion,
}

/// Creates the queue pair of one end.
pub(super) type Create<H> = fn(&Id) -> Result<OwnedQp<H>>;

/// Connects the machine to itself; returns the active and the passive end.
pub(super) fn connect<H: QpHandler>(
    address: &SocketAddress,
    create: Create<H>,
) -> Result<(End<H>, End<H>)> {
    let ends = Arc::pin_init(
        pin_init!(Ends {
            active <- new_mutex!(None),
            passive <- new_mutex!(None),
            connected <- Completion::new(),
        }),
        GFP_KERNEL,
    )?;
    let accepting = ends.clone();
    let listener = Listener::new(address, 1, move |request: ConnectRequest<'_>| {
        let pending = request.prepare(())?;
        let qp = create(pending.id()?)?;
        let id = pending.accept(&ConnectParam::default(), b"")?;
        *accepting.passive.lock() = Some(End { qp, id });
        Ok(())
    })?;
    let connecting = ends.clone();
    let events = move |id: &Id, event: Event<'_>| match event {
        Event::AddressResolved => {
            *connecting.active.lock() = Some(create(id)?);
            id.resolve_route(STEP_MS)
        }
        Event::RouteResolved => id.connect(&ConnectParam::default(), b""),
        Event::Established { .. } => {
            connecting.connected.complete_all();
            Ok(())
        }
        _ => Ok(()),
    };
    let id = CmId::new(events, PortSpace::Tcp)?;
    id.resolve_address(None, address, STEP_MS)?;
    ends.connected.wait_timeout_ms(STEP_MS)?;
    // Waits for the handler of the request.
    drop(listener);
    let qp = ends.active.lock().take().ok_or(ENOTCONN)?;
    let passive = ends.passive.lock().take().ok_or(ENOTCONN)?;
    Ok((End { qp, id }, passive))
}

/// Creates a queue pair with a new domain and completion queue.
pub(super) fn queue_pair<H: QpHandler<Transport = Reliable>>(
    id: &Id,
    config: &QpConfig,
    context: PollContext,
    handler: impl FnOnce(&Arc<Pd>, &Arc<Cq>) -> Result<H>,
) -> Result<OwnedQp<H>> {
    let pd = Pd::new(id.device().ok_or(ENODEV)?)?;
    let cq = Cq::new(pd.device(), config.cq_entries(), 0, context, None)?;
    let handler = handler(&pd, &cq)?;
    id.create_qp(&pd, &cq, &cq, config, handler)
}
