/* SPDX-License-Identifier: GPL-2.0 */
/* Input of bindgen: the wrappers of inline functions. ib_core's bindings are those of the crate rdma_sys. */
#include "helpers.h"
