// SPDX-License-Identifier: GPL-2.0
/*
 * A QEMU plugin that counts executed guest instructions by the address of their translation block.
 *
 * The guest program `mark N` executes a 7-byte no-operation that means "write the counts since the
 * last mark to a file". Needs one virtual CPU. It declares what it uses of QEMU's plugin interface
 * itself, so that no QEMU headers are needed; PLUGIN_VERSION is 1 for QEMU before 8.2, else 4.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*translation_callback)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*execution_callback)(unsigned int, void *);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, translation_callback callback);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, execution_callback callback, int flags,
					  void *context);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, execution_callback callback, int flags,
					    void *context);
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

/* nopl disp32(%rax): 0f 1f 80, then the mark's number and "RAM". */
static const uint8_t mark_code[3] = { 0x0f, 0x1f, 0x80 };
static const uint8_t mark_word[3] = { 'R', 'A', 'M' };
enum { MARK_SIZE = 7, TABLE_BITS = 21 };

struct block {
	uint64_t address;
	uint64_t executed;
	uint64_t written;
};

/* One translation of a block: the same address may be translated again with another length. */
struct translation {
	struct block *block;
	uint64_t instructions;
};

static struct block *table;
static struct block user_space;
static char output[512];
static int marks;

static struct block *find(uint64_t address)
{
	uint64_t slot = (address * 0x9E3779B97F4A7C15ull) >> (64 - TABLE_BITS);

	while (table[slot].address && table[slot].address != address)
		slot = (slot + 1) & ((1u << TABLE_BITS) - 1);
	table[slot].address = address;
	return &table[slot];
}

static void executed(unsigned int cpu, void *context)
{
	struct translation *translation = context;

	translation->block->executed += translation->instructions;
}

static void marked(unsigned int cpu, void *context)
{
	char name[sizeof(output) + 16];
	FILE *file;

	snprintf(name, sizeof(name), "%s.%d", output, marks++);
	file = fopen(name, "w");
	if (!file)
		return;
	fprintf(file, "user %llu\n", (unsigned long long)(user_space.executed - user_space.written));
	user_space.written = user_space.executed;
	for (size_t i = 0; i < 1u << TABLE_BITS; i++) {
		struct block *block = &table[i];

		if (block->executed == block->written)
			continue;
		fprintf(file, "%llx %llu\n", (unsigned long long)block->address,
			(unsigned long long)(block->executed - block->written));
		block->written = block->executed;
	}
	fclose(file);
}

static bool is_mark(struct qemu_plugin_insn *insn)
{
	const uint8_t *bytes;

	if (qemu_plugin_insn_size(insn) != MARK_SIZE)
		return false;
#if PLUGIN_VERSION >= 3
	uint8_t copy[MARK_SIZE];

	if (qemu_plugin_insn_data(insn, copy, sizeof(copy)) != sizeof(copy))
		return false;
	bytes = copy;
#else
	bytes = qemu_plugin_insn_data(insn);
#endif
	return !memcmp(bytes, mark_code, sizeof(mark_code)) && !memcmp(bytes + 4, mark_word, sizeof(mark_word));
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	size_t count = qemu_plugin_tb_n_insns(tb);
	struct translation *translation = malloc(sizeof(*translation));

	if (!translation)
		abort();
	translation->block = address >> 63 ? find(address) : &user_space;
	translation->instructions = count;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, 0, translation);
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (is_mark(insn))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, marked, 0, NULL);
	}
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_plugin_info *info, int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		if (!strncmp(argv[i], "out=", 4))
			snprintf(output, sizeof(output), "%s", argv[i] + 4);
	table = calloc(1u << TABLE_BITS, sizeof(*table));
	if (!table || !output[0])
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
