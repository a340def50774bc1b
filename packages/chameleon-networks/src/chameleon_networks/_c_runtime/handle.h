/* Handles of a delivered library, which header.h describes. */

#ifndef CHAMELEON_HANDLE_H
#define CHAMELEON_HANDLE_H

#include "runtime.h"

struct handle;

/* What is special to a library, besides its sequence. */
struct library {
  const struct feature *features; /* that the processor must have */
  int feature_count;
  int tiles;                    /* whether kernels use AMX's tiles */
  const char *threads_variable; /* of the environment */
  int threads;                  /* that kernels were measured with */
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

/* One inference, as `instance_run` describes it. */
int run_handle(struct handle *handle, void *const *given, int extent, int64_t *nanoseconds);

#endif
