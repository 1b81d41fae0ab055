/*-------------------------------------------------------------------------
 *
 * message.c
 *		Messages about a job, to the user and to the server log.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "batch/message.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"

#include "compat.h"

double
dt_message_percent(const DtJob *job)
{
	if (job->finished != 0)
		return 100;
	if (job->expected <= 0)
		return -1;
	/* the number of keys is an estimate */
	return Min(100.0 * job->keys / job->expected, 99.9);
}

double
dt_message_seconds_left(const DtJob *job)
{
	if (job->finished != 0)
		return 0;
	if (job->expected <= 0 || job->rate <= 0 || job->keys >= job->expected)
		return -1;
	return (job->expected - job->keys) / job->rate;
}

char *
dt_message_error(const DtJob *job)
{
	return job->error == NULL || job->detail == NULL ? job->error :
		psprintf("%s. %s", job->error, job->detail);
}

char *
dt_message_start_again(const DtJob *job)
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

static char *
rows_expected(const DtJob *job)
{
	return job->expected < 0 ?
		pstrdup(_("an unknown number of rows, as the table was not analyzed")) :
		psprintf(_("about %lld rows"), (long long) job->expected);
}

void
dt_message_begin(const DtJob *job, const DtStart *start, bool dry_run)
{
	const char *way = psprintf(_("table %s in the order of %s, %s"),
							   DatumGetCString(DirectFunctionCall1(regclassout, ObjectIdGetDatum(job->table))),
							   job->columns, rows_expected(job));
	const char *place = job->position == NULL ? NULL :
		OidOutputFunctionCall(F_ARRAY_OUT, PointerGetDatum(job->position));
	long long	batches = (job->expected - job->keys + job->max_rows - 1) / job->max_rows;

	ereport(start != NULL ? NOTICE : LOG,
			(dry_run && place == NULL ?
			 errmsg("batch job \"%s\" would begin: %s", job->name, way) :
			 dry_run ?
			 errmsg("batch job \"%s\" would continue after key %s: %s", job->name, place, way) :
			 place == NULL ?
			 errmsg("batch job \"%s\" begins: %s", job->name, way) :
			 errmsg("batch job \"%s\" continues after key %s: %s", job->name, place, way),
			 dry_run && job->expected >= 0 && place == NULL ?
			 errdetail("At least %lld batches of at most %lld rows.", batches, (long long) job->max_rows) :
			 dry_run && job->expected >= 0 ?
			 errdetail("It has passed %lld rows. At least %lld batches of at most %lld rows are left.",
					   (long long) job->keys, batches, (long long) job->max_rows) :
			 start != NULL && start->group[0] != '\0' ?
			 errdetail("It runs in resource group \"%s\".", start->group) : 0,
			 start != NULL && !start->key->is_unique ?
			 errhint("Several rows may have the same %s, and all of these are in one batch. If they are many, name the columns of a unique index, for example key => '%s, id'.",
					 job->columns, job->columns) : 0,
			 errhidestmt(true)));
}

void
dt_message_start(const DtStart *start, const DtJobOptions *options)
{
	const DtJob *job = start->job;

	if (start->state == DT_QUEUE_WAITS)
		dt_message_waits(job->name);
	else if (start->state != DT_QUEUE_ABSENT)
		ereport(NOTICE,
				(errmsg("batch job \"%s\" is already being run by process %d",
						job->name, start->pid),
				 start->state != DT_QUEUE_ENDS ? 0 :
				 errhint("It is being stopped. Start it again when it has ended.")));
	else if (job->finished != 0)
		ereport(NOTICE,
				(errmsg("batch job \"%s\" already finished at %s", job->name,
						timestamptz_to_str(job->finished)),
				 errhint("To run it again, use restart => true.")));
	else
		dt_message_begin(job, start, options->dry_run);
}

void
dt_message_waits(const char *name)
{
	ereport(NOTICE,
			(errmsg("batch job \"%s\" waits for a free background worker", name),
			 errdetail("Batches use at most %d of the %d workers that \"max_worker_processes\" allows, and the jobs of one role leave one of these to other roles.",
					   dt_queue_most(), max_worker_processes)));
}

void
dt_message_progress(const DtJob *job)
{
	double		percent = dt_message_percent(job);
	double		left = dt_message_seconds_left(job);

	/* has it become slower?  Then it may become slower yet */
	bool		slows_down = job->rate < 0.9 * job->keys * USECS_PER_SEC / Max(job->elapsed_us, 1);

	ereport(NOTICE,
			(errmsg("batch job \"%s\": %s%lld of %lld rows changed in %lld batches, %.0f rows per second%s",
					job->name, percent < 0 ? "" : psprintf("%.0f %%, ", floor(percent)),
					(long long) job->rows, (long long) job->keys,
					(long long) job->batches, job->rate,
					left < 0 ? "" :
					psprintf(slows_down ? ", at least %s left" : ", about %s left", duration(left)))));
}

void
dt_message_end(const DtJob *job, int elevel)
{
	bool		stopped = job->outcome != NULL && strcmp(job->outcome, DT_STOPPED) == 0;

	/*
	 * "123 of 456 rows changed in 7 batches, in 0:00:12, of which 0:00:03
	 * paused"
	 */
	const char *work = psprintf(_("%lld of %lld rows changed in %lld batches, in %s, of which %s paused"),
								(long long) job->rows, (long long) job->keys,
								(long long) job->batches, duration(job->elapsed_us / 1e6),
								duration(job->paused_us / 1e6));

	ereport(elevel,
			(job->finished != 0 ?
			 errmsg("batch job \"%s\" has finished: %s", job->name, work) :
			 stopped ?
			 errmsg("batch job \"%s\" was stopped before its end: %s so far", job->name, work) :
			 errmsg("batch job \"%s\" has failed: %s", job->name, work),
			 job->outcome != NULL && job->error != NULL ?
			 errdetail_internal("%s", dt_message_error(job)) : 0,
			 stopped ? errhint("%s continues it.", dt_message_start_again(job)) : 0,
			 errhidestmt(true)));
}
