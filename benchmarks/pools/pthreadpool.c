/* pthreadpool: each thread has a range of pieces, and takes from others when it is done. */

#include <pthreadpool.h>

#include "loop.h"

struct pool *pool_create(int threads, int jobs) {
  (void)jobs;
  return new_pool(threads, pthreadpool_create((size_t)threads));
}

void pool_destroy(struct pool *pool) {
  if (pool == NULL) return;
  pthreadpool_destroy(pool->engine);
  free(pool);
}

static void run_numbered(void *loop, size_t piece) { run_piece(loop, (int)piece); }

int pool_run(struct pool *pool, int job, FTVMParallelLambda lambda, void *data, int pieces) {
  (void)job;
  struct loop loop = {lambda, data, pieces, pthread_self(), 0};
  pthreadpool_parallelize_1d(pool->engine, run_numbered, &loop, (size_t)pieces, 0);
  return loop.status;
}
