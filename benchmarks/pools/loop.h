/* What the pools here have alike: `pool.h` on another library's threads, for one caller at a time. */

#ifndef LOOP_H
#define LOOP_H

#ifdef __cplusplus
#include <atomic>
typedef std::atomic<int> atomic_status;
extern "C" {
#else
#include <stdatomic.h>
typedef _Atomic int atomic_status;
#endif

#include <pthread.h>
#include <stdlib.h>

#include "runtime.h"

struct pool {
  int threads;
  void *engine; /* the library's threads */
};

struct loop {
  FTVMParallelLambda lambda;
  void *data;
  int pieces;
  pthread_t caller;
  atomic_status status;
};

/* Run a piece, on whichever thread this is. */
static inline void run_piece(struct loop *loop, int piece) {
  static __thread struct workspaces workspaces; /* of a thread that is not the caller */
  TVMParallelGroupEnv environment = {NULL, loop->pieces};
  if (!pthread_equal(pthread_self(), loop->caller)) use_workspaces(&workspaces);
  int status = loop->lambda(piece, &environment, loop->data);
  if (status != 0) loop->status = status;
}

static inline struct pool *new_pool(int threads, void *engine) {
  struct pool *pool = (struct pool *)calloc(1, sizeof(struct pool));
  pool->threads = threads;
  pool->engine = engine;
  return pool;
}

void pool_forked(struct pool *pool) { (void)pool; }

int pool_threads(const struct pool *pool) { return pool->threads; }

void pool_enter(struct pool *pool) { (void)pool; }

void pool_leave(struct pool *pool) { (void)pool; }

#ifdef __cplusplus
}
#endif

#endif
