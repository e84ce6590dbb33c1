// SPDX-License-Identifier: GPL-2.0

//! The control messages, between initiator and service and between service and targets. All numbers
//! are big-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 3 | length of what follows |
//! | 4 to 7 | type |
//! | 8 to 11 | number of the message, which the response has too |
//! | 12 to 15 | number that the messages have which one command of the initiator caused |
//! | from 16 on | payload; a blob or text in it has its length before it, as 32 bits |

use std::fmt;

use crate::defect::Defect;

/// Length of what all messages have, with the length itself.
pub const HEADER_BYTES: usize = 16;
/// The longest message that is taken; those of the specification have some hundred bytes.
pub const MESSAGE_MAX_BYTES: usize = 1 << 20;

/// Length of the length, which does not count itself.
const LENGTH_BYTES: usize = 4;

/// Error numbers of DOCA, as far as they are used here; IO messages have them, too.
pub mod code {
    /// No error.
    pub const SUCCESS: u32 = 0;
    /// The request cannot be carried out.
    pub const NOT_SUPPORTED: u32 = 4;
    /// A message says something wrong.
    pub const INVALID_VALUE: u32 = 6;
    /// A device failed, or what is on it is wrong.
    pub const IO_FAILED: u32 = 17;
    /// The message comes at the wrong time.
    pub const BAD_STATE: u32 = 18;
}

/// The purpose of an RDMA connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Transfers of data, which the target makes.
    Data,
    /// IO messages.
    Control,
}

/// One end of an RDMA connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Number of the thread.
    pub context: u32,
    /// The purpose.
    pub role: Role,
    /// The details that the other end needs to connect.
    pub details: Vec<u8>,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The request was not carried out.
    Error(Refusal),
    /// A question for the size of the storage.
    QueryRequest,
    /// The size of the storage.
    QueryResponse {
        /// Length of all blocks.
        total_bytes: u64,
        /// Length of one.
        block_bytes: u32,
    },
    /// Prepare for IO.
    InitRequest {
        /// Transactions of a core.
        transactions: u32,
        /// Threads.
        cores: u32,
        /// The description by which the memory of the requester is reached.
        memory: Vec<u8>,
    },
    /// The service is prepared for IO.
    InitResponse,
    /// Connect to this end.
    ConnectRequest(Connection),
    /// The end to which to connect.
    ConnectResponse(Connection),
    /// Begin with IO.
    StartRequest,
    /// IO has begun.
    StartResponse,
    /// End IO.
    StopRequest,
    /// IO has ended.
    StopResponse,
    /// Give everything back.
    ShutdownRequest,
    /// All is given back.
    ShutdownResponse,
}

/// The reason why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error number.
    pub code: u32,
    /// The reason in words.
    pub text: String,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its number.
    pub id: u32,
    /// The number of the command.
    pub correlation: u32,
    /// The content.
    pub body: Body,
}

impl Refusal {
    /// A refusal with this reason.
    pub fn new(code: u32, why: impl fmt::Display) -> Self {
        let text = why.to_string();
        Self { code, text }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (error {})", self.text, self.code)
    }
}

impl std::error::Error for Refusal {}

impl Body {
    /// Number of the type.
    pub const fn number(&self) -> u32 {
        match self {
            Self::Error(_) => 0,
            Self::QueryRequest => 1,
            Self::QueryResponse { .. } => 2,
            Self::InitRequest { .. } => 3,
            Self::InitResponse => 4,
            Self::ConnectRequest(_) => 5,
            Self::ConnectResponse(_) => 6,
            Self::StartRequest => 7,
            Self::StartResponse => 8,
            Self::StopRequest => 9,
            Self::StopResponse => 10,
            Self::ShutdownRequest => 11,
            Self::ShutdownResponse => 12,
        }
    }
}

impl Message {
    /// The bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; LENGTH_BYTES];
        for word in [self.body.number(), self.id, self.correlation] {
            put(&mut bytes, word);
        }
        match &self.body {
            Body::Error(refusal) => {
                put(&mut bytes, refusal.code);
                put_bytes(&mut bytes, refusal.text.as_bytes());
            }
            Body::QueryResponse {
                total_bytes,
                block_bytes,
            } => {
                bytes.extend(total_bytes.to_be_bytes());
                put(&mut bytes, *block_bytes);
            }
            Body::InitRequest {
                transactions,
                cores,
                memory,
            } => {
                put(&mut bytes, *transactions);
                put(&mut bytes, *cores);
                put_bytes(&mut bytes, memory);
            }
            Body::ConnectRequest(connection) | Body::ConnectResponse(connection) => {
                put(&mut bytes, connection.context);
                put(&mut bytes, connection.role as u32);
                put_bytes(&mut bytes, &connection.details);
            }
            _ => {}
        }
        let length = length_of(bytes.len() - LENGTH_BYTES).to_be_bytes();
        if let Some(to) = bytes.first_chunk_mut() {
            *to = length;
        }
        bytes
    }

    /// Reads the message at the start of `bytes`; returns what is behind it as well.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), Defect> {
        let (length, rest) = bytes
            .split_first_chunk()
            .ok_or_else(|| cut("length", bytes))?;
        let length = u32::from_be_bytes(*length) as usize;
        let (least, most) = (
            HEADER_BYTES - LENGTH_BYTES,
            MESSAGE_MAX_BYTES - LENGTH_BYTES,
        );
        if length < least || length > most {
            let rule = format_args!("{least} to {most}");
            return Err(Defect::new("the length of a message", length, rule));
        }
        let split = rest.split_at_checked(length);
        let (this, behind) = split.ok_or_else(|| cut("end", rest))?;
        let mut fields = Fields(this);
        let number = fields.word("type")?;
        let id = fields.word("number")?;
        let correlation = fields.word("command's number")?;
        let body = fields.body(number)?;
        if !fields.0.is_empty() {
            let rest = fields.0.len();
            return Err(Defect::new("what is behind the last field", rest, "0"));
        }
        let message = Self {
            id,
            correlation,
            body,
        };
        Ok((message, behind))
    }
}

/// Answers a request in bytes: with what `handle` returns, or with its refusal.
pub fn answer(request: &[u8], handle: impl FnOnce(u32, Body) -> Result<Body, Refusal>) -> Vec<u8> {
    let message = match Message::decode(request) {
        Ok((request, _)) => Message {
            id: request.id,
            correlation: request.correlation,
            body: handle(request.correlation, request.body).unwrap_or_else(Body::Error),
        },
        Err(defect) => Message {
            id: 0,
            correlation: 0,
            body: Body::Error(Refusal::new(code::INVALID_VALUE, defect)),
        },
    };
    message.encode()
}

fn put(bytes: &mut Vec<u8>, word: u32) {
    bytes.extend(word.to_be_bytes());
}

fn put_bytes(bytes: &mut Vec<u8>, blob: &[u8]) {
    put(bytes, length_of(blob.len()));
    bytes.extend(blob);
}

fn cut(field: &'static str, rest: &[u8]) -> Defect {
    Defect::new(
        "what is left of the message",
        rest.len(),
        format_args!("its {field} is not in it"),
    )
}

/// A message that has 4 GiB is refused by who receives it.
fn length_of(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The rest of a message.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn word(&mut self, field: &'static str) -> Result<u32, Defect> {
        let (word, rest) = self
            .0
            .split_first_chunk()
            .ok_or_else(|| cut(field, self.0))?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*word))
    }

    fn long(&mut self, field: &'static str) -> Result<u64, Defect> {
        let (word, rest) = self
            .0
            .split_first_chunk()
            .ok_or_else(|| cut(field, self.0))?;
        self.0 = rest;
        Ok(u64::from_be_bytes(*word))
    }

    fn bytes(&mut self, field: &'static str) -> Result<Vec<u8>, Defect> {
        let length = self.word(field)? as usize;
        let split = self.0.split_at_checked(length);
        let (blob, rest) = split.ok_or_else(|| cut(field, self.0))?;
        self.0 = rest;
        Ok(blob.to_vec())
    }

    fn connection(&mut self) -> Result<Connection, Defect> {
        Ok(Connection {
            context: self.word("context")?,
            role: match self.word("role")? {
                0 => Role::Data,
                1 => Role::Control,
                other => return Err(Defect::new("the role", other, "0 or 1")),
            },
            details: self.bytes("details")?,
        })
    }

    fn body(&mut self, number: u32) -> Result<Body, Defect> {
        Ok(match number {
            0 => Body::Error(Refusal {
                code: self.word("error")?,
                text: String::from_utf8_lossy(&self.bytes("text")?).into_owned(),
            }),
            1 => Body::QueryRequest,
            2 => Body::QueryResponse {
                total_bytes: self.long("total size")?,
                block_bytes: self.word("block size")?,
            },
            3 => Body::InitRequest {
                transactions: self.word("transactions")?,
                cores: self.word("cores")?,
                memory: self.bytes("memory")?,
            },
            4 => Body::InitResponse,
            5 => Body::ConnectRequest(self.connection()?),
            6 => Body::ConnectResponse(self.connection()?),
            7 => Body::StartRequest,
            8 => Body::StartResponse,
            9 => Body::StopRequest,
            10 => Body::StopResponse,
            11 => Body::ShutdownRequest,
            12 => Body::ShutdownResponse,
            other => return Err(Defect::new("the type of the message", other, "0 to 12")),
        })
    }
}
