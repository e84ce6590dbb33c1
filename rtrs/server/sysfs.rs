// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/rtrs-server/SESSION/paths/SRC@DST/`: the files of sessions and paths.

use ferro_proto::text::Escaped;
use kernel::{
    prelude::*,
    str::CString,
    sync::{
        rcu,
        Arc,
        ArcBorrow, //
    },
};
use kernel_ext::sysfs::{
    Attribute,
    Class,
    ClassDevice,
    Directory,
    ShowBuffer,
    StoreContext, //
};

use super::path::Path;

/// The files of a session: its directory in the class, and `paths` in that.
pub(crate) struct SessionFiles {
    /// Removed before the device.
    paths: Directory<()>,
    _device: ClassDevice<()>,
}

impl SessionFiles {
    /// Creates them. Sleeps.
    pub(crate) fn new(class: &Class, name: &CStr) -> Result<Self> {
        let nothing = Arc::new((), GFP_KERNEL)?;
        let device = ClassDevice::new(class, name, &[], nothing.clone())?;
        Ok(Self {
            paths: Directory::new(&device, c"paths", &[], nothing)?,
            _device: device,
        })
    }
}

/// The files of a path.
pub(crate) struct PathFiles {
    /// Removed before the directory that it is in.
    _stats: Directory<Path>,
    _path: Directory<Path>,
}

impl PathFiles {
    /// Creates them. They hold the path until they are dropped. Sleeps.
    pub(crate) fn new(session: &SessionFiles, path: &Arc<Path>) -> Result<Self> {
        let name = CString::try_from_fmt(format_args!("{}", path.name))?;
        let directory = Directory::new(&session.paths, &name, &PATH, path.clone())?;
        Ok(Self {
            _stats: Directory::new(&directory, c"stats", &STATS, path.clone())?,
            _path: directory,
        })
    }
}

static PATH: [Attribute<Path>; 5] = [
    Attribute::ro(c"hca_name", show_hca_name),
    Attribute::ro(c"hca_port", show_hca_port),
    Attribute::ro(c"src_addr", show_src_addr),
    Attribute::ro(c"dst_addr", show_dst_addr),
    Attribute::rw(c"disconnect", show_disconnect, store_disconnect),
];

static STATS: [Attribute<Path>; 1] = [Attribute::rw(c"rdma", show_rdma, store_rdma)];

fn show_hca_name(path: &Path, page: &mut ShowBuffer<'_>) -> Result {
    page.push_str(path.device.name().to_str().map_err(|_| EINVAL)?)?;
    page.push_str("\n")
}

fn show_hca_port(path: &Path, page: &mut ShowBuffer<'_>) -> Result {
    let guard = rcu::read_lock();
    let connections = path.connections(&guard).ok_or(ENODEV)?;
    let admin = connections.get(0).ok_or(ENODEV)?;
    writeln!(page, "{}", admin.cm.port_number())
}

// The names are the client's view: its address is the source.
fn show_src_addr(path: &Path, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "{}", path.name.src)
}

fn show_dst_addr(path: &Path, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "{}", path.name.dst)
}

/// Checks that the text written is `1`.
fn expect_one(path: &Path, what: &str, text: &str) -> Result {
    if text == "1" {
        return Ok(());
    }
    pr_err!(
        "{}: {what}: unknown value '{}', write 1\n",
        path.label(),
        Escaped(text.as_bytes())
    );
    Err(EINVAL)
}

fn show_disconnect(_path: &Path, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "Usage: echo 1 > disconnect")
}

fn store_disconnect(path: ArcBorrow<'_, Path>, context: &StoreContext<'_>, text: &str) -> Result {
    expect_one(&path, "disconnect", text)?;
    pr_info!("{}: disconnect requested\n", path.label());
    // The teardown removes this file and would wait for this call.
    context.remove_self(&crate::THIS_MODULE)?;
    Arc::from(path).close();
    Ok(())
}

fn show_rdma(path: &Path, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "{}", path.stats.sum())
}

fn store_rdma(path: ArcBorrow<'_, Path>, _context: &StoreContext<'_>, text: &str) -> Result {
    expect_one(&path, "rdma", text)?;
    path.stats.reset();
    Ok(())
}
