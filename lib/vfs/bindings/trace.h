/* SPDX-License-Identifier: GPL-2.0 */
/* The tracepoints of gfarm_ra. This file is read several times, as those of include/trace/events are. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM gfarm

#if !defined(GFARM_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define GFARM_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(gfarm_request,
	TP_PROTO(const char *name, size_t len, u64 us, int error),
	TP_ARGS(name, len, us, error),
	TP_STRUCT__entry(
		__string_len(name, name, len)
		__field(u64, us)
		__field(int, error)
	),
	TP_fast_assign(
		__assign_str(name);
		__entry->us = us;
		__entry->error = error;
	),
	TP_printk("request=%s us=%llu error=%d", __get_str(name), __entry->us, __entry->error)
);

TRACE_EVENT(gfarm_connected,
	TP_PROTO(const char *server, size_t len),
	TP_ARGS(server, len),
	TP_STRUCT__entry(
		__string_len(server, server, len)
	),
	TP_fast_assign(
		__assign_str(server);
	),
	TP_printk("server=%s", __get_str(server))
);

TRACE_EVENT(gfarm_again,
	TP_PROTO(const char *server, size_t len, u64 requests, int error),
	TP_ARGS(server, len, requests, error),
	TP_STRUCT__entry(
		__string_len(server, server, len)
		__field(u64, requests)
		__field(int, error)
	),
	TP_fast_assign(
		__assign_str(server);
		__entry->requests = requests;
		__entry->error = error;
	),
	TP_printk("server=%s requests=%llu error=%d", __get_str(server), __entry->requests, __entry->error)
);

TRACE_EVENT(gfarm_received,
	TP_PROTO(u64 position, u64 bytes),
	TP_ARGS(position, bytes),
	TP_STRUCT__entry(
		__field(u64, position)
		__field(u64, bytes)
	),
	TP_fast_assign(
		__entry->position = position;
		__entry->bytes = bytes;
	),
	TP_printk("position=%llu bytes=%llu", __entry->position, __entry->bytes)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
