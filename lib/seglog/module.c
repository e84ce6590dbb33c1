// SPDX-License-Identifier: GPL-2.0
/*
 * seglog is pure Rust, compiled for the host as well: what a module has to say of itself is here.
 */

#include <linux/module.h>

MODULE_AUTHOR("The Ferrofabric developers");
MODULE_DESCRIPTION("A log of segments on block devices");
MODULE_LICENSE("GPL");
