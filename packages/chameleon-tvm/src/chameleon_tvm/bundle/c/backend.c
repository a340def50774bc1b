/* What code that TVM generates for CPUs calls (tvm/runtime/c_backend_api.h): parallel loops on the
 * threads of a handle, and workspaces.
 *
 * As in TVM's own run time the thread that calls runs the first task, and a worker waits for the
 * next loop awake for a while before it sleeps: waking one takes longer than most loops of a
 * network. Which task a thread runs is fixed, so that nothing depends on who is faster.
 */

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

/* Turns that a worker waits awake, and the workspaces' granularity in bytes: those of TVM. */
#define TURNS 300000
#define PAGE 4096u
#define ALIGNMENT 64u

typedef struct {
  void *sync_handle;
  int32_t num_task;
} TVMParallelGroupEnv;

typedef int (*FTVMParallelLambda)(int task, TVMParallelGroupEnv *environment, void *data);

struct worker {
  struct pool *pool;
  pthread_t thread;
  int number; /* the calling thread is 0 */
  struct workspaces workspaces;
};

struct pool {
  int threads;
  int started; /* workers */
  _Atomic unsigned round; /* of loops */
  _Atomic int pending;    /* workers that have not finished this round */
  _Atomic int sleeping;
  _Atomic int ending;
  _Atomic int failed;
  _Atomic int arrived; /* at a barrier */
  FTVMParallelLambda lambda;
  void *data;
  TVMParallelGroupEnv environment;
  char error[256]; /* of the first worker that failed */
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  struct worker workers[];
};

static _Thread_local struct pool *own_pool;
static _Thread_local struct workspaces *own_workspaces;
static _Thread_local int inside; /* of a parallel loop */

void use(struct pool *pool, struct workspaces *workspaces) {
  own_pool = pool;
  own_workspaces = workspaces;
}

/* Run the tasks of a thread: each `threads`-th, beginning with its own number. */
static int run_tasks(struct pool *pool, int number) {
  inside = 1;
  int status = 0;
  for (int task = number; status == 0 && task < pool->environment.num_task; task += pool->threads) {
    status = pool->lambda(task, &pool->environment, pool->data);
  }
  inside = 0;
  return status;
}

static void wait_for_round(struct pool *pool, unsigned seen) {
  for (int turn = 0; turn < TURNS; ++turn) {
    if (atomic_load_explicit(&pool->round, memory_order_acquire) != seen) return;
    sched_yield();
  }
  pthread_mutex_lock(&pool->mutex);
  atomic_fetch_add(&pool->sleeping, 1);
  while (atomic_load(&pool->round) == seen) pthread_cond_wait(&pool->wake, &pool->mutex);
  atomic_fetch_sub(&pool->sleeping, 1);
  pthread_mutex_unlock(&pool->mutex);
}

static void *work(void *argument) {
  struct worker *self = argument;
  struct pool *pool = self->pool;
  use(NULL, &self->workspaces);
  for (unsigned seen = 0;; ++seen) {
    wait_for_round(pool, seen);
    if (atomic_load(&pool->ending)) return NULL;
    if (run_tasks(pool, self->number) != 0 && !atomic_exchange(&pool->failed, 1)) {
      strncpy(pool->error, last_error(), sizeof(pool->error) - 1);
    }
    atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_release);
  }
}

static void begin_round(struct pool *pool) {
  atomic_fetch_add(&pool->round, 1);
  if (atomic_load(&pool->sleeping) > 0) {
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
  }
}

struct pool *pool_create(int threads) {
  struct pool *pool = calloc(1, sizeof(*pool) + (size_t)threads * sizeof(struct worker));
  if (pool == NULL) return NULL;
  pool->threads = threads;
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->wake, NULL);
  for (int number = 1; number < threads; ++number) {
    struct worker *worker = &pool->workers[number - 1];
    worker->pool = pool;
    worker->number = number;
    if (pthread_create(&worker->thread, NULL, work, worker) != 0) {
      pool_destroy(pool);
      return NULL;
    }
    pool->started = number;
  }
  return pool;
}

void pool_destroy(struct pool *pool) {
  if (pool == NULL) return;
  atomic_store(&pool->ending, 1);
  begin_round(pool);
  for (int place = 0; place < pool->started; ++place) {
    pthread_join(pool->workers[place].thread, NULL);
    workspaces_free(&pool->workers[place].workspaces);
  }
  pthread_cond_destroy(&pool->wake);
  pthread_mutex_destroy(&pool->mutex);
  free(pool);
}

static int launch(FTVMParallelLambda lambda, void *data, int tasks) {
  struct pool *pool = own_pool;
  if (pool == NULL || inside) {
    set_error("a parallel loop was begun inside of another one");
    return -1;
  }
  pool->lambda = lambda;
  pool->data = data;
  pool->environment.num_task = tasks == 0 ? pool->threads : tasks;
  pool->environment.sync_handle = &pool->arrived;
  atomic_store(&pool->arrived, 0);
  atomic_store(&pool->failed, 0);
  if (pool->environment.num_task == 1 || pool->threads == 1) {
    int status = 0;
    inside = 1;
    for (int task = 0; status == 0 && task < pool->environment.num_task; ++task) {
      status = lambda(task, &pool->environment, data);
    }
    inside = 0;
    return status;
  }
  memset(pool->error, 0, sizeof(pool->error));
  atomic_store(&pool->pending, pool->threads - 1);
  begin_round(pool);
  int status = run_tasks(pool, 0);
  while (atomic_load_explicit(&pool->pending, memory_order_acquire) != 0) sched_yield();
  if (status == 0 && atomic_load(&pool->failed)) {
    set_error("%s", pool->error);
    status = -1;
  }
  return status;
}

/* All tasks of a loop get here before one goes on; there are at most as many as threads. */
static int barrier(int task, TVMParallelGroupEnv *environment) {
  (void)task;
  _Atomic int *arrived = environment->sync_handle;
  int before = atomic_fetch_add(arrived, 1);
  int wanted = (before / environment->num_task + 1) * environment->num_task;
  while (atomic_load_explicit(arrived, memory_order_acquire) < wanted) sched_yield();
  return 0;
}

/* The smallest free block that is large enough; else a free one grows, or there is one more. */
static void *workspace(int device_type, int device, uint64_t bytes, int code, int bits) {
  (void)device_type, (void)device, (void)code, (void)bits;
  struct workspaces *own = own_workspaces;
  if (own == NULL) return NULL;
  size_t size = bytes == 0 ? PAGE : (bytes + PAGE - 1) / PAGE * PAGE;
  int found = -1, largest = -1;
  for (int place = 0; place < own->count; ++place) {
    if (own->blocks[place].taken) continue;
    if (largest < 0 || own->blocks[place].size > own->blocks[largest].size) largest = place;
    if (own->blocks[place].size < size) continue;
    if (found < 0 || own->blocks[place].size < own->blocks[found].size) found = place;
  }
  if (found < 0) {
    void *memory = NULL;
    if (posix_memalign(&memory, ALIGNMENT, size) != 0) return NULL;
    if (largest < 0) {
      void *more = realloc(own->blocks, (size_t)(own->count + 1) * sizeof(*own->blocks));
      if (more == NULL) {
        free(memory);
        return NULL;
      }
      own->blocks = more;
      largest = own->count++;
    } else {
      free(own->blocks[largest].memory);
    }
    found = largest;
    own->blocks[found].memory = memory;
    own->blocks[found].size = size;
  }
  own->blocks[found].taken = 1;
  return own->blocks[found].memory;
}

static int free_workspace(int device_type, int device, void *memory) {
  (void)device_type, (void)device;
  for (int place = 0; place < own_workspaces->count; ++place) {
    if (own_workspaces->blocks[place].memory == memory) own_workspaces->blocks[place].taken = 0;
  }
  return 0;
}

void workspaces_free(struct workspaces *workspaces) {
  for (int place = 0; place < workspaces->count; ++place) free(workspaces->blocks[place].memory);
  free(workspaces->blocks);
  *workspaces = (struct workspaces){0};
}

/* Pointers that objects have which need them, and which TVM's loader would set. */
#define OPTIONAL extern __attribute__((weak, visibility("hidden")))
OPTIONAL int (*__TVMBackendParallelLaunch)(FTVMParallelLambda, void *, int);
OPTIONAL int (*__TVMBackendParallelBarrier)(int, TVMParallelGroupEnv *);
OPTIONAL void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
OPTIONAL int (*__TVMBackendFreeWorkspace)(int, int, void *);

__attribute__((constructor)) static void connect_kernels(void) {
  if (&__TVMBackendParallelLaunch != NULL) __TVMBackendParallelLaunch = launch;
  if (&__TVMBackendParallelBarrier != NULL) __TVMBackendParallelBarrier = barrier;
  if (&__TVMBackendAllocWorkspace != NULL) __TVMBackendAllocWorkspace = workspace;
  if (&__TVMBackendFreeWorkspace != NULL) __TVMBackendFreeWorkspace = free_workspace;
}
