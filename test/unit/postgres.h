/*-------------------------------------------------------------------------
 *
 * postgres.h
 *		The few types of the server that src/registry/text.c needs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef POSTGRES_H
#define POSTGRES_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int32_t int32;
typedef int64_t int64;
typedef uint32_t uint32;
typedef uint64_t uint64;
typedef unsigned int Oid;

#define NAMEDATALEN		64
#define INT64_FORMAT	"%" PRId64
#define UINT64_FORMAT	"%" PRIu64
#define INT64CONST(x)	INT64_C(x)
#define UINT64CONST(x)	UINT64_C(x)
#define PG_INT32_MAX	INT32_MAX
#define PG_INT64_MAX	INT64_MAX
#define PG_UINT32_MAX	UINT32_MAX
#define PG_UINT64_MAX	UINT64_MAX
#define lengthof(array)	(sizeof(array) / sizeof((array)[0]))

#endif							/* POSTGRES_H */
