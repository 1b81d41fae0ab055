/*-------------------------------------------------------------------------
 *
 * traces.h
 *		Commits as they were beside jobs at fixed rates: what bench/trace.py writes.
 *
 * A trace has a histogram for each fifth of a second, and there is one for each of a
 * few rates.  The commits beside a job of any rate are those of the two nearest ones,
 * mixed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TRACES_H
#define TRACES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/latency.h"
#include "random.h"

#define MAX_TRACES	8			/* rates */
#define MAX_SLICES	400
#define SLICE_S		0.2

typedef struct Trace
{
	double		rate;			/* of the job, bytes/s */
	int			n;				/* slices */
	double		shift;			/* seconds: a run sees another part of it */
	int			count[MAX_SLICES];
	int			of[MAX_SLICES][DT_LATENCY_BUCKETS];
} Trace;

typedef struct Setting
{
	char		name[64];
	int			n;
	Trace		traces[MAX_TRACES];
} Setting;

/* The settings of a file; *n is their number. */
static inline Setting *
read_traces(const char *name, int *n)
{
	FILE	   *file = fopen(name, "r");
	Setting    *all = calloc(16, sizeof(Setting));
	Trace	   *t = NULL;
	char		line[4096];

	*n = 0;
	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
	{
		char		label[64];
		double		mb;

		if (sscanf(line, "trace %63[^,], %lf", label, &mb) == 2)
		{
			Setting    *s;

			if (*n == 0 || strcmp(all[*n - 1].name, label) != 0)
				strcpy(all[(*n)++].name, label);
			s = &all[*n - 1];
			t = &s->traces[s->n++];
			t->rate = mb * 1e6;
		}
		else if (line[0] != '#' && t != NULL && t->n < MAX_SLICES)
		{
			char	   *p = line;
			int			b = (int) strtol(p, &p, 10);

			for (char *next; b < DT_LATENCY_BUCKETS; b++, p = next)
			{
				int			count = (int) strtol(p, &next, 10);

				if (next == p)
					break;
				t->of[t->n][b] = count;
				t->count[t->n] += count;
			}
			t->n++;
		}
	}
	if (file != NULL)
		fclose(file);
	return all;
}

/* Each run sees other parts, so that its weather is its own. */
static inline void
shift_traces(Setting *s)
{
	for (int i = 0; i < s->n; i++)
		s->traces[i].shift = rng_double() * s->traces[i].n * SLICE_S;
}

/* Add to c what is committed in "tick" seconds at the time t beside such a job. */
static inline void
add_traced(DtCommits *c, Setting *s, double t, double tick, double rate)
{
	int			i = 0;
	double		upper;

	while (i < s->n - 2 && s->traces[i + 1].rate <= rate)
		i++;
	upper = (rate - s->traces[i].rate) / (s->traces[i + 1].rate - s->traces[i].rate);
	upper = upper < 0 ? 0 : upper > 1 ? 1 : upper;
	for (int k = 0; k < 2; k++)
	{
		const Trace *trace = &s->traces[i + k];
		int			slice = (int) ((t + trace->shift) / SLICE_S) % trace->n;
		double		part = tick / SLICE_S * (k == 0 ? 1 - upper : upper);

		for (int b = 0; b < DT_LATENCY_BUCKETS; b++)
		{
			int			n = (int) (trace->of[slice][b] * part + rng_double());

			c->n += n;
			c->weight[b] += 1000 * n;
		}
	}
}

#endif							/* TRACES_H */
