/* Runs a network's kernels in their order on tensors that are prepared when it is opened.
 *
 * "tables.h" is generated for each network; what it defines is described in source.py. Kernels
 * have the calling convention of TVM's FFI (tvm/ffi/c_api.h) and are called without look-ups.
 */

#if defined(__linux__)
#define _GNU_SOURCE
#include <sys/mman.h>
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tvm/ffi/c_api.h>

/* Where the memory of a tensor is. */
enum place { ARENA, CONSTANT, INPUT, OUTPUT };

struct tensor {
  enum place place;
  int32_t position; /* among the constants, inputs or outputs */
  int64_t offset;   /* bytes */
  int32_t rank;
  int32_t first; /* of its extents and strides */
  DLDataType dtype;
};

struct call {
  TVMFFISafeCallType kernel;
  int32_t first; /* of its arguments */
  int32_t count;
};

struct copy {
  int32_t output;
  int32_t tensor;
  int64_t size; /* bytes */
};

#include "tables.h"

#define GIVEN (INPUTS + OUTPUTS)
#define HUGE_PAGE (2u << 20)
#define ALIGNMENT 64u

struct network {
  char *arena;
  TVMFFIObjectHandle weights; /* a tensor that is the caller's, too */
  DLTensor tensors[TENSORS + 1];
  TVMFFIAny arguments[ARGUMENTS + 1];
};

static int fail(const char *kind, const char *message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

/* Memory for kernels; large ones on huge pages, of which the processor's page tables reach more. */
static char *memory(size_t size) {
  void *found = NULL;
  size_t alignment = size >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
  if (posix_memalign(&found, alignment, size + ALIGNMENT) != 0) return NULL;
#if defined(__linux__)
  if (alignment == HUGE_PAGE) madvise(found, size, MADV_HUGEPAGE);
#endif
  return found;
}

static void network_close(void *self) {
  struct network *network = self;
  if (network->weights != NULL) TVMFFIObjectDecRef(network->weights);
  free(network->arena);
  free(network);
}

static const DLTensor *tensor_of(const TVMFFIAny *argument) {
  if (argument->type_index == kTVMFFIDLTensorPtr) return argument->v_ptr;
  if (argument->type_index != kTVMFFITensor) return NULL;
  return (const DLTensor *)((const char *)argument->v_ptr + sizeof(TVMFFIObject));
}

/* The tensor of an argument, or NULL where it is not what the network was compiled for. */
static const DLTensor *given_tensor(const TVMFFIAny *argument, const DLTensor *wanted) {
  const DLTensor *found = tensor_of(argument);
  if (found == NULL || found->device.device_type != kDLCPU || found->ndim != wanted->ndim ||
      memcmp(&found->dtype, &wanted->dtype, sizeof(DLDataType)) != 0) {
    return NULL;
  }
  for (int32_t axis = 0; axis < wanted->ndim; ++axis) {
    if (found->shape[axis] != wanted->shape[axis]) return NULL;
    if (found->strides != NULL && wanted->shape[axis] != 1 &&
        found->strides[axis] != wanted->strides[axis]) {
      return NULL;
    }
  }
  return found;
}

static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Arguments: the inputs, the outputs, and where each kernel is to be timed an int64 tensor for its
 * nanoseconds. */
static int network_run(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result) {
  struct network *network = self;
  char *places[GIVEN + 1];
  int64_t *times = NULL;
  if (count != GIVEN && count != GIVEN + 1) {
    return fail("TypeError", "a network takes its inputs and its outputs");
  }
  for (int32_t number = 0; number < GIVEN; ++number) {
    DLTensor wanted = {.ndim = given[number].rank, .dtype = given[number].dtype};
    wanted.shape = (int64_t *)extents + given[number].first;
    wanted.strides = (int64_t *)strides + given[number].first;
    const DLTensor *found = given_tensor(&arguments[number], &wanted);
    if (found == NULL) {
      char message[128];
      snprintf(message, sizeof(message),
               "%s %d has another shape, type or device than the network's, or has gaps",
               number < INPUTS ? "input" : "output",
               (int)(number < INPUTS ? number : number - INPUTS));
      return fail("ValueError", message);
    }
    places[number] = (char *)found->data + found->byte_offset;
  }
  if (count == GIVEN + 1) {
    static const int64_t one_each[1] = {CALLS}, dense[1] = {1};
    DLTensor wanted = {.ndim = 1, .dtype = {kDLInt, 64, 1}};
    wanted.shape = (int64_t *)one_each;
    wanted.strides = (int64_t *)dense;
    const DLTensor *found = given_tensor(&arguments[GIVEN], &wanted);
    if (found == NULL) return fail("ValueError", "times need an int64 tensor, one per call");
    times = (int64_t *)((char *)found->data + found->byte_offset);
  }
  for (int32_t number = 0; number < BOUND; ++number) {
    const struct tensor *tensor = &tensors[bound[number]];
    int32_t place = tensor->place == INPUT ? tensor->position : INPUTS + tensor->position;
    network->tensors[bound[number]].data = places[place] + tensor->offset;
  }
  int64_t before = times == NULL ? 0 : nanoseconds();
  for (int32_t number = 0; number < CALLS; ++number) {
    const struct call *call = &calls[number];
    TVMFFIAny nothing = {.type_index = kTVMFFINone};
    int status = call->kernel(NULL, network->arguments + call->first, call->count, &nothing);
    if (status != 0) return status;
    if (times != NULL) {
      int64_t after = nanoseconds();
      times[number] = after - before;
      before = after;
    }
  }
  for (int32_t number = 0; number < COPIES; ++number) {
    memcpy(places[INPUTS + copies[number].output], network->tensors[copies[number].tensor].data,
           copies[number].size);
  }
  *result = (TVMFFIAny){.type_index = kTVMFFINone};
  return 0;
}

/* The network as a function, with memory of its own. Arguments: a tensor of bytes that holds the
 * constants, and one of int64 that says where in it each of them begins. */
TVM_FFI_DLL_EXPORT int __tvm_ffi_network_open(void *self, const TVMFFIAny *arguments,
                                              int32_t count, TVMFFIAny *result) {
  (void)self;
  if (count != 2 || arguments[0].type_index != kTVMFFITensor ||
      arguments[1].type_index != kTVMFFITensor) {
    return fail("TypeError", "a network is opened with its constants and their places");
  }
  const DLTensor *constants = tensor_of(&arguments[0]), *places = tensor_of(&arguments[1]);
  if (places->ndim != 1 || places->shape[0] != CONSTANTS || places->dtype.bits != 64) {
    return fail("ValueError", "the weights are not those of this network");
  }
  const int64_t *starts = (const int64_t *)((const char *)places->data + places->byte_offset);
  struct network *network = calloc(1, sizeof(struct network));
  if (network == NULL || (network->arena = memory(ARENA_SIZE)) == NULL) {
    free(network);
    return fail("MemoryError", "there is not enough memory for the network");
  }
  network->weights = arguments[0].v_obj;
  TVMFFIObjectIncRef(network->weights);
  for (int32_t number = 0; number < TENSORS; ++number) {
    const struct tensor *tensor = &tensors[number];
    DLTensor *made = &network->tensors[number];
    made->device = (DLDevice){kDLCPU, 0};
    made->dtype = tensor->dtype;
    made->ndim = tensor->rank;
    made->shape = (int64_t *)extents + tensor->first;
    made->strides = (int64_t *)strides + tensor->first;
    if (tensor->place == ARENA) made->data = network->arena + tensor->offset;
    if (tensor->place == CONSTANT) {
      made->data = (char *)constants->data + constants->byte_offset + starts[tensor->position] +
                   tensor->offset;
    }
  }
  for (int32_t number = 0; number < ARGUMENTS; ++number) {
    network->arguments[number].type_index = kTVMFFIDLTensorPtr;
    network->arguments[number].v_ptr = &network->tensors[passed[number]];
  }
  TVMFFIObjectHandle made = NULL;
  int status = TVMFFIFunctionCreate(network, network_run, network_close, &made);
  if (status != 0) {
    network_close(network);
    return status;
  }
  *result = (TVMFFIAny){.type_index = kTVMFFIFunction, .v_obj = made};
  return 0;
}

/* Names of the kernels in the order they are called, one a line. */
TVM_FFI_DLL_EXPORT int __tvm_ffi_network_kernels(void *self, const TVMFFIAny *arguments,
                                                 int32_t count, TVMFFIAny *result) {
  (void)self, (void)arguments, (void)count;
  TVMFFIByteArray names = {kernel_names, sizeof(kernel_names) - 1};
  return TVMFFIStringFromByteArray(&names, result);
}
