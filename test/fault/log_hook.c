/*-------------------------------------------------------------------------
 *
 * log_hook.c
 *		Another extension that uses emit_log_hook; for test/t/056_interrupt.pl
 *		and 058_log_min_pause.pl, which compile it and load it before and
 *		after dirty_throttle.
 *
 * It counts the messages that it sees, for log_hook_seen().  With
 * log_hook.chains = off it does not call the hooks behind it, with
 * log_hook.copies = on it copies each message, as can be done in errfinish() only,
 * and with log_hook.fails = on it fails when pauses are logged.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/elog.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

/* Of its parameter; several of it can be loaded. */
#ifndef CLASS
#define CLASS	"log_hook"
#endif

PG_FUNCTION_INFO_V1(log_hook_say);
PG_FUNCTION_INFO_V1(log_hook_seen);
void		_PG_init(void);

static emit_log_hook_type next = NULL;
static bool chains = true;
static bool copies = false;
static bool fails = false;
static int	own = 0;
static int	probes = 0;			/* dirty_throttle's self-test */
static int	listings = 0;		/* of memory contexts */
static int	ends = 0;			/* of those */
static int	others = 0;

static void
count(ErrorData *message)
{
	const char *function = message->funcname ? message->funcname : "";
	const char *said = message->message ? message->message : "";

	if (fails && strstr(said, " paused for ") != NULL)
		ereport(ERROR, (errmsg("log_hook has failed")));
	if (copies)
		FreeErrorData(CopyErrorData());
	/* what comes from a parallel worker has none */
	if (message->elevel == LOG_SERVER_ONLY && message->message_id[0] == '\0')
		others++;
	if (strcmp(function, "log_hook_say") == 0)
		own++;
	else if (strncmp(said, "dirty_throttle: ", 16) == 0)
		probes++;
	else if (strcmp(function, "ProcessLogMemoryContextInterrupt") == 0)
		listings++;
	else if (strncmp(said, "Grand total", 11) == 0)
		ends++;
	else if (strncmp(function, "MemoryContextStats", 18) == 0)
		 /* part of a listing */ ;
	else
		others++;
	if (chains && next)
		next(message);
}

Datum
log_hook_say(PG_FUNCTION_ARGS)
{
	ereport(LOG, (errmsg("log_hook speaks")));
	PG_RETURN_VOID();
}

Datum
log_hook_seen(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("own %d, probes %d, listings %d, ends %d",
											  own, probes, listings, ends)));
}

void
_PG_init(void)
{
	DefineCustomBoolVariable(CLASS ".chains",
							 "Calls the hooks behind it.",
							 NULL, &chains, true, PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable(CLASS ".copies",
							 "Copies each message.",
							 NULL, &copies, false, PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable(CLASS ".fails",
							 "Fails when pauses are logged.",
							 NULL, &fails, false, PGC_USERSET, 0,
							 NULL, NULL, NULL);
	next = emit_log_hook;
	emit_log_hook = count;
}
