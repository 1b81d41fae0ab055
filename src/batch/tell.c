/*-------------------------------------------------------------------------
 *
 * tell.c
 *		What the user and the server log are told of a job.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "batch/tell.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "compat.h"

double
dt_tell_percent(const DtJob *job)
{
	if (job->finished != 0)
		return 100;
	if (job->expected <= 0)
		return -1;
	/* the number of keys is an estimate */
	return Min(100.0 * job->keys / job->expected, 99.9);
}

double
dt_tell_seconds_left(const DtJob *job)
{
	if (job->finished != 0)
		return 0;
	if (job->expected <= 0 || job->rate <= 0 || job->keys >= job->expected)
		return -1;
	return (job->expected - job->keys) / job->rate;
}

char *
dt_tell_error(const DtJob *job)
{
	return job->error == NULL || job->detail == NULL ? job->error :
		psprintf("%s. %s", job->error, job->detail);
}

char *
dt_tell_start_again(const DtJob *job)
{
	return psprintf(job->group_id == 0 ? "SELECT start_batches(%s, unthrottled => true)" :
					"SELECT start_batches(%s)", quote_literal_cstr(job->name));
}

/* Seconds as hours, minutes and seconds. */
static char *
duration(double seconds)
{
	int64		s = (int64) rint(Min(seconds, 1e12));

	return psprintf("%lld:%02d:%02d", (long long) (s / 3600),
					(int) (s / 60 % 60), (int) (s % 60));
}

/* Has it become slower?  Then it may become slower yet. */
static bool
slows_down(const DtJob *job)
{
	return job->rate < 0.9 * job->keys * USECS_PER_SEC / Max(job->elapsed_us, 1);
}

/* "{5,7}", as the view has it */
static char *
place(ArrayType *position)
{
	return OidOutputFunctionCall(F_ARRAY_OUT, PointerGetDatum(position));
}

static char *
rows_expected(const DtJob *job)
{
	return job->expected < 0 ?
		pstrdup(_("an unknown number of rows, as the table was not analyzed")) :
		psprintf(_("about %lld rows"), (long long) job->expected);
}

/* "table public.orders along id (index orders_pkey)" */
static char *
describe_way(const DtKey *key)
{
	return psprintf(_("table %s along %s (index %s)"), key->table, key->columns,
					quote_identifier(key->index));
}

/* "123 of 456 rows changed in 7 batches, in 0:00:12, of which 0:00:03 paused" */
static char *
describe_work(const DtJob *job)
{
	return psprintf(_("%lld of %lld rows changed in %lld batches, in %s, of which %s paused"),
					(long long) job->rows, (long long) job->keys,
					(long long) job->batches, duration(job->elapsed_us / 1e6),
					duration(job->paused_us / 1e6));
}

/* --------------------------------------------------------- to the client */

static void
tell_plan(const DtStart *start, const DtJobOptions *options)
{
	const DtJob *job = start->job;
	long long	batches = (job->expected - job->keys + options->max_rows - 1) / options->max_rows;

	ereport(NOTICE,
			(start->is_new ?
			 errmsg("batches \"%s\" would go through %s, %s", job->name,
					describe_way(start->key), rows_expected(job)) :
			 errmsg("batches \"%s\" would go on after key %s: %s", job->name,
					job->position ? place(job->position) : "{}", describe_way(start->key)),
			 job->expected < 0 ? 0 :
			 start->is_new ?
			 errdetail("At least %lld batches of at most %lld rows.", batches,
					   (long long) options->max_rows) :
			 errdetail("They have come past %lld rows, of %s. At least %lld batches of at most %lld rows.",
					   (long long) job->keys, rows_expected(job), batches,
					   (long long) options->max_rows)));
}

void
dt_tell_start(const DtStart *start, const DtJobOptions *options)
{
	const DtJob *job = start->job;

	if (start->state == DT_QUEUE_WAITS)
		dt_tell_waits(job->name);
	else if (start->state == DT_QUEUE_ENDS)
		ereport(NOTICE,
				(errmsg("batches \"%s\" are being stopped by stop_batches()", job->name),
				 errhint("Start them again when they have ended.")));
	else if (start->state != DT_QUEUE_ABSENT)
		ereport(NOTICE,
				(errmsg("batches \"%s\" are being run by process %d already",
						job->name, start->pid)));
	else if (start->finished)
		ereport(NOTICE,
				(errmsg("batches \"%s\" have finished at %s already", job->name,
						timestamptz_to_str(job->finished)),
				 errhint("To run them again, use restart => true.")));
	else if (options->dry_run)
		tell_plan(start, options);
	else
		ereport(NOTICE,
				(start->is_new || job->position == NULL ?
				 errmsg("batches \"%s\" begin: %s, %s", job->name,
						describe_way(start->key), rows_expected(job)) :
				 errmsg("batches \"%s\" go on after key %s: %s", job->name,
						place(job->position), describe_way(start->key)),
				 start->group[0] ?
				 errdetail("They run in resource group \"%s\".", start->group) : 0));
}

void
dt_tell_waits(const char *name)
{
	ereport(NOTICE,
			(errmsg("batches \"%s\" wait for a free background worker", name),
			 errdetail("Batches use at most %d of the %d that \"max_worker_processes\" allows, and those of one role leave one of these to others.",
					   dt_queue_most(), max_worker_processes)));
}

void
dt_tell_progress(const DtJob *job)
{
	double		percent;
	double		left;

	if (job == NULL)
		return;
	percent = dt_tell_percent(job);
	left = dt_tell_seconds_left(job);
	ereport(NOTICE,
			(errmsg("batches \"%s\": %s%lld of %lld rows changed in %lld batches, %.0f rows per second%s",
					job->name, percent < 0 ? "" : psprintf("%.0f %%, ", floor(percent)),
					(long long) job->rows, (long long) job->keys,
					(long long) job->batches, job->rate,
					left < 0 ? "" :
					psprintf(slows_down(job) ? ", at least %s left" : ", about %s left", duration(left)))));
}

void
dt_tell_end(const DtJob *job)
{
	if (job->finished != 0)
		ereport(NOTICE,
				(errmsg("batches \"%s\" have finished: %s", job->name,
						describe_work(job))));
	else
		ereport(NOTICE,
				(errmsg("batches \"%s\" were stopped before their end: %s so far",
						job->name, describe_work(job)),
				 errhint("%s goes on with them.", dt_tell_start_again(job))));
}

/* --------------------------------------------------------- to the server log */

void
dt_tell_log_begin(const DtJob *job)
{
	const char *table = get_rel_name(job->table) ? get_rel_name(job->table) : "?";

	ereport(LOG,
			(job->position == NULL ?
			 errmsg("batches \"%s\" begin: table \"%s\" along %s, %s", job->name,
					table, job->columns, rows_expected(job)) :
			 errmsg("batches \"%s\" go on: table \"%s\" along %s, %s", job->name,
					table, job->columns, rows_expected(job)),
			 errhidestmt(true)));
}

void
dt_tell_log_end(const DtJob *job)
{
	ereport(LOG,
			(job->finished != 0 ?
			 errmsg("batches \"%s\" have finished: %s", job->name, describe_work(job)) :
			 job->outcome != NULL && strcmp(job->outcome, DT_STOPPED) == 0 ?
			 errmsg("batches \"%s\" were stopped: %s", job->name, describe_work(job)) :
			 errmsg("batches \"%s\" have failed: %s", job->name, describe_work(job)),
			 job->outcome != NULL && job->error != NULL ?
			 errdetail_internal("%s", dt_tell_error(job)) : 0,
			 errhidestmt(true)));
}
