/*-------------------------------------------------------------------------
 *
 * buffers.c
 *		Signal dirty_buffers: the dirty part of shared_buffers.
 *
 * The headers of 4096 buffers are looked at without a lock, one in each of as
 * many equal parts of shared_buffers.  Which one that is looks like chance, but
 * is always the same, so that a difference between two looks is one between
 * these buffers, and not between two samples.  In 95 % of all cases the result
 * is off by less than 1.6 % of shared_buffers, and by less when dirty buffers
 * are next to each other.
 *
 * With 32 GB each of these headers is in another page of memory, and to look at
 * all of them takes half a millisecond.  So the sampler looks at a quarter each
 * time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "pressure/signals.h"
#include "storage/buf_internals.h"

#include "compat.h"

#define PARTS	4096

/*
 * Count the dirty ones of the buffers first, first + step, ... of the sample.
 */
static int64
look(int first, int step)
{
	int			parts = Min(PARTS, NBuffers);
	int			looked = 0;
	int			dirty = 0;
	int			i;

	for (i = first; i < parts; i += step)
	{
		uint32		begin = (uint64) NBuffers * i / parts;
		uint32		width = (uint64) NBuffers * (i + 1) / parts - begin;
		uint32		buffer = begin +
			(uint32) (((uint64) murmurhash32(i) * width) >> 32);

		looked++;
		dirty += dt_buffer_is_dirty(GetBufferDescriptor(buffer));
	}
	return (int64) ((double) dirty / looked * NBuffers) * BLCKSZ;
}

int64
dt_look_dirty_buffers(void)
{
	return look(0, 1);
}

int64
dt_look_dirty_quarter(int quarter)
{
	return look(quarter, 4);
}
