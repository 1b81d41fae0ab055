/*-------------------------------------------------------------------------
 *
 * sampler.c
 *		The background worker by which limits follow the server's pressure.
 *
 * Five times a second it looks at the signals that groups follow, has the laws
 * in engine/pressure.c work out the rates, and puts them in force.  While no
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
#include "pressure/sampler.h"
#include "pressure/signals.h"
#include "registry/group.h"
#include "registry/member.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"

#include "compat.h"

#define CYCLE_US		INT64CONST(200000)

/* The limit of the kernel changes slowly. */
#define KERNEL_LIMIT_US	INT64CONST(1000000)

/* After a change of a definition the next sample comes within that time. */
#define REDEFINED_US	INT64CONST(20000)

/*
 * A group that has been at its floor for so long, or whose signal has been out
 * of reach or within it again, is worth a message.
 */
#define FLOOR_US		INT64CONST(10000000)

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

/* A group that follows signals; the laws' part is in "laws". */
typedef struct Follower
{
	uint64		id;
	DtGroup    *group;
	DtDefinition definition;	/* as of the last cycle */
	int64		woken_rate[DT_RESOURCES];	/* sleepers know of this one, or
											 * of a lower one */
	int64		floor_since;	/* it is at its floor, us; 0 = it is not */
	bool		floor_logged;
	bool		out_of_reach;	/* others alone force checkpoints */
	int64		reach_since;	/* that is to change, us; 0 = it is not */
} Follower;

extern PGDLLEXPORT void dt_sampler_main(Datum main_arg);

static DtPressure pressure;
static DtReplicas replicas;
static DtCheckpointSeen checkpoint_seen;
static int64 kernel_limit = 0;	/* bytes, 0 = not known */
static int64 kernel_limit_at = 0;	/* when that was looked at */
static Follower *followers;
static DtPressureGroup *laws;	/* of the followers */
static int	n_followers = 0;
static int32 followed[DT_SIGNALS];	/* by so many groups */
static bool share_of_kernel;	/* a threshold is a share of the kernel's */
static DtSignalInfo infos[DT_SIGNALS];
static Condition conditions[DT_SIGNALS];

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

static void
swap_followers(int a, int b)
{
	Follower	follower = followers[a];
	DtPressureGroup law = laws[a];

	followers[a] = followers[b];
	laws[a] = laws[b];
	followers[b] = follower;
	laws[b] = law;
}

/*
 * Make a group, with these rates in force and counters, follower number n of
 * this cycle.  Those before it have been found in this cycle, the others are
 * left from the cycle before.
 */
static void
put_follower(DtGroup *g, int n, const int64 *rate, const int64 *used)
{
	int			i;
	int			r;

	for (i = n; i < n_followers; i++)
	{
		if (followers[i].id == g->id)
		{
			if (i != n)
				swap_followers(i, n);
			return;
		}
	}
	if (n < n_followers)
		swap_followers(n, n_followers);
	n_followers++;
	memset(&followers[n], 0, sizeof(Follower));
	followers[n].id = g->id;
	followers[n].group = g;
	followers[n].definition = g->definition;
	for (r = 0; r < DT_RESOURCES; r++)
		followers[n].woken_rate[r] = rate[r];
	dt_pressure_group_init(&laws[n], rate, used);
}

/* So many millionths of something, but not 0. */
static int64
share_of(int64 whole, int64 share)
{
	return Max((int64) (whole * (share / 1e6)), 1);
}

/*
 * The threshold in the unit of the laws; 0 = the group does not follow the
 * signal, or the threshold is a share of something unknown.
 */
static int64
threshold_of(const DtDefinition *d, DtSignal signal)
{
	const DtThreshold *t = &d->threshold[signal];

	if (t->unit == DT_UNIT_UNUSED)
		return 0;
	if (t->unit == DT_UNIT_NONE)
		return 1;
	if (t->unit == DT_UNIT_SHARE && signal == DT_DIRTY_BUFFERS)
		return share_of((int64) NBuffers * BLCKSZ, t->value);
	if (t->unit == DT_UNIT_SHARE && signal == DT_KERNEL_DIRTY)
	{
		share_of_kernel = true;
		return kernel_limit > 0 ? share_of(kernel_limit, t->value) : 0;
	}
	return t->value;
}

/*
 * Tell the laws what is defined of a follower, and what of that is new.
 */
static void
take_definition(Follower *f, DtPressureGroup *law, const DtDefinition *d)
{
	DtDefinition *before = &f->definition;
	int			r;
	int			s;

	memcpy(before->name, d->name, NAMEDATALEN); /* a new name changes nothing */
	if (memcmp(before, d, sizeof(DtDefinition)) != 0)
		dt_pressure_group_redefined(law);
	for (r = 0; r < DT_RESOURCES; r++)
		law->limit[r] = d->rate[r];
	law->floor = d->floor;
	law->ignore = d->threshold[DT_REPLICA_LAG].ignore;
	law->observe = d->observe != 0 || !dt_throttling_is_enabled();
	for (s = 0; s < DT_SIGNALS; s++)
	{
		int64		threshold = threshold_of(d, s);

		/* one that is a share of the kernel's limit changes by itself, too */
		if (memcmp(&before->threshold[s], &d->threshold[s],
				   sizeof(DtThreshold)) != 0 &&
			(threshold > law->threshold[s] ||
			 d->threshold[s].ignore > before->threshold[s].ignore))
			dt_pressure_group_restart(law, s);
		law->threshold[s] = threshold;
		if (dt_definition_follows(d, s))
			followed[s]++;
	}
	*before = *d;
}

/*
 * Find the groups that follow signals, and what they define.
 */
static void
find_followers(void)
{
	int			n = 0;
	int			i;
	int			r;

	memset(followed, 0, sizeof(followed));
	share_of_kernel = false;
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (i = 0; i < dt_shared->max_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];
		DtDefinition *d = &g->definition;
		int64		rate[DT_RESOURCES];
		int64		used[DT_RESOURCES];

		if (g->id == 0 || !dt_definition_follows_any(d))
			continue;
		dt_group_lock(g);
		for (r = 0; r < DT_RESOURCES; r++)
		{
			rate[r] = g->usage[r].rate.rate;
			used[r] = g->usage[r].used;
		}
		dt_group_unlock(g);
		put_follower(g, n, rate, used);
		for (r = 0; r < DT_RESOURCES; r++)
			laws[n].used[r] = used[r];
		take_definition(&followers[n], &laws[n], d);
		n++;
	}
	LWLockRelease(dt_shared->registry_lock);
	n_followers = n;
}

/*
 * Look at a quarter of the sample, and use what was found in the others.
 */
static int64
look_at_dirty_buffers(int64 now)
{
	static int64 quarters[4];
	static int64 looked_at = 0;
	static int	next = 0;
	int			i;

	if (now - looked_at > 10 * CYCLE_US)
		for (i = 0; i < 4; i++)
			quarters[i] = dt_look_dirty_quarter(i);
	else
		quarters[next] = dt_look_dirty_quarter(next);
	next = (next + 1) % 4;
	looked_at = now;
	return (quarters[0] + quarters[1] + quarters[2] + quarters[3]) / 4;
}

/*
 * Look at a signal, and tell the laws.  "wal" is the position up to which WAL
 * has been written.
 */
static DtLook
look(DtSignal signal, int64 wal, int64 now)
{
	char	   *reason = infos[signal].reason;
	DtLook		result = DT_LOOK_MEASURED;
	int64		value = 0;
	int64		time_left;

	reason[0] = '\0';
	switch (signal)
	{
		case DT_REPLICA_LAG:
			result = dt_look_replicas(&replicas, now, reason);
			dt_pressure_read_drains(&pressure, replicas.drains, replicas.n,
									now);
			return result;
		case DT_CHECKPOINT:
			dt_look_checkpoint(&checkpoint_seen, now, &value, &time_left);
			dt_pressure_read_budget(&pressure, value, time_left, now);
			return result;
		case DT_IO_PRESSURE:
			result = dt_look_io_stall(&value, reason);
			if (result == DT_LOOK_MEASURED)
				dt_pressure_read_stall(&pressure, value, now);
			return result;
		case DT_SLOT_LAG:
			result = dt_look_slot_lag(wal, &value, reason);
			break;
		case DT_DIRTY_BUFFERS:
			value = look_at_dirty_buffers(now);
			break;
		case DT_KERNEL_DIRTY:
			result = dt_look_kernel_dirty(&value, reason);
			break;
	}
	if (result == DT_LOOK_MEASURED)
		dt_pressure_read(&pressure, signal, value, now);
	else if (result == DT_LOOK_NOTHING)
		dt_pressure_absent(&pressure, signal);
	return result;
}

/*
 * The kernel's own limit, when a threshold is a share of it.
 */
static DtLook
look_at_kernel_limit(int64 now)
{
	DtLook		result;

	if (!share_of_kernel || (kernel_limit > 0 &&
							 now - kernel_limit_at < KERNEL_LIMIT_US))
		return DT_LOOK_MEASURED;
	result = dt_look_kernel_limit(&kernel_limit,
								  infos[DT_KERNEL_DIRTY].reason);
	kernel_limit_at = now;
	return result;
}

/*
 * One line in the log for each change of what is known of a signal.
 */
static void
log_condition(DtSignal signal, Condition condition)
{
	const char *name = dt_signal_name(signal);
	Condition	before = conditions[signal];

	if (condition == before)
		return;
	conditions[signal] = condition;
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
			ereport(LOG,
					(errmsg("signal \"%s\" slows nobody down", name),
					 errdetail("%s", infos[signal].reason)));
			break;
		case UNREADABLE:
			ereport(LOG,
					(errmsg("could not measure signal \"%s\"", name),
					 errdetail("%s", infos[signal].reason),
					 errhint("The last value counts for 40 seconds, then the signal slows nobody down.")));
			break;
		case OUTDATED:
			ereport(LOG,
					(errmsg("signal \"%s\" slows nobody down", name),
					 errdetail("It has had no new value for 40 seconds.")));
			break;
	}
}

/*
 * What has come of a look, once the laws know it, too.
 */
static void
note_signal(DtSignal signal, DtLook result)
{
	DtSignalReading *reading = &pressure.signal[signal];
	Condition	condition = MEASURED;

	infos[signal].followed = true;
	infos[signal].state = reading->state;
	infos[signal].value = reading->value;
	infos[signal].read_at = reading->read_at;
	if (result == DT_LOOK_NOTHING)
		condition = NOTHING;
	else if (result == DT_LOOK_FAILED)
		condition = UNREADABLE;
	else if (reading->state == DT_SIGNAL_ABSENT)
		condition = conditions[signal] == UNKNOWN ? UNKNOWN : OUTDATED;
	log_condition(signal, condition);
}

/* Tell the views. */
static void
publish(int64 now)
{
	dt_spin_lock(&dt_shared->sampled.lock);
	dt_shared->sampled.at = now;
	memcpy(dt_shared->sampled.signals, infos, sizeof(infos));
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
	int			s;

	for (s = 0; s < DT_SIGNALS; s++)
		if (law->threshold[s] > 0 &&
			pressure.signal[s].state != DT_SIGNAL_ABSENT)
			oldest = Min(oldest, pressure.signal[s].read_at);
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

/* Do those who are in no such group use up the WAL until a checkpoint? */
static bool
others_exceed(const DtPressureGroup *law)
{
	return law->others > 0 && law->others >= law->budget;
}

/*
 * Can it be reached at all that no checkpoint is forced?  What is found holds
 * when it has been so for a while.
 */
static void
note_reach(Follower *f, const DtPressureGroup *law, int64 now)
{
	bool		out_of_reach = others_exceed(law);

	if (out_of_reach == f->out_of_reach)
		f->reach_since = 0;
	else if (f->reach_since == 0)
		f->reach_since = now;
	else if (now - f->reach_since >= FLOOR_US)
	{
		f->out_of_reach = out_of_reach;
		f->reach_since = 0;
		if (out_of_reach)
			ereport(LOG,
					(errmsg("resource group \"%s\" is slowed down to its floor, as others alone force checkpoints",
							f->definition.name),
					 errdetail("Others write " INT64_FORMAT " KB/s of WAL. No more than " INT64_FORMAT " KB/s fit until the next checkpoint comes by time.",
							   law->others / 1000, law->budget / 1000),
					 errhint("Increase max_wal_size to more than " INT64_FORMAT " MB.",
							 dt_max_wal_size_for(law->others + law->floor))));
	}
	if (f->out_of_reach && infos[DT_CHECKPOINT].reason[0] == '\0')
		snprintf(infos[DT_CHECKPOINT].reason, DT_REASON_SIZE,
				 _("Others write " INT64_FORMAT " KB/s of WAL, and no more than " INT64_FORMAT " KB/s fit until the next checkpoint comes by time."),
				 law->others / 1000, law->budget / 1000);
	infos[DT_CHECKPOINT].out_of_reach |= f->out_of_reach;
}

/*
 * A message when a group has been at its floor for a while.
 */
static void
log_floor(Follower *f, const DtPressureGroup *law, int64 now)
{
	bool		at_floor = false;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
		if (law->rate[r] > 0 && law->rate[r] <= law->floor &&
			law->rate[r] != law->limit[r])
			at_floor = true;
	if (!at_floor || law->signal < 0 || f->out_of_reach ||
		others_exceed(law))
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
					f->definition.name, dt_signal_name(law->signal))));
}

/*
 * Put the rates in force, in those groups of which the same is still defined;
 * for the others a new cycle is under way.
 */
static void
apply(int64 now)
{
	int			i;
	int			r;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (i = 0; i < n_followers; i++)
	{
		Follower   *f = &followers[i];
		DtPressureGroup *law = &laws[i];
		DtGroup    *g = f->group;
		DtGroupPressure result;
		bool		wake = false;

		if (g->id != f->id ||
			memcmp(&g->definition, &f->definition, sizeof(DtDefinition)) != 0)
			continue;
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
	LWLockRelease(dt_shared->registry_lock);
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
	int			i;

	find_followers();
	infos[DT_CHECKPOINT].out_of_reach = false;
	for (s = 0; s < DT_SIGNALS; s++)
	{
		if (followed[s] > 0)
			results[s] = look(s, wal, now);
		else
		{
			dt_pressure_absent(&pressure, s);
			memset(&infos[s], 0, sizeof(DtSignalInfo));
			log_condition(s, UNKNOWN);
		}
	}
	if (n_followers > 0)
	{
		if (followed[DT_KERNEL_DIRTY] > 0 &&
			results[DT_KERNEL_DIRTY] == DT_LOOK_MEASURED)
			results[DT_KERNEL_DIRTY] = look_at_kernel_limit(now);
		dt_pressure_step(&pressure, laws, n_followers, wal, now);
		for (i = 0; i < n_followers; i++)
			note_reach(&followers[i], &laws[i], now);
		apply(now);
		for (i = 0; i < n_followers; i++)
			log_floor(&followers[i], &laws[i], now);
	}
	for (s = 0; s < DT_SIGNALS; s++)
		if (followed[s] > 0)
			note_signal(s, results[s]);
	publish(now);
	return n_followers > 0;
}

static void
unregister(int code, Datum arg)
{
	dt_sampler_unregister();
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

	/* from the second of these on, put_follower() may have both in there */
	followers = palloc0(2 * dt_shared->max_groups * sizeof(Follower));
	laws = palloc0(2 * dt_shared->max_groups * sizeof(DtPressureGroup));
	dt_pressure_init(&pressure);
	dt_replicas_init(&replicas);
	on_shmem_exit(unregister, (Datum) 0);
	dt_sampler_register();

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
