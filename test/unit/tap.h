/*-------------------------------------------------------------------------
 *
 * tap.h
 *		The results of a unit test, in the Test Anything Protocol.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_TAP_H
#define DT_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static int	n_tests = 0;
static int	n_failed = 0;

static bool ok(bool condition, const char *fmt,...)
			__attribute__((format(printf, 2, 3)));

static bool
ok(bool condition, const char *fmt,...)
{
	va_list		args;

	printf("%sok %d - ", condition ? "" : "not ", ++n_tests);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	if (!condition)
		n_failed++;
	return condition;
}

static inline void
ok_range(double value, double low, double high, const char *name)
{
	ok(value >= low && value <= high, "%s: %.12g (%.12g .. %.12g)", name,
	   value, low, high);
}

/* To be returned by main(). */
static int
done_testing(void)
{
	printf("1..%d\n", n_tests);
	return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif							/* DT_TAP_H */
