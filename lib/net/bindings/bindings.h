/* SPDX-License-Identifier: GPL-2.0 */
/* Input of bindgen: what the in-tree `bindings` crate lacks for this crate. */
#include <crypto/md5.h>
#include <linux/dns_resolver.h>
#include <linux/hrtimer_types.h>
#include <linux/net.h>
#include <linux/uio.h>
#include <net/net_namespace.h>
#include "helpers.h"
