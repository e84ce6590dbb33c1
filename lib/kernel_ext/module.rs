// SPDX-License-Identifier: GPL-2.0

//! References to modules.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use kernel::{
    bindings,
    prelude::*, //
};

/// A reference to a module: as long as there is one the module is not unloaded, and who asks for
/// that is told so at once.
///
/// # Invariants
///
/// `0` is a module, to which this value has a reference.
pub struct ModuleUse(*mut bindings::module);

// SAFETY: A reference to a module is not tied to a task.
unsafe impl Send for ModuleUse {}

impl ModuleUse {
    /// Takes a reference; `None` if the module is being unloaded. The caller runs in the module.
    pub fn new(module: &'static ThisModule) -> Option<Self> {
        let module = module.as_ptr();
        // SAFETY: The module exists: its code has called this.
        let is_taken = unsafe { bindings::try_module_get(module) };
        // INVARIANT: The reference was just taken. Lazily: the drop of one would give it back.
        is_taken.then(|| Self(module))
    }
}

impl Drop for ModuleUse {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the reference is this value's.
        unsafe { bindings::module_put(self.0) };
    }
}
