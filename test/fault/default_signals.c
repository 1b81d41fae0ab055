/*-------------------------------------------------------------------------
 *
 * default_signals.c
 *		What code of users can do with signals, in trusted PL/Perl, too; for
 *		test/t/074_settings_of_users.pl, which compiles it.
 *
 * default_signals() sets each signal that dirty_throttle handles in this process
 * to its default.  Returns how many that were.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>
#include <signal.h>

#include "fmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(default_signals);

Datum
default_signals(PG_FUNCTION_ARGS)
{
	int			n = 0;

	for (int signo = 1; signo <= SIGRTMAX; signo++)
	{
		struct sigaction action;
		Dl_info		info;

		if (sigaction(signo, NULL, &action) != 0 ||
			action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN ||
			dladdr((void *) action.sa_sigaction, &info) == 0 ||
			strstr(info.dli_fname, "dirty_throttle.so") == NULL)
			continue;
		action.sa_handler = SIG_DFL;
		if (sigaction(signo, &action, NULL) == 0)
			n++;
	}
	PG_RETURN_INT32(n);
}
