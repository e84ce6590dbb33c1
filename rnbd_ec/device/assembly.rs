// SPDX-License-Identifier: GPL-2.0

//! Members are opened; arrays are made, and assembled.

use block_ext::{
    bdev::{
        BlockDevice,
        Holder,
        Mode as OpenMode, //
    },
    SECTOR_BYTES, //
};
use kernel::{
    fmt,
    prelude::*,
    str::{
        BStr,
        CStr,
        CString, //
    },
    sync::Arc, //
};
use kernel_ext::{
    errno,
    memory as kernel_memory,
    random,
    sync::Completion,
    text::c_string, //
};
use seglog::{
    chain::Scratch,
    fault::Fault,
    layout::{
        Layout,
        COLUMN_BYTES_MAX, //
    },
    members::{
        Members,
        MEMBERS, //
    },
    recovery::{
        Opened,
        Recovery, //
    },
    segments::{
        Segment,
        Segments, //
    },
    superblock::{
        Refusal,
        Superblock, //
    },
    table::note_batch,
    ArrayTag, //
};

use super::{
    acting::Means,
    core::{
        Beginning,
        Core, //
    },
    engine::Engine,
    memory::{
        packed,
        Crc,
        Elements,
        InKernel,
        Words, //
    },
    one_by_one::{
        Failed,
        OneByOne, //
    },
    upkeep::{
        superblock,
        write_new,
        Upkeep, //
    },
    work_queues::ArrayQueues, //
};
use crate::{
    proto::{
        array::Array,
        command::{
            Command,
            Mode, //
        },
        geometry::{
            self,
            Shape, //
        },
    },
    shown::Shown,
    THIS_MODULE, //
};

/// The devices of an array, in the order of its members.
type DevicesOf = [Option<Arc<BlockDevice>>; MEMBERS];

/// Result of an assembly.
pub(super) struct Assembled {
    pub(super) core: Arc<Core>,
    pub(super) uuid: [u8; 16],
}

/// Returns what matters of a device.
pub(super) fn shape_of(device: &BlockDevice) -> Shape {
    Shape {
        bytes: device
            .capacity_sectors()
            .saturating_mul(SECTOR_BYTES.into()),
        logical_block_bytes: device.logical_block_bytes(),
        physical_block_bytes: device.physical_block_bytes(),
    }
}

/// Reason why a device is not taken as a member.
pub(super) enum NotTaken {
    /// Fails to open.
    Open(Error),
    /// Belongs to an array: it could be a part of itself, and arrays share work queues.
    Array,
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = match *self {
            Self::Open(error) => error,
            Self::Array => return f.write_str("is the disk of an array, which no member can be"),
        };
        write!(f, "cannot be opened: {error:?}")?;
        f.write_str(match error {
            EBUSY => ": another user has it: unmount it, or stop the array that it is in",
            EACCES | EPERM | EROFS => {
                ": it cannot be written: make it writable, or do without it: name the two others"
            }
            _ => "",
        })
    }
}

impl From<NotTaken> for Error {
    fn from(why: NotTaken) -> Self {
        match why {
            NotTaken::Open(error) => error,
            NotTaken::Array => EINVAL,
        }
    }
}

/// Opens a device that is to be a member, for its array alone. Sleeps.
pub(super) fn open_member(path: &CStr, holder: &Holder) -> Result<BlockDevice, NotTaken> {
    let device = BlockDevice::open_exclusively(path, OpenMode::ReadWrite, holder);
    let device = device.map_err(NotTaken::Open)?;
    if device.is_provided_by(&THIS_MODULE) {
        return Err(NotTaken::Array);
    }
    Ok(device)
}

/// Opens the devices, in the order of the line.
fn open(command: &Command<'_>) -> Result<DevicesOf> {
    let name = command.name;
    let holder = Holder::new()?;
    let mut devices = [None, None, None];
    for (path, to) in command.members.iter().zip(&mut devices) {
        let Some(path) = path else { continue };
        let device = open_member(&c_string(path)?, &holder).inspect_err(|why| {
            pr_err!("{name}: {}: {}\n", BStr::from_bytes(path), why);
        })?;
        *to = Some(Arc::new(device, GFP_KERNEL)?);
    }
    for (place, one) in devices.iter().enumerate() {
        let mut others = devices.iter().skip(place.saturating_add(1)).flatten();
        let number = one.as_ref().map(|device| device.number());
        if others.any(|other| Some(other.number()) == number) {
            pr_err!("{name}: two of its members are the same device\n");
            return Err(EINVAL);
        }
    }
    Ok(devices)
}

/// Puts the devices into the order of the members that they are.
#[inline(never)]
fn sort(command: &Command<'_>, queues: &Arc<ArrayQueues>, devices: DevicesOf) -> Result<DevicesOf> {
    let name = command.name;
    let mut given = OneByOne::new(queues, &devices, &command.settings)?;
    let mut sorted = [None, None, None];
    for (place, device) in devices.into_iter().enumerate() {
        let Some(device) = device else { continue };
        let shown = device.name().unwrap_or_default();
        let found = superblock(&mut given, place).inspect_err(|error| {
            pr_err!("{name}: {shown}: its superblock cannot be read: {error:?}\n");
        })?;
        let found = found.map_err(|refusal| {
            pr_err!("{name}: {shown}: {}\n", Shown(refusal));
            match refusal {
                Refusal::NotFormatted => EINVAL,
                Refusal::Unreadable => EIO,
                _ => errno::EUCLEAN,
            }
        })?;
        let to = sorted.get_mut(found.member).ok_or(EINVAL)?;
        if to.is_some() {
            pr_err!(
                "{name}: {shown}: is member {}, as another device that was given\n",
                found.member
            );
            return Err(EINVAL);
        }
        *to = Some(device.clone());
    }
    Ok(sorted)
}

/// Makes a new array of devices.
#[inline(never)]
fn create(command: &Command<'_>, queues: &Arc<ArrayQueues>, devices: &DevicesOf) -> Result {
    let name = command.name;
    let mut shapes = [Shape {
        bytes: 0,
        logical_block_bytes: 0,
        physical_block_bytes: 0,
    }; MEMBERS];
    for (device, shape) in devices.iter().zip(&mut shapes) {
        *shape = shape_of(device.as_ref().ok_or(EINVAL)?);
    }
    let layout = geometry::layout(&shapes, command.size).map_err(|why| {
        pr_err!("{name}: not created: {}\n", Shown(why));
        EINVAL
    })?;
    check_memory(command, &layout)?;
    let mut one_by_one = OneByOne::new(queues, devices, &command.settings)?;
    for (place, device) in devices.iter().enumerate() {
        let shown = device.as_ref().and_then(|d| d.name()).unwrap_or_default();
        let found = superblock(&mut one_by_one, place).inspect_err(|error| {
            pr_err!("{name}: not created: {shown} cannot be read: {error:?}\n");
        })?;
        if found != Err(Refusal::NotFormatted) && !command.is_forced {
            pr_err!(
                "{name}: not created: {shown} is or was a member of an array: force=1 makes it one \
                 of this array, and what it has is lost\n"
            );
            return Err(EEXIST);
        }
    }
    let (uuid, tag) = (random::uuid(), ArrayTag(random::number()));
    let epoch = random::number() | 1;
    for member in 0..MEMBERS {
        let own = Superblock::new((uuid, tag), member, layout, epoch);
        write_new(&mut one_by_one, &own).inspect_err(|error| {
            pr_err!("{name}: not created: member {member} cannot be written: {error:?}\n");
        })?;
    }
    Ok(())
}

/// Checks that the machine has the memory that an array takes for as long as it is assembled.
fn check_memory(command: &Command<'_>, layout: &Layout) -> Result {
    let (needed, there) = (
        geometry::table_bytes(layout),
        kernel_memory::available_bytes(),
    );
    if needed > there {
        pr_err!(
            "{}: takes {needed} bytes of memory for its table, and {there} are free\n",
            command.name
        );
        return Err(ENOMEM);
    }
    Ok(())
}

/// Returns the error of a fault, and says what it is.
#[cold]
fn refused(command: &Command<'_>, fault: &Fault<Failed>) -> Error {
    pr_err!("{}: not assembled: {}\n", command.name, Shown(fault));
    match fault {
        Fault::Io(_, error) => error.0,
        Fault::NoQuorum(_) => ENODEV,
        Fault::OtherArray(_) | Fault::OtherMember { .. } => EINVAL,
        Fault::Scratch => ENOMEM,
        Fault::NoSegment => ENOSPC,
        _ => errno::EUCLEAN,
    }
}

/// Reads the superblocks; on the heap, as it is large.
#[inline(never)]
fn examine<'a>(
    one_by_one: &'a mut OneByOne,
    present: (Members, bool),
    columns: Scratch<'a>,
) -> Result<KBox<Recovery<'a, OneByOne, Crc>>, Fault<Failed>> {
    let recovery = Recovery::examine(one_by_one, present, columns, &Crc)?;
    KBox::new(recovery, GFP_KERNEL).map_err(|_| Fault::Scratch)
}

/// Opens the log.
#[inline(never)]
fn open_log(
    recovery: &mut Recovery<'_, OneByOne, Crc>,
    free: u32,
    id: u64,
) -> Result<KBox<Opened>, Fault<Failed>> {
    let opened = recovery.open(id, free)?;
    KBox::new(opened, GFP_KERNEL).map_err(|_| Fault::Scratch)
}

/// Makes the array of an open log.
#[inline(never)]
fn make(
    of: (Layout, ArrayTag),
    opened: KBox<Opened>,
    (mut words, mut segments): (Words, Segments<Elements<Segment>>),
) -> Result<KBox<Array<InKernel>>> {
    let first = &opened.first;
    note_batch(&mut words, first, first.live, &of.0);
    segments.begin(
        first.place.segment,
        (first.segment_sequence, first.sequence),
        first.live,
    );
    segments.acknowledge(first.place.segment, first.sequence);
    let packed = packed()?;
    let array = KBox::new_uninit(GFP_KERNEL)?;
    let opened = KBox::into_inner(opened);
    Ok(KBox::write(
        array,
        Array::new(of, opened, (words, segments, packed)),
    ))
}

/// Warns of members that an older version has taken, or that were moved to other disks: what was
/// flushed may be lost on them when power fails.
fn warn_of_blocks(command: &Command<'_>, layout: &Layout, devices: &DevicesOf) {
    for (member, device) in devices.iter().enumerate() {
        let shape = device.as_ref().map(|device| shape_of(device));
        if let Some(shape) = shape.filter(|shape| geometry::may_tear(shape, layout)) {
            pr_warn!(
                "{}: member {member} has physical blocks of {} bytes, and the array writes {} at a \
                 time: a power failure may cost what was flushed: replace it\n",
                command.name,
                shape.physical_block_bytes,
                layout.unit_bytes()
            );
        }
    }
}

/// Assembles the array whose members are there.
#[inline(never)]
fn recover(
    command: &Command<'_>,
    one_by_one: &mut OneByOne,
    present: Members,
) -> Result<(KBox<Array<InKernel>>, [u8; 16])> {
    let mut scratch = KVVec::from_elem(0u8, MEMBERS * COLUMN_BYTES_MAX, GFP_KERNEL)?;
    let (first, rest) = scratch.split_at_mut(COLUMN_BYTES_MAX);
    let (second, third) = rest.split_at_mut(COLUMN_BYTES_MAX);
    let refused = |fault: Fault<Failed>| refused(command, &fault);
    let with = (present, command.is_forced);
    let mut recovery = examine(one_by_one, with, [first, second, third]).map_err(refused)?;
    let of = (*recovery.layout(), recovery.tag());
    check_memory(command, &of.0)?;
    let mut words = Words::new(&of.0)?;
    recovery.walk(&mut words).map_err(refused)?;
    let (first, end) = (
        recovery.start().cursor.sequence,
        recovery.opens_at().sequence,
    );
    let count = of.0.parts().segments as usize;
    let segments = Segments::count(Elements::<Segment>::new(count)?, &words, &of.0);
    let segments = segments.map_err(|_| {
        pr_err!(
            "{}: not assembled: its table makes no sense\n",
            command.name
        );
        errno::EUCLEAN
    })?;
    let start = *recovery.start();
    let free = segments.free_behind(recovery.opens_at(), (&start, &of.0));
    let free = free.ok_or(Fault::NoSegment).map_err(refused)?;
    let id = random::number() | 1;
    recovery.commit(id).map_err(refused)?;
    let opened = open_log(&mut recovery, free, id).map_err(refused)?;
    let uuid = opened.superblocks.iter().flatten().next();
    let uuid = uuid.map_or([0; 16], |superblock| superblock.uuid);
    let array = make(of, opened, (words, segments))?;
    pr_info!(
        "{}: {} batches of its log were followed\n",
        command.name,
        end.saturating_sub(first)
    );
    Ok((array, uuid))
}

/// Makes the state of an array that was recovered.
#[inline(never)]
fn begin(
    command: &Command<'_>,
    (array, one_by_one): (KBox<Array<InKernel>>, OneByOne),
    devices: DevicesOf,
) -> Result<Beginning> {
    Ok(Beginning {
        name: CString::try_from_fmt(fmt!("{}", command.name))?,
        settings: command.settings,
        engine: Engine::new(array, Means::new(devices)?)?,
        upkeep: Upkeep::new(one_by_one)?,
    })
}

/// Opens the members that a line names, makes an array of them if it says so, and assembles it.
/// Sleeps.
pub(super) fn assemble(
    command: &Command<'_>,
    queues: Arc<ArrayQueues>,
    gone: Arc<Completion>,
) -> Result<Assembled> {
    let devices = open(command)?;
    let devices = match command.mode {
        Mode::Create => {
            create(command, &queues, &devices)?;
            devices
        }
        Mode::Assemble => sort(command, &queues, devices)?,
    };
    let is_there = |member: &usize| matches!(devices.get(*member), Some(Some(_)));
    let present: Members = (0..MEMBERS).filter(is_there).collect();
    let mut one_by_one = OneByOne::new(&queues, &devices, &command.settings)?;
    let (array, uuid) = recover(command, &mut one_by_one, present)?;
    let (layout, live) = (*array.layout(), array.live());
    warn_of_blocks(command, &layout, &devices);
    let beginning = begin(command, (array, one_by_one), devices)?;
    let core = Core::new(beginning, queues, gone)?;
    let bytes = geometry::capacity_sectors(&layout).saturating_mul(SECTOR_BYTES.into());
    pr_info!(
        "{}: assembled of {} members in sync: {bytes} bytes, {} of memory for its table\n",
        core.name(),
        live.count(),
        geometry::table_bytes(&layout)
    );
    if geometry::is_overcommitted(&layout) {
        pr_warn!(
            "{}: promises more than its members hold without compression: watch how full it is\n",
            core.name()
        );
    }
    Ok(Assembled { core, uuid })
}
