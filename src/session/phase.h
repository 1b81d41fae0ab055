/*-------------------------------------------------------------------------
 *
 * phase.h
 *		What the current transaction is, and where it may be made to pause.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PHASE_H
#define DT_PHASE_H

#include <stdbool.h>

typedef enum DtPhase
{
	DT_OUT,						/* nothing that counts has begun */
	DT_READING,					/* only reading statements have */
	DT_SLIPPED,					/* it writes without having passed the gate */
	DT_WRITING,					/* it has passed the gate */
	DT_ENDED					/* its locks are released; it is not over yet */
} DtPhase;

#define DT_PHASES	(DT_ENDED + 1)

typedef enum DtEvent
{
	DT_NO_EVENT,				/* a control statement, or a nested one */
	DT_READS,					/* a reading statement of the client begins */
	DT_WRITES,					/* a writing one does */
	DT_SIGN,					/* it has an xid, or WAL that no reader writes */
	DT_OWES,					/* it owes more than the grace, or has done so */
	DT_COMMITS,
	DT_ROLLS_BACK
} DtEvent;

#define DT_EVENTS	(DT_ROLLS_BACK + 1)

typedef enum DtAction
{
	DT_GO_ON,
	DT_GATE,					/* pay all that is owed, then begin */
	DT_PAUSE,					/* pay in flight */
	DT_PAY_AFTER				/* pay after the transaction */
} DtAction;

/* What was owed before the transaction began, or when the session joined. */
typedef enum DtCarried
{
	DT_CARRIES_NOTHING,
	DT_CARRIES_DEBT,
	DT_CARRIES_SLIPPED_DEBT		/* left by a transaction that had slipped */
} DtCarried;

typedef struct DtXact
{
	DtPhase		phase;
	DtCarried	carried;
	bool		paces;			/* it has owed more than the grace: it pauses
								 * in flight whenever that is due, to its end */
	bool		uses_much;		/* more than a reader may within a minute */
	bool		prepared;		/* part of a two-phase commit: no pause at its
								 * end */

	/* while its phase is DT_ENDED */
	DtAction	at_end;			/* what its end asks for */
	bool		slipped;		/* its phase was DT_SLIPPED */
} DtXact;

/* To be read by all, and written by phase.c only. */
extern DtXact dt_xact;

/*
 * What does this event ask for?  Then, when the session has done that, the
 * event has happened.
 */
extern DtAction dt_phase_action(DtEvent event);
extern void dt_phase_note(DtEvent event);

/* The transaction has ended: from now on its phase is DT_ENDED. */
extern void dt_phase_end(bool commits);

/* The transaction is part of a two-phase commit; owes more than the grace. */
extern void dt_phase_note_prepared(void);
extern void dt_phase_note_pacing(void);
extern void dt_phase_note_much(void);

/* A charge has found that nothing is owed and nothing suspends the session. */
extern void dt_phase_note_paid(void);

/*
 * The session has joined or was moved into a group.  owes: it has taken over a
 * debt; slipped: left by sessions that had slipped.  is_running: in the middle
 * of a statement; wrote: of a transaction that may have written.  And it has
 * left its group.
 */
extern void dt_phase_join(bool owes, bool slipped);
extern void dt_phase_join_midway(bool is_running, bool wrote);
extern void dt_phase_leave(void);

/*
 * The transaction is over, and something is owed.  goes_on: the next one belongs
 * to the same command, or the process has no statements, and the pause after this
 * one came to its end.
 */
extern void dt_phase_over(bool owes, bool goes_on);

/* A parallel worker starts in the phase of its leader. */
extern void dt_phase_take(DtPhase phase);

/* Does it, or what it carries, come from statements that have passed no gate? */
static inline bool
dt_phase_slips(void)
{
	return dt_xact.phase == DT_SLIPPED ||
		dt_xact.carried == DT_CARRIES_SLIPPED_DEBT ||
		(dt_xact.phase == DT_ENDED && dt_xact.slipped);
}

#endif							/* DT_PHASE_H */
