/* SPDX-License-Identifier: GPL-2.0 */
/* Input of bindgen: what the in-tree `bindings` crate lacks for this crate. */
#include "helpers.h"
