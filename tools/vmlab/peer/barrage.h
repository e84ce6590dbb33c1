/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Many random block messages in honest envelopes, as fast as they are answered; included by scripted_peer.c.
 *
 * An envelope is right: the head of a READ or a WRITE, the length of the user message, one chunk a request.
 * What is in it is random, or a true message with some bytes changed. The server must answer each.
 */
enum {
	IN_FLIGHT = 16, STAGE_SIZE = 0x2000, USER_MAX = 264, DATA_MAX = 4096,
	STAGE_AT = 0x0, REPLY_AT = 0x40000, RECEIVE_AT = 0x80000, TABLE_AT = 0xC0000,
	CHUNK_FIRST = 4, STALL_MS = 20000,
	MESSAGE_WRITE = 2, MESSAGE_READ = 3,
};

struct chunk {
	uint64_t address;
	uint32_t key;
	uint32_t pad;
};

struct barrage {
	struct endpoint *end;
	struct chunk *chunks;
	unsigned int memory_bits;
	uint64_t state;
	unsigned int sent, answered, refused, busy;
};

/* xorshift64*: the same numbers from the same seed on every machine. */
static uint32_t chance(struct barrage *b)
{
	b->state ^= b->state >> 12;
	b->state ^= b->state << 25;
	b->state ^= b->state >> 27;
	return b->state * 0x2545F4914F6CDD1DULL >> 32;
}

static void put(unsigned char *at, uint64_t value, unsigned int size)
{
	for (unsigned int i = 0; i < size; i++)
		at[i] = value >> 8 * i;
}

/* A message that is right for device 0, then maybe some changed bytes; returns its size. */
static unsigned int mutated(struct barrage *b, unsigned char *user, unsigned int data_size)
{
	static const unsigned int sizes[] = { 36, 264, 32, 8 }, kinds[] = { 0, 2, 4, 5 };
	unsigned int which = chance(b) % 8, size, changes = chance(b) % 4;

	which = which > 3 ? 2 : which;
	size = sizes[which];
	memset(user, 0, size);
	put(user, kinds[which], 2);
	if (kinds[which] == 4) {
		put(user + 8, chance(b) % 64, 8);
		put(user + 16, chance(b) % 6, 4);
		put(user + 20, data_size, 4);
	} else if (kinds[which] == 2) {
		user[4] = chance(b) % 4;
		memcpy(user + 6, "ram3", 4);
	} else if (kinds[which] == 0) {
		user[4] = 2;
	} else {
		put(user + 4, 1 + chance(b) % 3, 4);
	}
	while (changes--)
		user[chance(b) % size] = chance(b);
	return size;
}

static unsigned int message(struct barrage *b, unsigned char *user, unsigned int data_size)
{
	static const unsigned int sizes[] = { 0, 1, 4, 8, 12, 20, 24, 31, 32, 36, 56, USER_MAX };
	unsigned int size = sizes[chance(b) % 12];

	if (chance(b) % 2)
		return mutated(b, user, data_size);
	for (unsigned int i = 0; i < size; i++)
		user[i] = chance(b);
	if (size >= 2 && chance(b) % 8)
		put(user, chance(b) % 7, 2);
	return size;
}

/* Sends one message in chunk CHUNK_FIRST + slot. */
static int shoot(struct barrage *b, unsigned int slot)
{
	static const unsigned int data_sizes[] = { 0, 16, 36, 56, 512, DATA_MAX };
	unsigned int data_size = data_sizes[chance(b) % 6], chunk = CHUNK_FIRST + slot, user_size, size;
	unsigned char *stage = b->end->buffer + STAGE_AT + slot * STAGE_SIZE;
	uint64_t reply = (uint64_t)(unsigned long)b->end->buffer + REPLY_AT + slot * STAGE_SIZE;
	int is_read = chance(b) % 2;
	unsigned int before = is_read ? 0 : data_size;
	struct ibv_sge piece;
	struct ibv_send_wr request = { .sg_list = &piece, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;

	user_size = message(b, stage + before, data_size);
	size = before + user_size;
	put(stage + size, is_read ? MESSAGE_READ : MESSAGE_WRITE, 2);
	put(stage + size + 2, user_size, 2);
	if (is_read) {
		put(stage + size + 4, 0, 2);
		put(stage + size + 6, data_size ? 1 : 0, 2);
		put(stage + size + 8, reply, 8);
		put(stage + size + 16, b->end->mr->rkey, 4);
		put(stage + size + 20, data_size, 4);
		size += data_size ? 24 : 8;
	} else {
		size += 4;
	}
	piece = (struct ibv_sge){ (uint64_t)(unsigned long)stage, size, b->end->mr->lkey };
	request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	request.wr.rdma.remote_addr = b->chunks[chunk].address + (is_read ? data_size : 0);
	request.wr.rdma.rkey = b->chunks[chunk].key;
	request.imm_data = htonl(chunk << b->memory_bits | (data_size + user_size));
	errno = ibv_post_send(b->end->id->qp, &request, &bad);
	b->busy |= 1U << slot;
	b->sent++;
	return errno ? -1 : 0;
}

/* One completion: an answer frees its chunk and brings a new key. */
static int take_answer(struct barrage *b, struct ibv_wc *completion)
{
	struct ibv_sge piece = { (uint64_t)(unsigned long)b->end->buffer + completion->wr_id, 8, b->end->mr->lkey };
	struct ibv_recv_wr again = { .wr_id = completion->wr_id, .sg_list = &piece, .num_sge = 1 }, *bad;
	const unsigned char *key = b->end->buffer + completion->wr_id + 4;
	unsigned int imm = ntohl(completion->imm_data), chunk = imm & 0x7ffff, slot = chunk - CHUNK_FIRST;

	if (completion->status)
		return -1;
	if (!(completion->opcode & IBV_WC_RECV))
		return 0;
	if (completion->wc_flags & IBV_WC_WITH_IMM && imm >> 28 < 8) {
		if (slot >= IN_FLIGHT || !(b->busy & 1U << slot))
			return -1;
		if (completion->byte_len == 8)
			b->chunks[chunk].key = key[0] | key[1] << 8 | key[2] << 16 | (uint32_t)key[3] << 24;
		b->busy &= ~(1U << slot);
		b->answered++;
		b->refused += (imm >> 19 & 0x1ff) != 0;
	}
	return ibv_post_recv(b->end->id->qp, &again, &bad) ? -1 : 0;
}

/* barrage <endpoint> <count> <seed> <memory bits>: the chunks' addresses and keys are at TABLE_AT. */
static void do_barrage(struct endpoint *end, unsigned int count, uint64_t seed, unsigned int memory_bits)
{
	struct barrage b = {
		.end = end, .chunks = (struct chunk *)(end->buffer + TABLE_AT), .memory_bits = memory_bits,
		.state = seed | 1,
	};
	struct ibv_wc completion;
	unsigned int idle_ms = 0;
	int got;

	while (b.answered < count && idle_ms < STALL_MS) {
		for (unsigned int slot = 0; slot < IN_FLIGHT && b.sent < count; slot++) {
			if (!(b.busy & 1U << slot) && shoot(&b, slot)) {
				fail("barrage: post");
				return;
			}
		}
		got = ibv_poll_cq(end->cq, 1, &completion);
		if (got < 0 || (got && take_answer(&b, &completion))) {
			answer("err barrage: message %u of %u: status %d, imm %#x", b.answered, count, completion.status,
			       ntohl(completion.imm_data));
			return;
		}
		if (!got)
			poll(NULL, 0, 1);
		idle_ms = got ? 0 : idle_ms + 1;
	}
	answer("ok %u %u %u", b.sent, b.answered, b.refused);
}
