/* Handles of a delivered library: weights, a pool of threads, and instances, each with the memory of
 * one inference in any of the library's buckets. A call takes a free instance, or waits for one.
 */

#define _GNU_SOURCE
#include "handle.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sequence.h"
#include "sizes.h"

#define MOST_INSTANCES 1024

struct handle {
  const struct library *library;
  struct weights weights;
  struct weights *packed; /* of each bucket: the constants that are made of those in `weights` */
  char report[REPORT_BYTES];
  struct pool *pool;
  int instances;
  struct instance **all; /* those of an instance's buckets, one after the other */
  char **arenas;         /* the memory of each instance, of which padded arrays are the end */
  size_t arena_size;
  struct workspaces *workspaces; /* of each instance's caller */
  int *free;                     /* numbers of instances that nobody uses */
  int free_count;
  pthread_mutex_t mutex;
  pthread_cond_t given_back;
  struct handle *next;
};

/* All handles, for a child process: it inherits their memory, and no thread. */
static struct handle *handles;
static pthread_mutex_t handles_mutex = PTHREAD_MUTEX_INITIALIZER;

static void free_all(struct handle *handle) {
  for (int number = 0; number < handle->instances; ++number) handle->free[number] = number;
  handle->free_count = handle->instances;
  pthread_mutex_init(&handle->mutex, NULL);
  pthread_cond_init(&handle->given_back, NULL);
}

static void before_fork(void) { pthread_mutex_lock(&handles_mutex); }

static void after_fork(void) { pthread_mutex_unlock(&handles_mutex); }

static void in_child(void) {
  for (struct handle *handle = handles; handle != NULL; handle = handle->next) {
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

void destroy_handle(struct handle *handle) {
  if (handle == NULL) return;
  pthread_mutex_lock(&handle->mutex);
  while (handle->free_count < handle->instances) {
    pthread_cond_wait(&handle->given_back, &handle->mutex);
  }
  pthread_mutex_unlock(&handle->mutex);
  pthread_mutex_lock(&handles_mutex);
  for (struct handle **at = &handles; *at != NULL; at = &(*at)->next) {
    if (*at != handle) continue;
    *at = handle->next;
    break;
  }
  pthread_mutex_unlock(&handles_mutex);
  pool_destroy(handle->pool);
  int buckets = handle->library->bucket_count;
  for (int number = 0; number < handle->instances; ++number) {
    for (int bucket = 0; bucket < buckets; ++bucket) {
      instance_close(handle->all[number * buckets + bucket]);
    }
    free(handle->arenas[number]);
    workspaces_free(&handle->workspaces[number]);
  }
  for (int bucket = 0; handle->packed != NULL && bucket < buckets; ++bucket) {
    weights_close(&handle->packed[bucket]);
  }
  weights_close(&handle->weights);
  pthread_cond_destroy(&handle->given_back);
  pthread_mutex_destroy(&handle->mutex);
  free(handle->packed);
  free(handle->all);
  free(handle->arenas);
  free(handle->workspaces);
  free(handle->free);
  free(handle);
}

/* A handle without weights, threads and instances. */
static struct handle *empty_handle(const struct library *library, int instances) {
  size_t buckets = (size_t)library->bucket_count;
  struct handle *handle = calloc(1, sizeof(*handle));
  if (handle == NULL) return NULL;
  handle->library = library;
  handle->packed = calloc(buckets, sizeof(*handle->packed));
  handle->all = calloc((size_t)instances * buckets, sizeof(*handle->all));
  handle->arenas = calloc((size_t)instances, sizeof(*handle->arenas));
  handle->workspaces = calloc((size_t)instances, sizeof(*handle->workspaces));
  handle->free = calloc((size_t)instances, sizeof(*handle->free));
  pthread_mutex_init(&handle->mutex, NULL);
  pthread_cond_init(&handle->given_back, NULL);
  if (handle->packed != NULL && handle->all != NULL && handle->arenas != NULL &&
      handle->workspaces != NULL && handle->free != NULL) {
    return handle;
  }
  destroy_handle(handle);
  return NULL;
}

int check_machine(const struct library *library) {
  if (check_processor(library->features, library->feature_count) != 0) return -1;
  return library->tiles ? ask_for_tiles() : 0;
}

/* Map and check the weights of all buckets; 0, or -1 with an error. */
static int open_weights(struct handle *handle, const char *path, const int *constants) {
  const struct library *library = handle->library;
  int checked = 0;
  if (weights_open(&handle->weights, path, library->buckets->sequence->layout, 0) != 0) return -1;
  for (int number = 0; number < library->bucket_count; ++number) {
    const struct bucket *bucket = &library->buckets[number];
    const int *numbers = constants == NULL ? bucket->constants : constants;
    if (!is_used(bucket)) continue;
    /* Constants of kernels for vectors may follow. */
    if (numbers == NULL && handle->weights.count < bucket->sequence->constant_count) {
      set_error("%s does not hold the weights of this library", path);
      return -1;
    }
    if (bucket->sequence->repacking_count == 0 && checked++) continue;
    if (packed_open(bucket->sequence, &handle->packed[number], &handle->weights, path, numbers,
                    handle->pool, handle->report) != 0) {
      return -1;
    }
  }
  return 0;
}

/* Make an instance; 0, or -1 with an error. */
static int open_instance(struct handle *handle, const int *constants) {
  const struct library *library = handle->library;
  int instance = handle->instances, threads = pool_threads(handle->pool);
  char *arena = arena_make(handle->arena_size + padded_bytes(library));
  if (arena == NULL) {
    set_error("there is not enough memory for the network");
    return -1;
  }
  handle->arenas[instance] = arena;
  handle->free[handle->free_count++] = instance;
  handle->instances = handle->free_count;
  for (int number = 0; number < library->bucket_count; ++number) {
    const struct bucket *bucket = &library->buckets[number];
    const int *numbers = constants == NULL ? bucket->constants : constants;
    if (!is_used(bucket)) continue;
    struct instance *opened = instance_open(bucket->sequence, &handle->weights,
                                            &handle->packed[number], numbers, threads, arena);
    if (opened == NULL) return -1;
    handle->all[instance * library->bucket_count + number] = opened;
  }
  return 0;
}

struct handle *open_handle(const struct library *library, const char *weights, int threads,
                           int instances, const int *constants) {
  set_error("%s", "");
  if (check_machine(library) != 0) return NULL;
  if (threads < 0 || instances < 1 || instances > MOST_INSTANCES) {
    set_error("a handle has 1 or more threads, or 0 for its own choice, and 1 to %d instances",
              MOST_INSTANCES);
    return NULL;
  }
  threads = chosen_threads(threads, library->threads_variable, library->threads);
  struct handle *handle = empty_handle(library, instances);
  if (handle == NULL || (handle->pool = pool_create(threads, instances)) == NULL) {
    set_error("there is not enough memory");
    destroy_handle(handle);
    return NULL;
  }
  for (int number = 0; number < library->bucket_count; ++number) {
    size_t size = (size_t)library->buckets[number].sequence->arena_size;
    if (size > handle->arena_size) handle->arena_size = size;
  }
  int status = open_weights(handle, weights, constants);
  while (status == 0 && handle->instances < instances) status = open_instance(handle, constants);
  if (status != 0) {
    destroy_handle(handle);
    return NULL;
  }
  pthread_mutex_lock(&handles_mutex);
  handle->next = handles;
  handles = handle;
  pthread_mutex_unlock(&handles_mutex);
  return handle;
}

static int take_instance(struct handle *handle) {
  pthread_mutex_lock(&handle->mutex);
  while (handle->free_count == 0) pthread_cond_wait(&handle->given_back, &handle->mutex);
  int number = handle->free[--handle->free_count];
  pthread_mutex_unlock(&handle->mutex);
  return number;
}

static void give_back(struct handle *handle, int number) {
  pthread_mutex_lock(&handle->mutex);
  handle->free[handle->free_count++] = number;
  pthread_cond_broadcast(&handle->given_back);
  pthread_mutex_unlock(&handle->mutex);
}

const char *report_of(const struct handle *handle) { return handle->report; }

int threads_of(const struct handle *handle) { return pool_threads(handle->pool); }

int run_handle(struct handle *handle, const struct request *request, void *const *given,
               int64_t *nanoseconds) {
  const struct library *library = handle->library;
  int is_padded = request->extents != NULL, number = take_instance(handle);
  struct instance *instance = handle->all[number * library->bucket_count + request->bucket];
  void *padded[(is_padded ? library->sizes->array_count : 0) + 1];
  if (is_padded) {
    pad_inputs(library, request, given, handle->arenas[number] + handle->arena_size, padded);
  }
  pool_enter(handle->pool);
  use_pool(handle->pool, number);
  use_workspaces(&handle->workspaces[number]);
  int status = instance_run(instance, is_padded ? padded : given, request->extent, nanoseconds);
  if (status != 0) workspaces_release(&handle->workspaces[number]);
  use_workspaces(NULL);
  use_pool(NULL, 0);
  pool_leave(handle->pool);
  if (is_padded && status == 0) cut_outputs(library, request, given, padded);
  give_back(handle, number);
  return status;
}
