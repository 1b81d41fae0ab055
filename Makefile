# dirty_throttle: see README.md.
#
#   make                the extension, for the server of PG_CONFIG
#   make install        into that server
#
#   make test           all tests, on servers of their own
#   make indent         format the C sources, bring typedefs.list up to date
#   make indent-check   fail if that would change anything
#   make bench          the benchmarks, on servers of their own; about an hour
#   make demo           the manual's four examples, on a server of their own
#
# The last five install what is missing (as root, on Debian or Ubuntu) and touch
# no existing server.

MODULE_big = dirty_throttle
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c)))
PGFILEDESC = "dirty_throttle - limit the rate of dirtying shared buffers"

EXTENSION = dirty_throttle
DATA = $(sort $(wildcard sql/dirty_throttle--*.sql))

REGRESS = extension limits names membership settings privileges counters
REGRESS_OPTS = --inputdir=test --temp-instance=./tmp_check --temp-config=test/regress.conf
ISOLATION = members sleepers locks
ISOLATION_OPTS = --inputdir=test/isolation --outputdir=output_iso --temp-instance=./tmp_check_iso --temp-config=test/regress.conf
ENCODING = UTF8
NO_LOCALE = 1
TAP_TESTS = 1
PROVE_TESTS ?= test/t/*.pl

# also where PG_CPPFLAGS is set on the command line
override PG_CPPFLAGS += -Isrc
PG_CFLAGS = -Wall -Wextra -Wmissing-prototypes -Wshadow -Wno-unused-parameter -Wno-sign-compare
EXTRA_CLEAN = tmp_check output_iso results

PG_CONFIG ?= pg_config

# These need nothing but make and a shell, so they must not need PGXS.
STANDALONE = demo test bench indent indent-check
ifneq ($(filter $(STANDALONE),$(MAKECMDGOALS)),)
demo:
	@demo/run
test:
	@test/run
bench:
	@bench/run
indent:
	@test/indent
indent-check:
	@test/indent --check
.PHONY: $(STANDALONE)
else
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)
$(OBJS) $(OBJS:.o=.bc): $(wildcard src/*.h src/*/*.h)
endif
