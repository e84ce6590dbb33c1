# SPDX-License-Identifier: GPL-2.0
# `make ... RDOC=1`: the documentation of the library crates in $(obj)/doc. The kernel's build system
# has no target for external modules; the flags are those of the object, less its outputs.

quiet_cmd_rustdoc_ext = RUSTDOC $<
      cmd_rustdoc_ext = OBJTREE=$(abspath $(objtree)) RUST_MODFILE=doc $(RUSTDOC) \
	$(filter-out --emit=% --remap-path-scope=%,$(_rust_flags)) --cfg MODULE \
	@$(objtree)/include/generated/rustc_cfg -Zallow-features=$(rust_allowed_features) -Zcrate-attr=no_std \
	-Zcrate-attr='feature($(rust_allowed_features))' -Zunstable-options --extern pin_init --extern kernel \
	--extern zerocopy --extern zerocopy_derive -L $(objtree)/rust/ --sysroot=/dev/null \
	--crate-name $(notdir $(basename $<)) --output $(abspath $(obj))/doc $< && touch $@

# $(1): root of the crate without .rs
define documentation
RUSTFLAGS_$(1).doc := $$(filter-out --emit=%,$$(RUSTFLAGS_$(1).o))
$$(obj)/$(1).doc: $$(src)/$(1).rs $$(obj)/$(1).o FORCE
	$$(call if_changed,rustdoc_ext)
always-y += $(1).doc
endef
