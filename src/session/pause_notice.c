/*-------------------------------------------------------------------------
 *
 * pause_notice.c
 *		A notice to the client of a session that pauses for long.
 *
 * The notice is sent before the pause, in the middle of a statement, of COPY or
 * of the rows of a result: the protocol allows NoticeResponse wherever the server
 * sends something, between whole messages, and the core makes no others.
 *
 * ereport() would not do.  It waits until the client has read all that was sent
 * before, while the transaction holds its locks; it may fail, for example to
 * convert a name to the client's encoding; and it serves interrupts.  The pause
 * may be at a place where none of that may happen; see sleep.h.  So the message is
 * made here, without allocating memory, and is sent only if the client has taken
 * all that was sent before.  Then the core's buffer is empty, and has room for it,
 * and what the socket does not take at once is sent with the next message.  Else
 * the next slice of the pause tries again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "session/activity.h"
#include "session/pause_notice.h"
#include "tcop/dest.h"
#include "utils/guc.h"

#include "clock.h"
#include "compat.h"

/* A pause is long from this on, and a notice of it is repeated after this; us. */
#define LONG_PAUSE_US	INT64CONST(5000000)
#define REPEAT_US		INT64CONST(60000000)

/* When the last notice was sent, and when the next one of the same transaction may be. */
static TimestampTz sent_at = 0;
static int64 next_us = 0;

/*
 * At most one notice each minute, and the first one of a transaction; but a procedure
 * may have many transactions.
 */
static bool
is_due(void)
{
	return dt_now_us() >= next_us ||
		(GetCurrentTransactionStartTimestamp() > sent_at &&
		 GetCurrentStatementStartTimestamp() > sent_at);
}

static bool
client_can_have_notice(void)
{
	if (dt_process() != DT_SESSION || whereToSendOutput != DestRemote ||
		client_min_messages > NOTICE)
		return false;
	(void) PqCommMethods->flush_if_writable();
	return !PqCommMethods->is_send_pending();
}

/* As send_message_to_frontend() does it in elog.c. */
static void
send_notice(const char *message, const char *detail, const char *hint)
{
	char		fields[1024];
	int			length = snprintf(fields, sizeof(fields),
								  "S%s%cVNOTICE%cC00000%cM%s%cD%s%cH%s%c%c",
								  _("NOTICE"), 0, 0, 0, message, 0, detail, 0,
								  hint, 0, 0);

	length = Min(length, (int) sizeof(fields) - 1);

	/* a conversion could fail */
	for (int i = 0; i < length; i++)
		if (IS_HIGHBIT_SET(fields[i]) &&
			pg_get_client_encoding() != GetDatabaseEncoding())
			fields[i] = '?';
	(void) PqCommMethods->putmessage('N', fields, length);
	(void) PqCommMethods->flush_if_writable();
}

static void
report_pause(const DtDue *due, int64 left_us)
{
	const char *group = dt_account.slot->xact.group_name;
	int			seconds = (int) Min(left_us / USECS_PER_SEC, INT_MAX);
	char		message[256];
	char		detail[256];

	if (left_us == PG_INT64_MAX)
		snprintf(message, sizeof(message),
				 _("this session pauses until resource group \"%s\" is resumed"), group);
	else
		snprintf(message, sizeof(message),
				 _("this session pauses for about %d:%02d:%02d in resource group \"%s\""),
				 seconds / 3600, seconds / 60 % 60, seconds % 60, group);
	if (due->cause == DT_BY_SUSPEND)
		send_notice(message, _("The group is suspended."),
					_("A superuser, or a role that may call resume_group(), can resume it. The view dirty_throttle_sessions shows all pauses."));
	else if (due->cause < DT_BY_SIGNAL)
		send_notice(message, _("The group has used what its limits allow."),
					_("The view dirty_throttle_groups shows the limits, and dirty_throttle_sessions all pauses."));
	else
	{
		if (due->cause == DT_BY_SIGNAL + DT_REPORTED)
			strlcpy(detail, _("A reported signal slows the group down."), sizeof(detail));
		else
			snprintf(detail, sizeof(detail), _("Signal \"%s\" slows the group down."),
					 dt_member_cause_name(due->cause));
		send_notice(message, detail,
					_("The view dirty_throttle_pressure shows the signal, and dirty_throttle_sessions all pauses."));
	}
}

void
dt_pause_notice(const DtDue *due, int64 at_most_us)
{
	int64		left_us = Min(due->cause == DT_BY_SUSPEND ? PG_INT64_MAX : due->left_us,
							  at_most_us);

	if (left_us < LONG_PAUSE_US || !is_due())
		return;
	HOLD_INTERRUPTS();			/* a connection that is lost is logged */
	if (client_can_have_notice())
	{
		report_pause(due, left_us);
		sent_at = GetCurrentTimestamp();
		next_us = dt_now_us() + REPEAT_US;
	}
	RESUME_INTERRUPTS();
}
