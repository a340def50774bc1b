/* Calls of a library in buckets whose kernels the test in Python stands for. */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "names.h"

#define EXPORTED __attribute__((visibility("default")))

static const struct library library = {features, FEATURES, TILES, THREADS_VARIABLE, THREADS,
                                       buckets,  BUCKETS,  SIZES};
static char error[512];
static struct request request;

EXPORTED int has_tiles;

int ask_for_tiles(void) { return has_tiles ? 0 : -1; }

void set_error(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(error, sizeof(error), format, values);
  va_end(values);
}

EXPORTED const char *last_sentence(void) { return error; }

EXPORTED long memory_size(void) { return (long)padded_bytes(&library); }

/* The bucket of a call, or -1. `inside` gets the arrays that its kernels have. */
EXPORTED int begin(const int64_t *extents, void *const *given, char *memory, void **inside) {
  if (choose_bucket(&library, extents, &request) != 0) return -1;
  memcpy(inside, given, sizeof(*given) * (INPUTS + OUTPUTS));
  if (request.extents != NULL) pad_inputs(&library, &request, given, memory, inside);
  return request.bucket;
}

EXPORTED int end(void *const *given, void *const *inside) {
  if (request.extents != NULL) cut_outputs(&library, &request, given, inside);
  return request.extent;
}

EXPORTED long shape(int array, const int64_t *extents, int64_t *result) {
  return (long)shape_of(&sizes, array, extents, result);
}
