/*-------------------------------------------------------------------------
 *
 * dirty_throttle_libpq.c
 *		Asking another server for the value of a parameter, without blocking.
 *
 * See follow/question.h.  The other side may be anything: it is not trusted
 * with memory, with time (the caller has a deadline), or with what is shown of
 * it.
 *
 * Messages of libpq are shown only when hosts, ports and database of the
 * connection string look like such.  Where it is malformed, for example a URI
 * with a "@" in its password, libpq takes a part of the password for one of
 * them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fmgr.h"
#include "follow/question.h"
#include "libpq-fe.h"

PG_MODULE_MAGIC;

/*
 * How much memory a question may take, bytes: the answer in libpq's buffer,
 * whose size is doubled, and as its result, the caller's copy, the definitions.
 */
#define MEMORY_MAX	(160 * 1024 * 1024)

/* A host that does not answer at all, of several, costs so long; ms. */
#define HOST_TIMEOUT	"5000"

typedef enum Stage
{
	CONNECTING,
	SENDING,
	RECEIVING,
	DONE
} Stage;

struct DtQuestion
{
	Stage		stage;
	PGconn	   *conn;			/* may be NULL: out of memory */
	char	   *query;
	size_t		max_size;
	char	   *answer;			/* NULL: none yet */
	size_t		answer_size;
	bool		connected;
	bool		secret;			/* libpq's messages must not be shown */
	char		message[1024];	/* of the error */
};

PGDLLEXPORT const DtLibpq *dt_libpq_1(void);

/*
 * libpq allocates what the other side says it is going to send, and keeps
 * what it has sent: so this process gets no more than that.  Where the system
 * cannot say how much it has now, there is no limit.
 */
static void
limit_memory(void)
{
	static bool done = false;
	FILE	   *file;
	unsigned long data = 0;
	struct rlimit limit;

	if (done)
		return;
	done = true;
	file = fopen("/proc/self/statm", "r");
	if (file == NULL)
		return;
	if (fscanf(file, "%*u %*u %*u %*u %*u %lu", &data) == 1 &&
		getrlimit(RLIMIT_DATA, &limit) == 0)
	{
		rlim_t		wanted = (rlim_t) data * sysconf(_SC_PAGESIZE) + MEMORY_MAX;

		if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > wanted)
		{
			limit.rlim_cur = wanted;
			(void) setrlimit(RLIMIT_DATA, &limit);
		}
	}
	fclose(file);
}

/* Notices of the other side are of no use here. */
static void
ignore_notice(void *arg, const PGresult *result)
{
}

static bool
consists_of(const char *string, const char *others)
{
	for (; *string != '\0'; string++)
		if (IS_HIGHBIT_SET(*string) ||
			(!isalnum((unsigned char) *string) && strchr(others, *string) == NULL))
			return false;
	return true;
}

/*
 * Do these look like hosts (also a list, addresses, sockets) and ports?
 */
static bool
is_host(const char *host)
{
	return consists_of(host[0] == '@' ? host + 1 : host, "._-:,/%");
}

static bool
is_port(const char *port)
{
	return strspn(port, "0123456789,") == strlen(port);
}

static const char *
or_empty(const char *string)
{
	return string != NULL ? string : "";
}

/*
 * May a part of a password be in what libpq takes for something else?
 */
static bool
is_suspicious(const PQconninfoOption *option)
{
	if (option->val == NULL)
		return false;
	if (strcmp(option->keyword, "host") == 0 ||
		strcmp(option->keyword, "hostaddr") == 0)
		return !is_host(option->val);
	if (strcmp(option->keyword, "port") == 0)
		return !is_port(option->val);
	/* what comes after the "/" in a password, and the true host */
	return strcmp(option->keyword, "dbname") == 0 &&
		strchr(option->val, '@') != NULL;
}

/*
 * Replace all that is like the password, and what is not printable ASCII.
 */
static void
make_harmless(char *message, const char *password)
{
	size_t		size = strlen(password);
	char	   *p = message;

	/* "*" may be in the password; \001 becomes a "?" below */
	for (; size > 0 && (p = strstr(p, password)) != NULL; p += size)
		memset(p, '\001', size);
	for (p = message; *p != '\0'; p++)
		if (*p == '\n' || *p == '\t')
			*p = ' ';
		else if (*p < ' ' || *p > '~')
			*p = '?';
	while (p > message && p[-1] == ' ')
		*--p = '\0';
}

static const char *
password_of(const DtQuestion *q)
{
	return q->conn != NULL ? or_empty(PQpass(q->conn)) : "";
}

/*
 * So much of a message is needed: when it is cut after the password has been
 * replaced, no part of that is left.
 */
static int
message_size(const DtQuestion *q)
{
	return (int) (sizeof(q->message) + strlen(password_of(q)));
}

static DtQuestionState
fail(DtQuestion *q, const char *message)
{
	char	   *copy = pnstrdup(message[0] != '\0' ? message : "unknown error",
								message_size(q));

	q->stage = DONE;
	make_harmless(copy, password_of(q));
	strlcpy(q->message, copy, sizeof(q->message));
	pfree(copy);
	return DT_QUESTION_FAILED;
}

/* For a problem of which libpq has a message. */
static DtQuestionState
fail_of_libpq(DtQuestion *q)
{
	if (q->secret)
		return fail(q, "the connection string cannot be used; why is not shown, since that may contain a password");
	return fail(q, or_empty(PQerrorMessage(q->conn)));
}

static DtQuestion *
begin(const char *conninfo, const char *parameter, size_t max_size)
{
	/* what comes later overrides what comes earlier */
	const char *const keywords[] = {
		"tcp_user_timeout", "dbname", "replication", "dbname",
		"application_name", NULL
	};
	const char *const values[] = {
		HOST_TIMEOUT, conninfo, "true", "replication",
		"dirty_throttle", NULL
	};
	DtQuestion *q = palloc0(sizeof(DtQuestion));
	PQconninfoOption *options;
	PQconninfoOption *option;
	char	   *error = NULL;

	limit_memory();
	q->query = psprintf("SHOW %s", parameter);
	q->max_size = max_size;
	options = PQconninfoParse(conninfo, &error);
	PQfreemem(error);
	if (options == NULL)
	{
		q->secret = true;
		(void) fail_of_libpq(q);
		return q;
	}
	for (option = options; option->keyword != NULL; option++)
		q->secret |= is_suspicious(option);
	PQconninfoFree(options);
	q->conn = PQconnectStartParams(keywords, values, true);
	if (q->conn == NULL)
	{
		(void) fail(q, "out of memory");
		return q;
	}
	PQsetNoticeReceiver(q->conn, ignore_notice, NULL);
	if (PQstatus(q->conn) == CONNECTION_BAD)
		(void) fail_of_libpq(q);
	return q;
}

static DtQuestionState
send_query(DtQuestion *q)
{
	int			left = PQflush(q->conn);

	if (left < 0)
		return fail_of_libpq(q);
	if (left > 0)
		return DT_QUESTION_WRITE;
	q->stage = RECEIVING;
	return DT_QUESTION_READ;
}

static DtQuestionState
ask(DtQuestion *q)
{
	q->connected = true;
	if (PQsetnonblocking(q->conn, 1) != 0 || !PQsendQuery(q->conn, q->query) ||
		!PQsetSingleRowMode(q->conn))
		return fail_of_libpq(q);
	q->stage = SENDING;
	return send_query(q);
}

static DtQuestionState
connect_further(DtQuestion *q)
{
	switch (PQconnectPoll(q->conn))
	{
		case PGRES_POLLING_READING:
			return DT_QUESTION_READ;
		case PGRES_POLLING_WRITING:
			return DT_QUESTION_WRITE;
		case PGRES_POLLING_OK:
			return ask(q);
		default:
			return fail_of_libpq(q);
	}
}

/* The one row with its one column. */
static DtQuestionState
take_row(DtQuestion *q, PGresult *result)
{
	size_t		size;

	if (q->answer != NULL)
		return fail(q, "the answer has more than one row");
	if (PQnfields(result) != 1 || PQgetisnull(result, 0, 0))
		return fail(q, "the answer is not one value");
	size = PQgetlength(result, 0, 0);
	if (size > q->max_size)
		return fail(q, psprintf("the answer has %zu bytes", size));
	q->answer = palloc(size + 1);
	memcpy(q->answer, PQgetvalue(result, 0, 0), size);
	q->answer[size] = '\0';
	q->answer_size = size;
	return DT_QUESTION_READ;
}

static DtQuestionState
take_error(DtQuestion *q, PGresult *result)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	if (sqlstate != NULL && strcmp(sqlstate, "42704") == 0)
		return fail(q, "the server does not have dirty_throttle in its shared_preload_libraries, or has a release of it that cannot be followed");
	if (message != NULL)
		return fail(q, psprintf("the server answers: %.*s",
								message_size(q), message));
	return fail_of_libpq(q);
}

/*
 * A result, NULL: the end of the results.
 */
static DtQuestionState
take_result(DtQuestion *q, PGresult *result)
{
	if (result == NULL)
	{
		q->stage = DONE;
		return q->answer != NULL ? DT_QUESTION_ANSWERED :
			fail(q, "there is no answer");
	}
	switch (PQresultStatus(result))
	{
		case PGRES_SINGLE_TUPLE:
			return take_row(q, result);
		case PGRES_TUPLES_OK:	/* the end of the rows */
			return DT_QUESTION_READ;
		case PGRES_FATAL_ERROR:
		case PGRES_BAD_RESPONSE:
			return take_error(q, result);
		default:
			return fail(q, "the answer is not one value");
	}
}

static DtQuestionState
receive(DtQuestion *q)
{
	DtQuestionState state = DT_QUESTION_READ;

	if (!PQconsumeInput(q->conn))
		return fail_of_libpq(q);
	while (state == DT_QUESTION_READ && !PQisBusy(q->conn))
	{
		PGresult   *result = PQgetResult(q->conn);

		state = take_result(q, result); /* an ERROR ends the process */
		PQclear(result);
	}
	return state;
}

static DtQuestionState
advance(DtQuestion *q)
{
	switch (q->stage)
	{
		case CONNECTING:
			return connect_further(q);
		case SENDING:
			return send_query(q);
		case RECEIVING:
			return receive(q);
		case DONE:
			break;
	}
	return q->message[0] != '\0' ? DT_QUESTION_FAILED : DT_QUESTION_ANSWERED;
}

static pgsocket
get_socket(DtQuestion *q)
{
	return PQsocket(q->conn);
}

static void
peer(DtQuestion *q, char *host, size_t host_size, char *port,
	 size_t port_size)
{
	const char *name = "";
	const char *number = "";

	if (q->conn != NULL && !q->secret)
	{
		name = or_empty(PQhost(q->conn));
		if (name[0] == '\0')
			name = or_empty(PQhostaddr(q->conn));
		number = or_empty(PQport(q->conn));
	}
	/* they may come from the environment or a service file */
	strlcpy(host, is_host(name) ? name : "", host_size);
	strlcpy(port, is_port(number) ? number : "", port_size);
}

static char *
answer(DtQuestion *q, size_t *size)
{
	*size = q->answer_size;
	return q->answer;
}

static void
error(DtQuestion *q, char *message, size_t size, bool *connected)
{
	strlcpy(message, q->message, size);
	*connected = q->connected;
}

static void
end(DtQuestion *q)
{
	PQfinish(q->conn);
	q->conn = NULL;
}

static const DtLibpq functions = {
	.begin = begin,
	.advance = advance,
	.socket = get_socket,
	.peer = peer,
	.answer = answer,
	.error = error,
	.end = end
};

const DtLibpq *
dt_libpq_1(void)
{
	return &functions;
}
