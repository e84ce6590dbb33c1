// SPDX-License-Identifier: GPL-2.0

//! Arrays in files, written by the code that the module runs, one IO after the other.

use std::{
    fs::{
        self,
        File, //
    },
    io,
    os::unix::fs::FileExt,
    path::{
        Path,
        PathBuf, //
    },
};

use rnbd_ec::proto::{
    array::{
        Actions,
        Array,
        Io,
        Memory,
        PACKED, //
    },
    codec::Codec,
    geometry::{
        self,
        Shape,
        BLOCK_BYTES, //
    },
    packing::{
        Columns,
        Packed, //
    },
};
use rnbd_ec_tool::{
    checksum::Crc,
    words::Words, //
};
use seglog::{
    batch::Head,
    collect::Purpose,
    devices::Devices,
    layout::{
        Layout,
        COLUMN_BYTES_MAX, //
    },
    members::{
        column_of,
        Members,
        MEMBERS, //
    },
    record::{
        Record,
        CODEC_ZEROES, //
    },
    recovery::Recovery,
    segments::{
        Segment,
        Segments, //
    },
    superblock::{
        Superblock,
        SUPERBLOCK_BYTES, //
    },
    table::note_batch,
    ArrayTag, //
};

/// The bytes of each member.
const BYTES: u64 = 10 << 20;
pub(crate) const UUID: [u8; 16] = [0x5a; 16];
pub(crate) const UUID_TEXT: &str = "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a";

struct OnHost;

impl Memory for OnHost {
    type Words = Words;
    type Segments = Vec<Segment>;
    type Packed = Vec<Packed>;
}

/// The members, as files.
struct Files([File; MEMBERS]);

impl Devices for Files {
    type Error = io::Error;

    fn bytes(&self, _: usize) -> u64 {
        BYTES
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> io::Result<()> {
        self.0[member].read_exact_at(to, at)
    }

    fn write(&mut self, member: usize, at: u64, from: &[u8], _: bool) -> io::Result<()> {
        self.0[member].write_all_at(from, at)
    }

    fn flush(&mut self, _: usize) -> io::Result<()> {
        Ok(())
    }
}

/// Carries out at once what an array begins.
struct Acting<'a> {
    files: &'a mut Files,
    page: Vec<u8>,
    ended: Vec<(Io, usize)>,
    random: &'a mut u64,
}

impl Actions for Acting<'_> {
    fn write_superblock(&mut self, member: usize, at: u64, bytes: &[u8; SUPERBLOCK_BYTES]) {
        self.files.write(member, at, bytes, true).unwrap();
        self.ended.push((Io::Superblock, member));
    }

    fn page(&mut self) -> &mut [u8] {
        &mut self.page
    }

    fn write_page(&mut self, member: usize, at: u64) {
        self.files.write(member, at, &self.page, false).unwrap();
        self.ended.push((Io::Page, member));
    }

    fn flush(&mut self, member: usize, io: Io) {
        self.ended.push((io, member));
    }

    fn random(&mut self) -> u64 {
        *self.random += 1;
        *self.random
    }

    fn acknowledged(&mut self, _: usize) {}

    fn flushed(&mut self) {}

    fn failed(&mut self, _: Members) {}

    fn joined(&mut self, _: usize) {}
}

/// A folder of files, gone at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rnbd-ec-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file, and the folders that it is in.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An array that is assembled, in files.
pub(crate) struct Image {
    pub(crate) paths: [PathBuf; MEMBERS],
    pub(crate) layout: Layout,
    files: Files,
    array: Array<OnHost>,
    columns: Columns<Vec<u8>>,
    random: u64,
}

fn files(paths: &[PathBuf; MEMBERS]) -> Files {
    let open = |path: &PathBuf| File::options().read(true).write(true).open(path);
    Files(paths.each_ref().map(|path| open(path).unwrap()))
}

fn assemble(files: &mut Files, present: Members, id: u64) -> Array<OnHost> {
    let mut memory = [(); MEMBERS].map(|()| vec![0; COLUMN_BYTES_MAX]);
    let columns = memory.each_mut().map(Vec::as_mut_slice);
    let mut recovery = Recovery::examine(files, (present, false), columns, &Crc).unwrap();
    let layout = *recovery.layout();
    let tag = recovery.tag();
    let mut words = Words::new(&layout).unwrap();
    recovery.walk(&mut words).unwrap();
    let memory = vec![Segment::default(); layout.parts().segments as usize];
    let mut segments = Segments::count(memory, &words, &layout).unwrap();
    let start = *recovery.start();
    let free = segments.free_behind(recovery.opens_at(), (&start, &layout));
    recovery.commit(id).unwrap();
    let opened = recovery.open(id, free.unwrap()).unwrap();
    let first = &opened.first;
    note_batch(&mut words, first, first.live, &layout);
    segments.begin(
        first.place.segment,
        (first.segment_sequence, first.sequence),
        first.live,
    );
    segments.acknowledge(first.place.segment, first.sequence);
    let packed = vec![Packed::default(); PACKED];
    Array::new((layout, tag), opened, (words, segments, packed))
}

impl Image {
    /// Makes a new array in files of a folder, and assembles it.
    pub(crate) fn new(folder: &Folder) -> Self {
        Self::of(folder, "m", UUID)
    }

    pub(crate) fn of(folder: &Folder, name: &str, uuid: [u8; 16]) -> Self {
        let paths = [0, 1, 2].map(|member| folder.path(&format!("{name}{member}")));
        let shape = Shape {
            bytes: BYTES,
            logical_block_bytes: 512,
            physical_block_bytes: 512,
        };
        let layout = geometry::layout(&[shape; MEMBERS], None).unwrap();
        for (member, path) in paths.iter().enumerate() {
            let tag = ArrayTag(u64::from(uuid[0]) << 32 | 7);
            let superblock = Superblock::new((uuid, tag), member, layout, 1);
            let file = File::create(path).unwrap();
            file.set_len(BYTES).unwrap();
            file.write_all_at(&superblock.bytes(&Crc), 0).unwrap();
        }
        Self::assembled(paths, layout, Members::ALL, 1)
    }

    fn assembled(paths: [PathBuf; MEMBERS], layout: Layout, present: Members, random: u64) -> Self {
        let mut files = files(&paths);
        let array = assemble(&mut files, present, random + 1);
        let column = || vec![0; COLUMN_BYTES_MAX];
        Self {
            paths,
            layout,
            files,
            array,
            columns: Columns {
                columns: [column(), column(), column()],
            },
            random: random + 1,
        }
    }

    /// Assembles it again, as after a crash, of some of its members.
    pub(crate) fn again(self, present: Members) -> Self {
        Self::assembled(self.paths, self.layout, present, self.random)
    }

    fn act<T>(&mut self, call: impl FnOnce(&mut Array<OnHost>, &mut Acting<'_>) -> T) -> T {
        let mut acting = Acting {
            files: &mut self.files,
            page: vec![0; BLOCK_BYTES],
            ended: Vec::new(),
            random: &mut self.random,
        };
        let result = call(&mut self.array, &mut acting);
        for (io, member) in acting.ended {
            self.array.ended(io, member, true);
        }
        result
    }

    /// Does what follows by itself.
    fn settle(&mut self) {
        for _ in 0..64 {
            self.act(|array, acting| array.settle(acting, &Crc));
        }
    }

    /// Writes blocks in one batch, with a record of up to four of them each; returns its head.
    pub(crate) fn write(&mut self, first: u64, count: u64) -> Head {
        let last = first + count;
        let mut records = Vec::new();
        let mut at = first;
        while at < last {
            let end = (at + 1).next_multiple_of(4).min(last);
            let bytes = (end - at) as usize * BLOCK_BYTES;
            let payload: Vec<u8> = (0..bytes)
                .map(|n| (n as u64 * 31 + at * 7 + self.array.next_sequence()) as u8)
                .collect();
            records.push((at, (end - at) as u32, payload));
            at = end;
        }
        let records = records.into_iter().map(|(index, count, payload)| {
            let record = Record {
                index,
                count,
                codec: Codec::Raw.number(),
                payload_bytes: payload.len() as u16,
                skipped: 0,
            };
            (record, payload)
        });
        self.put(&records.collect::<Vec<_>>())
    }

    /// Discards blocks; returns the head of the batch.
    pub(crate) fn discard(&mut self, index: u64, count: u32) -> Head {
        let record = Record {
            index,
            count,
            codec: CODEC_ZEROES,
            payload_bytes: 0,
            skipped: 0,
        };
        self.put(&[(record, Vec::new())])
    }

    fn put(&mut self, records: &[(Record, Vec<u8>)]) -> Head {
        let mut packing = self.array.pack(Purpose::Write, false).unwrap();
        let with = (self.layout, self.array.next_sequence());
        for (record, payload) in records {
            let room = self.array.add(&mut packing, record).unwrap();
            let (of, with) = ((record, payload.as_slice()), (&with.0, with.1));
            self.columns.write(room, of, with, &Crc).unwrap();
        }
        let xor = |to: &mut [u8], from: &[u8]| {
            let bytes = to.iter_mut().zip(from);
            bytes.for_each(|(to, from)| *to ^= from);
        };
        let bodies = self.columns.finish(&packing, &self.layout, &Crc, xor);
        let begun = self
            .array
            .begin((&packing, Purpose::Write), bodies, &Crc)
            .unwrap();
        let head = begun.head;
        for member in head.used.iter() {
            let column = column_of(head.place.segment, member);
            let from = self.columns.of(&head, column);
            let mut bytes = from[..head.column_bytes(&self.layout)].to_vec();
            bytes[..begun.bytes.len()].copy_from_slice(&begun.bytes);
            self.files.write(member, begun.at, &bytes, false).unwrap();
            self.array.ended(Io::Column(head.sequence), member, true);
        }
        self.settle();
        head
    }

    /// Makes what was written durable.
    pub(crate) fn flush(&mut self) {
        self.act(|array, acting| assert!(array.flush(acting)));
        self.settle();
    }

    /// Dumps the table.
    pub(crate) fn dump(&mut self) {
        self.flush();
        assert!(self.array.begin_dump());
        self.settle();
        assert!(self.array.is_idle());
    }

    /// A member fails: it is not written from now on.
    pub(crate) fn fail(&mut self, member: usize) {
        self.array.fail(member);
        self.settle();
    }

    /// Another device is a member, as the superblocks of the others have it, and is in sync.
    pub(crate) fn replaced(&self, member: usize) {
        for other in Members::ALL.minus(Members::of(member)).iter() {
            let file = File::options()
                .read(true)
                .write(true)
                .open(&self.paths[other])
                .unwrap();
            for slot in [0, 1] {
                let mut bytes = [0; SUPERBLOCK_BYTES];
                file.read_exact_at(&mut bytes, Layout::slot(slot)).unwrap();
                if let Ok(mut superblock) = Superblock::parse(&bytes, slot, &Crc) {
                    superblock.devices[member].id = 7;
                    superblock.epoch.failed = Members::NONE;
                    file.write_all_at(&superblock.bytes(&Crc), Layout::slot(slot))
                        .unwrap();
                }
            }
        }
    }

    /// Returns where a column of a batch begins on its members.
    pub(crate) fn at(&self, head: &Head) -> u64 {
        self.layout.at(head.place).unwrap()
    }
}

/// Changes a bit of a byte.
pub(crate) fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}
