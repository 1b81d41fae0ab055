/*-------------------------------------------------------------------------
 *
 * phase.c
 *		What the current transaction is, and where it may be made to pause.
 *
 * A statement whose kind writes (kind.c) pays what is owed before it begins: it
 * passes the gate.  Everything else begins at once.  A transaction is a writer
 * from when it has passed the gate, has a transaction ID, or has written WAL
 * that no reader writes.  One that becomes a writer without having passed the
 * gate has slipped: a SELECT has called a function that writes, a worker in C
 * writes by itself, or the session was moved into the group midway.
 *
 *				reading		writing		sign of		owes		commits		rolls
 *				statement	statement	writing		more than				back
 *												the grace
 * OUT			READING;	gate, then	SLIPPED		-			pay after	-
 *				gate first	WRITING								if it uses
 *				if it slipped										much
 * READING		-			gate, then	SLIPPED		pause if	pay after	-
 *							WRITING					it uses		if it uses
 *													much		much
 * SLIPPED		pause		pause		-			pause		pay after	-
 * WRITING		-			-			-			pause		pay after	-
 * ENDED		-			-			-			-			-			-
 *
 * All is charged wherever it happens; this is only about pauses.  What is owed
 * at the end, and was not paid after it, is carried to the next transaction.
 * If the transaction had slipped, or has used much by reading, the next statement
 * meets the gate whatever its kind, so that no sequence of SELECTs stays ahead of
 * what it owes.
 *
 * A transaction that is part of a two-phase commit never pauses at its end:
 * whoever coordinates that holds locks elsewhere.
 *
 * This file knows nothing of PostgreSQL.  Nobody else writes the state.
 *
 *-------------------------------------------------------------------------
 */
#include "session/phase.h"

#include <stddef.h>

DtXact		dt_xact = {.phase = DT_OUT};

typedef enum ActionCondition
{
	ALWAYS,
	IF_SLIPPED,					/* what is carried was left by slipping */
	IF_MUCH						/* it uses more than a reader may */
} ActionCondition;

/* What is missing here changes nothing, and asks for nothing. */
static const struct
{
	DtAction	action;
	ActionCondition condition;	/* of the action */
	DtPhase		next;			/* DT_OUT: the same */
}			steps[DT_PHASES][DT_EVENTS] = {

	[DT_OUT] = {
		[DT_READS] = {DT_GATE, IF_SLIPPED, DT_READING},
		[DT_WRITES] = {DT_GATE, ALWAYS, DT_WRITING},
		[DT_SIGN] = {DT_GO_ON, ALWAYS, DT_SLIPPED},
		[DT_COMMITS] = {DT_PAY_AFTER, IF_MUCH, DT_OUT},
	},
	[DT_READING] = {
		[DT_WRITES] = {DT_GATE, ALWAYS, DT_WRITING},
		[DT_SIGN] = {DT_GO_ON, ALWAYS, DT_SLIPPED},
		[DT_OWES] = {DT_PAUSE, IF_MUCH, DT_OUT},
		[DT_COMMITS] = {DT_PAY_AFTER, IF_MUCH, DT_OUT},
	},
	[DT_SLIPPED] = {
		[DT_READS] = {DT_PAUSE, ALWAYS, DT_OUT},
		[DT_WRITES] = {DT_PAUSE, ALWAYS, DT_OUT},
		[DT_OWES] = {DT_PAUSE, ALWAYS, DT_OUT},
		[DT_COMMITS] = {DT_PAY_AFTER, ALWAYS, DT_OUT},
	},
	[DT_WRITING] = {
		[DT_OWES] = {DT_PAUSE, ALWAYS, DT_OUT},
		[DT_COMMITS] = {DT_PAY_AFTER, ALWAYS, DT_OUT},
	},
};

static bool
holds(ActionCondition condition)
{
	switch (condition)
	{
		case IF_SLIPPED:
			return dt_xact.carried == DT_CARRIES_SLIPPED_DEBT;
		case IF_MUCH:
			return dt_xact.uses_much;
		default:
			return true;
	}
}

DtAction
dt_phase_action(DtEvent event)
{
	if (dt_xact.prepared || !holds(steps[dt_xact.phase][event].condition))
		return DT_GO_ON;
	return steps[dt_xact.phase][event].action;
}

void
dt_phase_note(DtEvent event)
{
	DtPhase		next = steps[dt_xact.phase][event].next;

	if (next != DT_OUT)
		dt_xact.phase = next;
}

void
dt_phase_end(bool commits)
{
	dt_xact.at_end = dt_phase_action(commits ? DT_COMMITS : DT_ROLLS_BACK);
	dt_xact.slipped = dt_xact.phase == DT_SLIPPED;
	dt_xact.phase = DT_ENDED;
}

void
dt_phase_note_prepared(void)
{
	dt_xact.prepared = true;
}

void
dt_phase_note_pacing(void)
{
	dt_xact.paces = true;
}

void
dt_phase_note_much(void)
{
	dt_xact.uses_much = true;
}

void
dt_phase_note_paid(void)
{
	dt_xact.carried = DT_CARRIES_NOTHING;
}

void
dt_phase_join(bool owes, bool slipped)
{
	dt_xact.carried = slipped ? DT_CARRIES_SLIPPED_DEBT :
		owes ? DT_CARRIES_DEBT : DT_CARRIES_NOTHING;
	if (dt_xact.phase == DT_WRITING)
		dt_xact.phase = DT_SLIPPED; /* that was another group's gate */
}

void
dt_phase_join_midway(bool is_running, bool wrote)
{
	if (wrote)
		dt_phase_note(DT_SIGN);
	else if (is_running && dt_xact.phase == DT_OUT)
		dt_xact.phase = DT_READING;
}

void
dt_phase_leave(void)
{
	dt_xact.carried = DT_CARRIES_NOTHING;
}

void
dt_phase_over(bool owes, bool goes_on)
{
	DtCarried	carried = !owes ? DT_CARRIES_NOTHING :
		dt_phase_slips() || dt_xact.uses_much ? DT_CARRIES_SLIPPED_DEBT :
		DT_CARRIES_DEBT;

	dt_xact = (DtXact)
	{
		.phase = goes_on ? DT_WRITING : DT_OUT,.carried = carried
	};
}

void
dt_phase_take(DtPhase phase)
{
	dt_xact.phase = phase;
}
