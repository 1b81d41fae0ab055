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
#include "batch/walk.h"
#include "catalog/pg_class.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "session/account.h"
#include "shared/claim.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "compat.h"

double
dt_tell_percent(const DtJob *job)
{
	if (job->progress.finished != 0)
		return 100;
	if (job->progress.expected <= 0)
		return -1;
	/* the number of keys is an estimate */
	return Min(100.0 * job->progress.keys / job->progress.expected, 99.9);
}

double
dt_tell_seconds_left(const DtJob *job)
{
	if (job->progress.finished != 0)
		return 0;
	if (job->progress.expected <= 0 || job->progress.rate <= 0 || job->progress.keys >= job->progress.expected)
		return -1;
	return (job->progress.expected - job->progress.keys) / job->progress.rate;
}

/* Seconds as hours, minutes and seconds. */
static char *
duration(double seconds)
{
	int64		s = (int64) rint(Min(seconds, 1e12));

	return psprintf("%lld:%02d:%02d", (long long) (s / 3600),
					(int) (s / 60 % 60), (int) (s % 60));
}

/* " at key (5, 7)" */
static char *
place(ArrayType *position)
{
	StringInfoData buf;
	Datum	   *texts;
	int			n;

	initStringInfo(&buf);
	deconstruct_array(position, TEXTOID, -1, false, TYPALIGN_INT, &texts, NULL,
					  &n);
	for (int i = 0; i < n; i++)
		appendStringInfo(&buf, "%s%s", i > 0 ? ", " : "(",
						 quote_literal_cstr(TextDatumGetCString(texts[i])));
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/* ------------------------------------------------------- the resource group */

static char *
limit(int64 rate)
{
	return rate == 0 ? pstrdup(_("no limit")) :
		psprintf("%.0f KB/s", rate / 1000.0);
}

/* The group of the session and its limits, or NULL. */
static char *
describe_group(void)
{
	char		name[NAMEDATALEN];
	int64		rate[DT_RESOURCES];
	int64		now;
	DtGroup    *g = dt_account_lock(&now);

	if (g == NULL)
		return NULL;
	strlcpy(name, g->definition.name, NAMEDATALEN);
	for (int r = 0; r < DT_RESOURCES; r++)
		rate[r] = g->usage[r].engine.rate;
	dt_group_unlock(g);
	return psprintf(_("The session is in resource group \"%s\". Dirtying: %s; WAL: %s."),
					name, limit(rate[DT_DIRTY]), limit(rate[DT_WAL]));
}

static void
warn_not_throttled(const DtRun *run)
{
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("batches \"%s\" are not throttled, as this session is in no resource group",
					run->job.name),
			 superuser() ?
			 errhint("To throttle them, use SELECT set_group_dirty_limit('batch', '10 MB'), set_group_wal_limit('batch', '10 MB'); and SET dirty_throttle.\"group\" = 'batch'; before the CALL.") :
			 errhint("To throttle them, use SELECT join_group('batch'); before the CALL. A superuser can create that group with set_group_dirty_limit('batch', '10 MB'), and open it with grant_group_use('batch', %s).",
					 quote_literal_cstr(GetUserNameFromId(GetUserId(), false)))));
}

/* ------------------------------------------------------------------- a CALL */

/* "table orders along id (index orders_pkey)" */
static char *
describe_way(const DtRun *run)
{
	return psprintf(_("table %s along %s%s (index %s)"), run->key->table,
					run->key->columns,
					run->job.descending ? _(", descending") : "",
					quote_identifier(run->key->index));
}

static char *
describe_keys(int64 n)
{
	return n < 0 ? pstrdup(_("an unknown number of rows, as the table was not analyzed")) :
		psprintf(_("about %lld rows"), (long long) n);
}

/* A function of the server's own, which no search_path hides. */
static void
explain(const char *statement, const DtKey *key, const DtRange *range)
{
	SPIExecuteOptions options = {.params = dt_key_params(key, range)};

	SPI_execute_extended(psprintf("EXPLAIN %s", statement), &options);
	for (uint64 i = 0; i < SPI_processed; i++)
		ereport(NOTICE,
				(errmsg_internal("%s", SPI_getvalue(SPI_tuptable->vals[i],
													SPI_tuptable->tupdesc, 1))));
}

/* "At least 12 batches of at most 1000 rows.", or "" */
static char *
describe_batches(const DtRun *run)
{
	const DtProgress *progress = &run->job.progress;
	int64		most = run->options->max_rows;

	return progress->expected < 0 ? "" :
		psprintf(_("At least %lld batches of at most %lld rows."),
				 (long long) ((progress->expected - progress->keys + most - 1) / most),
				 (long long) most);
}

/* How far it has come, and another sentence, or "". */
static int
errdetail_place(const DtRun *run, const char *more)
{
	const DtProgress *progress = &run->job.progress;

	return errdetail("They have come past %lld rows, of %s.%s%s",
					 (long long) progress->keys,
					 describe_keys(progress->expected),
					 more[0] ? " " : "", more);
}

static void
tell_where_it_would_go(const DtRun *run)
{
	const DtJob *job = &run->job;
	char	   *batches = describe_batches(run);

	if (job->position == NULL)
		ereport(NOTICE,
				(errmsg("batches \"%s\" would go through %s, %s", job->name,
						describe_way(run), describe_keys(job->progress.expected)),
				 batches[0] ? errdetail("%s", batches) : 0));
	else
		ereport(NOTICE,
				(errmsg("batches \"%s\" would go on after key %s: %s", job->name,
						place(job->position), describe_way(run)),
				 errdetail_place(run, batches)));
}

static void
tell_if_it_runs(const DtRun *run)
{
	DtJobName	name = dt_job_name(&run->job);
	int			pid = dt_claim_holder(&name);

	if (pid != 0)
		ereport(NOTICE,
				(errmsg("batches \"%s\" are being run by process %d",
						run->job.name, pid)));
}

void
dt_tell_plan(const DtRun *run)
{
	const DtJob *job = &run->job;
	DtRange		range = dt_job_rest(job, run->key);
	ArrayType  *last;
	char	   *group = describe_group();

	tell_if_it_runs(run);
	tell_where_it_would_go(run);
	if (group != NULL)
		ereport(NOTICE, (errmsg_internal("%s", group)));
	else
		warn_not_throttled(run);
	if (job->until == NULL)
		return;
	(void) dt_walk_ahead(run->key, &range, Min(job->progress.size, run->options->max_rows),
						 &last);
	if (last == NULL)
		last = job->until;
	range.high = dt_key_from_text(run->key, last);
	ereport(NOTICE,
			(job->position == NULL ?
			 errmsg("the first batch would end at key %s", place(last)) :
			 errmsg("the next batch would end at key %s", place(last)),
			 errdetail("Its plan follows.")));
	explain(dt_statement_fill(run->statement, run->key, &range), run->key,
			&range);
}

static void
warn_of_timeout(void)
{
	if (StatementTimeout > 0)
		ereport(WARNING,
				(errmsg("statement_timeout ends the CALL after %d ms, however many batches that are",
						StatementTimeout),
				 errhint("Use SET statement_timeout = 0 before the CALL, and run_time => '1 h' to end it between two batches.")));
}

void
dt_tell_begin(const DtRun *run)
{
	const DtJob *job = &run->job;
	char	   *group = describe_group();

	warn_of_timeout();
	if (group == NULL)
		warn_not_throttled(run);
	if (run->is_new || job->position == NULL)
		ereport(NOTICE,
				(errmsg("batches \"%s\" begin: %s, %s", job->name,
						describe_way(run), describe_keys(job->progress.expected)),
				 group ? errdetail("%s", group) : 0));
	else
		ereport(NOTICE,
				(errmsg("batches \"%s\" go on after key %s: %s", job->name,
						place(job->position), describe_way(run)),
				 errdetail_place(run, group ? group : "")));
	ereport(LOG_SERVER_ONLY,
			(errmsg("batches \"%s\" %s: %s, %s", job->name,
					run->is_new ? "begin" : "go on", describe_way(run),
					describe_keys(job->progress.expected))));
}

void
dt_tell_progress(const DtRun *run)
{
	const DtJob *job = &run->job;
	double		percent = dt_tell_percent(job);
	double		left = dt_tell_seconds_left(job);
	char	   *done = percent < 0 ? "" : psprintf("%.0f %%, ", floor(percent));

	ereport(NOTICE,
			(errmsg("batches \"%s\": %s%lld of %lld rows changed in %lld batches, %.0f rows per second%s",
					job->name, done, (long long) job->progress.rows,
					(long long) job->progress.keys, (long long) job->progress.batches, job->progress.rate,
					left < 0 ? "" :
					psprintf(", about %s left", duration(left)))));
}

/* "123 of 456 rows changed in 7 batches, in 0:00:12, of which 0:00:03 paused" */
static char *
describe_work(const DtJob *job)
{
	return psprintf(_("%lld of %lld rows changed in %lld batches, in %s, of which %s paused"),
					(long long) job->progress.rows, (long long) job->progress.keys,
					(long long) job->progress.batches,
					duration(job->progress.elapsed_us / 1e6),
					duration(job->progress.paused_us / 1e6));
}

void
dt_tell_end(const DtRun *run)
{
	const DtJob *job = &run->job;
	const char *state = job->progress.finished ? _("have finished") : _("are paused");

	ereport(LOG_SERVER_ONLY,
			(errmsg("batches \"%s\" %s: %s", job->name, state,
					describe_work(job))));
	ereport(NOTICE,
			(errmsg("batches \"%s\" %s: %s", job->name, state,
					describe_work(job)),
			 job->progress.finished ? 0 :
			 errhint("The same CALL goes on with them.")));
}

void
dt_tell_failure(const DtRun *run)
{
	ereport(LOG_SERVER_ONLY,
			(errmsg("batches \"%s\" have failed: %s", run->job.name,
					describe_work(&run->job))));
}

void
dt_tell_nothing_to_do(const DtRun *run)
{
	ereport(NOTICE,
			(errmsg("batches \"%s\" have finished at %s already", run->job.name,
					timestamptz_to_str(run->job.progress.finished)),
			 errhint("To run them again, use restart => true.")));
}

void
dt_tell_too_many(const DtRun *run, int64 rows, int64 keys)
{
	ereport(WARNING,
			(errmsg("a batch of %lld rows has changed %lld rows",
					(long long) keys, (long long) rows),
			 errdetail("The statement changes rows outside of its range, which other batches change again."),
			 errhint("Write {batch} as a condition on table %s itself, joined to others by AND; with an alias, {batch o}.",
					 run->key->table)));
}
