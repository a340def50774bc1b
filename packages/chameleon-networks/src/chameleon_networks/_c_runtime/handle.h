/* Handles of a delivered library, which header.h describes. */

#ifndef CHAMELEON_HANDLE_H
#define CHAMELEON_HANDLE_H

#include "runtime.h"

struct handle;
struct sequence;
struct sizes;

/* One of the networks of a library, which are compiled for different sizes. */
struct bucket {
  const struct sequence *sequence;
  const int *constants;   /* their numbers in the file of weights; NULL if they are the first ones */
  const int64_t *extents; /* of each dimension */
  int tiles; /* 1 if it needs AMX's tiles, -1 if it is used only if the system refuses them, else 0 */
};

/* What is special to a library. */
struct library {
  const struct feature *features; /* that the processor must have */
  int feature_count;
  int tiles;                    /* whether kernels use AMX's tiles */
  const char *threads_variable; /* of the environment */
  int threads;                  /* that kernels were measured with */
  const struct bucket *buckets;
  int bucket_count;
  const struct sizes *sizes; /* of inputs and outputs; NULL if they are fixed */
};

/* See that this machine can run a library; 0, or -1 with an error. */
int check_machine(const struct library *library);

/* See header.h for both. */
struct handle *open_handle(const struct library *library, const char *weights, int threads,
                           int instances, const int *constants);
void destroy_handle(struct handle *handle);

/* What to tell the user about packed weights; empty if nothing. */
const char *report_of(const struct handle *handle);

int threads_of(const struct handle *handle);

/* A call: its bucket, the part of its open axes that kernels compute, or 0 for all; and its extents
 * if its arrays are smaller than those of the bucket, else NULL. */
struct request {
  int bucket;
  int extent;
  const int64_t *extents;
};

/* One inference, as `instance_run` describes it. */
int run_handle(struct handle *handle, const struct request *request, void *const *given,
               int64_t *nanoseconds);

#endif
