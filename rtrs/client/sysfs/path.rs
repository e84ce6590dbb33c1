// SPDX-License-Identifier: GPL-2.0

//! `/sys/class/rtrs-client/SESSION/paths/SRC@DST`.

use ferro_proto::text::{
    self,
    Escaped, //
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc,
        ArcBorrow, //
    },
};
use kernel_ext::{
    memory,
    sysfs::{
        Attribute,
        ShowBuffer,
        StoreContext, //
    },
};
use rtrs_core::proto::stats::{
    ClientRdma,
    Latency, //
};

use crate::client::{
    path::Path,
    session::paths::PathsReserve, //
};

pub(crate) static PATH: [Attribute<Path>; 9] = [
    Attribute::ro(c"state", |path, page| writeln!(page, "{}", path.state())),
    Attribute::ro(c"hca_name", |path, page| {
        path.with_ends(|ends| page.write_fmt(fmt!("{}\n", &*ends.device)))
    }),
    Attribute::ro(c"hca_port", |path, page| {
        path.with_ends(|ends| writeln!(page, "{}", ends.port))
    }),
    Attribute::ro(c"src_addr", |path, page| {
        writeln!(page, "{}", path.name().src)
    }),
    Attribute::ro(c"dst_addr", |path, page| {
        writeln!(page, "{}", path.name().dst)
    }),
    Attribute::ro(c"cur_latency", |path, page| {
        writeln!(page, "{}", Latency(path.liveness.latency_ns()))
    }),
    Attribute::rw(
        c"reconnect",
        |_, page| page.push_str("Usage: echo 1 > reconnect\n"),
        store_reconnect,
    ),
    Attribute::rw(
        c"disconnect",
        |_, page| page.push_str("Usage: echo 1 > disconnect\n"),
        store_disconnect,
    ),
    Attribute::rw(
        c"remove_path",
        |_, page| page.push_str("Usage: echo 1 > remove_path\n"),
        store_remove_path,
    ),
];

/// Checks that the text written is `1`.
fn expect_one(path: &Path, what: &str, text: &str) -> Result {
    if text::is_word(text.as_bytes(), b"1") {
        return Ok(());
    }
    pr_err!(
        "session {}: {what}: unknown value '{}', write 1\n",
        path.session.name(),
        Escaped(text.as_bytes())
    );
    Err(EINVAL)
}

fn store_reconnect(path: ArcBorrow<'_, Path>, _context: &StoreContext<'_>, text: &str) -> Result {
    expect_one(&path, "reconnect", text)?;
    Arc::from(path).reconnect()
}

fn store_disconnect(path: ArcBorrow<'_, Path>, _context: &StoreContext<'_>, text: &str) -> Result {
    expect_one(&path, "disconnect", text)?;
    Arc::from(path).close_killable()
}

fn store_remove_path(path: ArcBorrow<'_, Path>, context: &StoreContext<'_>, text: &str) -> Result {
    expect_one(&path, "remove_path", text)?;
    // As for `add_path`.
    memory::without_io(|| remove_path(&path.into(), context))
}

/// Removes a path and its files. A caller that is killed leaves a path that is closed.
fn remove_path(path: &Arc<Path>, context: &StoreContext<'_>) -> Result {
    let reserve = PathsReserve::new()?;
    path.close_killable()?;
    context.remove_self(&crate::THIS_MODULE)?;
    path.session.remove(path, reserve);
    let files = match &mut *path.session.files.lock() {
        Some(files) => files.take(path),
        None => None,
    };
    drop(files);
    Ok(())
}

pub(crate) static STATS: [Attribute<Path>; 5] = [
    Attribute::rw(c"cpu_migration_from", show_migration_from, reset_migration),
    Attribute::rw(c"cpu_migration_to", show_migration_to, reset_migration),
    Attribute::rw(
        c"reconnects",
        |path, page| writeln!(page, "{}", path.stats.reconnects()),
        reset_reconnects,
    ),
    Attribute::rw(c"rdma", show_rdma, reset_rdma),
    Attribute::rw(
        c"reset_all",
        |_, page| page.push_str("echo 1 to reset all statistics\n"),
        reset_all,
    ),
];

fn show_migration_from(path: &Path, page: &mut ShowBuffer<'_>) -> Result {
    for count in path.stats.migrated_from() {
        write!(page, "{count} ")?;
    }
    page.push_str("\n")
}

fn show_migration_to(path: &Path, page: &mut ShowBuffer<'_>) -> Result {
    for count in path.stats.migrated_to() {
        write!(page, "{count} ")?;
    }
    page.push_str("\n")
}

fn show_rdma(path: &Path, page: &mut ShowBuffer<'_>) -> Result {
    let guard = rcu::read_lock();
    let connections = path.connections.read(&guard);
    let rdma = ClientRdma {
        counts: path.stats.io(),
        inflight: connections.map_or(0, |t| t.requests.unanswered()),
        failover: path.stats.failover(),
    };
    writeln!(page, "{rdma}")
}

fn reset_migration(path: ArcBorrow<'_, Path>, _context: &StoreContext<'_>, text: &str) -> Result {
    expect_one(&path, "cpu_migration", text)?;
    path.stats.reset_migration();
    Ok(())
}

fn reset_reconnects(path: ArcBorrow<'_, Path>, _context: &StoreContext<'_>, text: &str) -> Result {
    expect_one(&path, "reconnects", text)?;
    path.stats.reset_reconnects();
    Ok(())
}

fn reset_rdma(path: ArcBorrow<'_, Path>, _context: &StoreContext<'_>, text: &str) -> Result {
    expect_one(&path, "rdma", text)?;
    path.stats.reset_rdma();
    Ok(())
}

fn reset_all(path: ArcBorrow<'_, Path>, _context: &StoreContext<'_>, text: &str) -> Result {
    expect_one(&path, "reset_all", text)?;
    path.stats.reset_rdma();
    path.stats.reset_migration();
    path.stats.reset_reconnects();
    Ok(())
}
