/* Calls of different sizes, each of which a bucket computes: one of a library's networks. */

#ifndef CHAMELEON_SIZES_H
#define CHAMELEON_SIZES_H

#include "handle.h"

/* Axes of inputs that always have the same extent. */
struct dimension {
  const char *name;
  int is_padded;      /* whether a smaller input is padded to the next bucket */
  const char *extents; /* in words */
};

/* An axis, whose extent is `factor`, or follows from a dimension: (n + more) / stride for each of its
 * steps, times `factor`. */
struct axis {
  int32_t dimension; /* or -1 */
  int32_t first, count; /* of its steps */
  int64_t factor;
  uint64_t pad; /* the bits of the element after an input */
};

struct step {
  int64_t more, stride;
};

struct form {
  int32_t rank;
  int32_t bytes; /* of an element */
  const struct axis *axes;
};

struct sizes {
  int dimension_count, input_count, array_count;
  const struct dimension *dimensions;
  const struct form *arrays; /* inputs, then outputs */
  const struct step *steps;
};

/* Whether a bucket is used on this machine. */
int is_used(const struct bucket *bucket);

/* Find the bucket that computes a call of some extents, one for each dimension; 0, or -1 with an
 * error. */
int choose_bucket(const struct library *library, const int64_t *extents, struct request *request);

/* Find the shape of an array for some extents; its bytes. */
size_t shape_of(const struct sizes *sizes, int array, const int64_t *extents, int64_t *shape);

/* Bytes that a call's arrays need in the largest bucket. */
size_t padded_bytes(const struct library *library);

/* Give each array of a call the memory that a bucket's kernels read or write: padded copies of its
 * inputs in `memory`, room for its outputs there, or else the caller's own. */
void pad_inputs(const struct library *library, const struct request *request, void *const *given,
                char *memory, void **padded);

/* Copy the parts of the outputs that belong to the call. */
void cut_outputs(const struct library *library, const struct request *request, void *const *given,
                 void *const *padded);

#endif
