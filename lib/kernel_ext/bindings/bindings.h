/* SPDX-License-Identifier: GPL-2.0 */
/* Input of bindgen: what the in-tree `bindings` crate lacks for this crate. */
#include <linux/crc-t10dif.h>
#include <linux/crc32.h>
#include <linux/crc64.h>
#include <linux/lz4.h>
#include <linux/namei.h>
#include <linux/raid/xor.h>
#include "helpers.h"
