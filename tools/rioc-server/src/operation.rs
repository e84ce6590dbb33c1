// SPDX-License-Identifier: GPL-2.0

//! Requests of clients, as RTRS has them.

use std::sync::Mutex;

use crate::{
    pages::PageBlock,
    prelude::*,
    sync::Arc, //
};

/// The answer of a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The number of the request.
    pub number: u64,
    /// Its errno, or 0.
    pub errno: i32,
    /// The data, of a read.
    pub data: Vec<u8>,
}

/// The answers that were given.
pub type Answers = std::sync::Arc<Mutex<Vec<Answer>>>;

/// A request, and the memory of its chunk. Who drops it answers EIO.
pub struct Operation {
    number: u64,
    is_read: bool,
    user: Vec<u8>,
    data_bytes: u32,
    chunk: u16,
    memory: Arc<PageBlock>,
    answers: Option<Answers>,
}

impl Operation {
    /// Makes one.
    pub fn new(
        (number, chunk, answers): (u64, u16, &Answers),
        user: Vec<u8>,
        (is_read, data_bytes): (bool, u32),
        data: &[u8],
    ) -> Self {
        // A chunk of RTRS.
        let memory = PageBlock::new(5).unwrap();
        memory.copy_in(0, data).unwrap();
        Self {
            number,
            is_read,
            user,
            data_bytes,
            chunk,
            memory: Arc::new(memory, GFP_KERNEL).unwrap(),
            answers: Some(answers.clone()),
        }
    }

    /// Whether the client reads.
    pub fn is_read(&self) -> bool {
        self.is_read
    }

    /// Returns the message.
    pub fn user(&self) -> &[u8] {
        &self.user
    }

    /// Returns the bytes of the data.
    pub fn data_len(&self) -> u32 {
        self.data_bytes
    }

    /// Returns the number of the chunk.
    pub fn chunk_id(&self) -> u16 {
        self.chunk
    }

    /// Returns the pages.
    pub fn pages(&mut self) -> Result<Arc<PageBlock>> {
        Ok(self.memory.clone())
    }

    /// Returns the pages.
    pub fn memory(&self) -> Option<&PageBlock> {
        Some(&self.memory)
    }

    /// Writes an answer, and zeroes behind it.
    pub fn write_reply(&mut self, bytes: &[u8]) -> Result {
        if !self.is_read || bytes.len() > self.data_bytes as usize {
            return Err(EINVAL);
        }
        self.memory.zero(0, self.data_bytes as usize)?;
        self.memory.copy_in(0, bytes)
    }

    /// Copies data that the client has written.
    pub fn read_data(&self, at: usize, to: &mut [u8]) -> Result {
        match at + to.len() <= self.data_bytes as usize {
            true => self.memory.copy_out(at, to),
            false => Err(EINVAL),
        }
    }

    /// Answers it.
    pub fn reply(mut self, result: Result) {
        self.end(result);
    }

    fn end(&mut self, result: Result) {
        let Some(answers) = self.answers.take() else {
            return;
        };
        let bytes = if self.is_read { self.data_bytes } else { 0 };
        let mut data = vec![0; bytes as usize];
        self.memory.copy_out(0, &mut data).unwrap();
        answers.lock().unwrap().push(Answer {
            number: self.number,
            errno: result.err().map_or(0, |error| -error.to_errno()),
            data,
        });
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.end(Err(EIO));
    }
}
