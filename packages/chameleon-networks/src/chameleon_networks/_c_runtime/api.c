/* The functions of a delivered library, whose names "names.h" gives; header.h describes them.
 *
 * A C compiler reads this file for each library, so it has only what depends on the names.
 */

#include "names.h"
#include "handle.h"
#include "sequence.h"

#define GIVEN (INPUTS + OUTPUTS)

static const struct library library = {features, FEATURES, TILES, THREADS_VARIABLE, THREADS};

API(int, input_count)(void) { return INPUTS; }

API(int, output_count)(void) { return OUTPUTS; }

API(const TENSOR *, input)(int number) {
  return number < 0 || number >= INPUTS ? NULL : &described[number];
}

API(const TENSOR *, output)(int number) {
  return number < 0 || number >= OUTPUTS ? NULL : &described[INPUTS + number];
}

API(const char *, error)(void) { return last_error(); }

API(const char *, refusal)(void) { return check_machine(&library) == 0 ? NULL : last_error(); }

API(int, threads)(const struct HANDLE *handle) {
  return threads_of((const struct handle *)handle);
}

API(const char *, report)(const struct HANDLE *handle) {
  return report_of((const struct handle *)handle);
}

API(int, constant_count)(void) { return sequence.constant_count; }

API(int, call_count)(void) { return sequence.call_count; }

API(void, use_tvm)(const struct tvm_functions *functions) { use_tvm(functions); }

API(const char *, kernels)(void) { return sequence.kernels; }

API(void, destroy)(struct HANDLE *handle) { destroy_handle((struct handle *)handle); }

API(struct HANDLE *, open)(const char *weights, int threads, int instances, const int *constants) {
  return (struct HANDLE *)open_handle(&library, weights, threads, instances, constants);
}

API(struct HANDLE *, create)(const char *weights, int threads) {
  return API_NAME(open)(weights, threads, 1, NULL);
}

API(int, compute)(struct HANDLE *handle, const void *const *inputs, void *const *outputs,
                  int extent, int64_t *nanoseconds) {
  void *given[GIVEN + 1];
  set_error("%s", "");
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
  return run_handle((struct handle *)handle, given, extent, nanoseconds);
}

API(int, profile)(struct HANDLE *handle, const void *const *inputs, void *const *outputs,
                  int64_t *nanoseconds) {
  return API_NAME(compute)(handle, inputs, outputs, 0, nanoseconds);
}

API(int, run)(struct HANDLE *handle, const void *const *inputs, void *const *outputs) {
  return API_NAME(compute)(handle, inputs, outputs, 0, NULL);
}
