/* A network of one kernel that may fail: `handle_test WEIGHTS SCENARIO`. */

#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "handle.h"
#include "sequence.h"

#define CHECK(condition)                                             \
  do {                                                               \
    if (condition) break;                                            \
    fprintf(stderr, "line %d: not %s\n", __LINE__, #condition);      \
    exit(1);                                                         \
  } while (0)

#define THREADS 3
#define BYTES (1 << 20)

/* The run time sets them, as it does for kernels that TVM compiled. */
int (*__TVMBackendParallelLaunch)(FTVMParallelLambda, void *, int);
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
int (*__TVMBackendFreeWorkspace)(int, int, void *);

/* The workspaces of the last inference, of the kernel and of each piece, which runs on a thread of
 * its own. */
static void *own_block, *blocks[THREADS];
static _Atomic int present;

static int fail_in_piece(int piece, TVMParallelGroupEnv *environment, void *data) {
  (void)environment, (void)data;
  void *block = __TVMBackendAllocWorkspace(1, 0, BYTES, 0, 0);
  CHECK(block != NULL);
  blocks[piece] = block;
  ++present;
  while (present < THREADS) continue;
  set_error("piece %d failed", piece);
  return -1;
}

static int fail(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result) {
  (void)self, (void)arguments, (void)count, (void)result;
  present = 0;
  own_block = __TVMBackendAllocWorkspace(1, 0, BYTES, 0, 0);
  CHECK(own_block != NULL);
  return __TVMBackendParallelLaunch(fail_in_piece, NULL, THREADS);
}

static const struct call calls[] = {{(TVMFFISafeCallType)fail, 0, 0, 0, 0}};
static const struct sequence sequence = {
    .arena_size = 64, .constant_count = 1, .call_count = 1, .calls = calls};
static const struct bucket bucket = {.sequence = &sequence};
static const struct library library = {
    .threads_variable = "", .threads = THREADS, .buckets = &bucket, .bucket_count = 1};

/* What the linker has the run time call instead of the system. */
static int started;
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *argument) {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  CHECK(sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGALRM));
  CHECK(!sigismember(&blocked, SIGSEGV));
  ++started;
  return __real_pthread_create(thread, attributes, start, argument);
}

static int refuses_files, mapped;
void *__real_mmap(void *, size_t, int, int, int, off_t);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
  if (refuses_files && file >= 0) return MAP_FAILED;
  mapped += refuses_files;
  return __real_mmap(at, size, protection, flags, file, offset);
}

int __real_munmap(void *, size_t);
int __wrap_munmap(void *at, size_t size) {
  mapped -= refuses_files;
  return __real_munmap(at, size);
}

static void test_workspaces(struct handle *handle) {
  void *first[THREADS + 1];
  for (int inference = 0; inference < 20; ++inference) {
    struct request request = {0, 0, NULL};
    CHECK(run_handle(handle, &request, NULL, NULL) == -1);
    CHECK(strstr(last_error(), "failed") != NULL);
    void *now[] = {own_block, blocks[0], blocks[1], blocks[2]};
    if (inference == 0) memcpy(first, now, sizeof(first));
    /* Another thread may run a piece, but no thread ever takes more memory. */
    for (int one = 0; one <= THREADS; ++one) {
      int known = 0;
      for (int other = 0; other <= THREADS; ++other) known |= now[one] == first[other];
      CHECK(known);
    }
  }
}

int main(int count, char **words) {
  CHECK(count == 3);
  refuses_files = strcmp(words[2], "unmapped") == 0;
  struct handle *handle = open_handle(&library, words[1], THREADS, 1, NULL);
  if (handle == NULL) puts(last_error());
  if (refuses_files) CHECK(handle == NULL && mapped == 0);
  if (strcmp(words[2], "workspaces") == 0) {
    CHECK(handle != NULL && started == THREADS - 1); /* of those that check the weights */
    test_workspaces(handle);
    CHECK(started == 2 * (THREADS - 1));
  }
  destroy_handle(handle);
  return 0;
}
