// SPDX-License-Identifier: GPL-2.0

//! A server whose objects have files: its engine, and what is done with them.

use super::{
    super::files::{
        self,
        Filing, //
    },
    random::Random,
    rig::{
        id,
        in_memory,
        InMemory, //
    }, //
};
use crate::{
    file::Folder,
    proto::{
        file_name,
        message::Operation as Asked,
        span::Span,
        store::FileWork, //
    },
};

/// A server whose objects have files in a folder.
pub(super) struct Filed {
    pub(super) server: InMemory,
    pub(super) filing: Filing,
    pub(super) client: u32,
    pub(super) sequence: u64,
    pub(super) random: Random,
}

impl Filed {
    /// Begins with what is in a folder, as `adopt` of `stores.rs`.
    pub(super) fn new(folder: &Folder, blocks: u32) -> Self {
        let mut server = in_memory(blocks);
        server.engine.store.back();
        let (found, _) = files::objects(&mut folder.clone(), 5000).unwrap();
        for of in found.iter() {
            server.engine.store.adopt(*of).unwrap();
        }
        let (client, _) = server.attach(1).unwrap();
        Self {
            server,
            filing: Filing::new(folder.clone()).unwrap(),
            client,
            sequence: 0,
            random: Random::new(7),
        }
    }

    /// Does the next thing with files, as `file_one` of `store.rs`.
    pub(super) fn file_one(&mut self) -> bool {
        let Some((tag, work)) = self.server.engine.begin_file() else {
            return self.server.engine.goes_on_filing();
        };
        let done = match &work {
            FileWork::Fetch(fetch) => self.filing.fetch(fetch),
            FileWork::Leave(leaving) => {
                let engine = &self.server.engine;
                self.filing
                    .leave(leaving, |source, to| engine.copy_blocks(source, to))
            }
            FileWork::Remove(object) => self.filing.remove(*object),
        };
        let bytes = match &work {
            FileWork::Fetch(fetch) => self.filing.fetched(fetch).to_vec(),
            _ => Vec::new(),
        };
        let result = done.map(|()| &*bytes).map_err(files::errno);
        self.server.engine.end_file((tag, work), result);
        true
    }

    /// Lets all end; returns the answer of a request.
    pub(super) fn end(&mut self, number: u64) -> kernel::Answer {
        for _ in 0..10_000 {
            while self.server.go_on(0) {}
            let mut answers = self.server.take_answers().into_iter();
            if let Some(answer) = answers.find(|answer| answer.number == number) {
                return answer;
            }
            if self.server.engine.begin_filing() {
                self.file_one();
                while self.server.engine.goes_on_filing() && self.random.below(3) > 0 {
                    self.file_one();
                }
                // The item has returned.
                while self.server.engine.goes_on_filing() {
                    self.file_one();
                }
            }
        }
        panic!("no answer");
    }

    pub(super) fn write(&mut self, object: u64, at: u64, bytes: &[u8]) -> i32 {
        self.sequence += 1;
        let of = (self.client, 0);
        let number = self.server.write(of, self.sequence, (object, at), bytes);
        self.end(number).errno
    }

    /// Writes, while nothing is done with files.
    pub(super) fn write_now(&mut self, object: u64, at: u64, bytes: &[u8]) -> i32 {
        self.sequence += 1;
        let of = (self.client, 0);
        self.server.write(of, self.sequence, (object, at), bytes);
        while self.server.go_on(0) {}
        self.server.take_answers()[0].errno
    }

    pub(super) fn ask(&mut self, asked: Asked<'_>) -> i32 {
        self.sequence += 1;
        let of = (self.client, 0);
        let number = self.server.send(of, (self.sequence, 0), asked, &[]);
        self.end(number).errno
    }

    pub(super) fn flush(&mut self, object: u64) -> i32 {
        self.ask(Asked::Flush {
            object: id(object),
            span: Span::ALL,
        })
    }

    pub(super) fn snapshot(&mut self, source: u64, destination: u64) -> i32 {
        self.ask(Asked::Snapshot {
            source: id(source),
            destination: id(destination),
            is_new: false,
        })
    }

    pub(super) fn read(&mut self, object: u64, at: u64, bytes: usize) -> Result<Vec<u8>, i32> {
        let number = self
            .server
            .read((self.client, 1), object, (at, bytes as u64));
        let answer = self.end(number);
        match answer.errno {
            0 => Ok(answer.data[crate::proto::wire::READ_ANSWER_BYTES as usize..].to_vec()),
            errno => Err(errno),
        }
    }
}

/// The name of the file of an object.
pub(super) fn name(object: u64) -> Vec<u8> {
    file_name::of(id(object))[..file_name::NAME_BYTES].to_vec()
}
