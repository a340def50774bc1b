/* A piece for each thread, which runs that one and no other; workers spin and yield before they
 * sleep, as those of TVM's run time do. */

#define _GNU_SOURCE
#include <sched.h>

#include "loop.h"

#define TURNS 300000 /* that a worker spins before it sleeps, as TVM's */

struct team {
  struct pool *pool;
  struct loop *loop;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  _Atomic unsigned round;
  _Atomic int pending, sleeping;
  _Atomic int numbers; /* of workers that have begun */
  pthread_t workers[];
};

static void wait_for_round(struct team *team, unsigned seen) {
  for (int turn = 0; turn < TURNS; ++turn) {
    if (team->round != seen) return;
    sched_yield();
  }
  pthread_mutex_lock(&team->mutex);
  ++team->sleeping;
  while (team->round == seen) pthread_cond_wait(&team->wake, &team->mutex);
  --team->sleeping;
  pthread_mutex_unlock(&team->mutex);
}

static void *work(void *argument) {
  struct team *team = argument;
  int number = ++team->numbers;
  for (unsigned seen = 0;; ++seen) {
    wait_for_round(team, seen);
    if (team->loop == NULL) return NULL;
    for (int piece = number; piece < team->loop->pieces; piece += team->pool->threads) {
      run_piece(team->loop, piece);
    }
    --team->pending;
  }
}

static void begin_round(struct team *team, struct loop *loop) {
  team->loop = loop;
  team->pending = team->pool->threads - 1;
  ++team->round;
  if (team->sleeping == 0) return;
  pthread_mutex_lock(&team->mutex);
  pthread_cond_broadcast(&team->wake);
  pthread_mutex_unlock(&team->mutex);
}

struct pool *pool_create(int threads, int jobs) {
  (void)jobs;
  struct team *team = calloc(1, sizeof(*team) + (size_t)threads * sizeof(pthread_t));
  team->pool = new_pool(threads, team);
  pthread_mutex_init(&team->mutex, NULL);
  pthread_cond_init(&team->wake, NULL);
  for (int worker = 1; worker < threads; ++worker) {
    pthread_create(&team->workers[worker], NULL, work, team);
  }
  return team->pool;
}

void pool_destroy(struct pool *pool) {
  if (pool == NULL) return;
  struct team *team = pool->engine;
  begin_round(team, NULL);
  for (int worker = 1; worker < pool->threads; ++worker) {
    pthread_join(team->workers[worker], NULL);
  }
  free(team);
  free(pool);
}

int pool_pieces(int64_t extent, int threads) {
  return extent > 0 && extent < threads ? (int)extent : threads;
}

int pool_run(struct pool *pool, int job, FTVMParallelLambda lambda, void *data, int pieces) {
  (void)job;
  struct team *team = pool->engine;
  struct loop loop = {lambda, data, pieces, pthread_self(), 0};
  begin_round(team, &loop);
  for (int piece = 0; piece < pieces; piece += pool->threads) run_piece(&loop, piece);
  while (team->pending > 0) sched_yield();
  return loop.status;
}
