/*-------------------------------------------------------------------------
 *
 * phase_test.c
 *		What a transaction is, and where it pays: the table of phase.c.
 *
 * The rows are not taken from the code: each says in which phase an event comes,
 * what was carried, and whether more was used than a reader may; and then what
 * the event asks for, and the phase afterwards.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "session/phase.h"
#include "tap.h"

static const char *const phases[] = {"OUT", "READING", "SLIPPED", "WRITING", "ENDED"};
static const char *const events[] = {
	"no event", "a reading statement", "a writing statement", "a sign of writing",
	"more than the grace", "commit", "rollback"
};
static const char *const carries[] = {"nothing", "a debt", "a slipped debt"};
static const char *const actions[] = {"goes on", "meets the gate", "pauses", "pays after"};

/* ANY: in each case. */
#define ANY	(-1)

static const struct
{
	DtPhase		phase;
	DtEvent		event;
	int			carried;		/* a DtCarried */
	int			much;			/* a bool */
	DtAction	action;
	DtPhase		then;
}			rows[] = {
	{DT_OUT, DT_NO_EVENT, ANY, ANY, DT_GO_ON, DT_OUT},
	{DT_OUT, DT_READS, DT_CARRIES_NOTHING, ANY, DT_GO_ON, DT_READING},
	{DT_OUT, DT_READS, DT_CARRIES_DEBT, ANY, DT_GO_ON, DT_READING},
	{DT_OUT, DT_READS, DT_CARRIES_SLIPPED_DEBT, ANY, DT_GATE, DT_READING},
	{DT_OUT, DT_WRITES, ANY, ANY, DT_GATE, DT_WRITING},
	{DT_OUT, DT_SIGN, ANY, ANY, DT_GO_ON, DT_SLIPPED},
	{DT_OUT, DT_OWES, ANY, ANY, DT_GO_ON, DT_OUT},
	{DT_OUT, DT_COMMITS, ANY, false, DT_GO_ON, DT_ENDED},
	{DT_OUT, DT_COMMITS, ANY, true, DT_PAY_AFTER, DT_ENDED},
	{DT_OUT, DT_ROLLS_BACK, ANY, ANY, DT_GO_ON, DT_ENDED},

	{DT_READING, DT_NO_EVENT, ANY, ANY, DT_GO_ON, DT_READING},
	{DT_READING, DT_READS, ANY, ANY, DT_GO_ON, DT_READING},
	{DT_READING, DT_WRITES, ANY, ANY, DT_GATE, DT_WRITING},
	{DT_READING, DT_SIGN, ANY, ANY, DT_GO_ON, DT_SLIPPED},
	{DT_READING, DT_OWES, ANY, false, DT_GO_ON, DT_READING},
	{DT_READING, DT_OWES, ANY, true, DT_PAUSE, DT_READING},
	{DT_READING, DT_COMMITS, ANY, false, DT_GO_ON, DT_ENDED},
	{DT_READING, DT_COMMITS, ANY, true, DT_PAY_AFTER, DT_ENDED},
	{DT_READING, DT_ROLLS_BACK, ANY, ANY, DT_GO_ON, DT_ENDED},

	{DT_SLIPPED, DT_NO_EVENT, ANY, ANY, DT_GO_ON, DT_SLIPPED},
	{DT_SLIPPED, DT_READS, ANY, ANY, DT_PAUSE, DT_SLIPPED},
	{DT_SLIPPED, DT_WRITES, ANY, ANY, DT_PAUSE, DT_SLIPPED},
	{DT_SLIPPED, DT_SIGN, ANY, ANY, DT_GO_ON, DT_SLIPPED},
	{DT_SLIPPED, DT_OWES, ANY, ANY, DT_PAUSE, DT_SLIPPED},
	{DT_SLIPPED, DT_COMMITS, ANY, ANY, DT_PAY_AFTER, DT_ENDED},
	{DT_SLIPPED, DT_ROLLS_BACK, ANY, ANY, DT_GO_ON, DT_ENDED},

	{DT_WRITING, DT_NO_EVENT, ANY, ANY, DT_GO_ON, DT_WRITING},
	{DT_WRITING, DT_READS, ANY, ANY, DT_GO_ON, DT_WRITING},
	{DT_WRITING, DT_WRITES, ANY, ANY, DT_GO_ON, DT_WRITING},
	{DT_WRITING, DT_SIGN, ANY, ANY, DT_GO_ON, DT_WRITING},
	{DT_WRITING, DT_OWES, ANY, ANY, DT_PAUSE, DT_WRITING},
	{DT_WRITING, DT_COMMITS, ANY, ANY, DT_PAY_AFTER, DT_ENDED},
	{DT_WRITING, DT_ROLLS_BACK, ANY, ANY, DT_GO_ON, DT_ENDED},

	{DT_ENDED, DT_NO_EVENT, ANY, ANY, DT_GO_ON, DT_ENDED},
	{DT_ENDED, DT_READS, ANY, ANY, DT_GO_ON, DT_ENDED},
	{DT_ENDED, DT_WRITES, ANY, ANY, DT_GO_ON, DT_ENDED},
	{DT_ENDED, DT_SIGN, ANY, ANY, DT_GO_ON, DT_ENDED},
	{DT_ENDED, DT_OWES, ANY, ANY, DT_GO_ON, DT_ENDED},
	{DT_ENDED, DT_COMMITS, ANY, ANY, DT_GO_ON, DT_ENDED},
	{DT_ENDED, DT_ROLLS_BACK, ANY, ANY, DT_GO_ON, DT_ENDED},
};

#define N_ROWS	((int) (sizeof(rows) / sizeof(rows[0])))

static void
enter(DtPhase phase, DtCarried carried, bool much)
{
	dt_xact = (DtXact)
	{
		.phase = phase,.carried = carried,.uses_much = much
	};
}

static void
note(DtEvent event)
{
	if (event == DT_COMMITS || event == DT_ROLLS_BACK)
		dt_phase_end(event == DT_COMMITS);
	else
		dt_phase_note(event);
}

/* Each row, with all that it leaves open; returns how many cases that are. */
static int
check_row(int i)
{
	int			n = 0;

	for (int carried = 0; carried <= DT_CARRIES_SLIPPED_DEBT; carried++)
		for (int much = 0; much <= 1; much++)
		{
			DtAction	action;

			if ((rows[i].carried != ANY && rows[i].carried != carried) ||
				(rows[i].much != ANY && rows[i].much != much))
				continue;
			n++;
			enter(rows[i].phase, carried, much);
			action = dt_phase_action(rows[i].event);
			note(rows[i].event);
			ok(action == rows[i].action && dt_xact.phase == rows[i].then,
			   "%s, %s, carries %s%s: it %s, then %s", phases[rows[i].phase],
			   events[rows[i].event], carries[carried],
			   much ? ", has used much" : "", actions[action],
			   phases[dt_xact.phase]);
			enter(rows[i].phase, carried, much);
			dt_phase_note_prepared();
			ok(dt_phase_action(rows[i].event) == DT_GO_ON,
			   "... and in a two-phase commit it goes on");
		}
	return n;
}

static void
check_end(DtPhase phase, bool commits, DtCarried carried, bool owes,
		  DtAction at_end, DtCarried then)
{
	enter(phase, carried, false);
	dt_phase_end(commits);
	ok(dt_xact.at_end == at_end, "%s %s: it %s", phases[phase],
	   commits ? "commits" : "rolls back", actions[at_end]);
	dt_phase_over(owes, false);
	ok(dt_xact.phase == DT_OUT && dt_xact.carried == then,
	   "... and %s, so the next one carries %s",
	   owes ? "still owes" : "has paid", carries[dt_xact.carried]);
}

int
main(void)
{
	int			n = 0;

	for (int i = 0; i < N_ROWS; i++)
		n += check_row(i);
	ok(n == DT_PHASES * DT_EVENTS * 6, "each case is in one row");

	/* what is owed at the end is carried, and by whom it was left */
	check_end(DT_WRITING, true, DT_CARRIES_NOTHING, false, DT_PAY_AFTER, DT_CARRIES_NOTHING);
	check_end(DT_WRITING, true, DT_CARRIES_NOTHING, true, DT_PAY_AFTER, DT_CARRIES_DEBT);
	check_end(DT_WRITING, false, DT_CARRIES_NOTHING, true, DT_GO_ON, DT_CARRIES_DEBT);
	check_end(DT_WRITING, true, DT_CARRIES_SLIPPED_DEBT, true, DT_PAY_AFTER, DT_CARRIES_SLIPPED_DEBT);
	check_end(DT_SLIPPED, true, DT_CARRIES_NOTHING, true, DT_PAY_AFTER, DT_CARRIES_SLIPPED_DEBT);
	check_end(DT_SLIPPED, false, DT_CARRIES_NOTHING, true, DT_GO_ON, DT_CARRIES_SLIPPED_DEBT);
	check_end(DT_SLIPPED, true, DT_CARRIES_DEBT, false, DT_PAY_AFTER, DT_CARRIES_NOTHING);
	check_end(DT_READING, true, DT_CARRIES_DEBT, true, DT_GO_ON, DT_CARRIES_DEBT);
	check_end(DT_OUT, true, DT_CARRIES_DEBT, true, DT_GO_ON, DT_CARRIES_DEBT);

	/* a command that goes on has passed the gate, unless its pause was cut */
	enter(DT_WRITING, DT_CARRIES_NOTHING, false);
	dt_phase_note_pacing();
	dt_phase_end(true);
	dt_phase_over(false, true);
	ok(dt_xact.phase == DT_WRITING && !dt_xact.paces,
	   "a command that goes on: WRITING, and with a grace of its own");

	/* membership */
	enter(DT_WRITING, DT_CARRIES_NOTHING, false);
	dt_phase_join(true, false);
	ok(dt_xact.phase == DT_SLIPPED && dt_xact.carried == DT_CARRIES_DEBT,
	   "moved into another group: it has not passed the gate of that one");
	enter(DT_OUT, DT_CARRIES_NOTHING, false);
	dt_phase_join(true, true);
	ok(dt_xact.phase == DT_OUT && dt_xact.carried == DT_CARRIES_SLIPPED_DEBT,
	   "joins, and takes over what was left by slipping");
	dt_phase_join_midway(false, true);
	ok(dt_xact.phase == DT_SLIPPED, "in midway, and has written: SLIPPED");
	enter(DT_OUT, DT_CARRIES_NOTHING, false);
	dt_phase_join_midway(true, false);
	ok(dt_xact.phase == DT_READING, "in the middle of a statement: READING");
	enter(DT_OUT, DT_CARRIES_NOTHING, false);
	dt_phase_join_midway(false, false);
	ok(dt_xact.phase == DT_OUT, "between two statements: as it was");
	enter(DT_READING, DT_CARRIES_DEBT, false);
	dt_phase_leave();
	ok(dt_xact.carried == DT_CARRIES_NOTHING, "who leaves carries nothing");
	return done_testing();
}
