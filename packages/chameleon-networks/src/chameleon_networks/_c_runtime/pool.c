/* A pool whose threads claim pieces of loops.
 *
 * A loop has more pieces than threads, if its extent allows that without loss. Each thread has a
 * range of them, the same part of each loop, so that it finds in its core's caches what it wrote in
 * the loop before. A thread whose range is empty claims pieces from the ends of others' ranges. So a
 * thread that the system takes off its core holds up the one piece that it has begun. The caller
 * claims pieces like everybody else, and waits for pieces that others have begun, never for a thread
 * that has begun none. Nobody is bound to a core.
 *
 * A range's word holds the number of the loop, the end of the range, and its next piece. A claim
 * replaces the whole word, so that it fails if the loop has ended in the meantime.
 *
 * Threads that wait spin for a while and then sleep: one that spins longer takes the core from
 * whoever holds the last piece. Every millisecond a worker lets other processes have its core, and
 * does so between two pieces: the system would take it off in the middle of one.
 * docs/threads.md shows what each of these is worth.
 */

#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pool.h"
#include "runtime.h"
#include "threads.h"

/* All times are nanoseconds. */
#define WORKER_SPIN 20000 /* of a worker that waits for the next loop, before it sleeps */
#define CALLER_SPIN 5000  /* of a caller that waits for others' pieces, and twice a piece's time */
#define TURN 1000000      /* that a worker computes before it lets others have its core */
#define PIECES_EACH 4     /* pieces of a loop for each thread, at most */
#define CACHE_LINE 64
#define EVERYBODY FUTEX_BITSET_MATCH_ANY

struct range {
  _Alignas(CACHE_LINE) _Atomic uint64_t word; /* 32 bits of loop, 16 of the end, 16 of the next */
};

struct job {
  _Alignas(CACHE_LINE) _Atomic(FTVMParallelLambda) lambda;
  _Atomic(void *) data;
  _Atomic uint64_t mode; /* the caller's, of floating-point numbers */
  _Atomic uint32_t pieces;
  uint32_t loop;         /* of the caller alone */
  struct range *ranges;  /* of the caller and of each worker */
  _Alignas(CACHE_LINE) _Atomic uint32_t finished; /* pieces of this loop */
  _Atomic uint32_t waiting;                       /* whether the caller sleeps */
  _Atomic int failed;
  char error[256]; /* of the first piece that failed */
};

struct worker {
  struct pool *pool;
  pthread_t thread;
  int number; /* from 1; the caller is 0 */
};

struct pool {
  int threads;
  int job_count;
  _Atomic int started; /* workers */
  _Atomic int refused; /* whether the system refused one to this inference */
  pthread_mutex_t starting;
  _Atomic int callers;
  _Atomic int ending;
  _Atomic uint32_t sleeping;
  _Atomic uint32_t bell; /* workers sleep on it */
  struct worker *workers;
  struct job jobs[];
};

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Sleep on a word, or wake `value` of those that sleep on it and share a bit of `mask`. */
static void futex(_Atomic uint32_t *word, int operation, uint32_t value, uint32_t mask) {
  syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, mask);
}

static uint64_t word_of(uint32_t loop, uint32_t end, uint32_t next) {
  return (uint64_t)loop << 32 | end << 16 | next;
}

static uint32_t next_of(uint64_t word) { return word & MOST_PIECES; }

static uint32_t end_of(uint64_t word) { return word >> 16 & MOST_PIECES; }

static uint32_t loop_of(uint64_t word) { return (uint32_t)(word >> 32); }

static int has_piece(uint64_t word) { return next_of(word) < end_of(word); }

/* How long a thread's last piece took, since when it has had its core, how often it was taken off
 * one, and the loop whose pieces it claims. */
struct clock {
  int64_t piece, since;
  long taken;
  uint32_t loop;
};

static long times_taken(void) {
  struct rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

/* Let other processes have the core after a turn on it, unless they have just had it. */
static void take_turns(struct clock *clock, int64_t now) {
  if (now - clock->since < TURN) return;
  if (times_taken() == clock->taken) sched_yield();
  clock->taken = times_taken();
  clock->since = nanoseconds();
}

/* Claim and run pieces of a range until none is left: the first ones if it is the thread's own. Else
 * the last ones, and only of the loop of the thread's own range: in a newer loop, the thread has
 * pieces of its own to begin with. Whether there was one. */
static int help(struct job *job, int owner, int number, struct clock *clock,
                struct workspaces *workspaces) {
  int helped = 0, own = owner == number;
  struct range *range = &job->ranges[owner];
  uint64_t word = atomic_load_explicit(&range->word, memory_order_acquire);
  if (own) clock->loop = loop_of(word);
  while (has_piece(word) && loop_of(word) == clock->loop) {
    FTVMParallelLambda lambda = atomic_load_explicit(&job->lambda, memory_order_relaxed);
    void *data = atomic_load_explicit(&job->data, memory_order_relaxed);
    uint64_t mode = atomic_load_explicit(&job->mode, memory_order_relaxed);
    uint32_t pieces = atomic_load_explicit(&job->pieces, memory_order_relaxed);
    uint32_t next = next_of(word), end = end_of(word);
    uint64_t rest = own ? word + 1 : word_of(clock->loop, end - 1, next);
    if (!atomic_compare_exchange_weak_explicit(&range->word, &word, rest, memory_order_acq_rel,
                                               memory_order_acquire)) {
      continue;
    }
    TVMParallelGroupEnv environment = {.num_task = (int32_t)pieces};
    set_floating_mode(mode);
    int64_t begun = nanoseconds();
    if (lambda((int)(own ? next : end - 1), &environment, data) != 0) {
      if (!atomic_exchange(&job->failed, 1)) {
        strncpy(job->error, last_error(), sizeof(job->error) - 1);
      }
      if (workspaces != NULL) workspaces_release(workspaces);
    }
    helped = 1;
    /* Sequentially consistent, as the caller's: one of the two sees the other's. */
    if (atomic_fetch_add(&job->finished, 1) + 1 == pieces && atomic_load(&job->waiting)) {
      futex(&job->finished, FUTEX_WAKE_BITSET, 1, EVERYBODY);
    }
    int64_t now = nanoseconds();
    clock->piece = now - begun;
    if (workspaces != NULL) take_turns(clock, now);
    word = atomic_load_explicit(&range->word, memory_order_acquire);
  }
  return helped;
}

/* Claim and run pieces of a job until none is left, as thread `number`; whether there was one.
 * `workspaces` are those of a worker, or NULL. */
static int help_all(struct pool *pool, struct job *job, int number, struct clock *clock,
                    struct workspaces *workspaces) {
  int helped = 0;
  for (int step = 0; step < pool->threads; ++step) {
    helped |= help(job, (number + step) % pool->threads, number, clock, workspaces);
  }
  return helped;
}

/* Whether a worker has something to do: callers are threads as well. */
static int wanted(struct pool *pool, int number) {
  return number <= pool->threads - atomic_load_explicit(&pool->callers, memory_order_relaxed);
}

static int help_anybody(struct pool *pool, int number, struct clock *clock,
                        struct workspaces *workspaces) {
  int helped = 0;
  if (!wanted(pool, number)) return 0;
  for (int job = 0; job < pool->job_count; ++job) {
    struct job *next = &pool->jobs[(job + number - 1) % pool->job_count];
    helped |= help_all(pool, next, number, clock, workspaces);
  }
  return helped;
}

static int anything(struct pool *pool, int number) {
  if (atomic_load(&pool->ending)) return 1;
  if (!wanted(pool, number)) return 0;
  for (int job = 0; job < pool->job_count; ++job) {
    if (has_piece(atomic_load(&pool->jobs[job].ranges[number].word))) return 1;
  }
  return 0;
}

static void *work(void *argument) {
  struct worker *self = argument;
  struct pool *pool = self->pool;
  struct workspaces workspaces = {0};
  struct clock clock = {0};
  uint32_t bit = UINT32_C(1) << (self->number < 32 ? self->number - 1 : 31);
  use_workspaces(&workspaces);
  while (!atomic_load(&pool->ending)) {
    if (help_anybody(pool, self->number, &clock, &workspaces)) continue;
    int64_t end = 0;
    for (int turn = 0; !anything(pool, self->number); ++turn) {
      pause_briefly();
      if (turn % 16 != 15) continue;
      int64_t now = nanoseconds();
      if (end == 0) end = now + WORKER_SPIN;
      if (now < end) continue;
      uint32_t heard = atomic_load(&pool->bell);
      atomic_fetch_add(&pool->sleeping, 1);
      if (!anything(pool, self->number)) futex(&pool->bell, FUTEX_WAIT_BITSET, heard, bit);
      atomic_fetch_sub(&pool->sleeping, 1);
      clock.since = nanoseconds();
      end = 0;
    }
  }
  workspaces_free(&workspaces);
  return NULL;
}

/* Wake some of the workers whose numbers are up to `last`. */
static void ring(struct pool *pool, int last, int workers) {
  uint32_t mask = last < 32 ? (UINT32_C(1) << last) - 1 : EVERYBODY;
  atomic_fetch_add(&pool->bell, 1);
  futex(&pool->bell, FUTEX_WAKE_BITSET, (uint32_t)workers, mask);
}

/* Start the workers that are missing. An inference goes on without those that the system refuses,
 * and the next one asks for them again. */
static void start_workers(struct pool *pool) {
  pthread_mutex_lock(&pool->starting);
  while (pool->started < pool->threads - 1) {
    struct worker *worker = &pool->workers[pool->started];
    *worker = (struct worker){.pool = pool, .number = pool->started + 1};
    if (start_thread(&worker->thread, work, worker) != 0) {
      pool->refused = 1;
      break;
    }
    ++pool->started;
  }
  pthread_mutex_unlock(&pool->starting);
}

struct pool *pool_create(int threads, int jobs) {
  size_t ranges = sizeof(struct pool) + (size_t)jobs * sizeof(struct job);
  size_t size = ranges + (size_t)jobs * (size_t)threads * sizeof(struct range);
  struct pool *pool = aligned_alloc(CACHE_LINE, size);
  if (pool == NULL) return NULL;
  memset(pool, 0, size);
  pool->workers = calloc((size_t)threads, sizeof(struct worker));
  if (pool->workers == NULL) {
    free(pool);
    return NULL;
  }
  pool->threads = threads;
  pool->job_count = jobs;
  for (int job = 0; job < jobs; ++job) {
    pool->jobs[job].ranges = (struct range *)((char *)pool + ranges) + (size_t)job * threads;
  }
  pthread_mutex_init(&pool->starting, NULL);
  return pool;
}

void pool_destroy(struct pool *pool) {
  if (pool == NULL) return;
  atomic_store(&pool->ending, 1);
  ring(pool, INT_MAX, INT_MAX);
  for (int place = 0; place < pool->started; ++place) {
    pthread_join(pool->workers[place].thread, NULL);
  }
  pthread_mutex_destroy(&pool->starting);
  free(pool->workers);
  free(pool);
}

void pool_forked(struct pool *pool) {
  pool->started = 0;
  pthread_mutex_init(&pool->starting, NULL);
  atomic_store(&pool->callers, 0);
  atomic_store(&pool->sleeping, 0);
  for (int job = 0; job < pool->job_count; ++job) {
    for (int owner = 0; owner < pool->threads; ++owner) {
      atomic_store(&pool->jobs[job].ranges[owner].word, 0);
    }
    atomic_store(&pool->jobs[job].waiting, 0);
  }
}

int pool_threads(const struct pool *pool) { return pool->threads; }

void pool_enter(struct pool *pool) {
  atomic_fetch_add(&pool->callers, 1);
  atomic_store_explicit(&pool->refused, 0, memory_order_relaxed);
}

void pool_leave(struct pool *pool) { atomic_fetch_sub(&pool->callers, 1); }

int pool_pieces(int64_t extent, int threads) {
  if (extent <= 0) return threads;
  int64_t longest = (extent + threads - 1) / threads; /* iterations of a thread, at best */
  for (int64_t most = (int64_t)threads * PIECES_EACH; most > threads; --most) {
    int64_t size = (extent + most - 1) / most, pieces = (extent + size - 1) / size;
    if ((pieces + threads - 1) / threads * size <= longest) return (int)pieces;
  }
  return (int)((extent + longest - 1) / longest);
}

static int run_alone(FTVMParallelLambda lambda, void *data, int pieces) {
  TVMParallelGroupEnv environment = {.num_task = pieces};
  int status = 0;
  for (int piece = 0; status == 0 && piece < pieces; ++piece) {
    status = lambda(piece, &environment, data);
  }
  return status;
}

int pool_run(struct pool *pool, int number, FTVMParallelLambda lambda, void *data, int pieces) {
  int helpers = pool->threads - atomic_load_explicit(&pool->callers, memory_order_relaxed);
  if (pieces == 1 || helpers < 1) return run_alone(lambda, data, pieces);
  if (pool->started < pool->threads - 1 && !pool->refused) start_workers(pool);
  struct job *job = &pool->jobs[number];
  ++job->loop;
  atomic_store_explicit(&job->lambda, lambda, memory_order_relaxed);
  atomic_store_explicit(&job->data, data, memory_order_relaxed);
  atomic_store_explicit(&job->mode, floating_mode(), memory_order_relaxed);
  atomic_store_explicit(&job->finished, 0, memory_order_relaxed);
  atomic_store_explicit(&job->failed, 0, memory_order_relaxed);
  atomic_store_explicit(&job->pieces, (uint32_t)pieces, memory_order_relaxed);
  for (int owner = helpers; owner >= 0; --owner) {
    uint32_t first = (uint32_t)(pieces * owner / (helpers + 1));
    uint32_t end = (uint32_t)(pieces * (owner + 1) / (helpers + 1));
    atomic_store(&job->ranges[owner].word, word_of(job->loop, end, first));
  }
  uint32_t sleeping = atomic_load(&pool->sleeping);
  if (sleeping > 0) ring(pool, helpers, pieces - 1);
  struct clock clock = {0};
  help_all(pool, job, 0, &clock, NULL);
  int64_t end = 0;
  for (int turn = 0;; ++turn) {
    uint32_t finished = atomic_load_explicit(&job->finished, memory_order_acquire);
    if (finished == (uint32_t)pieces) break;
    pause_briefly();
    if (turn % 16 != 15) continue;
    int64_t now = nanoseconds();
    if (end == 0) end = now + CALLER_SPIN + 2 * clock.piece;
    if (now < end) continue;
    atomic_store(&job->waiting, 1);
    finished = atomic_load(&job->finished);
    if (finished != (uint32_t)pieces) {
      futex(&job->finished, FUTEX_WAIT_BITSET, finished, EVERYBODY);
    }
    atomic_store(&job->waiting, 0);
  }
  if (!atomic_load(&job->failed)) return 0;
  set_error("%s", job->error);
  return -1;
}
