/* @title@
 *
 * Made by `chameleon export --to c`. Plain C; the library needs nothing but the C library.
 * A handle has weights, threads, and memory for some inferences at the same time. Any thread may
 * use it; a call waits while all of that memory is in use. A child process of a fork may go on using
 * it. Processes that open the same file of weights share its memory. All threads compute in the
 * floating-point mode of the thread that calls: its rounding, and whether subnormal numbers are zeros.
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

/* A handle, or NULL if there is an error. `weights` is the file weights.bin, all of which is checked.
 * `threads` is how many there are, the one that calls among them. If it is 0, the environment
 * variable @variable@ says it, else OMP_NUM_THREADS, else it is as many as the
 * kernels were measured with; the last two are limited to what the process may use. */
@name@_handle *@name@_create(const char *weights, int threads);

@fixed@
/* The same for `instances` inferences at a time. `constants` is NULL, or has for each of
 * `@name@_constant_count()` constants its number in a file that other libraries use as well. */
@name@_handle *@name@_open(const char *weights, int threads, int instances, const int *constants);
int @name@_constant_count(void);
@sized@
/* The same for `instances` inferences at a time. */
@name@_handle *@name@_open(const char *weights, int threads, int instances);

/* The sizes of a call. An input that is smaller than those that the kernels were compiled for is
 * copied, and so are its outputs. */
typedef struct {
@extents_members@
} @name@_extents;
@end@

/* Why this machine cannot run the kernels, such as a feature that its CPU lacks; NULL if it can. */
const char *@name@_refusal(void);

/* How many threads a handle has. */
int @name@_threads(const @name@_handle *handle);

/* Compute the outputs of some inputs; 0, or -1 if there is an error. There is a pointer for each
 * input and output, of the alignment of its elements. The memory of an output must overlap neither
 * that of an input nor that of another output, since kernels read and write in any order. Inputs may
 * overlap each other. */
int @name@_run(@name@_handle *handle, const void *const *inputs, void *const *outputs@and_extents@);

/* The same with the names of inputs and outputs, each of which needs its pointer:
 *   @name@_inputs inputs = {.@first_input@ = data};
 *   @name@_outputs outputs = {.@first_output@ = answers};
 *   int status = @name@_run_named(handle, &inputs, &outputs@and_address@);
 * A pointer that is left out is NULL, which is an error. 16-bit floats are bits in `uint16_t`. */
typedef struct {
@input_members@
} @name@_inputs;

typedef struct {
@output_members@
} @name@_outputs;

static inline int @name@_run_named(@name@_handle *handle, const @name@_inputs *inputs,
                                   const @name@_outputs *outputs@and_extents@) {
  const void *const given[] = {@input_values@};
  void *const made[] = {@output_values@};
  (void)inputs, (void)outputs;
  return @name@_run(handle, given, made@and_value@);
}

/* As `@name@_run`; `nanoseconds` gets the time of each of `@name@_call_count()` kernel calls, whose names
 * `@name@_kernels()` has, one a line. Its numbers are 0 before. A positive number is how often the
 * call is repeated, for the average time of a repetition; the outputs are then undefined. */
int @name@_profile(@name@_handle *handle, const void *const *inputs, void *const *outputs,
                   int64_t *nanoseconds@and_extents@);
int @name@_call_count(@only_extents@);
const char *@name@_kernels(@only_extents@);

/* Wait for inferences that run, end the threads and give back the memory. */
void @name@_destroy(@name@_handle *handle);

int @name@_input_count(void);
int @name@_output_count(void);

@fixed@
/* What an input or output is; NULL if there is no such number. */
@sized@
/* What an input or output is in a call of some extents; NULL if there is no such number, or if the
 * network does not take them. The result is valid until this thread asks for the same one again. */
@end@
const @name@_tensor *@name@_input(int number@and_extents@);
const @name@_tensor *@name@_output(int number@and_extents@);

/* What went wrong in the last call of this thread; empty if nothing did. */
const char *@name@_error(void);

#ifdef __cplusplus
}
#endif

#endif
