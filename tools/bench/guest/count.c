// SPDX-License-Identifier: GPL-2.0
/*
 * A QEMU plugin that counts executed guest instructions by the address of their translation block, and how often
 * each block was executed: that of a block at a function's first instruction is the number of its calls.
 *
 * With the argument `detail=1` it counts besides, one by one, the instructions of modules and those of the kernel
 * that lock the bus. The guest program `mark N` executes a 7-byte no-operation that means "write the counts since
 * the last mark to a file". Lines of that file: `user COUNT`, `B ADDRESS INSTRUCTIONS TIMES` (block),
 * `I ADDRESS TIMES` (instruction of a module), `L ADDRESS TIMES` (instruction that locks). Needs one virtual CPU. It declares what it uses of QEMU's plugin interface
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
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
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
/* An instruction of the x86 has 15 bytes at most. TABLE_BITS is for more places than a guest has. */
enum { MARK_SIZE = 7, INSN_SIZE_MAX = 15, TABLE_BITS = 21 };
/* x86_64: the kernel loads modules from here on. */
#define MODULES_VADDR 0xffffffffc0000000ull

/* A place in the guest's text. What was written to a file is not written again. */
struct place {
	uint64_t address;
	uint64_t instructions;
	uint64_t times;
	uint64_t instructions_written;
	uint64_t times_written;
};

/* Places by address, open addressing. */
struct table {
	const char *kind;
	struct place *places;
};

/* One translation of a block: the same address may be translated again with another length. */
struct translation {
	struct place *block;
	uint64_t instructions;
};

static struct table blocks = { "B" }, module_instructions = { "I" }, locked_instructions = { "L" };
static struct place user_space;
static char output[512];
static bool has_detail;
static int marks;

static struct place *find(struct table *table, uint64_t address)
{
	uint64_t slot = (address * 0x9E3779B97F4A7C15ull) >> (64 - TABLE_BITS);

	while (table->places[slot].address && table->places[slot].address != address)
		slot = (slot + 1) & ((1u << TABLE_BITS) - 1);
	table->places[slot].address = address;
	return &table->places[slot];
}

static void executed(unsigned int cpu, void *context)
{
	struct translation *translation = context;

	translation->block->instructions += translation->instructions;
	translation->block->times++;
}

static void passed(unsigned int cpu, void *context)
{
	struct place *place = context;

	place->times++;
}

static void write_table(FILE *file, struct table *table)
{
	for (size_t i = 0; table->places && i < 1u << TABLE_BITS; i++) {
		struct place *place = &table->places[i];
		unsigned long long times = place->times - place->times_written;

		if (!times)
			continue;
		fprintf(file, "%s %llx", table->kind, (unsigned long long)place->address);
		if (table == &blocks)
			fprintf(file, " %llu", (unsigned long long)(place->instructions - place->instructions_written));
		fprintf(file, " %llu\n", times);
		place->times_written = place->times;
		place->instructions_written = place->instructions;
	}
}

static void marked(unsigned int cpu, void *context)
{
	char name[sizeof(output) + 16];
	FILE *file;

	snprintf(name, sizeof(name), "%s.%d", output, marks++);
	file = fopen(name, "w");
	if (!file)
		return;
	fprintf(file, "user %llu\n", (unsigned long long)(user_space.instructions - user_space.instructions_written));
	user_space.instructions_written = user_space.instructions;
	write_table(file, &blocks);
	write_table(file, &module_instructions);
	write_table(file, &locked_instructions);
	fclose(file);
}

/* Copies the first bytes of an instruction, `room` at most; returns how many. */
static size_t copy_bytes(struct qemu_plugin_insn *insn, uint8_t *bytes, size_t room)
{
	size_t size = qemu_plugin_insn_size(insn);

	if (size > room)
		size = room;
#if PLUGIN_VERSION >= 3
	return qemu_plugin_insn_data(insn, bytes, size);
#else
	memcpy(bytes, qemu_plugin_insn_data(insn), size);
	return size;
#endif
}

static bool is_mark(const uint8_t *bytes, size_t size)
{
	return size == MARK_SIZE && !memcmp(bytes, mark_code, sizeof(mark_code)) &&
	       !memcmp(bytes + 4, mark_word, sizeof(mark_word));
}

/* Has the prefix LOCK, or is an XCHG with memory, which locks without it. */
static bool is_locked(const uint8_t *bytes, size_t size)
{
	size_t i = 0;

	while (i < size && memchr("\x66\x67\xf2\xf3\x2e\x36\x3e\x26\x64\x65\xf0", bytes[i], 11))
		if (bytes[i++] == 0xf0)
			return true;
	if (i < size && (bytes[i] & 0xf0) == 0x40)
		i++;
	return i + 1 < size && (bytes[i] & 0xfe) == 0x86 && bytes[i + 1] >> 6 != 3;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	size_t count = qemu_plugin_tb_n_insns(tb);
	struct translation *translation = malloc(sizeof(*translation));

	if (!translation)
		abort();
	translation->block = address >> 63 ? find(&blocks, address) : &user_space;
	translation->instructions = count;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, 0, translation);
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		uint8_t bytes[INSN_SIZE_MAX];
		size_t size = copy_bytes(insn, bytes, sizeof(bytes));
		uint64_t at = qemu_plugin_insn_vaddr(insn);

		if (is_mark(bytes, size)) {
			qemu_plugin_register_vcpu_insn_exec_cb(insn, marked, 0, NULL);
			continue;
		}
		if (!has_detail || !(at >> 63))
			continue;
		if (at >= MODULES_VADDR)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, passed, 0, find(&module_instructions, at));
		if (is_locked(bytes, size))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, passed, 0, find(&locked_instructions, at));
	}
}

static bool allocate(struct table *table)
{
	table->places = calloc(1u << TABLE_BITS, sizeof(*table->places));
	return table->places;
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_plugin_info *info, int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "out=", 4))
			snprintf(output, sizeof(output), "%s", argv[i] + 4);
		has_detail = has_detail || !strcmp(argv[i], "detail=1");
	}
	if (!output[0] || !allocate(&blocks))
		return -1;
	if (has_detail && !(allocate(&module_instructions) && allocate(&locked_instructions)))
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
