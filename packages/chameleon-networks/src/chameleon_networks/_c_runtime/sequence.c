/* Runs a network's kernels in their order on tensors that are prepared when it is opened.
 *
 * Kernels have the calling convention of TVM's FFI (tvm/ffi/c_api.h) and are called without
 * look-ups.
 */

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "sequence.h"

#define HUGE_PAGE (2u << 20)
#define ALIGNMENT 64u

struct instance {
  const struct sequence *sequence;
  DLTensor *tensors;
  TVMFFIAny *arguments;
  int *pieces; /* of each parallel loop */
};

char *arena_make(size_t size) {
  void *room = NULL;
  size_t alignment = size >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
  if (posix_memalign(&room, alignment, size + ALIGNMENT) != 0) return NULL;
  if (alignment == HUGE_PAGE) madvise(room, size, MADV_HUGEPAGE);
  return room;
}

void instance_close(struct instance *instance) {
  if (instance == NULL) return;
  free(instance->tensors);
  free(instance->arguments);
  free(instance->pieces);
  free(instance);
}

char *constant_data(const struct sequence *sequence, const struct weights *weights,
                    const int *numbers, const struct tensor *tensor) {
  int64_t number = numbers == NULL ? tensor->position : numbers[tensor->position];
  if (number < 0 || number >= weights->count) return NULL;
  uint32_t sum = sequence->sums[tensor->position];
  if (sum != 0 && sum != (uint32_t)weights->sums[number]) return NULL;
  int64_t start = weights->offsets[number], end = weights->offsets[number + 1];
  if (tensor->offset + tensor->size > end - start) return NULL;
  return (char *)weights->bytes + start + tensor->offset;
}

struct instance *instance_open(const struct sequence *sequence, const struct weights *weights,
                               const struct weights *packed, const int *numbers, int threads,
                               char *arena) {
  struct instance *instance = calloc(1, sizeof(*instance));
  int32_t loops = 0;
  for (int32_t number = 0; number < sequence->call_count; ++number) {
    int32_t end = sequence->calls[number].first_loop + sequence->calls[number].loops;
    if (end > loops) loops = end;
  }
  if (instance != NULL) {
    instance->sequence = sequence;
    instance->tensors = calloc((size_t)sequence->tensor_count + 1, sizeof(*instance->tensors));
    instance->arguments = calloc((size_t)sequence->argument_count + 1, sizeof(*instance->arguments));
    instance->pieces = calloc((size_t)loops + 1, sizeof(*instance->pieces));
  }
  if (instance == NULL || instance->tensors == NULL || instance->arguments == NULL ||
      instance->pieces == NULL) {
    instance_close(instance);
    set_error("there is not enough memory for the network");
    return NULL;
  }
  for (int32_t number = 0; number < sequence->tensor_count; ++number) {
    const struct tensor *tensor = &sequence->tensors[number];
    DLTensor *own = &instance->tensors[number];
    own->device = (DLDevice){kDLCPU, 0};
    own->dtype = tensor->dtype;
    own->ndim = tensor->rank;
    own->shape = (int64_t *)sequence->extents + tensor->first;
    own->strides = (int64_t *)sequence->strides + tensor->first;
    if (tensor->place == ARENA) own->data = arena + tensor->offset;
    if (tensor->place == REPACKED) {
      own->data = (char *)packed->bytes + packed->offsets[tensor->position] + tensor->offset;
    }
    if (tensor->place == CONSTANT) {
      own->data = constant_data(sequence, weights, numbers, tensor);
      if (own->data == NULL) {
        instance_close(instance);
        set_error("the file does not hold the weights of this library");
        return NULL;
      }
    }
  }
  for (int32_t number = 0; number < sequence->argument_count; ++number) {
    instance->arguments[number].type_index = kTVMFFIInt;
    if (sequence->passed[number] < 0) continue;
    instance->arguments[number].type_index = kTVMFFIDLTensorPtr;
    instance->arguments[number].v_ptr = &instance->tensors[sequence->passed[number]];
  }
  for (int32_t loop = 0; loop < loops; ++loop) {
    instance->pieces[loop] = pool_pieces(sequence->loops[loop], threads);
  }
  return instance;
}

static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int run_call(struct instance *instance, const struct call *call) {
  TVMFFIAny nothing = {.type_index = kTVMFFINone};
  expect_loops(instance->pieces + call->first_loop, call->loops);
  return call->kernel(NULL, instance->arguments + call->first, call->count, &nothing);
}

/* Run a call so many times more; the nanoseconds of one of them on average, or -1 if it fails. */
static int64_t repeated(struct instance *instance, const struct call *call, int64_t count) {
  int64_t before = nanoseconds();
  for (int64_t turn = 0; turn < count; ++turn) {
    if (run_call(instance, call) != 0) return -1;
  }
  return (nanoseconds() - before) / count;
}

/* Tell the kernels how much of their open axes a call computes. */
static void use_extent(struct instance *instance, int extent) {
  const struct sequence *sequence = instance->sequence;
  int64_t used = extent > 0 && extent < sequence->extent ? extent : sequence->extent;
  for (int32_t number = 0; number < sequence->argument_count; ++number) {
    if (sequence->passed[number] < 0) instance->arguments[number].v_int64 = used;
  }
}

int instance_run(struct instance *instance, void *const *given, int extent, int64_t *times) {
  const struct sequence *sequence = instance->sequence;
  if (sequence->extent > 0) use_extent(instance, extent);
  for (int32_t number = 0; number < sequence->bound_count; ++number) {
    int32_t bound = sequence->bound[number];
    const struct tensor *tensor = &sequence->tensors[bound];
    int32_t place = tensor->position + (tensor->place == INPUT ? 0 : sequence->input_count);
    instance->tensors[bound].data = (char *)given[place] + tensor->offset;
  }
  int64_t before = times == NULL ? 0 : nanoseconds();
  for (int32_t number = 0; number < sequence->call_count; ++number) {
    const struct call *call = &sequence->calls[number];
    int status = run_call(instance, call);
    if (status != 0) return status;
    if (times == NULL) continue;
    int64_t count = times[number], after = nanoseconds();
    times[number] = count > 0 ? repeated(instance, call, count) : after - before;
    if (times[number] < 0) return -1;
    before = nanoseconds();
  }
  for (int32_t number = 0; number < sequence->copy_count; ++number) {
    const struct copy *copy = &sequence->copies[number];
    memcpy(given[sequence->input_count + copy->output], instance->tensors[copy->tensor].data,
           (size_t)copy->size);
  }
  return 0;
}
