/*-------------------------------------------------------------------------
 *
 * shmem.h
 *		The layout of shared memory, its locks, and looking things up in it.
 *
 * The registry says which groups exist, their names, and who may join them.
 * A session that is in a group is a member of it.
 *
 * A group whose limits hold for each role or database has instances: more slots
 * with its name and definition, each with the key of whom it is for.  To its
 * members an instance is a group like any other.  It begins when the first of them
 * comes, and gives its slot away when another one needs it and it has no members
 * and owes nothing; its counters then go to the group's own slot, whose members are
 * those for whom there was no slot.
 *
 * There are three kinds of locks, taken in this order:
 *
 * - the heavyweight lock of definitions.c is held from a change of definitions
 *   to the end of its transaction;
 * - the registry lock (LWLock) protects the registry.  It is held exclusively
 *   for a moment when the registry changes or a session is moved, and shared
 *   to look up, to join and to list.  There is no I/O under it;
 * - a spinlock per group protects the group's account and the accounts of its
 *   members; two more protect what the sampler reports to the views, and the list of
 *   accounts that are free for the debts of roles.
 *   What is done under them takes bounded time: next to none, but for rate.c's
 *   tours around all members, some 20 ns a member, see there when these are
 *   made; and for who joins or leaves, and the views, which look through the
 *   debts that are kept for roles.
 *   The clock is read before a spinlock is taken.  These are no LWLocks, as a
 *   background worker that is ended while it waits for one charges on its way out.
 *
 * No process sleeps on its latch while it holds one of the last two.  The lock of
 * src/waiters stands alone: who looks takes none of these.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SHMEM_H
#define DT_SHMEM_H

#include <signal.h>

#include "clock.h"
#include "datatype/timestamp.h"
#include "engine/latency.h"
#include "engine/meter.h"
#include "engine/rate.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "shared/definition.h"
#include "shared/parameters.h"
#include "storage/itemptr.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/spin.h"

/* A group's usage of one resource, and its debts. */
typedef struct DtGroupUsage
{
	DtRateGroup engine;
	DtMeter		meter;			/* the rate of the last seconds */
	int64		used;			/* since stats_reset, bytes */
} DtGroupUsage;

/* What is counted of pauses, made or (mode observe) only computed. */
typedef enum DtCounter
{
	DT_PAUSES,
	DT_WAL_PAUSES,				/* of these, caused by the WAL limit */
	DT_PAUSED_US,
	DT_OBSERVED_PAUSES,			/* in mode observe */
	DT_OBSERVED_US,
	DT_RELEASES,				/* how often it went on because others waited */
	DT_RELEASED_US,				/* and for how long */
	DT_COUNTERS
} DtCounter;

/* What is known, for a group, of a signal that it follows. */
typedef struct DtSignalFacts
{
	int64		read_at;		/* time of the value, us; 0 = there is none */
	int64		fresh_us;		/* so long it is fresh */
	bool		known;			/* the next three are, in the unit of the
								 * signal */
	int64		value;
	int64		base;			/* what it is without the groups; 0 = not
								 * known */
	int64		allowed;		/* what it may be; the same */
	int64		share;			/* of the rates that it allows, bytes/s; 0 =
								 * all */
} DtSignalFacts;

/*
 * What pressure makes of a group's limits.  The sampler renews it several
 * times a second; see sampler.c.
 */
typedef struct DtGroupPressure
{
	int64		rate[DT_RESOURCES]; /* no more than this, bytes/s; 0 = free */
	int64		level;			/* of the worst signal, in thousandths of its
								 * threshold */
	int			signal;			/* which one that is, a DtSignal; -1: none */
	int			decides[DT_RESOURCES];	/* the signal that "rate" is from; -1:
										 * not known */
	bool		spends[DT_RESOURCES];	/* that is more than the limit, as
										 * there is a burst to spend */
	bool		probed;			/* it rests so that commits are measured
								 * without it */
	DtSignalFacts facts[DT_SIGNALS];
	int64		expires;		/* us; from then on this counts no more */
} DtGroupPressure;

/*
 * What was used without a sign of writing, within a minute at most.
 */
typedef struct DtReading
{
	int64		since;			/* us */
	int64		bytes;			/* of one resource; since nothing was owed */
	int64		wal;			/* but for images of pages, whether paid or
								 * not */
} DtReading;

/*
 * What sessions of a role that have left a group still owe there; see
 * role_debt.c.
 */
typedef struct DtRoleDebt
{
	dlist_node	node;			/* of its group's list, or of the free ones */
	Oid			role;
	int			n_left;			/* so many sessions have left it, and it was
								 * not taken over since */
	int64		left[DT_RESOURCES]; /* what they have left, in bytes, whether
									 * it was repaid or not */
	int64		largest[DT_RESOURCES];	/* the most that one of them has left */
	int64		slipped[DT_RESOURCES];	/* of "left", what was used without
										 * having passed the gate; see phase.c */
	TimestampTz slipped_in;		/* one that has slipped has left in the
								 * suspension that began then; 0: none */
	DtReading	reading;		/* of those who have left since one has joined */
	DtRateMember account[DT_RESOURCES];
} DtRoleDebt;

/*
 * One resource group.  The first part is read without the lock by each
 * member's statement and transaction, and is rarely written; the second is
 * written at each charge.  So they do not share a cache line.
 */
typedef struct DtGroup
{
	/* guarded by the registry lock */
	uint64		id;				/* never reused; 0 = this slot is free; it is
								 * cleared with "lock", too */
	uint64		of;				/* the ID of the group's own slot; of that its
								 * own */
	Oid			key;			/* of an instance: the role or database; of
								 * the group's own slot invalid */
	bool		differs;		/* an instance with a definition of its own,
								 * whose slot stays */

	/*
	 * What is defined.  Written with the registry lock and "lock", so it can
	 * be read with either.
	 */
	DtDefinition definition;

	/*
	 * Incremented when a rate, the mode or the suspension changes, and when
	 * throttling is switched on or off.  Members read it without a lock, when
	 * a statement begins, at each tick and when a transaction ends, and
	 * charge what they have used if it has changed, as each charge looks at
	 * all of these.
	 */
	pg_atomic_uint32 generation;

	/*
	 * Written with "lock".  Members read them without it, and may see the old
	 * values or, where 64 bits are not read at once, half of each, until the
	 * generation shows them the change.
	 */
	TimestampTz suspended_since;	/* by suspend_group(); 0 = it is not */

	/* guarded by "lock" */
				pg_attribute_aligned(PG_CACHE_LINE_SIZE) slock_t lock;
	int			members;		/* who has left and still owes does not count */
	int64		stats[DT_COUNTERS]; /* since stats_reset */
	int64		forgiven;		/* debts, because of pressure, since
								 * stats_reset, bytes */
	TimestampTz stats_reset;
	DtGroupPressure pressure;

	/*
	 * The rates in here are those in force: what is defined or, when that is
	 * less, what pressure leaves of it.
	 */
	DtGroupUsage usage[DT_RESOURCES];
	dlist_head	role_debts;		/* of DtRoleDebt */
	DtRoleDebt	nobodys_debt;	/* of no role */
} DtGroup;

/* The reason for a pause. */
typedef enum DtPauseCause
{
	DT_BY_DIRTY = DT_DIRTY,		/* the limit of this resource */
	DT_BY_WAL = DT_WAL,
	DT_BY_SUSPEND,				/* suspend_group() */
	DT_BY_SIGNAL				/* pressure, of the DtSignal that is added to
								 * this */
} DtPauseCause;

/* A cause that is added gets a name in dt_member_cause_name(), too. */
#define DT_PAUSE_CAUSES	(DT_BY_SIGNAL + DT_SIGNALS)

static inline bool
dt_pause_is_by_wal(DtPauseCause cause)
{
	return cause < DT_BY_SIGNAL ? cause == DT_BY_WAL :
		dt_signals[cause - DT_BY_SIGNAL].resource == DT_WAL;
}

/*
 * The pauses of a transaction, and those before its first statement, of the
 * session and its parallel workers.
 */
typedef struct DtXactPauses
{
	char		group_name[NAMEDATALEN];	/* of the group that has last
											 * asked for one, at that time */
	int64		stats[DT_COUNTERS];
	int64		paused_us[DT_PAUSE_CAUSES]; /* by their cause */
	int64		before_us;		/* of these pauses, those before its first
								 * statement */
	int			released_for;	/* process ID of the last that waited */
} DtXactPauses;

typedef struct DtMemberUsage
{
	int64		used;			/* since it joined, bytes */
	DtMeter		meter;			/* the rate of the last seconds */
	int64		allowed;		/* by this transaction, of its allowance;
								 * reset by the session at the end of it */
} DtMemberUsage;

/*
 * A pause of a process.  The process writes it, without a lock, in its own slot,
 * also a parallel worker: it is for the views, and what it adds to counters is
 * added when a slice is over, with the group's lock.
 */
typedef struct DtPause
{
	DtGroup    *group;			/* for which it pauses; NULL: it does not */
	uint64		group_id;
	DtPauseCause cause;
	TimestampTz since;			/* when it began; one that goes on at another
								 * place is the same */
	bool		counted;		/* among the pauses */
	bool		is_on;			/* among the session's n_pausing */
} DtPause;

/*
 * The membership of a session, in the slot of its process: the element of
 * dt_members with the process's proc number.  A parallel worker uses its
 * leader's slot, except for the variables that are marked so.
 *
 * "group" is changed by the session itself and by others
 * (set_session_group(), a forced drop), always under the lock of the group
 * that is left or entered.  Setting it to a group takes the registry lock, too:
 * the session itself takes it shared, others exclusively, so only one process
 * does so at a time.  Anybody may read "group" without a lock, but has to check
 * it again after locking the group.
 */
typedef struct DtMember
{
	DtGroup    *group;			/* NULL: not a member */

	/*
	 * Guarded by the registry lock: the session itself writes them in shared
	 * mode, others in exclusive mode.  (At its exit, when nobody looks at it
	 * any more, a session leaves its group without that lock.)
	 */
	int			pid;			/* of a session that can be moved, or 0 */
	bool		moved;			/* by set_session_group() */
	uint32		times_joined;	/* how often it was put into a group */
	uint32		times_left;		/* how often it came to be in no group, by its
								 * own choice or not */

	/*
	 * As whom the session has logged in, which SET ROLE does not change.
	 * Invalid for those who do not take over the debts of their role. Written
	 * by the session before it can be in a group.
	 */
	Oid			role;

	/*
	 * The session goes on without pauses until this time (us), since others
	 * wait for it; 0: nobody does.  Written by its own processes only.
	 */
	volatile int64 released_until;

	/*
	 * The session is a background worker that has got a SIGTERM: it pauses no
	 * more.  Written in its handler; see sigterm.c.
	 */
	volatile bool told_to_end;

	/*
	 * The phase of its transaction, for its parallel workers; whether what it
	 * owes was used without having passed the gate, see phase.c; the
	 * suspension in which that was, 0: none; and what it has used by reading.
	 * Written by the session, and all but the first by whoever makes it join.
	 */
	uint8		phase;
	bool		slips;
	TimestampTz slipped_in;
	DtReading	reading;

	/* in the slot of each process, also of a parallel worker */
	bool		can_be_asked;	/* for a check for interrupts; told by check.c */
	bool		pauses_at_checks;	/* if it can; the parameter */
	volatile sig_atomic_t asked;	/* by another process, for a check */
	DtPause		pause;

	/*
	 * In the slot of each process, which alone writes them, for the sampler:
	 * see commits.c.  The counters go on from one process to the next, and
	 * wrap around.
	 */
	bool		commits;		/* a commit is under way */
	DtSessionCommits commit_times;

	/*
	 * The bytes that its parallel workers have used that the core adds to the
	 * session's own counters.  They write that when they end, in whatever
	 * group; it goes on from one process to the next.
	 */
	pg_atomic_uint64 workers_used[DT_RESOURCES];

	/* guarded by group->lock */
	DtRateMember account[DT_RESOURCES];
	DtMemberUsage usage[DT_RESOURCES];

	int64		stats[DT_COUNTERS]; /* since it joined */
	DtXactPauses xact;			/* reset by the session, while it is awake */
	pg_atomic_uint32 n_pausing; /* of its processes; they end without lock */
	int64		paused_up_to_us;	/* while there are any: the time from then
									 * on is still to be counted */
	TimestampTz released_since; /* it goes on without pauses; 0: it does not */
	int64		released_up_to_us;	/* up to when that is counted */
} DtMember;

/*
 * A job in batches that runs, or waits for a background worker; in no order.  It is not
 * stored: after a crash none runs.  Guarded by the registry lock; the worker may read
 * "stops" of its own without it.  See queue.c.
 */
typedef struct DtQueued
{
	Oid			database;		/* 0: the entry is free */
	Oid			login;			/* as whom its worker connects */
	Oid			store;			/* the relation where it is stored */
	Oid			job;			/* its id there */
	int64		since;			/* us; 0: that has not been committed */
	int64		launched_us;	/* its worker was registered; and has begun: */
	int			pid;
	volatile int stops;			/* it is to end after its present batch, as so
								 * many calls of stop_batches() say */
	int			waiter;			/* proc number + 1 of who waits for its end,
								 * the last that has looked; or 0 */
	int			connection_flags;	/* of its worker */
} DtQueued;

/*
 * What the sampler knows of a signal; all zeros while there is no group.  Where
 * groups follow it at several thresholds it is that of the highest pressure.
 */
typedef struct DtSignalInfo
{
	bool		looked;			/* it has looked at it, and ... */
	bool		available;		/* ... it can be measured here */
	int64		read_at;		/* time of the last fresh value, us; 0 = none */
	int64		value;			/* in the unit of the signal, unless that is
								 * too old, as are the next two */
	int64		base;			/* what it is without the groups, and ... */
	int64		allowed;		/* ... what it may be; 0 = not known, or none */
	bool		out_of_reach;	/* DT_CHECKPOINT: of some group */
	char		reason[DT_REASON_SIZE]; /* for that, or why there is no new
										 * value; or empty */
} DtSignalInfo;

/* What somebody has reported as a signal. */
typedef struct DtReport
{
	char		name[NAMEDATALEN];	/* empty: this entry is free */
	int64		value;			/* in thousandths of the threshold */
	int64		at;				/* when, us */
	int64		ttl_us;			/* it is stale after that */
} DtReport;

#define DT_REPORTS	64

/* The last samples, for the views, and reports. */
typedef struct DtSampled
{
	slock_t		lock;			/* guards all of this; taken last */
	DtSignalInfo signals[DT_SIGNALS];
	DtReport	reports[DT_REPORTS];
} DtSampled;

/* Which version of the row of all definitions; zeroed: there is no row. */
typedef struct DtRowVersion
{
	TransactionId xmin;
	ItemPointerData tid;
} DtRowVersion;

typedef struct DtShared
{
	LWLock	   *registry_lock;
	pg_atomic_uint64 registry_changes;	/* changes with the registry lock */
	pg_atomic_uint32 enabled;	/* written by the postmaster only */
	bool		interrupt_pauses;	/* the same; sessions may have another
									 * value */
	pg_atomic_uint32 sampler;	/* its proc number + 1; 0: it does not run */
	DtSampled	sampled;
	int			max_groups;		/* slots in the array of groups, ... */
	int			n_groups;		/* ... of which those from here on have never
								 * been in use; it grows under the registry
								 * lock */
	int			n_members;		/* slots in the array of members */

	/* guarded by the registry lock; see load.c */
	bool		start_logged;	/* load.c has logged what runs here */
	bool		is_current;		/* loaded after recovery had ended: since then
								 * whoever commits a change loads it */
	DtRowVersion row;			/* the last that was loaded */
	uint64		last_group_id;
	bool		commits_followed;	/* by a group */

	slock_t		role_debts_lock;	/* guards the next; taken last */
	dlist_head	free_role_debts;
	int64		role_debts_found_at;	/* us; see dt_role_debt_find_repaid() */
} DtShared;

extern DtShared *dt_shared;
extern DtGroup *dt_groups;
extern DtMember *dt_members;
extern DtQueued *dt_queue;

/* Assign hook of dirty_throttle.enabled */
extern void dt_assign_enabled(bool newval, void *extra);

extern void dt_shmem_request(void);
extern void dt_shmem_startup(void);

/* Is there shared memory, that is, was the library preloaded? */
static inline bool
dt_shmem_available(void)
{
	return dt_shared != NULL;
}

extern void dt_defer_termination_slow(void);
extern void dt_allow_termination_slow(void);

/*
 * For a process that may be ending: SIGTERM may have ended a background worker in the
 * queue of some lock, and then it must not queue for another one.
 */
static inline void
dt_lock_unqueued(LWLock *lock, LWLockMode mode)
{
	while (!LWLockConditionalAcquire(lock, mode))
		pg_usleep(100);
}

/* What follows is not to be ended halfway by SIGTERM, which may come at any time. */
static inline void
dt_defer_termination(void)
{
	if (unlikely(MyBackendType == B_BG_WORKER))
		dt_defer_termination_slow();
}

static inline void
dt_allow_termination(void)
{
	if (unlikely(MyBackendType == B_BG_WORKER))
		dt_allow_termination_slow();
}

/* Take and release a spinlock. */
static inline void
dt_spin_lock(slock_t *lock)
{
	dt_defer_termination();
	SpinLockAcquire(lock);
}

static inline void
dt_spin_unlock(slock_t *lock)
{
	SpinLockRelease(lock);
	dt_allow_termination();
}

/* The same of a group; never in a signal handler. */
static inline void
dt_group_lock(DtGroup *g)
{
	dt_spin_lock(&g->lock);
}

static inline void
dt_group_unlock(DtGroup *g)
{
	dt_spin_unlock(&g->lock);
}

/*
 * Is dirty_throttle.enabled on?  The postmaster's value counts, so that it
 * changes for all processes at once.
 */
static inline bool
dt_throttling_is_enabled(void)
{
	return pg_atomic_read_u32(&dt_shared->enabled) != 0;
}

/* Does suspend_group() make members pause outside of transactions? */
static inline bool
dt_group_is_suspended(const DtGroup *g)
{
	return g->suspended_since != 0 && dt_throttling_is_enabled();
}

/* Groups' own slots; with the registry lock held */
extern DtGroup *dt_group_find(const char *name);
extern DtGroup *dt_group_find_or_error(const char *name);
extern DtGroup *dt_group_find_id(uint64 id);

/* The slot of a group for a member: an instance, or its own.  NULL: it has none yet. */
extern Oid	dt_group_key(const DtGroup *own, const DtMember *member);
extern DtGroup *dt_group_slot(DtGroup *own, const DtMember *member);

/* Taking that lock */
extern uint64 dt_group_lookup_id(const char *name);

extern const char *dt_name_flaw(const char *name);
extern bool dt_name_is_similar(const char *a, const char *b);
extern bool dt_group_find_similar(const char *name, char *similar);
extern char *dt_group_advice(const char *name, const char *advice);
extern void dt_group_missing(const char *name);

/*
 * A number that increases with each change of the definitions.  A session whose
 * group did not exist looks again when it has changed.
 */
static inline uint64
dt_registry_changes(void)
{
	return pg_atomic_read_u64(&dt_shared->registry_changes);
}

static inline bool
dt_sampler_runs(void)
{
	return pg_atomic_read_u32(&dt_shared->sampler) != 0;
}

extern void dt_sampler_wake(void);

/* What the sampler has last reported of a signal. */
extern DtSignalInfo dt_sampler_info(DtSignal signal);

extern DtMember *dt_member_mine(void);
extern DtMember *dt_member_of(PGPROC *proc);

#endif							/* DT_SHMEM_H */
