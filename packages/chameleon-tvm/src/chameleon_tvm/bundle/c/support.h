/* What the parts of a bundle's run time share: errors, the workspaces of a thread, the threads of a
 * handle. None of it is visible outside of the library. */

#ifndef CHAMELEON_BUNDLE_SUPPORT_H
#define CHAMELEON_BUNDLE_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

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

/* Threads that run parallel loops together with the one that calls. */
struct pool;

struct pool *pool_create(int threads); /* NULL where there is no memory or no thread */
void pool_destroy(struct pool *pool);

/* What kernels that this thread calls use from now on; NULLs for none. */
void use(struct pool *pool, struct workspaces *workspaces);

#endif
