/*-------------------------------------------------------------------------
 *
 * followers.c
 *		The groups that follow signals, and the controllers of these.
 *
 * Groups that follow the same signal with the same threshold have one controller.
 * A changed threshold means another controller, which continues from the rate that the
 * former one has found.
 *
 * All of this belongs to the sampler.  Definitions are copied under the registry
 * lock, shared, and what a group has used under the group's lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pressure/followers.h"
#include "utils/memutils.h"

#include "compat.h"

/* After a start it takes a while until reports come. */
#define NOT_YET_US	INT64CONST(30000000)

/* What a group follows: those who follow the same have one controller. */
typedef struct Subject
{
	DtThreshold threshold;
	char		reported[NAMEDATALEN];	/* DT_REPORTED: its name, zero-padded */
} Subject;

typedef struct Watch
{
	DtController controller;	/* comes first */
	Subject		subject;
	bool		is_needed;
	bool		was_there;
	int64		missed_since;	/* not there, us; 0 = it is */
	bool		is_logged;		/* that it is not there */
} Watch;

static DtFollower *places;		/* in the places of the groups */
static DtFollowers all;
static uint64 seen_id;			/* the last group that there was at the last
								 * look */
static int	max_controllers;

static void
begin(void)
{
	MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);

	places = palloc0(dt_shared->max_groups * sizeof(DtFollower));
	all.laws = palloc0(dt_shared->max_groups * sizeof(DtPressureGroup *));
	max_controllers = DT_SIGNALS;
	all.controllers = palloc0(max_controllers * sizeof(DtController *));
	MemoryContextSwitchTo(before);
}

static Watch *
new_watch(DtSignal signal, const Subject *subject)
{
	Watch	   *w = MemoryContextAllocZero(TopMemoryContext, sizeof(Watch));

	if (all.n_controllers == max_controllers)
	{
		max_controllers *= 2;
		all.controllers = repalloc(all.controllers,
								   max_controllers * sizeof(DtController *));
	}
	all.controllers[all.n_controllers++] = &w->controller;
	w->subject = *subject;
	w->controller.signal = signal;
	w->controller.threshold = subject->threshold.unit == DT_UNIT_NONE ?
		1000 : subject->threshold.value;
	w->controller.by_share = subject->threshold.unit == DT_UNIT_SHARE;
	w->controller.fresh_us = DT_STALE_US;
	return w;
}

/* The controller of those who follow this, or NULL. */
static Watch *
find_watch(DtSignal signal, const Subject *subject)
{
	for (int i = 0; i < all.n_controllers; i++)
	{
		Watch	   *w = (Watch *) all.controllers[i];

		if (w->controller.signal == signal &&
			memcmp(&w->subject, subject, sizeof(*subject)) == 0)
			return w;
	}
	return NULL;
}

/*
 * The controller for what a group follows, which had this one for the signal before;
 * NULL: it does not.
 */
static DtController *
controller_for(const DtDefinition *d, DtSignal signal, const DtController *before)
{
	Subject		subject;
	Watch	   *w;

	if (!dt_definition_follows(d, signal))
		return NULL;
	memset(&subject, 0, sizeof(subject));
	subject.threshold = d->threshold[signal];
	if (signal == DT_REPORTED)
		memcpy(subject.reported, d->reported, sizeof(d->reported));
	w = find_watch(signal, &subject);
	if (w == NULL)
	{
		w = new_watch(signal, &subject);
		/* each name under which something is reported is a signal */
		if (before != NULL && signal != DT_REPORTED)
			dt_controller_take_over(&w->controller, before);
	}
	w->is_needed = true;
	all.followed[signal] = true;
	return &w->controller;
}

/* Free the controllers that nobody needs any more. */
static void
free_watches(void)
{
	int			n = 0;

	for (int i = 0; i < all.n_controllers; i++)
	{
		Watch	   *w = (Watch *) all.controllers[i];

		if (w->is_needed)
			all.controllers[n++] = all.controllers[i];
		else
			pfree(w);
	}
	all.n_controllers = n;
}

/*
 * Make a group that follows signals a follower, if it is none yet.
 */
static void
put_follower(DtFollower *f, DtGroup *g)
{
	bool		saved[DT_RESOURCES];
	int64		rate[DT_RESOURCES];
	int64		used[DT_RESOURCES];
	int			decides[DT_RESOURCES];
	int64		now = dt_now_us();

	dt_group_lock(g);
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		saved[r] = dt_rate_saved(&g->usage[r].engine, now) > 0;
		rate[r] = dt_rate_lately(&g->usage[r].engine);
		used[r] = g->usage[r].used;
		decides[r] = g->pressure.decides[r];
	}
	dt_group_unlock(g);
	if (f->id != g->id)
	{
		bool		is_begun = seen_id > 0 && g->id > seen_id;

		memset(f, 0, sizeof(DtFollower));
		f->id = g->id;
		f->of = g->of;
		f->group = g;
		f->definition = g->definition;
		memcpy(f->woken_rate, rate, sizeof(rate));
		dt_pressure_group_init(&f->law, rate, is_begun ? NULL : used, decides);
	}
	memcpy(f->law.used, used, sizeof(used));
	memcpy(f->law.saved, saved, sizeof(saved));
	/* a new name changes nothing */
	memcpy(f->definition.name, g->definition.name, NAMEDATALEN);
	if (memcmp(&f->definition, &g->definition, sizeof(DtDefinition)) != 0)
		f->law.redefined = true;
	f->definition = g->definition;
	all.laws[all.n++] = &f->law;
}

/*
 * Tell the laws what is defined of a follower.
 */
static void
tell_law(DtFollower *f)
{
	DtPressureGroup *law = &f->law;
	const DtDefinition *d = &f->definition;

	memcpy(law->limit, d->rate, sizeof(law->limit));
	law->floor = d->floor;
	law->weight = d->weight;
	law->observe = d->observe != 0 || !dt_throttling_is_enabled();
	for (int s = 0; s < DT_SIGNALS; s++)
		law->follows[s] = controller_for(d, s, law->follows[s]);
}

/*
 * Find the groups that follow signals, and what they define.
 */
const DtFollowers *
dt_followers_find(void)
{
	if (places == NULL)
		begin();
	all.n = 0;
	all.any_group = false;
	memset(all.followed, 0, sizeof(all.followed));
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (int i = 0; i < dt_shared->n_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];

		all.any_group |= g->id != 0;
		if (g->id == 0 || !dt_definition_follows_any(&g->definition))
			places[i].id = 0;
		else
			put_follower(&places[i], g);
	}
	seen_id = dt_shared->last_group_id;
	LWLockRelease(dt_shared->registry_lock);
	for (int i = 0; i < all.n_controllers; i++)
		((Watch *) all.controllers[i])->is_needed = false;
	for (int i = 0; i < all.n; i++)
		tell_law((DtFollower *) all.laws[i]);
	free_watches();
	return &all;
}

/* The report that counts, if there is one.  It may have come since "now". */
static void
read_report(Watch *w, int64 now)
{
	DtReport	reports[DT_REPORTS];
	int			n = dt_reports(reports);

	w->controller.read_at = 0;
	for (int i = 0; i < n; i++)
	{
		if (strcmp(reports[i].name, w->subject.reported) != 0)
			continue;
		w->controller.value = reports[i].value;
		w->controller.read_at = Min(reports[i].at, now);
		w->controller.fresh_us = reports[i].ttl_us;
	}
}

/*
 * Tell the controllers of a signal what was found.
 */
void
dt_followers_read(DtSignal signal, DtLook look, const DtFound *found, int64 now)
{
	for (int i = 0; i < all.n_controllers; i++)
	{
		DtController *c = all.controllers[i];
		Watch	   *w = (Watch *) c;

		if (c->signal != signal)
			continue;
		if (signal == DT_REPORTED)
			read_report(w, now);
		else if (look == DT_LOOK_NOTHING)
			c->read_at = 0;
		else if (dt_signals[signal].law == DT_LAW_QUEUE)
		{
			c->queue = dt_drain_worst(found->drains, found->n,
									  w->subject.threshold.ignore, now);
			c->read_at = c->queue != NULL ? c->queue->seen_at : 0;
		}
		else if (look == DT_LOOK_MEASURED && found->at != 0)
		{
			c->value = found->value;
			c->other = found->other;
			c->commits = found->commits;
			c->read_at = found->at;
			if (dt_signals[signal].law == DT_LAW_RESERVE && c->by_share)
				c->threshold = muldiv64(found->other,
										w->subject.threshold.value, 1000000);
		}
	}
}

static void
log_absence(const Watch *w)
{
	ereport(LOG,
			(errmsg("signal \"%s\" is not reported", w->subject.reported),
			 errdetail("It slows no group down until it is reported.")));
}

static void
log_return(const Watch *w)
{
	ereport(LOG,
			(errmsg("signal \"%s\" is reported again", w->subject.reported)));
}

/* Is there something to log: has "is_logged" changed? */
static bool
has_news(Watch *w, int64 now)
{
	bool		was_logged = w->is_logged;

	if (w->controller.state != DT_SIGNAL_ABSENT)
	{
		w->was_there = true;
		w->missed_since = 0;
		w->is_logged = false;
	}
	else
	{
		if (w->missed_since == 0)
			w->missed_since = now;
		w->is_logged |= w->was_there || now - w->missed_since >= NOT_YET_US;
	}
	return w->is_logged != was_logged;
}

/*
 * One line in the log when a report that a group follows is no longer there, or has
 * not come, or is there again.
 */
void
dt_followers_log(int64 now)
{
	for (int i = 0; i < all.n_controllers; i++)
	{
		Watch	   *w = (Watch *) all.controllers[i];

		if (w->controller.signal != DT_REPORTED || !has_news(w, now))
			continue;
		if (w->is_logged)
			log_absence(w);
		else
			log_return(w);
	}
}
