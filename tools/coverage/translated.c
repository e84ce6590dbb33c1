// SPDX-License-Identifier: GPL-2.0
/*
 * A QEMU plugin that writes down which code of modules a guest executes: each translation block once, as its address
 * and its bytes. A block is translated when it is about to be executed. The file is OUT/PID.
 *
 * It declares what it uses of QEMU's plugin interface itself, so that no QEMU headers are needed; PLUGIN_VERSION is 1
 * for QEMU before 8.2, else 4.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*translation_callback)(qemu_plugin_id_t, struct qemu_plugin_tb *);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, translation_callback callback);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
#if PLUGIN_VERSION >= 3
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *bytes, size_t size);
#else
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
#endif

EXPORT int qemu_plugin_version = PLUGIN_VERSION;

/* x86-64 has its modules from here on. */
static const uint64_t modules_start = 0xffffffffc0000000ull;
enum { TABLE_BITS = 20, BLOCK_MAX = 8192 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t seen[1u << TABLE_BITS];
static size_t seen_count;
static FILE *output;

/* With `lock` held: whether this is the first block with this digest. A full table takes all for new. */
static bool is_new(uint64_t digest)
{
	uint64_t slot = digest >> (64 - TABLE_BITS);

	if (seen_count >= sizeof(seen) / sizeof(*seen) / 2)
		return true;
	while (seen[slot] && seen[slot] != digest)
		slot = (slot + 1) & ((1u << TABLE_BITS) - 1);
	if (seen[slot])
		return false;
	seen[slot] = digest;
	seen_count++;
	return true;
}

static size_t copy(const struct qemu_plugin_insn *insn, uint8_t *to)
{
	size_t size = qemu_plugin_insn_size(insn);

#if PLUGIN_VERSION >= 3
	return qemu_plugin_insn_data(insn, to, size);
#else
	memcpy(to, qemu_plugin_insn_data(insn), size);
	return size;
#endif
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	uint64_t digest = address * 0x9E3779B97F4A7C15ull;
	size_t count = qemu_plugin_tb_n_insns(tb);
	uint8_t bytes[BLOCK_MAX];
	size_t size = 0;

	if (address < modules_start)
		return;
	for (size_t i = 0; i < count && size < BLOCK_MAX - 16; i++)
		size += copy(qemu_plugin_tb_get_insn(tb, i), bytes + size);
	for (size_t i = 0; i < size; i++)
		digest = (digest ^ bytes[i]) * 0x100000001B3ull;
	pthread_mutex_lock(&lock);
	if (is_new(digest | 1)) {
		fprintf(output, "%llx ", (unsigned long long)address);
		for (size_t i = 0; i < size; i++)
			fprintf(output, "%02x", bytes[i]);
		fputc('\n', output);
		fflush(output);
	}
	pthread_mutex_unlock(&lock);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_plugin_info *info, int argc, char **argv)
{
	char name[512] = "";

	for (int i = 0; i < argc; i++)
		if (!strncmp(argv[i], "out=", 4))
			snprintf(name, sizeof(name), "%s/%d", argv[i] + 4, getpid());
	output = name[0] ? fopen(name, "w") : NULL;
	if (!output)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
