/* SPDX-License-Identifier: GPL-2.0 */
/* Input of bindgen: what the in-tree `bindings` crate lacks for this crate. */
#include <linux/hrtimer_types.h>
#include <linux/bio.h>
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/blk-integrity.h>
#include <linux/hdreg.h>
#include "helpers.h"

/* Macros with casts that bindgen does not see: <linux/blkdev.h>. */
const blk_features_t BLOCK_EXT_BLK_FEAT_WRITE_CACHE = BLK_FEAT_WRITE_CACHE;
const blk_features_t BLOCK_EXT_BLK_FEAT_FUA = BLK_FEAT_FUA;
const blk_features_t BLOCK_EXT_BLK_FEAT_NOWAIT = BLK_FEAT_NOWAIT;
const blk_mode_t BLOCK_EXT_BLK_OPEN_READ = BLK_OPEN_READ;
const blk_mode_t BLOCK_EXT_BLK_OPEN_WRITE = BLK_OPEN_WRITE;
/* <linux/gfp_types.h> */
const gfp_t BLOCK_EXT_GFP_NOIO = GFP_NOIO;
