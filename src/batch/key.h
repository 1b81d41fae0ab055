/*-------------------------------------------------------------------------
 *
 * key.h
 *		The key along which a table is walked, and positions on the way.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_KEY_H
#define DT_KEY_H

#include "access/attnum.h"
#include "access/stratnum.h"
#include "lib/stringinfo.h"
#include "nodes/params.h"
#include "utils/array.h"
#include "utils/relcache.h"

typedef struct DtKeyColumn
{
	AttrNumber	attnum;
	char	   *name;			/* quoted where that is needed */
	Oid			type;
	Oid			collation;
} DtKeyColumn;

typedef struct DtKey
{
	char	   *table;			/* with its schema, quoted */
	char	   *columns;		/* names, separated by commas */
	char	   *ordering;		/* what else determines the way */
	char	   *operators[BTMaxStrategyNumber + 1]; /* "OPERATOR(schema.name)" */
	bool		is_unique;		/* the index is, so one row has each key */
	int			n;
	DtKeyColumn column[INDEX_MAX_KEYS];
} DtKey;

/* Values of the first n columns; of no columns, it bounds nothing. */
typedef struct DtBound
{
	int			n;
	Datum		values[INDEX_MAX_KEYS];
} DtBound;

/* A value of any type, or with an invalid type none. */
typedef struct DtUserValue
{
	Oid			type;
	Datum		value;
} DtUserValue;

/* A part of the way. */
typedef struct DtRange
{
	DtBound		low;
	bool		low_inclusive;
	DtBound		high;			/* inclusive */
} DtRange;

/*
 * The key with these columns, as a list of SQL names, or with NULL the primary
 * key.  If "ordering" is not NULL, the key must have this one.  ERROR if the
 * table has no index for that, or a column may be null.  The caller holds a lock on
 * the table.
 */
extern DtKey *dt_key_find(Relation table, const char *columns,
						  const char *ordering);

/*
 * Add to a statement: the condition that a row is in the range, where the table is
 * named alias, if that is not empty; and the first n columns.
 */
extern void dt_key_condition(StringInfo buf, const DtKey *key,
							 const char *alias, const DtRange *range);
extern void dt_key_columns(StringInfo buf, const DtKey *key, int n,
						   const char *alias);

/*
 * The parameters of such a condition: the values of low, and then those of high.
 */
extern ParamListInfo dt_key_params(const DtKey *key, const DtRange *range);

/* Until AtEOXact_GUC() with the result, n settings of the server have these values. */
extern int	dt_key_begin_settings(const char *const settings[][2], int n);

/*
 * Positions as text, an array of what each column's type makes of it.  NULL
 * stands for a bound of no columns.
 */
extern ArrayType *dt_key_to_text(const DtKey *key, const DtBound *bound);
extern DtBound dt_key_from_text(const DtKey *key, ArrayType *texts);

/* What the user has given as a value of the first column.  ERROR if it is none. */
extern DtBound dt_key_from_user(const DtKey *key, const DtUserValue *value);

/* Does the first value of a come after that of b? */
extern bool dt_key_is_after(const DtKey *key, const DtBound *a,
							const DtBound *b);

#endif							/* DT_KEY_H */
