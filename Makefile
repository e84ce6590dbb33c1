# SPDX-License-Identifier: GPL-2.0
# For people. Kbuild (next to this file) is for the kernel's build system.
#
# Everything runs on any Debian 12 or 13 machine: the kernel tree, the compiler and the guests'
# programs come from a Debian root that tools/kdir makes once and keeps in the user's cache.

PYTHON := python3 -B
KDIR   := $(PYTHON) tools/kdir
LAB    := $(PYTHON) tools/vmlab
# `make test ONLY='io.* sysfs.*'` runs some of the VM tests, `make mutants ONLY=rnbd/proto/admin_lock.rs` some mutants.
ONLY   ?=
# How long `make soak` goes on.
MINUTES ?= 60

.PHONY: help setup setup-build modules modules_install programs cmodules demo demo-gfarm demo-ec demo-rioc shell test test-all test-rest test-long soak
.PHONY: mutants rules check coverage bench doc clean

help:
	@echo 'make demo             two VMs, a disk over RDMA between them: the whole story, with figures'
	@echo 'make demo-gfarm       a VM with a Gfarm of real servers: the kernel mounts and reads it, beside gfarm2fs'
	@echo 'make demo-ec          four VMs: one disk over three servers, of which one dies under load and is replaced'
	@echo 'make demo-rioc        three VMs: objects for two clients, copies on write, a lease; the server dies and comes back'
	@echo 'make shell            the same two VMs, modules loaded, and a prompt on the client'
	@echo 'make test             a test of each rule; the last line counts them (some: make test ONLY="io.* sysfs.*")'
	@echo 'make test-all         every test (what make test has left out: make test-rest)'
	@echo 'make test-long        the same longer and more often, and in a debug kernel: hours'
	@echo 'make soak             nine disks and all that people do with them under trouble (MINUTES=60)'
	@echo 'make mutants          every mutant of the state machines must fail a test (other files: ONLY=rtrs/proto/addr.rs)'
	@echo 'make rules            a test must fail without each rule of the drivers (some: ONLY=rtrs/client/io/completion.rs)'
	@echo 'make bench            speed, side by side with the C driver and nvme-rdma, and with gfarm2fs'
	@echo 'make modules          the kernel modules, built for the stock kernel'
	@echo 'make programs         mount.gfarm, which mount -t gfarm runs, pi-sidecar and rnbd-ec, for disks on the server, rioc and libioc'
	@echo 'make modules_install  installs both for the running kernel (as root)'
	@echo 'make check            style, lint and the tests that need no VM'
	@echo 'make coverage         which lines and functions the tests reach (some: ONLY="io.*")'
	@echo 'make doc              rustdoc of the library crates'
	@echo 'make clean            removes what was built of this checkout (not the cached kernel tree)'

setup:
	@tools/setup

setup-build:
	@tools/setup build

modules: setup-build
	@$(KDIR) build

programs: setup-build
	@$(KDIR) programs >/dev/null

# For the running kernel; INSTALL_MOD_PATH=/elsewhere installs below another root, as with the kernel's own target.
modules_install:
	@$(KDIR) install

cmodules: setup-build
	@$(KDIR) cmodules >/dev/null

demo: setup modules
	@$(LAB) demo

demo-gfarm: setup modules programs
	@$(LAB) demo-gfarm

demo-ec: setup modules
	@$(LAB) demo-ec

demo-rioc: setup modules programs
	@$(LAB) demo-rioc

shell: setup modules
	@$(LAB) shell

test: setup
	@$(PYTHON) tools/test test $(ONLY)

test-all: setup
	@$(PYTHON) tools/test all

test-rest: setup
	@$(PYTHON) tools/test rest

test-long: setup
	@$(PYTHON) tools/test long

soak: setup modules
	@VMLAB_SOAK_MINUTES=$(MINUTES) $(LAB) run --long --only 'soak.*'

mutants:
	@tools/setup check
	@$(PYTHON) tools/test mutants $(ONLY)

# The files may stand on lines of their own, as git writes them.
rules: setup
	@$(PYTHON) tools/test rules $(strip $(ONLY))

check:
	@tools/setup check
	@$(PYTHON) tools/test check

coverage: setup modules
	@$(PYTHON) tools/coverage $(ONLY)

bench: setup modules cmodules
	@$(PYTHON) tools/bench

doc: setup-build
	@$(KDIR) doc

clean:
	@$(KDIR) clean
