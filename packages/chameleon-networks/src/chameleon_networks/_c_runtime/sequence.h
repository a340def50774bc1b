/* A network as a sequence of kernel calls; what run times need of it. */

#ifndef CHAMELEON_SEQUENCE_H
#define CHAMELEON_SEQUENCE_H

#include <stdint.h>

#include "runtime.h"

struct sequence;
struct tensor;
struct repacking;

/* The data that a constant is made of, or NULL if the weights have other data there. */
const char *repacked_data(const struct sequence *sequence, const struct weights *weights,
                          const int *numbers, const struct repacking *about);

/* Make all such constants; 0, or -1 with an error. Nobody else may be using the pool. */
int repack(const struct sequence *sequence, struct weights *packed, const struct weights *weights,
           const int *numbers, struct pool *pool);

/* Map these constants from the user's cache folder, or make them and write them there; and check the
 * file of weights `path`, but not the data that mapped constants were made of. 0, or -1 with an
 * error. `report`, of REPORT_BYTES, gets a sentence if they were made. */
#define REPORT_BYTES 5000
int packed_open(const struct sequence *sequence, struct weights *packed,
                const struct weights *weights, const char *path, const int *numbers,
                struct pool *pool, char *report);

/* The data of a constant, or NULL if the weights have another one there. */
char *constant_data(const struct sequence *sequence, const struct weights *weights,
                    const int *numbers, const struct tensor *tensor);

/* Memory for kernels, or NULL; large ones on huge pages, of which page tables reach more. */
char *arena_make(size_t size);

/* The state of one inference: tensors in its memory. */
struct instance;

/* An instance whose constants lie in `weights` and `packed`. `numbers` says which of the constants
 * there are the network's own, in its order; NULL if the first ones are. Parallel loops are cut for
 * `threads` threads. NULL with an error if there is no memory, or if the constants do not fit.
 * Instances that do not run at the same time may share the memory `arena`. */
struct instance *instance_open(const struct sequence *sequence, const struct weights *weights,
                               const struct weights *packed, const int *numbers, int threads,
                               char *arena);
void instance_close(struct instance *instance);

/* One inference. `given` are the data of the inputs, then of the outputs. Kernels compute `extent`
 * elements of the open axes, or all if it is 0. `times` gets the nanoseconds of each call, if it is
 * not NULL. If a number there is positive, the call is repeated so many times, and the nanoseconds are
 * those of a repetition on average. */
int instance_run(struct instance *instance, void *const *given, int extent, int64_t *times);

/* Where the memory of a tensor is. */
enum place { ARENA, CONSTANT, REPACKED, INPUT, OUTPUT };

struct tensor {
  enum place place;
  int32_t position; /* among the constants, the repacked ones, inputs or outputs */
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
  int32_t output; /* its number; the inputs before it have negative ones */
  int32_t tensor;
  int64_t size; /* bytes */
};

/* How a constant is made of another one. The element in a row and column of it comes from the same
 * row and column of the other; its place is the sum of the row's and of the column's. Elements that
 * come from nowhere are 0. */
struct repacking {
  int32_t constant; /* that it is made of */
  int32_t bytes;    /* of an element, if elements are moved as they are */
  int32_t parts;    /* of bfloat16 that a number of float32 is the sum of, or 0 */
  int32_t stride;   /* elements from a part of a number to its next one */
  int32_t rows, columns;
  int32_t first;   /* of the places: to each row, from each row, to each column, from each column */
  int64_t size;    /* bytes */
  int64_t needed;  /* bytes of the other constant */
};

/* What is special to a network; "tables.c" has it. */
struct sequence {
  int64_t layout;     /* of its weights */
  int64_t packing;    /* a digest of the constants that are made of others */
  int64_t arena_size; /* bytes */
  int32_t constant_count, input_count, tensor_count, bound_count, argument_count, call_count;
  int32_t copy_count, repacking_count;
  int32_t extent; /* the largest of a call; 0 if calls have none */
  const int64_t *extents, *strides; /* of all tensors */
  const struct tensor *tensors;
  const int32_t *bound;  /* the tensors that are inputs or outputs */
  const int32_t *passed; /* the tensors that are arguments of calls; -1 for a call's extent */
  const int64_t *loops;  /* the extents of parallel loops */
  const uint32_t *sums;  /* of its constants; 0 for any */
  const struct call *calls;
  const struct copy *copies;
  const struct repacking *repackings;
  const int32_t *places; /* of their elements */
  const char *kernels; /* their names in the order of calls, one a line */
};

#endif
