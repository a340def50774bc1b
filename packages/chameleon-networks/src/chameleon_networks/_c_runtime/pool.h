/* Threads that share the pieces of parallel loops with the threads that begin them. */

#ifndef CHAMELEON_POOL_H
#define CHAMELEON_POOL_H

#include <stdint.h>

/* TVM's interface for parallel loops (tvm/runtime/c_backend_api.h). */
typedef struct {
  void *sync_handle;
  int32_t num_task;
} TVMParallelGroupEnv;

typedef int (*FTVMParallelLambda)(int task, TVMParallelGroupEnv *environment, void *data);

struct pool;

/* A pool for `jobs` callers at a time, or NULL if there is no memory. Threads start with the first
 * loop that needs them. */
struct pool *pool_create(int threads, int jobs);

/* End the threads; nobody may be calling. */
void pool_destroy(struct pool *pool);

/* Forget the threads, which a child process does not inherit. */
void pool_forked(struct pool *pool);

int pool_threads(const struct pool *pool);

/* The calling thread begins, or ends, an inference as caller number `job`. */
void pool_enter(struct pool *pool);
void pool_leave(struct pool *pool);

#define MOST_PIECES 0xffff

/* Run all pieces of a loop, at most MOST_PIECES; the status of one that failed, else 0. */
int pool_run(struct pool *pool, int job, FTVMParallelLambda lambda, void *data, int pieces);

/* The number of pieces that a loop of `extent` iterations is cut into for `threads` threads. */
int pool_pieces(int64_t extent, int threads);

#endif
