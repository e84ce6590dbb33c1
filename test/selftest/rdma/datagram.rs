// SPDX-License-Identifier: GPL-2.0

//! Tests of queue pairs for datagrams: two of them on one device, which sends to itself.

use super::{
    super::{
        check,
        ADDRESS, //
    },
    *, //
};
use core::net::Ipv4Addr;
use kernel::time::{
    delay::fsleep,
    Delta, //
};
use kernel_ext::errno::ESHUTDOWN;

/// The number of receives of each queue pair, and of datagrams in a row.
const COUNT: u32 = 8;

/// The bytes of a datagram, with what stands before it.
const LEN: u32 = 64;
const WITH_HEADER: u32 = GRH_LEN + LEN;

/// Tag and buffer of sends; the receives have those below.
const SEND: u32 = COUNT;

const KEY: u32 = 0x1234;

/// The time for which a datagram that must not come is waited for.
const SILENCE: Delta = Delta::from_millis(50);

/// Notes what has come.
#[pin_data]
struct Inbox {
    #[pin]
    heard: Mutex<KVec<Heard>>,
}

/// A datagram that has come.
#[derive(Clone, Copy)]
struct Heard {
    tag: u32,
    len: u32,
    imm: Option<u32>,
    source: Source,
}

/// The handler of a queue pair.
pub(super) struct Node {
    memory: MessageBuffers,
    inbox: Arc<Inbox>,
}

impl QpHandler for Node {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;
    type Transport = Datagram;

    fn completed(qp: &Qp<Self>, tag: u32, completion: &WorkCompletion) {
        let Some(completion) = completion.success().filter(|_| tag != SEND) else {
            return;
        };
        let heard = Heard {
            tag,
            len: completion.byte_len(),
            imm: completion.imm(),
            source: completion.source(),
        };
        // There is room for all that are posted.
        let mut noted = qp.handler().inbox.heard.lock();
        let _ = noted.push_within_capacity(heard);
    }
}

impl Node {
    /// Creates a queue pair, and posts its receives.
    pub(super) fn create(pd: &Arc<Pd>, port: &DatagramPort) -> Result<OwnedQp<Self>> {
        let config = QpConfig::new(COUNT, COUNT, COUNT + 1);
        let context = PollContext::Workqueue;
        let cq = Cq::new(pd.device(), config.cq_entries(), 0, context, None)?;
        let heard = KVec::with_capacity(COUNT as usize * 4, GFP_KERNEL)?;
        let inbox = Arc::pin_init(pin_init!(Inbox { heard <- new_mutex!(heard) }), GFP_KERNEL)?;
        let memory = MessageBuffers::new(pd, COUNT + 1, WITH_HEADER)?;
        let qp = Qp::datagram(pd, (&cq, &cq), &config, port, Node { memory, inbox })?;
        for tag in 0..COUNT {
            Self::receive(&qp, tag)?;
        }
        Ok(qp)
    }

    fn receive(qp: &Qp<Self>, tag: u32) -> Result {
        qp.post_receive(tag, Some(qp.handler().memory.segment(tag, 0, WITH_HEADER)))
    }

    fn send(qp: &Qp<Self>, to: Peer<'_>, imm: Option<u32>) -> Result {
        Self::send_with(qp, to, imm, SendFlags::SIGNALED)
    }

    pub(super) fn send_with(
        qp: &Qp<Self>,
        to: Peer<'_>,
        imm: Option<u32>,
        flags: SendFlags,
    ) -> Result {
        let message = qp.handler().memory.segment(SEND, 0, LEN);
        qp.send_to(SEND, [message], to, imm, flags)
    }

    /// Waits for the next datagram.
    fn next(qp: &Qp<Self>) -> Result<Heard> {
        for _ in 0..STEP_MS {
            let heard = qp.handler().inbox.heard.lock().pop();
            if let Some(heard) = heard {
                Self::receive(qp, heard.tag)?;
                return Ok(heard);
            }
            fsleep(Delta::from_millis(1));
        }
        Err(ETIMEDOUT)
    }

    fn is_silent(qp: &Qp<Self>) -> bool {
        fsleep(SILENCE);
        qp.handler().inbox.heard.lock().is_empty()
    }
}

/// The device with an address, and the index of the address among its global identifiers.
pub(super) fn find(address: &SocketAddress) -> Result<(Device, u8, Gid)> {
    let ip: Ipv4Addr = ADDRESS.get().parse().map_err(|_| EINVAL)?;
    let gid = Gid(ip.to_ipv6_mapped().octets());
    let id = CmId::new(|_: &Id, _: Event<'_>| Ok(()), PortSpace::Tcp)?;
    id.resolve_address(None, address, STEP_MS)?;
    for _ in 0..STEP_MS {
        if let Some(device) = id.device() {
            let index = (0..16).find(|index| device.gid(1, *index) == Ok(gid));
            return Ok((device.clone(), index.ok_or(ENODEV)?, gid));
        }
        fsleep(Delta::from_millis(1));
    }
    Err(ETIMEDOUT)
}

/// Datagrams come with their bytes, immediate data and sender, who can be answered; those with
/// another key do not.
pub(crate) fn datagrams(address: &SocketAddress) -> Result {
    let (device, gid_index, gid) = find(address)?;
    let pd = Pd::new(&device)?;
    let port = DatagramPort {
        port: 1,
        gid_index,
        pkey_index: 0,
        qkey: KEY,
    };
    let (a, b) = (Node::create(&pd, &port)?, Node::create(&pd, &port)?);
    let to_itself = PortAddress::own(&device, 1, gid_index)?;
    let handle = AddressHandle::new(&pd, &to_itself)?;
    let to = |qp: &Qp<Node>, qkey| Peer {
        address: &handle,
        qp_number: qp.number(),
        qkey,
    };
    known(&device, gid_index, &gid)?;
    for turn in 0..COUNT * 2 {
        a.handler().memory.write(SEND, 0, &turn.to_be_bytes())?;
        Node::send(&a, to(&b, KEY), Some(turn).filter(|turn| turn % 2 == 0))?;
        let heard = Node::next(&b)?;
        let mut text = [0; 4];
        b.handler().memory.read(heard.tag, GRH_LEN, &mut text)?;
        check(
            text == turn.to_be_bytes(),
            "the bytes come behind the header",
        )?;
        check(heard.len == WITH_HEADER, "the length counts the header")?;
        let wanted = (turn % 2 == 0).then_some(turn);
        check(heard.imm == wanted, "the immediate data come")?;
        check(
            heard.source.qp_number() == a.number(),
            "the sender is known",
        )?;
        let mut header = [0; GRH_LEN as usize];
        b.handler().memory.read(heard.tag, 0, &mut header)?;
        let from = heard.source.gid(&header);
        check(from == Some(gid), "its address is known")?;
    }
    Node::send(&a, to(&b, KEY + 1), None)?;
    check(Node::is_silent(&b), "another key is dropped")?;
    b.set_qkey(KEY + 1)?;
    Node::send(&a, to(&b, KEY), None)?;
    check(Node::is_silent(&b), "the key was changed")?;
    Node::send(&a, to(&b, KEY + 1), Some(7))?;
    check(Node::next(&b)?.imm == Some(7), "the new key is the one")?;
    refused(&pd, &to_itself, &a)?;
    drop(handle);
    a.close()?;
    b.close()
}

/// A device is found by its name, its port has a state, and its identifiers have an index.
fn known(device: &Device, gid_index: u8, gid: &Gid) -> Result {
    let found = Device::find(&device.name());
    check(found.as_ref() == Some(device), "the name is the device's")?;
    check(Device::find(c"none").is_none(), "no device has the name")?;
    let port = device.port(1)?;
    check(port.is_active, "the port is active")?;
    check(port.link == LinkLayer::Ethernet, "it is one of RoCE")?;
    check(port.active_mtu_bytes >= 1024, "it has a length")?;
    check(device.port(2).is_err(), "there is no second port")?;
    let (same, _) = device.gid_entry(1, gid_index)?;
    check(same == *gid, "the entry is the address")
}

/// Checks that what is not possible is refused.
fn refused(pd: &Arc<Pd>, address: &PortAddress, qp: &Qp<Node>) -> Result {
    let other = Pd::new(pd.device())?;
    let handle = AddressHandle::new(&other, address)?;
    let peer = Peer {
        address: &handle,
        qp_number: qp.number(),
        qkey: KEY,
    };
    let sent = Node::send(qp, peer, None);
    check(sent == Err(EINVAL), "a handle of another domain is refused")?;
    let port = DatagramPort {
        port: 2,
        gid_index: 0,
        pkey_index: 0,
        qkey: KEY,
    };
    let made = Node::create(&other, &port).err();
    check(made.is_some(), "a port that the device has not is refused")?;
    let nowhere = PortAddress {
        gid: None,
        ..*address
    };
    let made = AddressHandle::new(&other, &nowhere).err();
    check(made.is_some(), "RoCE needs a global identifier")?;
    let closing = Node::create(&other, &DatagramPort { port: 1, ..port })?;
    closing.close()?;
    let sent = Node::send(&closing, peer, None);
    check(
        sent == Err(ESHUTDOWN),
        "a queue pair that is closed sends nothing",
    )
}
