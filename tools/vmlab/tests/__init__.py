# SPDX-License-Identifier: GPL-2.0
"""The tests, one file a subject. Functions called test_* take a lab; `vmlab.needs` says what else."""
