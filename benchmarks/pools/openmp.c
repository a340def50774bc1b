/* OpenMP: threads claim pieces. */

#include "loop.h"

struct pool *pool_create(int threads, int jobs) {
  (void)jobs;
  return new_pool(threads, NULL);
}

void pool_destroy(struct pool *pool) { free(pool); }

int pool_run(struct pool *pool, int job, FTVMParallelLambda lambda, void *data, int pieces) {
  (void)job;
  struct loop loop = {lambda, data, pieces, pthread_self(), 0};
#pragma omp parallel for num_threads(pool->threads) schedule(dynamic)
  for (int piece = 0; piece < pieces; ++piece) run_piece(&loop, piece);
  return loop.status;
}
