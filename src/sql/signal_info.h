/*-------------------------------------------------------------------------
 *
 * signal_info.h
 *		What is known of a signal of pressure, for the view.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SIGNAL_INFO_H
#define DT_SIGNAL_INFO_H

#include "datatype/timestamp.h"
#include "registry/definition.h"

typedef struct DtSignalView
{
	bool		available;		/* to be had on this server */
	char		reason[DT_REASON_SIZE]; /* why not, why there is no value, or
										 * why it is out of reach; may be
										 * empty */
	int			groups;			/* that follow it */
	bool		has_value;
	int64		value;			/* in dt_signal_unit() */
	DtSignalState state;		/* if groups follow it */
	bool		out_of_reach;	/* fresh, but others alone exceed it */
	TimestampTz measured_at;	/* 0 = never */
	TimestampTz stale_since;	/* 0 = it is not */
} DtSignalView;

/*
 * The sampler's last value or, while no group follows the signal, what this
 * process finds by one look.  That is nothing for those that it takes two
 * looks to measure.
 */
extern void dt_signal_view(DtSignal signal, DtSignalView *view);

#endif							/* DT_SIGNAL_INFO_H */
