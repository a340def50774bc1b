/* The functions of a delivered library, whose names "names.h" gives; header.h describes them.
 *
 * A handle has weights, a pool of threads, and instances, each with the memory of one inference. A
 * call takes a free instance, or waits for one.
 */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "names.h"
#include "runtime.h"
#include "sequence.h"

#define GIVEN (INPUTS + OUTPUTS)
#define MOST_INSTANCES 1024

struct HANDLE {
  struct weights weights;
  struct pool *pool;
  int instances;
  struct instance **all;
  struct workspaces *workspaces; /* of each instance's caller */
  int *free;                     /* numbers of instances that nobody uses */
  int free_count;
  pthread_mutex_t mutex;
  pthread_cond_t given_back;
  struct HANDLE *next;
};

/* All handles, for a child process: it inherits their memory, and no thread. */
static struct HANDLE *handles;
static pthread_mutex_t handles_mutex = PTHREAD_MUTEX_INITIALIZER;

static void free_all(struct HANDLE *handle) {
  for (int number = 0; number < handle->instances; ++number) handle->free[number] = number;
  handle->free_count = handle->instances;
  pthread_mutex_init(&handle->mutex, NULL);
  pthread_cond_init(&handle->given_back, NULL);
}

static void before_fork(void) { pthread_mutex_lock(&handles_mutex); }

static void after_fork(void) { pthread_mutex_unlock(&handles_mutex); }

static void in_child(void) {
  for (struct HANDLE *handle = handles; handle != NULL; handle = handle->next) {
    /* A thread that is gone may have been changing them. What they hold is lost to the child. */
    memset(handle->workspaces, 0, (size_t)handle->instances * sizeof(*handle->workspaces));
    free_all(handle);
    pool_forked(handle->pool);
  }
  pthread_mutex_init(&handles_mutex, NULL);
}

__attribute__((constructor)) static void watch_forks(void) {
  pthread_atfork(before_fork, after_fork, in_child);
}

API(int, input_count)(void) { return INPUTS; }

API(int, output_count)(void) { return OUTPUTS; }

API(const TENSOR *, input)(int number) {
  return number < 0 || number >= INPUTS ? NULL : &described[number];
}

API(const TENSOR *, output)(int number) {
  return number < 0 || number >= OUTPUTS ? NULL : &described[INPUTS + number];
}

API(const char *, error)(void) { return last_error(); }

API(int, threads)(const struct HANDLE *handle) { return pool_threads(handle->pool); }

API(int, constant_count)(void) { return sequence_constants; }

API(int, call_count)(void) { return sequence_calls; }

API(void, use_tvm)(const struct tvm_functions *functions) { use_tvm(functions); }

API(const char *, kernels)(void) { return sequence_kernels; }

API(void, destroy)(struct HANDLE *handle) {
  if (handle == NULL) return;
  pthread_mutex_lock(&handle->mutex);
  while (handle->free_count < handle->instances) {
    pthread_cond_wait(&handle->given_back, &handle->mutex);
  }
  pthread_mutex_unlock(&handle->mutex);
  pthread_mutex_lock(&handles_mutex);
  for (struct HANDLE **at = &handles; *at != NULL; at = &(*at)->next) {
    if (*at != handle) continue;
    *at = handle->next;
    break;
  }
  pthread_mutex_unlock(&handles_mutex);
  pool_destroy(handle->pool);
  for (int number = 0; number < handle->instances; ++number) {
    instance_close(handle->all[number]);
    workspaces_free(&handle->workspaces[number]);
  }
  weights_close(&handle->weights);
  pthread_cond_destroy(&handle->given_back);
  pthread_mutex_destroy(&handle->mutex);
  free(handle->all);
  free(handle->workspaces);
  free(handle->free);
  free(handle);
}

/* A handle without weights, threads and instances. */
static struct HANDLE *empty_handle(int instances) {
  struct HANDLE *handle = calloc(1, sizeof(*handle));
  if (handle == NULL) return NULL;
  handle->all = calloc((size_t)instances, sizeof(*handle->all));
  handle->workspaces = calloc((size_t)instances, sizeof(*handle->workspaces));
  handle->free = calloc((size_t)instances, sizeof(*handle->free));
  pthread_mutex_init(&handle->mutex, NULL);
  pthread_cond_init(&handle->given_back, NULL);
  if (handle->all != NULL && handle->workspaces != NULL && handle->free != NULL) return handle;
  API_NAME(destroy)(handle);
  return NULL;
}

API(struct HANDLE *, open)(const char *weights, int threads, int instances, const int *constants) {
  set_error("%s", "");
  if (check_processor(features, FEATURES) != 0) return NULL;
  if (TILES && ask_for_tiles() != 0) return NULL;
  if (threads < 0 || instances < 1 || instances > MOST_INSTANCES) {
    set_error("a handle has 1 or more threads, or 0 for its own choice, and 1 to %d instances",
              MOST_INSTANCES);
    return NULL;
  }
  threads = chosen_threads(threads, THREADS_VARIABLE, THREADS);
  struct HANDLE *handle = empty_handle(instances);
  if (handle == NULL || (handle->pool = pool_create(threads, instances)) == NULL) {
    set_error("there is not enough memory");
    API_NAME(destroy)(handle);
    return NULL;
  }
  if (weights_open(&handle->weights, weights, sequence_layout, threads) != 0) {
    API_NAME(destroy)(handle);
    return NULL;
  }
  if (constants == NULL && handle->weights.count != sequence_constants) {
    set_error("%s does not hold the weights of this library", weights);
    API_NAME(destroy)(handle);
    return NULL;
  }
  for (int number = 0; number < instances; ++number) {
    handle->all[number] = instance_open(&handle->weights, constants);
    if (handle->all[number] == NULL) {
      API_NAME(destroy)(handle);
      return NULL;
    }
    handle->free[handle->free_count++] = number;
    handle->instances = handle->free_count;
  }
  pthread_mutex_lock(&handles_mutex);
  handle->next = handles;
  handles = handle;
  pthread_mutex_unlock(&handles_mutex);
  return handle;
}

API(struct HANDLE *, create)(const char *weights, int threads) {
  return API_NAME(open)(weights, threads, 1, NULL);
}

static int take_instance(struct HANDLE *handle) {
  pthread_mutex_lock(&handle->mutex);
  while (handle->free_count == 0) pthread_cond_wait(&handle->given_back, &handle->mutex);
  int number = handle->free[--handle->free_count];
  pthread_mutex_unlock(&handle->mutex);
  return number;
}

static void give_back(struct HANDLE *handle, int number) {
  pthread_mutex_lock(&handle->mutex);
  handle->free[handle->free_count++] = number;
  pthread_cond_broadcast(&handle->given_back);
  pthread_mutex_unlock(&handle->mutex);
}

API(int, profile)(struct HANDLE *handle, const void *const *inputs, void *const *outputs,
                  int64_t *nanoseconds) {
  void *given[GIVEN + 1];
  set_error("%s", "");
  if (handle == NULL) {
    set_error("the handle is NULL");
    return -1;
  }
  for (int number = 0; number < GIVEN; ++number) {
    given[number] = number < INPUTS ? (void *)inputs[number] : outputs[number - INPUTS];
    if (given[number] != NULL) continue;
    set_error("%s is NULL", described[number].name);
    return -1;
  }
  int number = take_instance(handle);
  pool_enter(handle->pool);
  use_pool(handle->pool, number);
  use_workspaces(&handle->workspaces[number]);
  int status = instance_run(handle->all[number], given, nanoseconds);
  use_workspaces(NULL);
  use_pool(NULL, 0);
  pool_leave(handle->pool);
  give_back(handle, number);
  return status;
}

API(int, run)(struct HANDLE *handle, const void *const *inputs, void *const *outputs) {
  return API_NAME(profile)(handle, inputs, outputs, NULL);
}
