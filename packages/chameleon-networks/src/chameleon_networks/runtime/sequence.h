/* A network as a sequence of kernel calls; what run times need of it. */

#ifndef CHAMELEON_SEQUENCE_H
#define CHAMELEON_SEQUENCE_H

#include <stdint.h>

#include "runtime.h"

/* The state of one inference: memory for its kernels, and tensors in it. */
struct instance;

/* An instance whose constants lie in `weights`. `numbers` says which of the constants there are the
 * network's own, in its order; NULL if all are. NULL with an error if there is no memory, or if
 * the constants do not fit. */
struct instance *instance_open(const struct weights *weights, const int *numbers);
void instance_close(struct instance *instance);

/* One inference. `given` are the data of the inputs, then of the outputs; `times` gets the
 * nanoseconds of each call, if it is not NULL. */
int instance_run(struct instance *instance, void *const *given, int64_t *times);

extern const int32_t sequence_constants; /* how many the network has */
extern const int32_t sequence_calls;
extern const int64_t sequence_layout; /* of its weights */
extern const char sequence_kernels[]; /* their names in the order of calls, one a line */

#endif
