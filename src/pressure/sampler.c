/*-------------------------------------------------------------------------
 *
 * sampler.c
 *		The background worker by which limits follow the server's pressure.
 *
 * Five times a second it looks at the signals that groups follow, has the laws
 * in engine/control.c work out the rates, and puts them in force.  While no
 * group follows a signal it sleeps until dt_sampler_wake().  It is started
 * when recovery has ended, so there is none on a standby, and one second after
 * it has ended for any reason.
 *
 * What it knows is its own, and may be lost: a new one starts from the rates
 * that are in force.  It tells the groups in DtGroup.pressure, under their
 * locks, and the views in DtSampled.  Each rate has a time at which it expires
 * unless it is renewed; the members see to that, so it does not matter why the
 * sampler does not renew it.
 *
 * It waits for nothing but locks that are held for a moment, and holds none
 * while it looks at signals.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "pressure/signals.h"
#include "shared/group.h"
#include "shared/member.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"

#include "compat.h"

#define CYCLE_US		INT64CONST(200000)

/* After a change of a definition the next sample comes within that time. */
#define REDEFINED_US	INT64CONST(20000)

/*
 * A group that has been at its floor for so long, or whose signal has been out
 * of reach or within it again, is worth a message.
 */
#define FLOOR_US		INT64CONST(10000000)

/* So long when that is not certain. */
#define DOUBT_US		INT64CONST(60000000)

/* As many standbys as can be named. */
#define MAX_NAMED	(DT_STANDBYS_SIZE / 2)

/* So long a probe counts that the sampler does not end, if that is all. */
#define PROBE_US		INT64CONST(3000000)

/* Sleepers are woken when the rate has risen by a tenth since they were. */
#define WAKE_PERCENT	110

/* What was last found, and logged, of a signal. */
typedef enum Condition
{
	UNKNOWN,					/* nobody follows it, or no value yet */
	MEASURED,
	NOTHING,					/* to measure */
	UNREADABLE,
	OUTDATED					/* no fresh value for too long */
} Condition;

/* A group that follows signals. */
typedef struct Follower
{
	uint64		id;				/* 0: none */
	DtGroup    *group;
	DtDefinition definition;	/* as of the last cycle */
	DtPressureGroup law;
	int64		woken_rate[DT_RESOURCES];	/* sleepers know of this one, or
											 * of a lower one */
	int64		floor_since;	/* it is at its floor, us; 0 = it is not */
	bool		floor_logged;
	bool		out_of_reach;	/* others alone force checkpoints */
	int64		reach_since;	/* that is to change, us; 0 = it is not */
} Follower;

extern PGDLLEXPORT void dt_sampler_main(Datum main_arg);

static struct
{
	DtPressure	pressure;
	Follower   *followers;		/* in the places of the groups */
	DtPressureGroup **laws;		/* of those that there are now */
	int			n_followers;
	bool		followed[DT_SIGNALS];	/* by a group */
	DtFound		found[DT_SIGNALS];
	DtSignalInfo infos[DT_SIGNALS];
	Condition	conditions[DT_SIGNALS];
}			my;

#define follower_of(pressure_group) \
	((Follower *) ((char *) (pressure_group) - offsetof(Follower, law)))

/* Have the worker started; while shared_preload_libraries is processed. */
void
dt_sampler_init(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 1;
	strlcpy(worker.bgw_library_name, "dirty_throttle",
			sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "dt_sampler_main",
			sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "dirty_throttle pressure",
			sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "dirty_throttle pressure",
			sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}

/*
 * Tell the laws what is defined of a follower, and what of that is new.
 */
static void
take_definition(Follower *f, const DtDefinition *d)
{
	DtDefinition *before = &f->definition;
	DtPressureGroup *law = &f->law;
	int			s;

	memcpy(before->name, d->name, NAMEDATALEN); /* a new name changes nothing */
	if (memcmp(before, d, sizeof(DtDefinition)) != 0)
		law->redefined = true;
	memcpy(law->limit, d->rate, sizeof(law->limit));
	law->floor = d->floor;
	law->weight = d->weight;
	law->observe = d->observe != 0 || !dt_throttling_is_enabled();
	for (s = 0; s < DT_SIGNALS; s++)
	{
		const DtThreshold *t = &d->threshold[s];

		if (t->unit == DT_UNIT_UNUSED)
			law->threshold[s] = 0;
		else
		{
			my.followed[s] = true;
			if (t->unit != before->threshold[s].unit ||
				t->value > before->threshold[s].value ||
				t->ignore > before->threshold[s].ignore)
				memset(&law->law[s], 0, sizeof(DtLaw));
			law->by_share[s] = t->unit == DT_UNIT_SHARE;
			law->threshold[s] = t->unit == DT_UNIT_NONE ? 1000 : t->value;
		}
	}
	*before = *d;
}

/*
 * Make a group that follows signals a follower, if it is none yet.
 */
static void
put_follower(Follower *f, DtGroup *g)
{
	int64		rate[DT_RESOURCES];
	int64		used[DT_RESOURCES];
	int			r;

	dt_group_lock(g);
	for (r = 0; r < DT_RESOURCES; r++)
	{
		rate[r] = dt_rate_lately(&g->usage[r].engine);
		used[r] = g->usage[r].used;
	}
	dt_group_unlock(g);
	if (f->id != g->id)
	{
		memset(f, 0, sizeof(Follower));
		f->id = g->id;
		f->group = g;
		f->definition = g->definition;
		memcpy(f->woken_rate, rate, sizeof(rate));
		dt_pressure_group_init(&f->law, rate, used);
	}
	memcpy(f->law.used, used, sizeof(used));
	f->law.out_of_reach = f->out_of_reach;
	take_definition(f, &g->definition);
	my.laws[my.n_followers++] = &f->law;
}

/*
 * Find the groups that follow signals, and what they define.
 */
static void
find_followers(void)
{
	int			i;

	my.n_followers = 0;
	memset(my.followed, 0, sizeof(my.followed));
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (i = 0; i < dt_shared->max_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];

		if (g->id == 0 || !dt_definition_follows_any(&g->definition))
			my.followers[i].id = 0;
		else
			put_follower(&my.followers[i], g);
	}
	LWLockRelease(dt_shared->registry_lock);
}

/* Is a name in a list, separated by commas, of those that count? */
static bool
is_listed(const char *list, const char *name)
{
	size_t		size;

	for (; *list != '\0'; list += size)
	{
		list += strspn(list, ", ");
		size = strcspn(list, ",");
		while (size > 0 && list[size - 1] == ' ')
			size--;
		if (strlen(name) == size && pg_strncasecmp(list, name, size) == 0)
			return true;
	}
	return false;
}

/* The queue that counts for a group. */
static const DtDrain *
drain_for(const DtDefinition *d, DtSignal signal, int64 now)
{
	const DtFound *f = &my.found[signal];
	const DtDrain *those[MAX_NAMED];
	int			n = 0;
	int			i;

	if (signal >= DT_STANDBY_SIGNALS || d->standbys[signal][0] == '\0')
		return dt_drain_worst(f->drains, f->n, d->threshold[signal].ignore, now);
	for (i = 0; i < f->n && n < MAX_NAMED; i++)
		if (is_listed(d->standbys[signal], f->names[i]))
			those[n++] = f->drains[i];
	return dt_drain_worst(those, n, d->threshold[signal].ignore, now);
}

/* The report that a group follows; -1: there is none that counts. */
static int64
reported_for(const DtDefinition *d, int64 now)
{
	DtReport	reports[DT_REPORTS];
	int			n = dt_reports(reports);
	int			i;

	for (i = 0; i < n; i++)
		if (strcmp(reports[i].name, d->reported) == 0 &&
			dt_report_state(&reports[i], now) != DT_SIGNAL_ABSENT)
			return reports[i].value;
	return -1;
}

/*
 * Tell a group's laws what counts for it in particular.
 */
static void
tell_follower(Follower *f, DtSignal signal, int64 now)
{
	const DtThreshold *t = &f->definition.threshold[signal];

	if (dt_signals[signal].law == DT_LAW_ZONES)
		f->law.drain[signal] = drain_for(&f->definition, signal, now);
	if (signal == DT_REPORTED && t->unit != DT_UNIT_UNUSED)
		f->law.reported = reported_for(&f->definition, now);
	if (t->unit == DT_UNIT_SHARE && dt_signals[signal].law == DT_LAW_RESERVE)
		f->law.threshold[signal] =
			muldiv64(my.pressure.signal[signal].other, t->value, 1000000);
}

/*
 * Look at a signal, and tell the laws.
 */
static DtLook
look(DtSignal signal, int64 now)
{
	DtFound    *f = &my.found[signal];
	DtLook		result = dt_signal_look(signal, now, f);
	int			i;

	strlcpy(my.infos[signal].reason, f->reason, DT_REASON_SIZE);
	my.pressure.signal[signal].waiting = f->waiting;
	if (result == DT_LOOK_MEASURED && f->at != 0)
		dt_pressure_read(&my.pressure, signal, f->value, f->other, f->at);
	else if (result == DT_LOOK_NOTHING)
		dt_pressure_absent(&my.pressure, signal);
	for (i = 0; i < my.n_followers; i++)
		tell_follower(follower_of(my.laws[i]), signal, now);
	return result;
}

/*
 * One line in the log for each change of what is known of a signal.
 */
static void
log_condition(DtSignal signal, Condition condition)
{
	const char *name = dt_signals[signal].name;
	Condition	before = my.conditions[signal];

	if (condition == before)
		return;
	my.conditions[signal] = condition;
	switch (condition)
	{
		case UNKNOWN:
			break;
		case MEASURED:
			if (before != UNKNOWN)
				ereport(LOG,
						(errmsg("signal \"%s\" is measured again", name)));
			break;
		case NOTHING:
		case OUTDATED:
			ereport(LOG,
					(errmsg("signal \"%s\" slows nobody down", name),
					 errdetail_internal("%s", condition == NOTHING ?
										my.infos[signal].reason :
										_("It has had no new value for 40 seconds."))));
			break;
		case UNREADABLE:
			ereport(LOG,
					(errmsg("could not measure signal \"%s\"", name),
					 errdetail("%s", my.infos[signal].reason),
					 errhint("The last value counts for 40 seconds, then the signal slows nobody down.")));
			break;
	}
}

/*
 * What has come of a look, once the laws know it, too.
 */
static void
note_signal(DtSignal signal, DtLook result)
{
	DtSignalReading *reading = &my.pressure.signal[signal];
	Condition	condition = MEASURED;

	my.infos[signal].state = reading->state;
	my.infos[signal].value = reading->value;
	my.infos[signal].read_at = reading->read_at;
	if (result == DT_LOOK_NOTHING)
		condition = NOTHING;
	else if (result == DT_LOOK_FAILED)
		condition = UNREADABLE;
	else if (reading->state == DT_SIGNAL_ABSENT)
		condition = my.conditions[signal] == UNKNOWN ? UNKNOWN : OUTDATED;
	log_condition(signal, condition);
}

/* Tell the views. */
static void
publish(void)
{
	dt_spin_lock(&dt_shared->sampled.lock);
	memcpy(dt_shared->sampled.signals, my.infos, sizeof(my.infos));
	dt_spin_unlock(&dt_shared->sampled.lock);
}

/*
 * When a rate expires that was worked out now: as soon as one of the values
 * that it follows is too old, if there is no newer one by then.  The next
 * cycle is to come before that.
 */
static int64
expiry(const DtPressureGroup *law, int64 now)
{
	int64		oldest = now;
	bool		probes_only = law->probed;

	for (int s = 0; s < DT_SIGNALS; s++)
	{
		if (law->threshold[s] == 0 ||
			my.pressure.signal[s].state == DT_SIGNAL_ABSENT)
			continue;
		oldest = Min(oldest, my.pressure.signal[s].read_at);
		if (s != DT_COMMIT_LATENCY)
			probes_only = false;
	}
	if (probes_only)
		return now + PROBE_US;
	return Max(oldest + DT_STALE_US + DT_STALE_COUNTS_US, now + 5 * CYCLE_US);
}

/*
 * Has the rate risen so much that sleepers should know?
 */
static bool
is_worth_waking(Follower *f, int r, int64 rate)
{
	if (rate == f->woken_rate[r])
		return false;
	if (rate != 0 && (f->woken_rate[r] == 0 ||
					  rate < f->woken_rate[r] / 100 * WAKE_PERCENT))
	{
		if (f->woken_rate[r] == 0 || rate < f->woken_rate[r])
			f->woken_rate[r] = rate;
		return false;
	}
	f->woken_rate[r] = rate;
	return true;
}

/* Do those who are in no such group alone force checkpoints? */
static bool
others_exceed(const DtPressureGroup *law)
{
	return law->others_least >= dt_wal_rate_without_force();
}

/*
 * Can it be reached at all that no checkpoint is forced?  What is found holds
 * when it has been so for a while.  Beside a fast group it cannot be told what
 * others write if that is little, so it is tried now and then whether the group
 * may be slowed down again.
 */
static void
note_reach(Follower *f, const DtPressureGroup *law, int64 now)
{
	bool		out_of_reach = others_exceed(law);
	int64		fits = dt_wal_rate_without_force();
	int64		after = f->out_of_reach && law->others >= fits ?
		DOUBT_US : FLOOR_US;

	if (law->threshold[DT_CHECKPOINT] == 0)
		f->out_of_reach = false;	/* the group does not follow it any more */
	if (out_of_reach == f->out_of_reach)
		f->reach_since = 0;
	else if (f->reach_since == 0)
		f->reach_since = now;
	else if (now - f->reach_since >= after)
	{
		f->out_of_reach = out_of_reach;
		f->reach_since = 0;
		if (out_of_reach)
			ereport(LOG,
					(errmsg("resource group \"%s\" is not slowed down by signal \"checkpoint\", as others alone force checkpoints",
							f->definition.name),
					 errdetail("Others write " INT64_FORMAT " KB/s of WAL. No more than " INT64_FORMAT " KB/s fit between two checkpoints that come by time.",
							   law->others / 1000, fits / 1000),
					 errhint("Increase max_wal_size to more than " INT64_FORMAT " MB.",
							 dt_max_wal_size_for(law->others + law->floor))));
	}
	if (f->out_of_reach && my.infos[DT_CHECKPOINT].reason[0] == '\0')
		snprintf(my.infos[DT_CHECKPOINT].reason, DT_REASON_SIZE,
				 _("Others write " INT64_FORMAT " KB/s of WAL, and no more than " INT64_FORMAT " KB/s fit between two checkpoints that come by time."),
				 law->others / 1000, fits / 1000);
	my.infos[DT_CHECKPOINT].out_of_reach |= f->out_of_reach;
}

/*
 * A message when a group has been at its floor for a while.
 */
static void
log_floor(Follower *f, const DtPressureGroup *law, int64 now)
{
	int			signal = -1;	/* that keeps it there */

	for (int r = 0; r < DT_RESOURCES; r++)
		if (law->rate[r] > 0 && law->rate[r] <= law->floor &&
			law->rate[r] != law->limit[r] && law->signal >= 0)
			signal = law->decides[r];
	if (signal < 0 || f->out_of_reach || others_exceed(law))
	{
		f->floor_since = 0;
		f->floor_logged = false;
		return;
	}
	if (f->floor_since == 0)
		f->floor_since = now;
	if (f->floor_logged || now - f->floor_since < FLOOR_US)
		return;
	f->floor_logged = true;
	ereport(LOG,
			(errmsg("resource group \"%s\" is slowed down to its floor by signal \"%s\"",
					f->definition.name,
					dt_definition_signal_name(&f->definition, signal))));
}

/*
 * Put the rates in force, in those groups of which the same is still defined;
 * for the others a new cycle is under way.
 */
static void
apply(Follower *f, int64 now)
{
	DtPressureGroup *law = &f->law;
	DtGroup    *g = f->group;
	DtGroupPressure result;
	bool		wake = false;
	int			r;

	if (g->id != f->id ||
		memcmp(&g->definition, &f->definition, sizeof(DtDefinition)) != 0)
		return;
	dt_pressure_clear(&result);
	result.level = law->pressure;
	result.signal = law->signal;
	memcpy(result.decides, law->decides, sizeof(result.decides));
	memcpy(result.share, law->share, sizeof(result.share));
	result.out_of_reach = f->out_of_reach;
	result.expires = expiry(law, now);
	for (r = 0; r < DT_RESOURCES; r++)
	{
		if (law->rate[r] != law->limit[r])
			result.rate[r] = law->rate[r];
		wake |= is_worth_waking(f, r, law->rate[r]);
	}
	dt_group_set_pressure(g, &result, wake);
}

/*
 * Work out the rates, put them in force, and say what is noteworthy.
 */
static void
set_rates(int64 wal, int64 now)
{
	int			i;

	dt_pressure_step(&my.pressure, my.laws, my.n_followers, wal, now);
	for (i = 0; i < my.n_followers; i++)
		note_reach(follower_of(my.laws[i]), my.laws[i], now);
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (i = 0; i < my.n_followers; i++)
		apply(follower_of(my.laws[i]), now);
	LWLockRelease(dt_shared->registry_lock);
	for (i = 0; i < my.n_followers; i++)
		log_floor(follower_of(my.laws[i]), my.laws[i], now);
}

/*
 * One sample.  False: no group follows a signal.
 */
static bool
cycle(int64 now)
{
	DtLook		results[DT_SIGNALS];
	int64		wal = (int64) GetXLogInsertRecPtr();
	int			s;

	find_followers();
	my.infos[DT_CHECKPOINT].out_of_reach = false;
	for (s = 0; s < DT_SIGNALS; s++)
	{
		if (my.followed[s])
			results[s] = look(s, now);
		else
		{
			dt_pressure_absent(&my.pressure, s);
			log_condition(s, UNKNOWN);
		}
	}
	if (my.n_followers > 0)
		set_rates(wal, now);
	for (s = 0; s < DT_SIGNALS; s++)
	{
		if (my.followed[s])
			note_signal(s, results[s]);
		else
			memset(&my.infos[s], 0, sizeof(DtSignalInfo));
	}
	publish();
	return my.n_followers > 0;
}

static void
unregister(int code, Datum arg)
{
	pg_atomic_write_u32(&dt_shared->sampler, 0);
}

void
dt_sampler_main(Datum main_arg)
{
	uint32		wait_event = WaitEventExtensionNew("DirtyThrottlePressure");
	int64		next = 0;
	int64		soonest = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	if (!dt_shmem_available())
		proc_exit(0);			/* another file was preloaded */

	my.followers = palloc0(dt_shared->max_groups * sizeof(Follower));
	my.laws = palloc0(dt_shared->max_groups * sizeof(DtPressureGroup *));
	on_shmem_exit(unregister, (Datum) 0);
	pg_atomic_write_u32(&dt_shared->sampler, MyProcNumber + 1);

	/* an exit code of 0 would mean not to start it again */
	while (!ShutdownRequestPending)
	{
		int64		now = dt_now_us();
		bool		busy = true;
		int			events;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (now >= next)
		{
			busy = cycle(now);
			next = now + CYCLE_US;
			soonest = now + REDEFINED_US;
		}
		events = dt_clock_sleep(busy ? Max(next - dt_now_us(), 0) : -1,
								WL_EXIT_ON_PM_DEATH, wait_event);
		ResetLatch(MyLatch);
		if (events & WL_LATCH_SET)
			next = busy ? Min(next, soonest) : 0;
	}
	proc_exit(1);
}
