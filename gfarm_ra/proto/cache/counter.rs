// SPDX-License-Identifier: GPL-2.0

//! The counters of a node: the lines of `ibstat`.

use super::{
    members::Ignored,
    reply::{
        Answer,
        Refusal, //
    },
    responder::{
        Discarded,
        Refused, //
    },
    wire::Rejected, //
};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $counter:ident = $name:literal,)*) => {
        /// A counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Counter {
            $($(#[doc = $doc])+ $counter,)*
        }

        impl Counter {
            /// All counters, by number.
            pub const ALL: &'static [Self] = &[$(Self::$counter,)*];

            /// Returns the name, which is its first word in `ibstat`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$counter => $name,)*
                }
            }
        }
    };
}

counters! {
    /// Parts of files, each of one chunk, for which other nodes were asked.
    Reads = "reads",
    /// Requests that were sent to other nodes.
    Asked = "asked",
    /// Requests of these that were not the first of their part.
    AskedAgain = "asked_again",
    /// Requests for pages whose queue pair had a new key before they were made.
    KeysAhead = "keys_ahead",
    /// Requests that were not answered in time.
    Timeouts = "timeouts",
    /// Number of times that this node was cut off from all others.
    Cuts = "cuts",
    /// Parts of files for which no node was asked: it was cut off, or they had waited for a worker.
    NotAsked = "not_asked",
    /// Answers with pages.
    ToldData = "told_data",
    /// Pages that these announce. More than [`Self::PeerPages`]: parts of them were lost.
    ToldPages = "told_pages",
    /// Answers that name another node.
    ToldNode = "told_node",
    /// Answers that no node has the pages.
    ToldFetch = "told_fetch",
    /// Answers that the pages are not there yet.
    ToldWait = "told_wait",
    /// Answers that the node has too much to do.
    ToldBusy = "told_busy",
    /// Answers that the node has nothing of it.
    ToldMiss = "told_miss",
    /// Answers that the request is refused.
    ToldRefused = "told_refused",
    /// Replies to no request that is under way.
    ToldLate = "told_late",
    /// Pages that have come from other nodes.
    PeerPages = "peer_pages",
    /// Bytes of files that readers were given from them.
    PeerBytes = "peer_bytes",
    /// Pages of other nodes that are not what a file server had sent. File servers were asked.
    PeerDamaged = "peer_damaged",
    /// Bytes of files that readers were given from file servers.
    GfsdBytes = "gfsd_bytes",
    /// Datagrams that have come to the queue pairs for messages.
    Datagrams = "datagrams",
    /// Requests of other nodes that were looked at.
    Requests = "requests",
    /// Answers with pages.
    SaidData = "said_data",
    /// Pages that were sent.
    SaidPages = "said_pages",
    /// Bytes of them.
    SaidBytes = "said_bytes",
    /// Pages of this node that are not what a file server had sent. They were dropped.
    OwnDamaged = "own_damaged",
    /// Answers that name another node.
    SaidNode = "said_node",
    /// Answers that no node has the pages.
    SaidFetch = "said_fetch",
    /// Answers that the pages are not there yet.
    SaidWait = "said_wait",
    /// Answers that the node has too much to do.
    SaidBusy = "said_busy",
    /// Answers that the node has nothing of it.
    SaidMiss = "said_miss",
    /// Requests that are refused: a field is invalid.
    SaidInvalid = "said_invalid",
    /// Requests that are refused: fragments that are longer than the datagrams.
    SaidFragment = "said_fragment",
    /// Requests that are refused: the node is leaving.
    SaidLeaving = "said_leaving",
    /// Datagrams of another length than messages have.
    DroppedLength = "dropped_length",
    /// Datagrams that do not begin as messages do.
    DroppedMagic = "dropped_magic",
    /// Messages of another version.
    DroppedVersion = "dropped_version",
    /// Messages of an unknown kind.
    DroppedKind = "dropped_kind",
    /// Messages with a wrong code.
    DroppedCode = "dropped_code",
    /// Messages whose sender has no number.
    DroppedFrom = "dropped_from",
    /// Messages to another queue pair than that of their kind.
    DroppedQueuePair = "dropped_queue_pair",
    /// Messages to another node, or to an earlier mount.
    DroppedReceiver = "dropped_receiver",
    /// Messages of a node that is not known.
    DroppedSender = "dropped_sender",
    /// Messages from another place than that of their sender.
    DroppedAddress = "dropped_address",
    /// Messages that have come before, or are too old to tell.
    DroppedRepeated = "dropped_repeated",
    /// Messages whose body has another length than its kind, or fields that are invalid.
    DroppedBody = "dropped_body",
    /// Answers to no question about members.
    DroppedUnasked = "dropped_unasked",
    /// News of a node for which the table of peers has no place.
    DroppedFull = "dropped_full",
    /// Requests for which there was no memory.
    DroppedMemory = "dropped_memory",
}

impl Counter {
    /// The number of counters.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns what counts an answer of another node.
    pub const fn told(answer: &Answer) -> Self {
        match answer {
            Answer::Data { .. } => Self::ToldData,
            Answer::Redirect { .. } | Answer::OtherOwner(_) => Self::ToldNode,
            Answer::Fetch { .. } => Self::ToldFetch,
            Answer::Wait { .. } => Self::ToldWait,
            Answer::Busy { .. } => Self::ToldBusy,
            Answer::Miss => Self::ToldMiss,
            Answer::Refused(_) => Self::ToldRefused,
        }
    }

    /// Returns what counts an answer to another node.
    pub const fn said(answer: &Answer) -> Self {
        match answer {
            Answer::Data { .. } => Self::SaidData,
            Answer::Redirect { .. } | Answer::OtherOwner(_) => Self::SaidNode,
            Answer::Fetch { .. } => Self::SaidFetch,
            Answer::Wait { .. } => Self::SaidWait,
            Answer::Busy { .. } => Self::SaidBusy,
            Answer::Miss => Self::SaidMiss,
            Answer::Refused(Refusal::Invalid) => Self::SaidInvalid,
            Answer::Refused(Refusal::FragmentLen) => Self::SaidFragment,
            Answer::Refused(Refusal::Leaving) => Self::SaidLeaving,
        }
    }

    /// Returns whether it counts what no node with the same key sends.
    pub const fn is_of_strangers(self) -> bool {
        self as u8 >= Self::DroppedLength as u8 && self as u8 <= Self::DroppedQueuePair as u8
    }
}

impl From<Rejected> for Counter {
    fn from(why: Rejected) -> Self {
        match why {
            Rejected::Length => Self::DroppedLength,
            Rejected::Magic => Self::DroppedMagic,
            Rejected::Version => Self::DroppedVersion,
            Rejected::Kind => Self::DroppedKind,
            Rejected::Code => Self::DroppedCode,
            Rejected::From => Self::DroppedFrom,
        }
    }
}

impl From<Discarded> for Counter {
    fn from(why: Discarded) -> Self {
        match why {
            Discarded::Sender => Self::DroppedSender,
            Discarded::Address => Self::DroppedAddress,
            Discarded::Repeated => Self::DroppedRepeated,
            Discarded::Body => Self::DroppedBody,
        }
    }
}

impl From<Refused> for Counter {
    fn from(why: Refused) -> Self {
        match why {
            Refused::Rejected(why) => why.into(),
            Refused::QueuePair => Self::DroppedQueuePair,
            Refused::Receiver => Self::DroppedReceiver,
        }
    }
}

impl From<Ignored> for Counter {
    fn from(why: Ignored) -> Self {
        match why {
            Ignored::Source => Self::DroppedAddress,
            Ignored::Own => Self::DroppedSender,
            Ignored::Full => Self::DroppedFull,
            Ignored::Unasked => Self::DroppedUnasked,
            Ignored::Repeated => Self::DroppedRepeated,
        }
    }
}
