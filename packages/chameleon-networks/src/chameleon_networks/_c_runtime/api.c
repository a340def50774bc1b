/* The functions of a delivered library, whose names "names.h" gives; header.h describes them.
 *
 * A C compiler reads this file for each library, so it has only what depends on the names.
 */

#include "names.h"
#include "handle.h"
#include "sequence.h"

#define GIVEN (INPUTS + OUTPUTS)

/* In a library of several buckets, calls have extents. */
#if DIMENSIONS
#define ONLY_EXTENTS const EXTENTS *extents
#define AND_EXTENTS , ONLY_EXTENTS
#define CALLED extents
#else
#define ONLY_EXTENTS void
#define AND_EXTENTS
#define CALLED NULL
#endif

static const struct library library = {features, FEATURES, TILES, THREADS_VARIABLE, THREADS,
                                       buckets,  BUCKETS,  SIZES};

static int find_bucket(const void *extents, struct request *request) {
  *request = (struct request){0};
  set_error("%s", "");
  return DIMENSIONS ? choose_bucket(&library, extents, request) : 0;
}

static const TENSOR *describe(int number, int first, int count, const void *extents) {
  struct request request;
  if (number < 0 || number >= count || find_bucket(extents, &request) != 0) return NULL;
#if DIMENSIONS
  static _Thread_local TENSOR tensors[GIVEN];
  static _Thread_local int64_t shapes[GIVEN][MOST_RANK];
  TENSOR *tensor = &tensors[first + number];
  *tensor = described[first + number];
  tensor->shape = shapes[first + number];
  tensor->bytes = shape_of(&sizes, first + number, extents, shapes[first + number]);
  return tensor;
#else
  return &described[first + number];
#endif
}

API(int, input_count)(void) { return INPUTS; }

API(int, output_count)(void) { return OUTPUTS; }

API(const TENSOR *, input)(int number AND_EXTENTS) { return describe(number, 0, INPUTS, CALLED); }

API(const TENSOR *, output)(int number AND_EXTENTS) {
  return describe(number, INPUTS, OUTPUTS, CALLED);
}

API(const char *, error)(void) { return last_error(); }

API(const char *, refusal)(void) { return check_machine(&library) == 0 ? NULL : last_error(); }

API(int, threads)(const struct HANDLE *handle) {
  return threads_of((const struct handle *)handle);
}

API(const char *, report)(const struct HANDLE *handle) {
  return report_of((const struct handle *)handle);
}

API(int, call_count)(ONLY_EXTENTS) {
  struct request request;
  if (find_bucket(CALLED, &request) != 0) return -1;
  return buckets[request.bucket].sequence->call_count;
}

API(const char *, kernels)(ONLY_EXTENTS) {
  struct request request;
  if (find_bucket(CALLED, &request) != 0) return NULL;
  return buckets[request.bucket].sequence->kernels;
}

API(void, destroy)(struct HANDLE *handle) { destroy_handle((struct handle *)handle); }

#if DIMENSIONS
API(struct HANDLE *, open)(const char *weights, int threads, int instances) {
  return (struct HANDLE *)open_handle(&library, weights, threads, instances, NULL);
}

API(struct HANDLE *, create)(const char *weights, int threads) {
  return API_NAME(open)(weights, threads, 1);
}
#else
API(int, constant_count)(void) { return sequence.constant_count; }

API(struct HANDLE *, open)(const char *weights, int threads, int instances, const int *constants) {
  return (struct HANDLE *)open_handle(&library, weights, threads, instances, constants);
}

API(struct HANDLE *, create)(const char *weights, int threads) {
  return API_NAME(open)(weights, threads, 1, NULL);
}
#endif

static int compute(struct HANDLE *handle, const void *const *inputs, void *const *outputs,
                   const struct request *request, int64_t *nanoseconds) {
  void *given[GIVEN + 1];
  if (handle == NULL) {
    set_error("the handle is NULL");
    return -1;
  }
  for (int number = 0; number < GIVEN; ++number) {
    given[number] = number < INPUTS ? (void *)inputs[number] : outputs[number - INPUTS];
    if (given[number] != NULL) continue;
    set_error("%s is NULL", described[number].name);
    return -1;
  }
  return run_handle((struct handle *)handle, request, given, nanoseconds);
}

#if !DIMENSIONS
/* For the loader in Python, which chooses the bucket itself. */
API(int, compute)(struct HANDLE *handle, const void *const *inputs, void *const *outputs,
                  int extent, int64_t *nanoseconds) {
  struct request request = {0, extent, NULL};
  set_error("%s", "");
  return compute(handle, inputs, outputs, &request, nanoseconds);
}
#endif

API(int, profile)(struct HANDLE *handle, const void *const *inputs, void *const *outputs,
                  int64_t *nanoseconds AND_EXTENTS) {
  struct request request;
  if (find_bucket(CALLED, &request) != 0) return -1;
  return compute(handle, inputs, outputs, &request, nanoseconds);
}

API(int, run)(struct HANDLE *handle, const void *const *inputs,
              void *const *outputs AND_EXTENTS) {
  struct request request;
  if (find_bucket(CALLED, &request) != 0) return -1;
  return compute(handle, inputs, outputs, &request, NULL);
}
