/* oneTBB: threads divide ranges of pieces and steal them from each other. */

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include "loop.h"

using oneapi::tbb::task_arena;

extern "C" {

struct pool *pool_create(int threads, int) { return new_pool(threads, new task_arena(threads)); }

void pool_destroy(struct pool *pool) {
  if (pool == nullptr) return;
  delete static_cast<task_arena *>(pool->engine);
  free(pool);
}

int pool_run(struct pool *pool, int, FTVMParallelLambda lambda, void *data, int pieces) {
  struct loop loop = {lambda, data, pieces, pthread_self(), {0}};
  static_cast<task_arena *>(pool->engine)->execute([&] {
    oneapi::tbb::parallel_for(
        0, pieces, [&](int piece) { run_piece(&loop, piece); }, oneapi::tbb::simple_partitioner());
  });
  return loop.status;
}
}
