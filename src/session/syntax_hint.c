/*-------------------------------------------------------------------------
 *
 * syntax_hint.c
 *		What to type instead of dirty_throttle.group.
 *
 * GROUP is a reserved word, so SET, SHOW, RESET and ALTER ... SET of the
 * parameter are syntax errors unless it is quoted.  The parser fails before any
 * hook that could help.  So the hint is added when the error is reported, in
 * emit_log_hook.
 *
 * The core does not support that this hook changes anything of a message but
 * output_to_server.  From 15 to 19 a hint is safe all the same.  EmitErrorReport()
 * calls the hook, and then passes the same ErrorData to the server log and to the
 * client, so both have the hint; nothing was derived from the old one.
 * CurrentMemoryContext is edata->assoc_context then, the context of all other
 * strings of the message: with these the hint is freed, one by one by errfinish()
 * for a FATAL error, so it must be palloc'd, or by a reset of ErrorContext.  The
 * core makes much larger copies of the message there, in the same reserve.
 * Nothing here reports an error, so there is no recursion.  If a release should
 * call the hook later, the hint is not shown, and no more.
 *
 * The hook is not called if log_min_messages keeps errors out of the server log
 * (fatal or panic), nor for an error that a function catches.  Then there is no
 * hint.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "session/syntax_hint.h"
#include "tcop/tcopprot.h"

#define PREFIX	"dirty_throttle."

/* Does the error point at the second word of the parameter's name? */
static bool
is_at_parameter(const char *query, int position)
{
	const char *p = query;

	if (query == NULL)
		return false;
	while (--position > 0 && *p != '\0')
		p += pg_encoding_mblen_bounded(GetDatabaseEncoding(), p);
	return p - query >= strlen(PREFIX) &&
		pg_strncasecmp(p - strlen(PREFIX), PREFIX "group", strlen(PREFIX "group")) == 0;
}

void
dt_syntax_hint_add(ErrorData *error)
{
	if (error->sqlerrcode != ERRCODE_SYNTAX_ERROR || error->hint != NULL)
		return;
	if (error->internalpos > 0 ?
		is_at_parameter(error->internalquery, error->internalpos) :
		is_at_parameter(debug_query_string, error->cursorpos))
		error->hint = pstrdup(_("Write dirty_throttle.\"group\", as GROUP is a reserved word."));
}
