/*-------------------------------------------------------------------------
 *
 * protect.c
 *		What protect_from() chooses for a group on this server.
 *
 * Who calls it knows no number.  So the group follows what others notice of a job
 * that writes much, as far as this server has it: how long their commits take, how
 * far the standbys are behind, the disk that fills up, and checkpoints that are
 * forced.  What the group follows already stays as somebody has set it, so a call
 * can be repeated when the server has changed.
 *
 * Each choice is told, with the figures that it comes from, and so is what was
 * left out, and why.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pressure/signals.h"
#include "shared/amount.h"
#include "sql/notices.h"
#include "sql/protect.h"
#include "sql/sql.h"
#include "utils/builtins.h"

#include "compat.h"

/* How much longer nine of ten commits may take, in 1e-6. */
#define COMMITS_SHARE	500000

/* How far the replay of standbys may be behind, us. */
#define REPLAY_LAG		INT64CONST(5000000)

/*
 * A tenth of the disk is to stay free; of one that is nearly full a quarter of what
 * is left, so that the group is not slowed down yet: the signal begins at twice its
 * threshold.
 */
#define DISK_PART		10
#define LEFT_PART		4

/*
 * If less WAL than this is left until a checkpoint is forced, bytes/s, most jobs
 * would rather have the checkpoint: with the defaults of the server it is 1.8 MB/s.
 */
#define WORTH_IT		INT64CONST(10000000)

/* The floor of a group that has the default: it is a rate at which jobs end. */
#define FLOOR			INT64CONST(512000)

/* What was chosen of a signal. */
typedef struct Choice
{
	DtSignal	signal;
	bool		was_set;		/* the group follows it already */
	bool		is_set;			/* it follows it now */
	const char *detail;
	const char *hint;			/* or NULL */
} Choice;

static void
follow(DtDefinition *d, Choice *c, DtUnit unit, int64 value)
{
	DtThreshold threshold = {.unit = unit,.value = value};

	d->threshold[c->signal] = threshold;
	c->is_set = true;
}

/* What the sampler has seen of a signal within that time; -1: not known. */
static int64
sampled(DtSignal signal, int64 fresh_us)
{
	DtSignalInfo info = dt_sampler_info(signal);

	return dt_signal_state(info.read_at, fresh_us, dt_now_us()) ==
		DT_SIGNAL_FRESH ? info.value : -1;
}

/*
 * Standbys, unless one is farther behind than it may be: that one is meant to be,
 * or has another reason, and would keep the group at its floor.  The sampler may
 * not know yet how fast it replays; the core does not know a standby that has
 * replayed all for a while.
 */
static void
choose_standbys(DtDefinition *d, Choice *c, const DtFound *found)
{
	int64		lag = Max(sampled(c->signal, DT_STALE_US + DT_STALE_COUNTS_US),
						  found->other);

	if (lag > REPLAY_LAG)
	{
		c->detail = psprintf(_("A standby is already %s behind."),
							 dt_amount_about(DT_UNIT_US, lag));
		c->hint = psprintf(_("To follow the others, if there are any, use SELECT set_group_pressure(%s, %s, %s, ignore => 1)."),
						   quote_literal_cstr(d->name),
						   quote_literal_cstr(dt_signals[c->signal].name),
						   quote_literal_cstr(dt_amount_text(DT_UNIT_US, REPLAY_LAG)));
		return;
	}
	follow(d, c, DT_UNIT_US, REPLAY_LAG);
	if (lag >= 0)
	{
		c->detail = psprintf(ngettext("%d standby is streaming.",
									  "%d standbys are streaming.", found->n),
							 found->n);
		return;
	}
	c->detail = psprintf(ngettext("%d standby is streaming. How far it is behind is not known yet.",
								  "%d standbys are streaming. How far they are behind is not known yet.",
								  found->n),
						 found->n);
	c->hint = psprintf(_("If one is behind on purpose, use SELECT set_group_pressure(%s, %s, NULL)."),
					   quote_literal_cstr(d->name),
					   quote_literal_cstr(dt_signals[c->signal].name));
}

/* Another group that follows a signal, or NULL. */
static const DtDefinition *
find_follower(const DtDefinition *d, DtSignal signal)
{
	int			n;
	DtGroupCopy *copies = dt_group_copies(&n);

	for (int i = 0; i < n; i++)
	{
		const DtDefinition *definition = &copies[i].group.definition;

		if (!dt_definition_is_of(d, definition) &&
			dt_definition_follows(definition, signal))
			return definition;
	}
	return NULL;
}

/* Who shares a signal does so at one threshold. */
static void
choose_disk(DtDefinition *d, Choice *c, const DtFound *found)
{
	int64		mb = dt_signals[c->signal].lowest;
	int64		threshold = Min(found->other / DISK_PART,
								found->value / LEFT_PART);
	const DtDefinition *other = find_follower(d, c->signal);

	threshold -= threshold % (threshold < 10000 * mb ? mb : 1000 * mb);
	follow(d, c, DT_UNIT_BYTES, Max(threshold, mb));
	c->detail = psprintf(_("The file system of pg_wal has %s, of which %s are free."),
						 dt_amount_about(DT_UNIT_BYTES, found->other),
						 dt_amount_about(DT_UNIT_BYTES, found->value));
	if (other == NULL)
		return;
	d->threshold[c->signal] = other->threshold[c->signal];
	c->detail = psprintf(_("Resource group \"%s\" follows it at the same threshold. %s"),
						 other->name, c->detail);
}

/*
 * How much WAL all write but the group and those that obey signal checkpoint, with
 * which it shares, bytes/s; -1: not known.  While no group follows a signal the sampler
 * looks seldom, and what it knows is of another time than what groups write now.
 */
static int64
written_by_others(const DtDefinition *d)
{
	int			n;
	DtGroupCopy *copies = dt_group_copies(&n);
	int64		all = sampled(DT_WAL_RATE, USECS_PER_SEC);
	int64		own = 0;
	bool		followed = false;

	for (int i = 0; i < n; i++)
	{
		const DtDefinition *definition = &copies[i].group.definition;

		followed |= dt_definition_follows_any(definition);
		if (dt_definition_is_of(d, definition) ||
			(definition->observe == 0 &&
			 dt_definition_follows(definition, DT_CHECKPOINT)))
			own += (int64) dt_meter_rate(&copies[i].group.usage[DT_WAL].meter,
										 copies[i].now);
	}
	return all < 0 || !followed ? -1 : Max(all - own, 0);
}

/*
 * Checkpoints that come by time only, if that leaves enough to the group.  If others
 * write more than it is known now, the signal will find out itself.
 */
static void
choose_checkpoint(DtDefinition *d, Choice *c)
{
	int64		budget = dt_wal_rate_without_force();
	int64		others = written_by_others(d);

	c->detail = others < 0 ?
		psprintf(_("All sessions together can write %s of WAL without forcing a checkpoint, and it is not known yet how much those write that do not follow the signal."),
				 dt_amount_about(DT_UNIT_RATE, budget)) :
		psprintf(_("All sessions together can write %s of WAL without forcing a checkpoint, and those that do not follow the signal write %s."),
				 dt_amount_about(DT_UNIT_RATE, budget),
				 dt_amount_about(DT_UNIT_RATE, others));
	if (budget - Max(others, 0) >= WORTH_IT)
		follow(d, c, DT_UNIT_NONE, 0);
	else
		c->hint = psprintf(_("Use ALTER SYSTEM SET max_wal_size = '" INT64_FORMAT "GB'; SELECT pg_reload_conf(); and then call protect_from() again. This leaves %s to those that follow it, with room for twice what all write."),
						   (dt_max_wal_size_for(2 * (Max(others, 0) + WORTH_IT)) + 1023) / 1024,
						   dt_amount_about(DT_UNIT_RATE, WORTH_IT));
}

/* What to do about a signal. */
static Choice *
choose(DtDefinition *d, DtSignal signal)
{
	Choice	   *c = palloc0(sizeof(Choice));
	DtFound		found;

	c->signal = signal;
	if (dt_definition_follows(d, signal))
	{
		c->was_set = c->is_set = true;
		c->detail = _("This was already set, and stays as it is.");
	}
	else if (dt_signal_look(signal, dt_now_us(), &found) != DT_LOOK_MEASURED)
		c->detail = pstrdup(found.reason);
	else if (signal == DT_REPLICA_LAG)
		choose_standbys(d, c, &found);
	else if (signal == DT_DISK_FREE)
		choose_disk(d, c, &found);
	else if (signal == DT_CHECKPOINT)
		choose_checkpoint(d, c);
	else
	{
		follow(d, c, DT_UNIT_SHARE, COMMITS_SHARE);
		c->detail = _("Nine of ten commits of sessions outside of the group may take half as long again as without it.");
	}
	return c;
}

/*
 * The floor, so that the job goes on whatever the reason for the pressure is; at
 * most half of what the group may have anyway.
 */
static void
choose_floor(DtDefinition *d)
{
	int64		floor = FLOOR;

	if (d->floor != DT_PRESSURE_DEFAULT_FLOOR)
		return;
	for (int r = 0; r < DT_RESOURCES; r++)
		if (d->rate[r] > 0)
			floor = Min(floor, d->rate[r] / 2);
	if (dt_definition_follows(d, DT_WAL_RATE))
		floor = Min(floor, d->threshold[DT_WAL_RATE].value / 2);
	d->floor = Max(floor, d->floor);
}

/*
 * Set what fits of what is defined of a group.  Returns what was chosen, for
 * dt_protect_tell().
 */
List *
dt_protect_choose(DtDefinition *d)
{
	static const DtSignal candidates[] = {
		DT_COMMIT_LATENCY, DT_REPLICA_LAG, DT_CHECKPOINT, DT_DISK_FREE
	};
	List	   *choices = NIL;

	for (int i = 0; i < lengthof(candidates); i++)
		choices = lappend(choices, choose(d, candidates[i]));
	choose_floor(d);
	return choices;
}

static void
tell_choice(const Choice *c, const DtDefinition *d)
{
	const char *signal = dt_signals[c->signal].name;
	const DtThreshold *t = &d->threshold[c->signal];

	if (c->is_set && t->unit != DT_UNIT_NONE)
		ereport(NOTICE,
				(errmsg("resource group \"%s\" follows signal \"%s\" at %s",
						d->name, signal, dt_amount_text(t->unit, t->value)),
				 errdetail_internal("%s", c->detail),
				 c->hint != NULL ? errhint("%s", c->hint) : 0));
	else if (c->is_set)
		ereport(NOTICE,
				(errmsg("resource group \"%s\" follows signal \"%s\"",
						d->name, signal),
				 errdetail_internal("%s", c->detail)));
	else
		ereport(NOTICE,
				(errmsg("resource group \"%s\" does not follow signal \"%s\"",
						d->name, signal),
				 errdetail_internal("%s", c->detail),
				 c->hint != NULL ? errhint("%s", c->hint) : 0));
}

/* Tell what was chosen, and how to change it. */
void
dt_protect_tell(List *choices, List *entries, const DtDefinition *d)
{
	foreach_ptr(Choice, c, choices)
	{
		tell_choice(c, d);
		if (c->is_set && !c->was_set)
			dt_notice_others(entries, d, c->signal);
	}
	ereport(NOTICE,
			(errmsg("resource group \"%s\" is not slowed down below %s",
					d->name, dt_amount_about(DT_UNIT_RATE, d->floor)),
			 errdetail("This is its floor."),
			 errhint("Use set_group_pressure(), with NULL to remove a signal, and SELECT alter_resource_group(%s, floor => ...) to change what was chosen.",
					 quote_literal_cstr(d->name))));
	dt_notice_floor(d);
	dt_notice_sampler();
}
