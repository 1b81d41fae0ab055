/*-------------------------------------------------------------------------
 *
 * question.h
 *		Asking another server for the value of a parameter, without blocking.
 *
 * libpq is in a shared library of its own, dirty_throttle_libpq, which only
 * the process that follows the primary loads, as the server does with its
 * libpqwalreceiver: no other process maps libpq and what that needs, and the
 * server starts without it.  It has one function, DT_LIBPQ_FUNCTION.  A release
 * that changes anything here gives that another name: while a package is
 * upgraded, the server of the old release may load the new library.
 *
 * A question is a connection like that of the WAL receiver: physical
 * replication, which needs no database and no right but REPLICATION.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_QUESTION_H
#define DT_QUESTION_H

#include "port.h"

#define DT_LIBPQ_LIBRARY	"$libdir/dirty_throttle_libpq"
#define DT_LIBPQ_FUNCTION	"dt_libpq_1"

typedef struct DtQuestion DtQuestion;

typedef enum DtQuestionState
{
	DT_QUESTION_READ,			/* advance it when the socket can be read */
	DT_QUESTION_WRITE,			/* when it can be written to */
	DT_QUESTION_ANSWERED,
	DT_QUESTION_FAILED
} DtQuestionState;

typedef struct DtLibpq
{
	/*
	 * Begin to ask for a parameter, with a connection string.  The answer may
	 * have max_size bytes.  Palloc'd.  What libpq does here and in advance()
	 * does not wait for the other side, but it may for the resolver of names,
	 * and compute for as long as the other side makes it.
	 */
	DtQuestion *(*begin) (const char *conninfo, const char *parameter,
						  size_t max_size);

	/* Go on.  Afterwards the socket may be another one. */
	DtQuestionState (*advance) (DtQuestion *question);
	pgsocket	(*socket) (DtQuestion *question);

	/*
	 * Whom it asks, at this moment: host and port; empty when that is not
	 * known.  Never a part of a password.
	 */
	void		(*peer) (DtQuestion *question, char *host, size_t host_size,
						 char *port, size_t port_size);

	/* The answer, palloc'd with a zero at its end. */
	char	   *(*answer) (DtQuestion *question, size_t *size);

	/*
	 * Why it has failed: printable ASCII in one line, without passwords.
	 * *connected tells whether there was a connection.
	 */
	void		(*error) (DtQuestion *question, char *message, size_t size,
						  bool *connected);

	/* Close the connection. */
	void		(*end) (DtQuestion *question);
} DtLibpq;

typedef const DtLibpq *(*DtLibpqFunction) (void);

#endif							/* DT_QUESTION_H */
