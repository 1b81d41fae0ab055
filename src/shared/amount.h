/*-------------------------------------------------------------------------
 *
 * amount.h
 *		Amounts of bytes, as users write and see them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_AMOUNT_H
#define DT_AMOUNT_H

#define DT_AMOUNT_UNITS \
	"Valid units are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\"; 1 MB = 1000 kB = 1000000 bytes."

extern bool dt_amount_read(const char *value, double default_factor,
						   bool per_second, double *bytes);
extern char *dt_amount_text(int64 bytes);

#endif							/* DT_AMOUNT_H */
