/*-------------------------------------------------------------------------
 *
 * behind.h
 *		Who waits behind a process, and for how long.
 *
 * A process that waits counts for the groups that it is not in; one that owes nothing
 * counts for its own group, too.  What has to be known of all who wait behind a
 * process is, for each group, the longest wait that counts there.  The longest
 * waits of two different groups answer that for all groups: if the first one is
 * of the group that is asked for, the second one is not.  And when a group is
 * neither the first nor the second, the first one counts for it and is longer
 * than what any of its own members could add.
 *
 * This is plain C, so that a unit test can try it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_BEHIND_H
#define DT_BEHIND_H

#include <stdbool.h>
#include <stdint.h>

/* The longest of several waits. */
typedef struct DtLongest
{
	int64_t		us;				/* -1: nobody waits */
	int			pid;			/* of the one that does */
} DtLongest;

/* The waits of one group, or of all who are in none. */
typedef struct DtWaits
{
	int			group;			/* a number, or 0: in none */
	DtLongest	all;
	DtLongest	own;			/* of those who count in their own group */
} DtWaits;

/* Of two groups, those who have waited longest first. */
typedef struct DtBehind
{
	DtWaits		first;
	DtWaits		second;
} DtBehind;

static const DtWaits DT_NO_WAITS = {0, {-1, 0}, {-1, 0}};
static const DtBehind DT_NOBODY_BEHIND = {
	{0, {-1, 0}, {-1, 0}}, {0, {-1, 0}, {-1, 0}}
};

static inline bool
dt_waits_are_none(const DtWaits *waits)
{
	return waits->all.us < 0;
}

static inline bool
dt_behind_is_empty(const DtBehind *behind)
{
	return dt_waits_are_none(&behind->first);
}

static inline bool
dt_longest_of(DtLongest *longest, const DtLongest *other)
{
	bool		changes = other->us > longest->us;

	if (changes)
		*longest = *other;
	return changes;
}

/* Add to the waits of one group.  Returns whether that changes anything. */
static inline bool
dt_waits_add(DtWaits *waits, const DtWaits *more)
{
	bool		changes = dt_longest_of(&waits->all, &more->all);

	return dt_longest_of(&waits->own, &more->own) || changes;
}

/* The same to those who wait behind a process. */
static inline bool
dt_behind_add(DtBehind *behind, const DtWaits *waits)
{
	DtWaits    *first = &behind->first;
	DtWaits    *second = &behind->second;
	bool		changes = true;

	if (dt_waits_are_none(waits))
		return false;
	if (dt_waits_are_none(first) || first->group == waits->group)
	{
		first->group = waits->group;
		return dt_waits_add(first, waits);
	}
	if (dt_waits_are_none(second) || second->group == waits->group)
	{
		second->group = waits->group;
		changes = dt_waits_add(second, waits);
	}
	else if (waits->all.us > second->all.us)
		*second = *waits;
	else
		changes = false;
	if (second->all.us > first->all.us)
	{
		DtWaits		swap = *first;

		*first = *second;
		*second = swap;
	}
	return changes;
}

/* All who wait behind one process wait behind another one. */
static inline bool
dt_behind_add_all(DtBehind *behind, const DtBehind *others)
{
	bool		changes = dt_behind_add(behind, &others->first);

	return dt_behind_add(behind, &others->second) || changes;
}

/*
 * Who has waited longest that is not in this group?  0: the process is in none,
 * so everybody counts.
 */
static inline DtLongest
dt_behind_outsider(const DtBehind *behind, int group)
{
	return group == 0 || behind->first.group != group ?
		behind->first.all : behind->second.all;
}

/* And who that is in it, and counts all the same? */
static inline DtLongest
dt_behind_mate(const DtBehind *behind, int group)
{
	if (group != 0 && behind->first.group == group)
		return behind->first.own;
	if (group != 0 && behind->second.group == group)
		return behind->second.own;
	return DT_NO_WAITS.own;
}

#endif							/* DT_BEHIND_H */
