/* A network as a sequence of kernel calls; what run times need of it. */

#ifndef CHAMELEON_SEQUENCE_H
#define CHAMELEON_SEQUENCE_H

#include <stdint.h>

#include "runtime.h"

/* The state of one inference: memory for its kernels, and tensors in it. */
struct instance;

/* An instance whose constants lie in `weights`. `numbers` says which of the constants there are the
 * network's own, in its order; NULL if all are. Parallel loops are cut for `threads` threads. NULL
 * with an error if there is no memory, or if the constants do not fit. */
struct instance *instance_open(const struct weights *weights, const int *numbers, int threads);
void instance_close(struct instance *instance);

/* One inference. `given` are the data of the inputs, then of the outputs; `times` gets the
 * nanoseconds of each call, if it is not NULL. */
int instance_run(struct instance *instance, void *const *given, int64_t *times);

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

/* What is special to a network; "tables.c" has it. */
struct sequence {
  int64_t layout;     /* of its weights */
  int64_t arena_size; /* bytes */
  int32_t constant_count, input_count, tensor_count, bound_count, argument_count, call_count;
  int32_t copy_count;
  const int64_t *extents, *strides; /* of all tensors */
  const struct tensor *tensors;
  const int32_t *bound;  /* the tensors that are inputs or outputs */
  const int32_t *passed; /* the tensors that are arguments of calls */
  const int64_t *loops;  /* the extents of parallel loops */
  const uint32_t *sums;  /* of its constants; 0 for any */
  const struct call *calls;
  const struct copy *copies;
  const char *kernels; /* their names in the order of calls, one a line */
};

extern const struct sequence sequence;

#endif
