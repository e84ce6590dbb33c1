# SPDX-License-Identifier: GPL-2.0
# Raw bindings of kernel headers that the in-tree `bindings` crate lacks.
#
# rust/Makefile does not export bindgen's flags: the C flags that libclang does not know are taken
# from there, the type parameters from rust/bindgen_parameters. Layout assertions stay on: they
# prove at compile time that mixing with in-tree types is right.

params_of = $(shell grep -Ev '^\#|^$$' $(1))

gcc_only_flags := $(shell sed -n '/^bindgen_skip_c_flags := /,/[^\\]$$/p' $(srctree)/rust/Makefile | \
	sed 's/^bindgen_skip_c_flags := //; s/\\$$//')
clang_flags = $(c_flags)
ifndef CONFIG_CC_IS_CLANG
clang_flags = $(filter-out $(gcc_only_flags), $(c_flags)) -w --target=x86_64-linux-gnu
endif

bindgen_opts := --rust-target 1.85 --use-core --ctypes-prefix ffi --with-derive-default \
	--no-debug '.*' --enable-function-attribute-detection

quiet_cmd_bindgen_ext = BINDGEN $@
      cmd_bindgen_ext = $(BINDGEN) $< -o $@ $(bindgen_opts) \
	$(call params_of,$(srctree)/rust/bindgen_parameters) $(call params_of,$(word 2,$(real-prereqs))) \
	-- $(clang_flags) -I$(dir $<) -fno-builtin -D__BINDGEN__ -DMODULE

# $(1): folder, $(2): crate C. $(1)/bindings/{bindings.h,allow.txt} become $(1)/bindings/generated.rs,
# which the crate C_sys includes through the environment variable C_BINDINGS (works with output
# elsewhere as well).
define bindings
export $(2)_BINDINGS := $$(abspath $$(obj))/$(1)/bindings/generated.rs
$$(obj)/$(1)/bindings/generated.rs: $$(src)/$(1)/bindings/bindings.h $$(src)/$(1)/bindings/allow.txt \
		$$(src)/$(1)/bindings/helpers.h FORCE
	$$(call if_changed_dep,bindgen_ext)
targets += $(1)/bindings/generated.rs
$$(obj)/$(1)/$(2)_sys.o: $$(obj)/$(1)/bindings/generated.rs
CFLAGS_$(1)/bindings/helpers.o := -I$$(src)/$(1)/bindings
endef
