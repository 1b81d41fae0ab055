/*-------------------------------------------------------------------------
 *
 * safely.c
 *		Calling a function where an ERROR would be a PANIC.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "session/safely.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

bool
dt_call_safely(void (*function) (void))
{
	MemoryContext context = CurrentMemoryContext;
	uint32		interrupt_holdoff = InterruptHoldoffCount;
	uint32		cancel_holdoff = QueryCancelHoldoffCount;
	volatile bool done = true;

	PG_TRY();
	{
		function();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();

		/*
		 * there is no subtransaction that would do this; nothing was held
		 * before
		 */
		LWLockReleaseAll();
		ConditionVariableCancelSleep();
		pgstat_report_wait_end();
		InterruptHoldoffCount = interrupt_holdoff;
		QueryCancelHoldoffCount = cancel_holdoff;
		done = false;
	}
	PG_END_TRY();
	return done;
}
