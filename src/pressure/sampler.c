/*-------------------------------------------------------------------------
 *
 * sampler.c
 *		The background worker by which limits follow the server's pressure.
 *
 * Five times a second it looks at the signals that groups follow, has the laws
 * in engine/control.c work out the rates, and puts them in force.  At the others
 * it looks every ten seconds, so that a threshold can be chosen; all that the
 * views show is what it has seen.  While there is no group it sleeps until
 * dt_sampler_wake(), or wakes once a second while batch jobs wait for a worker.  It is started when recovery has ended, so there is none on a
 * standby, and one second after it has ended for any reason.
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
#include "pressure/followers.h"
#include "shared/commits.h"
#include "shared/group.h"
#include "shared/member.h"
#include "shared/queue.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"

#include "compat.h"

/* Half a second is what members take to follow; more looks would tell no more. */
#define CYCLE_US		INT64CONST(200000)

/* Batch jobs that wait for a background worker are tried again after this time. */
#define LAUNCH_US		INT64CONST(1000000)

/*
 * The time between two looks at what nobody follows: soon enough for who chooses a
 * threshold, and not a load.
 */
#define ALL_US			INT64CONST(10000000)

/*
 * After a change of a definition the next sample comes within that time, at once for
 * who has made it.  Many changes in a row cost no more samples than that.
 */
#define REDEFINED_US	INT64CONST(20000)

/* A group that has been at its floor for so long, no moment, is worth a message. */
#define FLOOR_US		INT64CONST(10000000)

/*
 * So long others must have forced checkpoints alone until that is believed, and
 * so long they must not have: twice as long each time that this was wrong.
 */
#define OUT_OF_REACH_US	INT64CONST(10000000)
#define IN_REACH_US		INT64CONST(60000000)
#define IN_REACH_MOST_US	INT64CONST(600000000)

/* Records of WAL are all but at most this part of it: the rest is page headers. */
#define UNCHARGED		16

/*
 * So long a probe counts that the sampler does not end, if that is all: it lasts
 * 2.4 s at most.
 */
#define PROBE_US		INT64CONST(3000000)

/* Sleepers are woken when the rate has risen by a tenth since: it costs them all. */
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

extern PGDLLEXPORT void dt_sampler_main(Datum main_arg);

static struct
{
	DtPressure	pressure;
	const DtFollowers *followers;
	int64		all_due;		/* a look at all signals is due then */
	DtSignalInfo infos[DT_SIGNALS];
	Condition	conditions[DT_SIGNALS];
	int64		reach_since;	/* whether checkpoints are in reach is to
								 * change, us; 0 = it is not */
	int64		reached_at;		/* since when they are, us */
	int64		in_reach_us;	/* for how long they have to seem so */
}			my;

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
 * Look at a signal, and tell the laws.
 */
static DtLook
look(DtSignal signal, int64 now)
{
	DtFound		found;
	DtLook		result = dt_signal_look(signal, now, &found);
	DtSignalInfo *info = &my.infos[signal];

	info->looked = true;
	info->available = result != DT_LOOK_FAILED;
	strlcpy(info->reason, found.reason, DT_REASON_SIZE);
	if (result == DT_LOOK_MEASURED && found.at != 0)
	{
		info->read_at = found.at;
		info->value = found.value;
	}
	else if (result == DT_LOOK_NOTHING)
		info->read_at = 0;
	if (signal == DT_COMMIT_LATENCY)
		dt_commits_read(my.pressure.new_window, &found.commits,
						&my.pressure.waiting);
	dt_followers_read(signal, result, &found, now);
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
					(errmsg("signal \"%s\" slows no group down", name),
					 errdetail_internal("%s", condition == NOTHING ?
										my.infos[signal].reason :
										_("It has had no new value for 40 seconds."))));
			break;
		case UNREADABLE:
			ereport(LOG,
					(errmsg("could not measure signal \"%s\"", name),
					 errdetail("%s", my.infos[signal].reason),
					 errhint("The last value counts for 40 seconds, then the signal slows no group down.")));
			break;
	}
}

/*
 * What has come of a look.
 */
static void
note_signal(DtSignal signal, DtLook result, int64 now)
{
	Condition	condition = MEASURED;

	if (signal == DT_REPORTED)
	{
		/* each name is a signal, which is there or not */
		dt_followers_log(now);
		return;
	}
	if (result == DT_LOOK_NOTHING)
		condition = NOTHING;
	else if (result == DT_LOOK_FAILED)
		condition = UNREADABLE;
	else if (dt_signal_state(my.infos[signal].read_at, DT_STALE_US, now) ==
			 DT_SIGNAL_ABSENT)
		condition = my.conditions[signal] == UNKNOWN ? UNKNOWN : OUTDATED;
	log_condition(signal, condition);
}

/* For the views, and for who chooses a threshold. */
static void
publish(void)
{
	DtSignalInfo *commits = &my.infos[DT_COMMIT_LATENCY];

	if (commits->looked && !my.followers->followed[DT_COMMIT_LATENCY])
	{
		commits->read_at = 0;
		strlcpy(commits->reason,
				_("It is measured while a group follows the signal."),
				DT_REASON_SIZE);
	}
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
	int64		soonest = PG_INT64_MAX;
	bool		probes_only = law->probed;

	for (int s = 0; s < DT_SIGNALS; s++)
	{
		const DtController *c = law->follows[s];

		if (c == NULL || c->state == DT_SIGNAL_ABSENT)
			continue;
		soonest = Min(soonest, c->read_at + c->fresh_us + DT_STALE_COUNTS_US);
		if (s != DT_COMMIT_LATENCY && law->share[s] > 0)
			probes_only = false;
	}
	if (probes_only)
		return now + PROBE_US;
	if (soonest == PG_INT64_MAX)
		soonest = now + DT_STALE_US + DT_STALE_COUNTS_US;
	return Max(soonest, now + 5 * CYCLE_US);
}

/*
 * Has the rate risen so much that sleepers should know?  None is the highest.
 */
static bool
is_worth_waking(DtFollower *f, int r, int64 rate)
{
	int64		known = f->woken_rate[r] > 0 ? f->woken_rate[r] : DT_LAW_MAX;
	bool		risen;

	rate = rate > 0 ? rate : DT_LAW_MAX;
	risen = rate > known / 100 * WAKE_PERCENT;
	if (risen || rate < known)
		f->woken_rate[r] = rate;
	return risen;
}

/* The controller of signal checkpoint, which has no threshold; or NULL. */
static DtController *
checkpoint_controller(void)
{
	for (int i = 0; i < my.followers->n_controllers; i++)
		if (my.followers->controllers[i]->signal == DT_CHECKPOINT)
			return my.followers->controllers[i];
	return NULL;
}

/* What all floors together are of those who follow signal checkpoint. */
static int64
floors_at_checkpoint(void)
{
	int64		sum = 0;

	for (int i = 0; i < my.followers->n; i++)
		if (my.followers->laws[i]->follows[DT_CHECKPOINT] != NULL)
			sum += my.followers->laws[i]->floor;
	return sum;
}

/*
 * What those write, at least, who do not follow signal checkpoint.  Members are
 * charged for records of WAL, but not for what is between them and for page
 * headers.  So of what the groups write a part might be taken for that of others,
 * and does not count.
 */
static int64
written_by_others(const DtController *c)
{
	return Max(c->others - c->used / UNCHARGED, 0);
}

/* Do they force checkpoints alone? */
static bool
others_exceed(const DtController *c)
{
	return written_by_others(c) >= dt_wal_rate_without_force();
}

static void
log_reach(const DtController *c)
{
	ereport(LOG,
			(errmsg("signal \"checkpoint\" slows no group down, as others alone force checkpoints"),
			 errdetail_internal("%s", my.infos[DT_CHECKPOINT].reason),
			 errhint("Increase max_wal_size to more than " INT64_FORMAT " MB.",
					 dt_max_wal_size_for(written_by_others(c) +
										 floors_at_checkpoint()))));
}

/* It has turned out whether checkpoints are in reach. */
static void
change_reach(DtController *c, int64 now)
{
	c->out_of_reach = !c->out_of_reach;
	my.reach_since = 0;
	if (!c->out_of_reach)
		my.reached_at = now;
	else if (now - my.reached_at < my.in_reach_us)
		my.in_reach_us = Min(2 * my.in_reach_us, IN_REACH_MOST_US);
	else
		my.in_reach_us = IN_REACH_US;
}

/*
 * Can it be reached at all that no checkpoint is forced?  It cannot when others
 * alone have forced them for a while.  When they seem not to any more, that is
 * believed after a longer one: beside fast groups it cannot be told what others
 * write if that is little.
 */
static void
note_reach(DtController *c, int64 now)
{
	DtSignalInfo *info = &my.infos[DT_CHECKPOINT];
	bool		begins = false;

	info->out_of_reach = false;
	if (c == NULL || others_exceed(c) == c->out_of_reach)
		my.reach_since = 0;
	else if (my.reach_since == 0)
		my.reach_since = now;
	else if (now - my.reach_since >=
			 (c->out_of_reach ? my.in_reach_us : OUT_OF_REACH_US))
	{
		change_reach(c, now);
		begins = c->out_of_reach;
	}
	if (c == NULL || !c->out_of_reach)
		return;
	info->out_of_reach = true;
	snprintf(info->reason, DT_REASON_SIZE,
			 _("Others write " INT64_FORMAT " KB/s of WAL, and no more than " INT64_FORMAT " KB/s fit between two timed checkpoints."),
			 written_by_others(c) / 1000, dt_wal_rate_without_force() / 1000);
	if (begins)
		log_reach(c);
}

/*
 * The signal that keeps a group at its floor, which it uses, that is, more than half
 * of it: who hardly writes does not miss anything.  Or -1.
 */
static int
signal_at_floor(const DtPressureGroup *law)
{
	int			signal = -1;

	if (law->observe)
		return -1;
	for (int r = 0; r < DT_RESOURCES; r++)
		if (law->rate[r] > 0 && law->rate[r] <= law->floor &&
			law->rate[r] != law->limit[r] &&
			law->use_rate[r] > law->rate[r] / 2)
			signal = law->decides[r];
	return signal == DT_CHECKPOINT &&
		others_exceed(law->follows[DT_CHECKPOINT]) ? -1 : signal;
}

/* Does the log say of a group, or of an instance of it, that it is at its floor? */
static bool
floor_is_logged(uint64 group_id)
{
	for (int i = 0; i < my.followers->n; i++)
	{
		const DtFollower *f = (const DtFollower *) my.followers->laws[i];

		if (f->of == group_id && f->floor_logged)
			return true;
	}
	return false;
}

/*
 * A message when a group has been at its floor for a while; one for all its instances.
 */
static void
log_floor(DtFollower *f, int64 now)
{
	int			signal = signal_at_floor(&f->law);
	bool		is_logged;

	if (signal < 0)
	{
		f->floor_since = 0;
		f->floor_logged = false;
		return;
	}
	if (f->floor_since == 0)
		f->floor_since = now;
	if (f->floor_logged || now - f->floor_since < FLOOR_US)
		return;
	is_logged = floor_is_logged(f->of);
	f->floor_logged = true;
	if (is_logged)
		return;
	ereport(LOG,
			(errmsg("resource group \"%s\" is slowed down to its floor by signal \"%s\"",
					f->definition.name,
					dt_definition_signal_name(&f->definition, signal))));
}

/* What a controller has found for a group. */
static void
set_facts(DtSignalFacts *facts, const DtController *c, int64 share)
{
	facts->share = share;
	if (c->pressure < 0)
		return;
	facts->read_at = c->read_at;
	facts->fresh_us = c->fresh_us;
	facts->value = c->shown;
	facts->base = c->base;
	facts->allowed = c->allowed;
	facts->pressure = c->pressure;
}

/*
 * Put the rates in force, in those groups of which the same is still defined;
 * for the others a new cycle is under way.
 */
static void
apply(DtFollower *f, int64 now)
{
	DtPressureGroup *law = &f->law;
	DtGroup    *g = f->group;
	DtGroupPressure result;
	bool		wake = false;

	if (g->id != f->id ||
		memcmp(&g->definition, &f->definition, sizeof(DtDefinition)) != 0)
		return;
	dt_pressure_clear(&result);
	result.probed = law->probed;
	memcpy(result.decides, law->decides, sizeof(result.decides));
	result.expires = expiry(law, now);
	for (int s = 0; s < DT_SIGNALS; s++)
		if (law->follows[s] != NULL)
			set_facts(&result.facts[s], law->follows[s], law->share[s]);
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		if (law->rate[r] != law->limit[r])
			result.rate[r] = law->rate[r];
		result.spends[r] = law->saved[r] && law->rate[r] > law->limit[r];
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
	const DtFollowers *all = my.followers;

	dt_pressure_step(&my.pressure, all->controllers, all->n_controllers,
					 all->laws, all->n, wal, now);
	note_reach(checkpoint_controller(), now);
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (int i = 0; i < all->n; i++)
		apply((DtFollower *) all->laws[i], now);
	LWLockRelease(dt_shared->registry_lock);
	for (int i = 0; i < all->n; i++)
		log_floor((DtFollower *) all->laws[i], now);
}

/* Look at the signals that are followed or, when that is due, at all. */
static void
look_around(DtLook *results, int64 now)
{
	bool		is_due = my.followers->any_group && now >= my.all_due;

	if (is_due)
		my.all_due = now + ALL_US;
	if (!my.followers->any_group)
	{
		my.all_due = 0;
		memset(my.infos, 0, sizeof(my.infos));
	}
	for (int s = 0; s < DT_SIGNALS; s++)
		if (is_due || my.followers->followed[s])
			results[s] = look(s, now);
}

/* The laws themselves know it. */
static void
note_wal_rate(void)
{
	DtSignalInfo *info = &my.infos[DT_WAL_RATE];

	info->value = my.pressure.wal_rate;
	/* 0: nobody wants to know, or not known yet */
	info->read_at = info->looked && my.pressure.watched_us > 0 ?
		my.pressure.stepped_at : 0;
}

/*
 * One sample.  Returns in which time the next one is due, us; -1: not before
 * dt_sampler_wake().
 */
static int64
cycle(int64 now)
{
	DtLook		results[DT_SIGNALS];
	int64		wal = (int64) GetXLogInsertRecPtr();

	my.followers = dt_followers_find();
	look_around(results, now);
	set_rates(wal, now);
	note_wal_rate();
	for (int s = 0; s < DT_SIGNALS; s++)
	{
		if (my.followers->followed[s])
			note_signal(s, results[s], now);
		else
			log_condition(s, UNKNOWN);
	}
	publish();
	return my.followers->n > 0 ? CYCLE_US :
		my.followers->any_group ? ALL_US : -1;
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
	int64		pause = CYCLE_US;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	if (!dt_shmem_available())
		proc_exit(0);			/* another file was preloaded */

	/* of statistics it wants few values, and these anew at each look */
	SetConfigOption("stats_fetch_consistency", "none", PGC_SUSET, PGC_S_OVERRIDE);

	on_shmem_exit(unregister, (Datum) 0);
	pg_atomic_write_u32(&dt_shared->sampler, MyProcNumber + 1);

	/* an exit code of 0 would mean not to start it again */
	while (!ShutdownRequestPending)
	{
		int64		now = dt_now_us();
		int64		sleep_us;
		int			events;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (now >= next)
		{
			pause = cycle(now);
			next = now + pause;
			soonest = now + REDEFINED_US;
		}
		sleep_us = pause < 0 ? -1 : Max(next - dt_now_us(), 0);
		/* a background worker becomes free without a word */
		if (dt_queue_launch() && (sleep_us < 0 || sleep_us > LAUNCH_US))
			sleep_us = LAUNCH_US;
		events = dt_clock_sleep(sleep_us, WL_EXIT_ON_PM_DEATH, wait_event);
		ResetLatch(MyLatch);
		if (events & WL_LATCH_SET)
		{
			next = pause == CYCLE_US ? Min(next, soonest) : 0;
			my.all_due = 0;		/* who has set something looks at the views */
		}
	}
	proc_exit(1);
}
