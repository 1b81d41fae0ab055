# dirty_throttle: see README.md.
#
#   make                the extension, for the server of PG_CONFIG
#   make install        into that server
#
#   make test           all tests, on servers of their own
#   make indent         format the C sources, bring typedefs.list up to date
#   make indent-check   fail if that would change anything
#   make bench          the benchmarks, on servers of their own; more than five hours
#   make demo           the manual's four examples, on a server of their own
#
#   make dist           an archive for PGXN, in dist/
#   make deb            Debian packages, in dist/
#
# All but the first two and "make dist" install what is missing (as root, on
# Debian or Ubuntu), and touch no existing server.

MODULE_big = dirty_throttle
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c)))
PGFILEDESC = "dirty_throttle - limit the rate of dirtying shared buffers"

EXTENSION = dirty_throttle
DATA = $(sort $(wildcard sql/dirty_throttle--*.sql))

REGRESS = extension limits pressure names membership settings privileges counters mistakes batches
REGRESS_OPTS = --inputdir=test --temp-instance=./tmp_check --temp-config=test/regress.conf
ISOLATION = members sleepers locks
ISOLATION_OPTS = --inputdir=test/isolation --outputdir=output_iso --temp-instance=./tmp_check_iso --temp-config=test/regress.conf
ENCODING = UTF8
NO_LOCALE = 1
TAP_TESTS = 1
PROVE_TESTS ?= test/t/*.pl
SYSTEMS = $(sort $(basename $(notdir $(wildcard test/systems/*.pl))))

# also where PG_CPPFLAGS is set on the command line
override PG_CPPFLAGS += -Isrc
PG_CFLAGS = -Wall -Wextra -Wmissing-prototypes -Wshadow -Wno-unused-parameter -Wno-sign-compare

# timer_create() in the C libraries of older systems
SHLIB_LINK += $(filter -lrt, $(LIBS))

EXTRA_CLEAN = tmp_check output_iso results

PG_CONFIG ?= pg_config

# These need nothing but make and a shell, so they must not need PGXS.
STANDALONE = demo test bench indent indent-check dist deb
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
dist:
	@packaging/dist
deb:
	@packaging/deb
.PHONY: $(STANDALONE)
else
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)
$(OBJS) $(OBJS:.o=.bc): $(wildcard src/*.h src/*/*.h)

# Within the library, calls need no detour by which another library could
# replace a function.  From 16 on the server's own flags see to that.
ifeq ($(PORTNAME)-$(MAJORVERSION),linux-15)
SHLIB_LINK += -Wl,-Bsymbolic
endif

# the server can tell which release it has loaded, from 18 on
version := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" $(EXTENSION).control)
src/dirty_throttle.o src/dirty_throttle.bc: override CPPFLAGS += -DDT_VERSION='"$(version)"'
src/dirty_throttle.o src/dirty_throttle.bc: $(EXTENSION).control
endif
