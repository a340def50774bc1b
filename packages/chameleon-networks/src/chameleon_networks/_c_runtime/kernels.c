/* What kernels call that TVM compiled for CPUs: parallel loops and workspaces of TVM's run time
 * (tvm/runtime/c_backend_api.h), and errors of TVM's FFI (tvm/ffi/c_api.h). */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

#include "runtime.h"

#define PAGE 4096u /* granularity of workspaces in bytes, and their alignment: those of TVM */
#define ALIGNMENT 64u

static _Thread_local char error[512];

static _Thread_local struct {
  struct pool *pool;
  int job;
  struct workspaces *workspaces;
  const int *pieces; /* of the parallel loops of the kernel that runs */
  int loops;
  int loop; /* the next one */
} own;

const char *last_error(void) { return error; }

void set_error(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(error, sizeof(error), format, values);
  va_end(values);
}

void use_workspaces(struct workspaces *workspaces) { own.workspaces = workspaces; }

void use_pool(struct pool *pool, int job) {
  own.pool = pool;
  own.job = job;
}

void expect_loops(const int *pieces, int count) {
  own.pieces = pieces;
  own.loops = count;
  own.loop = 0;
}

/* A kernel's parallel loops come in the order of its text, again and again if a loop is around
 * them. Which loop's pieces are taken decides on speed alone: any number of them is right. */
static int next_pieces(const struct pool *pool) {
  if (own.loops == 0) return pool_threads(pool);
  if (own.loop == own.loops) own.loop = 0;
  return own.pieces[own.loop++];
}

static int launch(FTVMParallelLambda lambda, void *data, int tasks) {
  struct pool *pool = own.pool;
  if (pool == NULL) {
    set_error("a parallel loop was begun inside of another one");
    return -1;
  }
  int pieces = next_pieces(pool);
  if (tasks > 0) pieces = tasks;
  own.pool = NULL;
  int status = pool_run(pool, own.job, lambda, data, pieces > MOST_PIECES ? MOST_PIECES : pieces);
  own.pool = pool;
  return status;
}

/* The smallest free block that is large enough; else a free one grows, or there is one more. */
static void *workspace(int device_type, int device, uint64_t bytes, int code, int bits) {
  (void)device_type, (void)device, (void)code, (void)bits;
  struct workspaces *all = own.workspaces;
  if (all == NULL) return NULL;
  size_t size = bytes == 0 ? PAGE : (bytes + PAGE - 1) / PAGE * PAGE;
  int best = -1, largest = -1;
  for (int block = 0; block < all->count; ++block) {
    if (all->blocks[block].taken) continue;
    if (largest < 0 || all->blocks[block].size > all->blocks[largest].size) largest = block;
    if (all->blocks[block].size < size) continue;
    if (best < 0 || all->blocks[block].size < all->blocks[best].size) best = block;
  }
  if (best < 0) {
    void *memory = NULL;
    if (posix_memalign(&memory, ALIGNMENT, size) != 0) return NULL;
    if (largest < 0) {
      void *more = realloc(all->blocks, (size_t)(all->count + 1) * sizeof(*all->blocks));
      if (more == NULL) {
        free(memory);
        return NULL;
      }
      all->blocks = more;
      largest = all->count++;
    } else {
      free(all->blocks[largest].memory);
    }
    best = largest;
    all->blocks[best].memory = memory;
    all->blocks[best].size = size;
  }
  all->blocks[best].taken = 1;
  return all->blocks[best].memory;
}

static int free_workspace(int device_type, int device, void *memory) {
  (void)device_type, (void)device;
  for (int block = 0; block < own.workspaces->count; ++block) {
    if (own.workspaces->blocks[block].memory == memory) own.workspaces->blocks[block].taken = 0;
  }
  return 0;
}

void workspaces_release(struct workspaces *workspaces) {
  for (int block = 0; block < workspaces->count; ++block) workspaces->blocks[block].taken = 0;
}

void workspaces_free(struct workspaces *workspaces) {
  for (int block = 0; block < workspaces->count; ++block) free(workspaces->blocks[block].memory);
  free(workspaces->blocks);
  *workspaces = (struct workspaces){0};
}

/* Kernels check their arguments and raise errors by these two names. */
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) {
  set_error("%s: %s", kind, message);
}

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  set_error("%s: ", kind);
  for (int32_t part = 0; part < count; ++part) {
    strncat(error, parts[part], sizeof(error) - strlen(error) - 1);
  }
}

/* Pointers that objects have which need them, and which TVM's loader would set. */
#define OPTIONAL extern __attribute__((weak, visibility("hidden")))
OPTIONAL int (*__TVMBackendParallelLaunch)(FTVMParallelLambda, void *, int);
OPTIONAL void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
OPTIONAL int (*__TVMBackendFreeWorkspace)(int, int, void *);

__attribute__((constructor)) static void connect_kernels(void) {
  if (&__TVMBackendParallelLaunch != NULL) __TVMBackendParallelLaunch = launch;
  if (&__TVMBackendAllocWorkspace != NULL) __TVMBackendAllocWorkspace = workspace;
  if (&__TVMBackendFreeWorkspace != NULL) __TVMBackendFreeWorkspace = free_workspace;
}
