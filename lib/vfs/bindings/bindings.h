/* SPDX-License-Identifier: GPL-2.0 */
/* Input of bindgen: what the in-tree `bindings` crate lacks for this crate. */
#include <linux/hrtimer_types.h>
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/namei.h>
#include <linux/netfs.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/statfs.h>
#include "helpers.h"

/* Macros with casts that bindgen does not see. */
const unsigned long VFS_EXT_SB_RDONLY = SB_RDONLY;
const unsigned int VFS_EXT_LOOKUP_RCU = LOOKUP_RCU;
const unsigned int VFS_EXT_LOOKUP_REVAL = LOOKUP_REVAL;
const unsigned int VFS_EXT_LOOKUP_OPEN = LOOKUP_OPEN;
const int VFS_EXT_ENOPARAM = ENOPARAM;
