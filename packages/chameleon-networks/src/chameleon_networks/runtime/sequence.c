/* Runs a network's kernels in their order on tensors that are prepared when it is opened.
 *
 * "tables.h" is generated for each network; what it defines is described in source.py. Kernels
 * have the calling convention of TVM's FFI (tvm/ffi/c_api.h) and are called without look-ups.
 */

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <tvm/ffi/c_api.h>

#include "sequence.h"

/* Where the memory of a tensor is. */
enum place { ARENA, CONSTANT, INPUT, OUTPUT };

struct tensor {
  enum place place;
  int32_t position; /* among the constants, inputs or outputs */
  int64_t offset;   /* bytes */
  int64_t size;     /* bytes from there on that its elements lie in */
  int32_t rank;
  int32_t first; /* of its extents and strides */
  DLDataType dtype;
};

struct call {
  TVMFFISafeCallType kernel;
  int32_t first; /* of its arguments */
  int32_t count;
  int32_t first_loop; /* of its parallel loops' extents */
  int32_t loops;
};

struct copy {
  int32_t output;
  int32_t tensor;
  int64_t size; /* bytes */
};

#include "tables.h"

#define HUGE_PAGE (2u << 20)
#define ALIGNMENT 64u

const int32_t sequence_constants = CONSTANTS;
const int32_t sequence_calls = CALLS;
const int64_t sequence_layout = (int64_t)(LAYOUT);

struct instance {
  char *arena;
  DLTensor tensors[TENSORS + 1];
  TVMFFIAny arguments[ARGUMENTS + 1];
};

/* Memory for kernels; large ones on huge pages, of which the processor's page tables reach more. */
static char *memory(size_t size) {
  void *room = NULL;
  size_t alignment = size >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
  if (posix_memalign(&room, alignment, size + ALIGNMENT) != 0) return NULL;
  if (alignment == HUGE_PAGE) madvise(room, size, MADV_HUGEPAGE);
  return room;
}

void instance_close(struct instance *instance) {
  if (instance == NULL) return;
  free(instance->arena);
  free(instance);
}

/* The data of a constant, or NULL if the weights have another one there. */
static void *constant_data(const struct weights *weights, const int *numbers,
                           const struct tensor *tensor) {
  int64_t number = numbers == NULL ? tensor->position : numbers[tensor->position];
  if (number < 0 || number >= weights->count) return NULL;
  uint32_t sum = sums[tensor->position];
  if (sum != 0 && sum != (uint32_t)weights->sums[number]) return NULL;
  int64_t start = weights->offsets[number], end = weights->offsets[number + 1];
  if (tensor->offset + tensor->size > end - start) return NULL;
  return (char *)weights->bytes + start + tensor->offset;
}

struct instance *instance_open(const struct weights *weights, const int *numbers) {
  struct instance *instance = calloc(1, sizeof(*instance));
  if (instance == NULL || (instance->arena = memory(ARENA_SIZE)) == NULL) {
    instance_close(instance);
    set_error("there is not enough memory for the network");
    return NULL;
  }
  for (int32_t number = 0; number < TENSORS; ++number) {
    const struct tensor *tensor = &tensors[number];
    DLTensor *own = &instance->tensors[number];
    own->device = (DLDevice){kDLCPU, 0};
    own->dtype = tensor->dtype;
    own->ndim = tensor->rank;
    own->shape = (int64_t *)extents + tensor->first;
    own->strides = (int64_t *)strides + tensor->first;
    if (tensor->place == ARENA) own->data = instance->arena + tensor->offset;
    if (tensor->place == CONSTANT) {
      own->data = constant_data(weights, numbers, tensor);
      if (own->data == NULL) {
        instance_close(instance);
        set_error("the file does not hold the weights of this library");
        return NULL;
      }
    }
  }
  for (int32_t number = 0; number < ARGUMENTS; ++number) {
    instance->arguments[number].type_index = kTVMFFIDLTensorPtr;
    instance->arguments[number].v_ptr = &instance->tensors[passed[number]];
  }
  return instance;
}

static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int instance_run(struct instance *instance, void *const *given, int64_t *times) {
  for (int32_t number = 0; number < BOUND; ++number) {
    const struct tensor *tensor = &tensors[bound[number]];
    int32_t place = tensor->place == INPUT ? tensor->position : INPUTS + tensor->position;
    instance->tensors[bound[number]].data = (char *)given[place] + tensor->offset;
  }
  int64_t before = times == NULL ? 0 : nanoseconds();
  for (int32_t number = 0; number < CALLS; ++number) {
    const struct call *call = &calls[number];
    TVMFFIAny nothing = {.type_index = kTVMFFINone};
    expect_loops(loops + call->first_loop, call->loops);
    int status = call->kernel(NULL, instance->arguments + call->first, call->count, &nothing);
    if (status != 0) return status;
    if (times != NULL) {
      int64_t after = nanoseconds();
      times[number] = after - before;
      before = after;
    }
  }
  for (int32_t number = 0; number < COPIES; ++number) {
    memcpy(given[INPUTS + copies[number].output], instance->tensors[copies[number].tensor].data,
           (size_t)copies[number].size);
  }
  return 0;
}
