/* SPDX-License-Identifier: GPL-2.0 */
/* Input of bindgen: the headers of ib_core and rdma_cm, and the wrappers of their inline functions. */
#include <linux/hrtimer_types.h>
#include <linux/blkdev.h>
#include <linux/fs.h>
#include <net/sock.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_cache.h>
#include "helpers.h"
