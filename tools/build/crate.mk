# SPDX-License-Identifier: GPL-2.0
# How a Rust crate of this tree sees another, and how a library exports its symbols.

rmeta_dir := $(abspath $(obj))/rmeta
$(shell mkdir -p $(rmeta_dir))

# $(1): crate, $(2): its root without .rs, $(3): crates that it uses directly
define rust_crate
crate_object_$(1) := $$(obj)/$(2).o
RUSTFLAGS_$(2).o := --emit=metadata=$$(rmeta_dir)/lib$(1).rmeta -Ldependency=$$(rmeta_dir) \
	$(foreach d,$(3),--extern $(d)=$$(rmeta_dir)/lib$(d).rmeta)
$$(obj)/$(2).o: $(foreach d,$(3),$$(crate_object_$(d)))
endef

# A C file that exports every Rust symbol (v0 mangling: `_R...`) of its objects. What lies in the
# init section cannot be exported.
quiet_cmd_rust_exports = EXPORTS $@
      cmd_rust_exports = { echo '\#include <linux/export.h>'; \
	$(NM) -p --defined-only $(real-prereqs) | awk '$$2 ~ /^[TRDB]$$/ && $$3 ~ /^_R/ && \
	$$3 !~ /__module_init|__UNIQUE_ID/ { printf "extern int %s;\nEXPORT_SYMBOL_GPL(%s);\n", $$3, $$3 }'; } > $@

# $(1): the C file without .c, $(2): the crates' objects without .o
define exports
$$(obj)/$(1).c: $(foreach o,$(2),$$(obj)/$(o).o) FORCE
	$$(call if_changed,rust_exports)
$$(obj)/$(1).o: $$(obj)/$(1).c
targets += $(1).c
endef
