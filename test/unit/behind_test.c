/*-------------------------------------------------------------------------
 *
 * behind_test.c
 *		Unit test of what is known of those who wait behind a process.
 *
 * src/waiters/behind.h keeps the waits of two groups only.  Here all waits are
 * kept, and for each group the two must come to the same.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "random.h"
#include "tap.h"
#include "waiters/behind.h"

#define GROUPS		5			/* and 0: in none */
#define MOST_WAITS	12
#define ROUNDS		200000

typedef struct One
{
	int			group;
	int64_t		us;
	bool		counts_in_own;
} One;

static DtWaits
waits_of(const One *one, int pid)
{
	DtWaits		waits = DT_NO_WAITS;

	waits.group = one->group;
	waits.all.us = one->us;
	waits.all.pid = pid;
	if (one->counts_in_own)
		waits.own = waits.all;
	return waits;
}

static int64_t
longest(const One *all, int n, int group, bool mates)
{
	int64_t		us = -1;

	for (int i = 0; i < n; i++)
	{
		bool		counts = mates ? group != 0 && all[i].group == group && all[i].counts_in_own :
			group == 0 || all[i].group != group;

		if (counts && all[i].us > us)
			us = all[i].us;
	}
	return us;
}

/*
 * Who is outside counts exactly; who is in the group does wherever that makes a
 * difference, that is, where nobody outside has waited for as long.
 */
static bool
is_right(const DtBehind *behind, const One *all, int n, int group)
{
	int64_t		outsider = longest(all, n, group, false);
	int64_t		mate = longest(all, n, group, true);
	DtLongest	found = dt_behind_outsider(behind, group);
	DtLongest	found_mate = dt_behind_mate(behind, group);

	return found.us == outsider && found_mate.us <= mate &&
		(found_mate.us == mate || mate <= outsider) &&
		(found.us < 0 || all[found.pid - 1].us == found.us) &&
		(found_mate.us < 0 || all[found_mate.pid - 1].us == found_mate.us);
}

/* Waits are added one by one, and partly by way of another process. */
static bool
round_is_right(void)
{
	One			all[MOST_WAITS];
	DtBehind	behind = DT_NOBODY_BEHIND;
	DtBehind	other = DT_NOBODY_BEHIND;
	int			n = (int) rng_range(0, MOST_WAITS);

	for (int i = 0; i < n; i++)
	{
		DtWaits		waits;

		all[i].group = (int) rng_range(0, GROUPS);
		all[i].us = rng_range(0, 6);
		all[i].counts_in_own = rng_range(0, 1);
		waits = waits_of(&all[i], i + 1);
		dt_behind_add(rng_range(0, 1) ? &behind : &other, &waits);
		if (rng_range(0, 3) == 0)
			dt_behind_add_all(&behind, &other);
	}
	dt_behind_add_all(&behind, &other);
	if (dt_behind_add_all(&behind, &other))
		return false;			/* that changes nothing a second time */
	if (dt_behind_is_empty(&behind) != (n == 0))
		return false;
	for (int group = 0; group <= GROUPS; group++)
		if (!is_right(&behind, all, n, group))
			return false;
	return true;
}

int
main(void)
{
	int			wrong = 0;

	seed_rng(1);
	for (int i = 0; i < ROUNDS; i++)
		wrong += !round_is_right();
	ok(wrong == 0, "%d of %d pictures are wrong", wrong, ROUNDS);
	return done_testing();
}
