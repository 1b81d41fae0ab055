/*-------------------------------------------------------------------------
 *
 * parameters.h
 *		The values of the configuration parameters dirty_throttle.*.
 *
 * What they mean is in guc.c, which defines them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PARAMETERS_H
#define DT_PARAMETERS_H

typedef struct DtParameters
{
	char	   *group;			/* the value, not the present name: see
								 * dt_show_group() */
	char	   *autovacuum_group;
	char	   *apply_group;
	char	   *groups;			/* means something as a setting of a role only */
	bool		enabled;		/* use dt_throttling_is_enabled() */
	int			transaction_grace;	/* ms */
	int			max_commit_pause;	/* ms */
	int			max_blocking_time;	/* ms; -1: no bound */
	int			log_min_pause;	/* ms; -1: none is logged */
	int			max_groups;
} DtParameters;

extern DtParameters dt_parameters;

#endif							/* DT_PARAMETERS_H */
