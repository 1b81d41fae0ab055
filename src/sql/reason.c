/*-------------------------------------------------------------------------
 *
 * reason.c
 *		Why pressure makes a group as slow as it is, as a sentence.
 *
 * It is made of what the sampler has told the group of the signal that decides:
 * its value, what it may be and, of commit_latency, what it is without the group,
 * or that the group rests so that this becomes known.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "engine/law.h"
#include "shared/amount.h"
#include "sql/reason.h"

#include "compat.h"

/* The sentences: the value, and what it may be. */
static const char *const sentences[DT_SIGNALS] = {
	[DT_REPLICA_LAG] = gettext_noop("A standby is %s behind with its replay; the aim is two thirds of the %s that are allowed."),
	[DT_SLOT_LAG] = gettext_noop("The consumer of a replication slot is %s behind; the aim is two thirds of the %s that are allowed."),
	[DT_ARCHIVE_LAG] = gettext_noop("%s of WAL wait to be archived; the aim is two thirds of the %s that are allowed."),
	[DT_WAL_RATE] = gettext_noop("The server writes %s of WAL, and %s are allowed."),
	[DT_DISK_FREE] = gettext_noop("%s of the file system of pg_wal are free, and %s must stay free; the rest has to last for 30 s."),
	[DT_KERNEL_DIRTY] = gettext_noop("The kernel has to write %s; the aim is two thirds of the %s that are allowed."),
	[DT_IO_PRESSURE] = gettext_noop("Some process waits for I/O for %s of the time, and %s are allowed.")
};

/* Commits of others: "facts" are known. */
static char *
commits_text(const DtSignalFacts *facts, const DtThreshold *t)
{
	char	   *value = dt_amount_about(DT_UNIT_US, facts->value);
	char	   *allowed = dt_amount_about(DT_UNIT_US, facts->allowed);

	if (facts->allowed == 0)
		return psprintf(_("Nine of ten commits of others take %s or less, and how long they take without the group is not known yet."),
						value);
	if (t->unit == DT_UNIT_SHARE)
		return psprintf(_("Nine of ten commits of others take %s or less, and %s are allowed: %s without the group, and %s."),
						value, allowed,
						dt_amount_about(DT_UNIT_US, facts->base),
						dt_amount_text(t->unit, t->value));
	if (facts->allowed > t->value)
		return psprintf(_("Nine of ten commits of others take %s or less, and %s are allowed: %s without the group, and a fifth, which is more than %s."),
						value, allowed,
						dt_amount_about(DT_UNIT_US, facts->base),
						dt_amount_text(t->unit, t->value));
	return psprintf(_("Nine of ten commits of others take %s or less, and %s are allowed."),
					value, allowed);
}

static char *
signal_text(const DtGroup *g, DtSignal signal)
{
	const DtDefinition *d = &g->definition;
	const DtSignalFacts *facts = &g->pressure.facts[signal];
	DtUnit		unit = dt_signals[signal].unit;

	if (facts->share == 0)
		return psprintf(_("Signal \"%s\" has ended its limit, which is lifted step by step."),
						dt_definition_signal_name(d, signal));
	if (signal == DT_COMMIT_LATENCY)
		return facts->read_at != 0 ? commits_text(facts, &d->threshold[signal]) :
			pstrdup(_("How long commits of others may take is not known yet."));
	if (facts->read_at == 0)
		return psprintf(_("Signal \"%s\" has no value at present."),
						dt_definition_signal_name(d, signal));
	if (signal == DT_CHECKPOINT)
		return psprintf(_("A checkpoint is forced after another %s of WAL, which has to last until the next timed checkpoint."),
						dt_amount_about(unit, facts->value));
	if (signal == DT_REPORTED)
		return psprintf(_("The last report of \"%s\" is %s times its threshold."),
						d->reported, dt_amount_about(unit, facts->value));
	if (signal == DT_REPLICA_LAG && facts->value >= DT_LAG_MAX_US)
		return pstrdup(_("A standby makes no progress with its replay."));
	return psprintf(_(sentences[signal]), dt_amount_about(unit, facts->value),
					dt_amount_about(unit, facts->allowed));
}

/*
 * Is the signal one that lets the rate rise when it is below its threshold, and is
 * it?  Others aim at a value, and have a rate for each.
 */
static bool
is_below(const DtSignalFacts *facts, DtSignal signal)
{
	if (facts->read_at == 0 || facts->share == 0)
		return false;
	switch (dt_signals[signal].law)
	{
		case DT_LAW_BRAKE:
			return facts->value < dt_brake_enough(facts->allowed);
		case DT_LAW_DROOP:
			return facts->value <= facts->allowed;
		default:
			return false;
	}
}

/*
 * The signal by which pressure makes the group as slow as it is; -1: it does not.
 * Of two signals, one for each resource, that of the lower rate.
 */
int
dt_reason_signal(const DtGroup *g, bool *at_floor)
{
	int			decides = -1;
	int64		lowest = PG_INT64_MAX;

	for (int r = 0; r < DT_RESOURCES; r++)
	{
		int64		rate = g->pressure.rate[r];
		int64		limit = g->definition.rate[r];

		if (rate == 0 || (limit != 0 && limit <= rate) || rate >= lowest ||
			g->pressure.decides[r] < 0)
			continue;
		lowest = rate;
		decides = g->pressure.decides[r];
	}
	*at_floor = lowest <= g->definition.floor;
	return decides;
}

/* Why that signal makes it so slow, palloc'd. */
char *
dt_reason_text(const DtGroup *g, DtSignal signal, bool at_floor)
{
	if (signal == DT_COMMIT_LATENCY && g->pressure.probed)
		return pstrdup(_("The group rests at its floor, for at most 2.4 s, so that commits of others are measured without it."));
	return psprintf("%s%s%s", signal_text(g, signal),
					is_below(&g->pressure.facts[signal], signal) ?
					_(" The signal is below its threshold, so the rate rises as far as it is used.") : "",
					at_floor ? _(" The group is at its floor.") : "");
}
