// SPDX-License-Identifier: GPL-2.0

//! Objects for tests from user space, in `/sys/class/kernel_ext_test/stage`:
//!
//! - `number` is read and written; other text fails with `EINVAL`.
//! - A write to `make_child` creates the directory `child` and the link `link` to it.
//! - A write to `child/remove` removes both from its own store function.
//! - A write of a number to `child/hold_ms` sleeps for that time; the removal of the directory
//!   waits for it.
//! - A write of a number to `child/remove_late` sleeps for that time and then does as `remove`.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};
use kernel_ext::sync::atomic::{AtomicU32, Ordering};
use kernel_ext::{
    module_param_int, module_param_string,
    sync::Global,
    sysfs::{
        Attribute,
        Class,
        ClassDevice,
        Directory,
        Link,
        ShowBuffer,
        StoreContext, //
    },
};

module_param_int!(
    NUMBER: u16,
    "number",
    7,
    "First value of the attribute number (default: 7)"
);
module_param_string!(
    LABEL: 16,
    "label",
    "none",
    "Value of the attribute label, at most 16 bytes (default: none)"
);

/// The maximum duration of a write to `hold_ms`, in milliseconds.
const HOLD_MS_MAX: u32 = 10_000;

/// The state behind the device.
struct Number(AtomicU32);

/// The state behind `child`.
struct Child;

/// Fields are dropped in declaration order: the link first.
struct Children {
    _link: Link<ClassDevice<Number>>,
    _directory: Directory<Child>,
}

/// The device, for its attribute `make_child`, and the objects that a write created.
struct Tree {
    device: Option<Arc<ClassDevice<Number>>>,
    children: Option<Children>,
}

static TREE: Global<Tree> = Global::new(Tree {
    device: None,
    children: None,
});

fn show_number(this: &Number, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "{}", this.0.load(Ordering::Relaxed))
}

fn store_number(this: ArcBorrow<'_, Number>, _context: &StoreContext<'_>, text: &str) -> Result {
    let number = text.parse().map_err(|_| EINVAL)?;
    this.0.store(number, Ordering::Relaxed);
    Ok(())
}

fn show_label(_this: &Number, page: &mut ShowBuffer<'_>) -> Result {
    writeln!(page, "{}", LABEL.get())
}

/// Prints more than a page.
fn show_flood(_this: &Number, page: &mut ShowBuffer<'_>) -> Result {
    loop {
        page.push_str("flood\n")?;
    }
}

fn store_make_child(
    _this: ArcBorrow<'_, Number>,
    _context: &StoreContext<'_>,
    _text: &str,
) -> Result {
    let mut tree = TREE.lock();
    if tree.children.is_some() {
        return Err(EEXIST);
    }
    let device = tree.device.clone().ok_or(ENODEV)?;
    let data = Arc::new(Child, GFP_KERNEL)?;
    let directory = Directory::new(&*device, c"child", &CHILD_ATTRIBUTES, data)?;
    let link = Link::new(device, c"link", &directory)?;
    tree.children = Some(Children {
        _link: link,
        _directory: directory,
    });
    Ok(())
}

fn store_remove(_this: ArcBorrow<'_, Child>, context: &StoreContext<'_>, _text: &str) -> Result {
    context.remove_self(&crate::THIS_MODULE)?;
    let again = context.remove_self(&crate::THIS_MODULE);
    let children = TREE.lock().children.take();
    drop(children);
    super::check(again.is_err(), "a file removes itself once")
}

fn store_remove_late(this: ArcBorrow<'_, Child>, context: &StoreContext<'_>, text: &str) -> Result {
    store_hold(this, context, text)?;
    store_remove(this, context, text)
}

fn store_hold(_this: ArcBorrow<'_, Child>, _context: &StoreContext<'_>, text: &str) -> Result {
    let hold_ms: u32 = text.parse().map_err(|_| EINVAL)?;
    fsleep(Delta::from_millis(hold_ms.min(HOLD_MS_MAX).into()));
    pr_info!("held for {} ms\n", hold_ms);
    Ok(())
}

static ATTRIBUTES: [Attribute<Number>; 4] = [
    Attribute::rw(c"number", show_number, store_number),
    Attribute::ro(c"label", show_label),
    Attribute::ro(c"flood", show_flood),
    Attribute::wo(c"make_child", store_make_child),
];

static CHILD_ATTRIBUTES: [Attribute<Child>; 3] = [
    Attribute::wo(c"remove", store_remove),
    Attribute::wo(c"hold_ms", store_hold),
    Attribute::wo(c"remove_late", store_remove_late),
];

/// The objects that exist while the module is loaded.
pub(crate) struct Stage {
    _class: Class,
}

impl Stage {
    pub(super) fn new() -> Result<Self> {
        let class = Class::register(c"kernel_ext_test")?;
        let number = Arc::new(Number(AtomicU32::new(NUMBER.get().into())), GFP_KERNEL)?;
        let device = ClassDevice::new(&class, c"stage", &ATTRIBUTES, number)?;
        TREE.lock().device = Some(Arc::new(device, GFP_KERNEL)?);
        Ok(Self { _class: class })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let mut tree = TREE.lock();
        let (device, children) = (tree.device.take(), tree.children.take());
        // Dropped without the lock: writes take it, and the drops wait for writes. The link keeps
        // the device, and no other is made without it.
        drop(tree);
        drop(children);
        drop(device);
    }
}
