/* What the parts of the run time of a delivered network share. None of it is visible outside of the
 * library. */

#ifndef CHAMELEON_RUNTIME_H
#define CHAMELEON_RUNTIME_H

#include <stddef.h>
#include <stdint.h>
#include <tvm/ffi/c_api.h>

#include "pool.h"

/* The last error of this thread; never NULL. */
const char *last_error(void);
void set_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Memory that kernels need while they run, kept between calls as TVM's run time keeps it. */
struct workspaces {
  struct {
    void *memory;
    size_t size; /* bytes */
    int taken;
  } *blocks;
  int count;
};

void workspaces_free(struct workspaces *workspaces);

/* Take back what a kernel that failed has not given back. */
void workspaces_release(struct workspaces *workspaces);

/* Memory for the kernels that this thread runs from now on; NULL for none. */
void use_workspaces(struct workspaces *workspaces);

/* Parallel loops of kernels that this thread calls run on `pool` as caller `job`; NULL for none. */
void use_pool(struct pool *pool, int job);

/* The pieces of each parallel loop of the kernel that this thread calls next, in their order. */
void expect_loops(const int *pieces, int count);

/* A file of weights, mapped into memory that all processes share which map it. */
struct weights {
  const char *bytes;
  size_t size;
  int64_t count;          /* of constants */
  const int64_t *offsets; /* of the constants in the file, then its size */
  const int64_t *sums;    /* their checksums */
};

/* Whether a file belongs to the user of this process, and nobody else may write it. */
int is_own_file(int file);

/* Map a file, with `own` only if it is the user's own one; 0, or -1 with an error. `layout` says
 * which library's weights they have to be. */
int weights_open(struct weights *weights, const char *path, int64_t layout, int own);

/* Compare a file's constants with their checksums, or with `needed` those that are marked there;
 * 0, or -1 with an error. */
int weights_check(const struct weights *weights, const char *path, const char *needed, int threads);

/* Make the content of a file in memory of this process, with constants of some sizes in bytes, which
 * are 0 at first; 0, or -1 with an error. `weights_seal` then computes their checksums. */
int weights_make(struct weights *weights, int64_t layout, const int64_t *sizes, int64_t count);
void weights_seal(struct weights *weights);

void weights_close(struct weights *weights);

/* A feature of the processor, which an emulator has or lacks whatever /proc/cpuinfo shows. On ARM,
 * `leaf` is the number of a word of the system's auxiliary vector. */
struct feature {
  const char *name;       /* LLVM's */
  uint32_t leaf, subleaf; /* of CPUID */
  int where, bit;         /* the register, EAX first, and its bit */
  uint32_t saved;         /* bits of XCR0: registers that the system has to save */
};

/* See that the processor has some features; 0, or -1 with an error. */
int check_processor(const struct feature *features, int count);

/* Ask the system for AMX's tiles, for all threads of this process; 0, or -1 with an error. */
int ask_for_tiles(void);

/* How many threads this process may use: its cores, within the limits of its control groups. */
int usable_threads(void);

/* The number of threads for a network: `asked` if it is positive, else the variable `name`, else
 * OMP_NUM_THREADS or `measured`, of which the last two are limited to the usable ones. */
int chosen_threads(int asked, const char *name, int measured);

#endif
