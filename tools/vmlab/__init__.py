# SPDX-License-Identifier: GPL-2.0
"""Throw-away virtual machines on private wires, and the tests that run in them.

Python's standard library and QEMU only: no KVM needed, no bridge, no root on the host. See README.md
in this folder for the commands, and `lab.py` for the vocabulary in which tests are written.
"""
