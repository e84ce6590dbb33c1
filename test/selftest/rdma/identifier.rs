// SPDX-License-Identifier: GPL-2.0

//! Tests of connection identifiers.

use super::{
    super::check,
    *, //
};
use kernel_ext::sync::atomic::{
    AtomicU32,
    Ordering::Relaxed, //
};

/// Ignores completions.
pub(super) struct Idle;

impl QpHandler for Idle {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;
    type Transport = Reliable;

    fn completed(_qp: &Qp<Self>, _tag: u32, _completion: &WorkCompletion) {}
}

/// A domain is drained when all its queue pairs are, and gets none while that must stay so.
pub(crate) fn drained_domain(address: &SocketAddress) -> Result {
    let config = QpConfig::new(1, 1, 1);
    let create: Create<Idle> = |id| {
        queue_pair(id, &QpConfig::new(1, 1, 1), PollContext::Softirq, |_, _| {
            Ok(Idle)
        })
    };
    let (active, passive) = connect(address, create)?;
    let (pd, other) = (active.qp.pd().clone(), passive.qp.pd());
    check(pd.drained().is_none(), "a domain in use is not drained")?;
    active.qp.close()?;
    let cq = Cq::new(pd.device(), 16, 0, PollContext::Softirq, None)?;
    let again = || active.id.create_qp(&pd, &cq, &cq, &config, Idle).err();
    {
        let drained = pd.drained().ok_or(EINVAL)?;
        check(
            drained.is_of(&pd) && !drained.is_of(other),
            "the proof names its domain",
        )?;
        check(again() == Some(EBUSY), "the domain gets no queue pair")?;
    }
    check(again() != Some(EBUSY), "it would get one again")?;
    let is_drained = other.drained().is_some();
    check(!is_drained, "the other domain is in use")
}

/// An identifier has one queue pair.
pub(crate) fn one_queue_pair(address: &SocketAddress) -> Result {
    static REFUSED: AtomicU32 = AtomicU32::new(0);
    REFUSED.store(0, Relaxed);
    let create: Create<Idle> = |id| {
        let config = QpConfig::new(1, 1, 1);
        let qp = queue_pair(id, &config, PollContext::Softirq, |_, _| Ok(Idle))?;
        let pd = qp.pd();
        let short = Cq::new(pd.device(), 3, 0, PollContext::Softirq, None)?;
        let second = id.create_qp(pd, &short, &short, &config, Idle);
        if second.is_err_and(|e| e == EINVAL) {
            REFUSED.fetch_add(1, Relaxed);
        }
        let second = queue_pair(id, &config, PollContext::Softirq, |_, _| Ok(Idle));
        if second.is_err_and(|e| e == EEXIST) {
            REFUSED.fetch_add(1, Relaxed);
        }
        Ok(qp)
    };
    let (active, passive) = connect(address, create)?;
    check(
        REFUSED.load(Relaxed) == 4,
        "a second queue pair, and a short completion queue, are refused",
    )?;
    check(
        active.id.peer_address() == Some(*address),
        "the peer's address is known",
    )?;
    let end = passive.id.local_address();
    check(
        end == Some(*address) && active.id.local_address() == passive.id.peer_address(),
        "the ends name each other",
    )
}
