/* @title@
 *
 * Made by `chameleon export --to c`. Plain C; the library needs nothing but the C library.
 * A handle has memory and threads of its own: several may run at the same time, each in one thread
 * at a time. Weights are read for each handle.
 */

#ifndef @guard@
#define @guard@

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct @name@_handle @name@_handle;

typedef struct {
  const char *name;
  const char *dtype; /* as NumPy names it */
  int rank;
  const int64_t *shape; /* `rank` extents; elements lie one after the other, the last axis first */
  size_t bytes;
} @name@_tensor;

/* A handle, or NULL where there is an error. `weights` is the file weights.bin; `threads` is how
 * many there are, the one that calls among them: 0 for as many as the kernels were measured with. */
@name@_handle *@name@_create(const char *weights, int threads);

/* Compute the outputs of some inputs; 0, or -1 where there is an error. There is a pointer for each
 * input and output, of the alignment of its elements. */
int @name@_run(@name@_handle *handle, const void *const *inputs, void *const *outputs);

void @name@_destroy(@name@_handle *handle);

int @name@_input_count(void);
int @name@_output_count(void);

/* What an input or output is; NULL where there is no such number. */
const @name@_tensor *@name@_input(int number);
const @name@_tensor *@name@_output(int number);

/* What went wrong in the last call of this thread; empty where nothing did. */
const char *@name@_error(void);

#ifdef __cplusplus
}
#endif

#endif
