/* Loops on the thread pool of delivered networks: `pool_test SCENARIO`, under sanitizers.
 *
 * Pieces count themselves in plain memory, which the caller clears and reads. So a piece that runs
 * twice or never changes a count, and a missing order between threads is a data race.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime.h"

#define MOST 64 /* pieces of a loop here */
#define MOST_CALLERS 8

static _Thread_local char error[512];

const char *last_error(void) { return error; }

void set_error(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(error, sizeof(error), format, values);
  va_end(values);
}

void use_workspaces(struct workspaces *workspaces) { (void)workspaces; }

void workspaces_free(struct workspaces *workspaces) { free(workspaces->blocks); }

void workspaces_release(struct workspaces *workspaces) { (void)workspaces; }

#define CHECK(condition)                                             \
  do {                                                               \
    if (condition) break;                                            \
    fprintf(stderr, "line %d: not %s\n", __LINE__, #condition);      \
    _exit(1);                                                        \
  } while (0)

static unsigned drawn(unsigned *state, unsigned below) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 16) % below;
}

static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void be_busy(int64_t duration) {
  for (int64_t end = nanoseconds() + duration; nanoseconds() < end;) continue;
}

void delay(void) {
  static _Thread_local unsigned state;
  if (drawn(&state, 64) == 0) be_busy(drawn(&state, 20000));
}

struct loop {
  int counts[MOST];
  int pieces, failing; /* the piece that fails, or -1 */
  int64_t busy;        /* nanoseconds of the last piece */
  unsigned number;
  _Atomic int present; /* pieces that have begun */
};

static int count(int piece, TVMParallelGroupEnv *environment, void *data) {
  struct loop *loop = data;
  CHECK(environment->num_task == loop->pieces);
  CHECK(piece >= 0 && piece < loop->pieces);
  ++loop->counts[piece];
  if (piece == loop->pieces - 1) be_busy(loop->busy);
  if (piece != loop->failing) return 0;
  set_error("piece %d of loop %u", piece, loop->number);
  return -1;
}

/* One loop of random size, each of whose pieces has to run once. Its data lie elsewhere than those
 * of the loop before. */
static void run_loop(struct pool *pool, int job, unsigned *state, unsigned number) {
  static struct loop loops[MOST_CALLERS][2];
  struct loop *loop = &loops[job][number % 2];
  /* Many loops in a row have the same number. */
  int pieces = drawn(state, 2) == 0 ? 2 : 1 + (int)drawn(state, MOST);
  *loop = (struct loop){.pieces = pieces, .failing = -1, .number = number};
  if (drawn(state, 8) == 0) loop->failing = (int)drawn(state, (unsigned)pieces);
  if (drawn(state, 8) == 0) loop->busy = drawn(state, 100000);
  set_error("%s", "");
  int status = pool_run(pool, job, count, loop, pieces);
  for (int piece = 0; piece < pieces; ++piece) {
    /* A thread that is alone ends a loop with the first error. */
    CHECK(loop->counts[piece] == 1 || (loop->counts[piece] == 0 && piece > loop->failing));
    CHECK(loop->counts[piece] == 1 || loop->failing >= 0);
  }
  CHECK((status != 0) == (loop->failing >= 0));
  char expected[64] = "";
  if (loop->failing >= 0) {
    snprintf(expected, sizeof(expected), "piece %d of loop %u", loop->failing, number);
  }
  CHECK(strcmp(last_error(), expected) == 0);
  loop->pieces = 0; /* nobody may come later */
  if (drawn(state, 4) == 0) be_busy(drawn(state, 40000)); /* workers sleep after 20 us */
}

struct caller {
  struct pool *pool;
  int job, loops;
  pthread_t thread;
};

static void *call(void *argument) {
  struct caller *caller = argument;
  unsigned state = (unsigned)caller->job + 1;
  for (int loop = 0; loop < caller->loops;) {
    pool_enter(caller->pool);
    for (unsigned left = 1 + drawn(&state, 16); left > 0; --left, ++loop) {
      run_loop(caller->pool, caller->job, &state, (unsigned)loop);
    }
    pool_leave(caller->pool);
  }
  return NULL;
}

static void call_together(struct pool *pool, int callers, int loops) {
  struct caller all[MOST_CALLERS];
  for (int job = 0; job < callers; ++job) {
    all[job] = (struct caller){.pool = pool, .job = job, .loops = loops};
    CHECK(pthread_create(&all[job].thread, NULL, call, &all[job]) == 0);
  }
  for (int job = 0; job < callers; ++job) pthread_join(all[job].thread, NULL);
}

/* Several callers, fewer and more threads than callers and cores. */
static void test_callers(void) {
  static const struct {
    int threads, callers, loops;
  } cases[] = {{2, 1, 4000}, {2, 2, 2000}, {4, 3, 2000}, {9, 2, 1000}, {3, 5, 1000}};
  for (size_t number = 0; number < sizeof(cases) / sizeof(cases[0]); ++number) {
    struct pool *pool = pool_create(cases[number].threads, cases[number].callers);
    call_together(pool, cases[number].callers, cases[number].loops);
    pool_destroy(pool);
  }
}

/* A piece that ends once all others have begun, so that each needs a thread of its own. */
static int meet(int piece, TVMParallelGroupEnv *environment, void *data) {
  struct loop *loop = data;
  ++loop->counts[piece];
  atomic_fetch_add(&loop->present, 1);
  while (atomic_load(&loop->present) < environment->num_task) sched_yield();
  return 0;
}

static void run_meetings(struct pool *pool, int job, int pieces, int loops) {
  unsigned state = 1;
  for (int number = 0; number < loops; ++number) {
    struct loop loop = {.pieces = pieces};
    CHECK(pool_run(pool, job, meet, &loop, pieces) == 0);
    for (int piece = 0; piece < pieces; ++piece) CHECK(loop.counts[piece] == 1);
    be_busy(drawn(&state, 60000)); /* around the time after which workers sleep */
  }
}

/* Workers come whether they spin, sleep, or are about to. */
static void test_sleepers(void) {
  for (int threads = 2; threads <= 40; threads += threads < 5 ? 1 : 35) {
    struct pool *pool = pool_create(threads, 1);
    pool_enter(pool);
    run_meetings(pool, 0, threads, threads > 32 ? 40 : 700);
    pool_leave(pool);
    pool_destroy(pool);
  }
}

/* A loop gets all workers that may help it, though others sleep that may not. */
static void test_shared(void) {
  struct pool *pool = pool_create(5, 3);
  pool_enter(pool);
  run_meetings(pool, 0, 5, 1); /* starts all */
  pool_enter(pool);
  run_meetings(pool, 1, 4, 300);
  pool_enter(pool);
  run_meetings(pool, 2, 3, 300);
  pool_leave(pool);
  pool_leave(pool);
  run_meetings(pool, 0, 5, 300);
  pool_destroy(pool);
}

/* The end right after a loop, in whatever the workers are doing. */
static void test_destroy(void) {
  unsigned state = 1;
  for (int number = 0; number < 300; ++number) {
    struct pool *pool = pool_create(2 + number % 4, 1);
    pool_enter(pool);
    for (unsigned loop = drawn(&state, 3); loop > 0; --loop) run_loop(pool, 0, &state, loop);
    if (drawn(&state, 2) == 0) be_busy(drawn(&state, 60000));
    pool_leave(pool);
    pool_destroy(pool);
  }
  pool_destroy(NULL);
}

static int add(int piece, TVMParallelGroupEnv *environment, void *data) {
  CHECK(environment->num_task == MOST_PIECES);
  return ++((int *)data)[piece] == 0;
}

static void test_most_pieces(void) {
  static int counts[MOST_PIECES];
  struct pool *pool = pool_create(4, 1);
  pool_enter(pool);
  CHECK(pool_run(pool, 0, add, counts, MOST_PIECES) == 0);
  pool_leave(pool);
  pool_destroy(pool);
  for (int piece = 0; piece < MOST_PIECES; ++piece) CHECK(counts[piece] == 1);
}

/* What the linker has pool.c call instead of the system. */
static int refusals, refused;
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *argument) {
  if (refusals == 0) return __real_pthread_create(thread, attributes, start, argument);
  --refusals;
  ++refused;
  return EAGAIN;
}

long __real_syscall(long, ...);
long __wrap_syscall(long number, long word, long operation, long value, long timeout, long second,
                    long mask) {
  delay();
  return __real_syscall(number, word, operation, value, timeout, second, mask);
}

/* An inference goes on without threads, asks for them once, and the next one again. */
static void test_refused(void) {
  unsigned state = 1;
  struct pool *pool = pool_create(3, 1);
  refusals = 1000;
  for (int inference = 1; inference <= 3; ++inference) {
    pool_enter(pool);
    for (unsigned loop = 0; loop < 50; ++loop) run_loop(pool, 0, &state, loop);
    pool_leave(pool);
    CHECK(refused == inference);
  }
  refusals = 0;
  pool_enter(pool);
  run_meetings(pool, 0, 3, 10);
  pool_leave(pool);
  pool_destroy(pool);
}

static _Atomic int slow_pieces, slow_ends;

static int run_slowly(int piece, TVMParallelGroupEnv *environment, void *data) {
  (void)piece, (void)environment, (void)data;
  be_busy(100000);
  atomic_fetch_add(&slow_pieces, 1);
  return 0;
}

static void *call_slowly(void *pool) {
  pool_enter(pool);
  while (!atomic_load(&slow_ends)) pool_run(pool, 1, run_slowly, NULL, MOST);
  pool_leave(pool);
  return NULL;
}

/* A child starts threads of its own, and nobody runs pieces of a loop that the parent has begun. */
static void test_fork(void) {
  struct pool *pool = pool_create(4, 2);
  pthread_t other;
  pthread_create(&other, NULL, call_slowly, pool);
  unsigned state = 1;
  for (int number = 0; number < 30; ++number) {
    pool_enter(pool);
    run_loop(pool, 0, &state, 0);
    pool_leave(pool);
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      pool_forked(pool);
      int before = atomic_load(&slow_pieces);
      pool_enter(pool);
      run_meetings(pool, 0, 4, 3);
      be_busy(1000000);
      CHECK(atomic_load(&slow_pieces) == before);
      run_loop(pool, 1, &state, 0);
      pool_leave(pool);
      pool_destroy(pool);
      _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  atomic_store(&slow_ends, 1);
  pthread_join(other, NULL);
  pool_enter(pool);
  run_meetings(pool, 0, 4, 3);
  pool_leave(pool);
  pool_destroy(pool);
}

/* Fails unless it rounds as the caller does. */
static int round_sum(int piece, TVMParallelGroupEnv *environment, void *data) {
  volatile float one = 1, little = 1e-10f;
  struct loop *loop = data;
  atomic_fetch_add(&loop->present, 1);
  while (atomic_load(&loop->present) < environment->num_task) sched_yield();
  loop->counts[piece] = one + little > 1;
  return 0;
}

/* Workers that have started take the floating-point mode of each caller, and keep no other one. */
static void test_modes(void) {
  static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_TONEAREST};
  struct pool *pool = pool_create(3, 1);
  pool_enter(pool);
  for (size_t place = 0; place < sizeof(modes) / sizeof(modes[0]); ++place) {
    struct loop loop = {.pieces = 3};
    fesetround(modes[place]);
    CHECK(pool_run(pool, 0, round_sum, &loop, 3) == 0);
    for (int piece = 0; piece < 3; ++piece) CHECK(loop.counts[piece] == (modes[place] == FE_UPWARD));
  }
  pool_leave(pool);
  pool_destroy(pool);
}

static const struct {
  const char *name;
  void (*run)(void);
} scenarios[] = {
    {"callers", test_callers}, {"sleepers", test_sleepers}, {"shared", test_shared},
    {"destroy", test_destroy}, {"refused", test_refused},   {"most_pieces", test_most_pieces},
    {"fork", test_fork},       {"modes", test_modes},
};

int main(int count, char **words) {
  for (size_t place = 0; place < sizeof(scenarios) / sizeof(scenarios[0]); ++place) {
    if (count != 2 || strcmp(scenarios[place].name, words[1]) != 0) continue;
    alarm(50); /* a wake-up that is lost stops a scenario for ever */
    scenarios[place].run();
    return 0;
  }
  return 2;
}
