/* A library that transposes a constant of its weights: `packed_test WEIGHTS SCENARIO`. */

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sequence.h"

#define ROWS 300
#define COLUMNS 200

static int32_t places[2 * (ROWS + COLUMNS)];
static const uint32_t sums[2]; /* of any constants */
static const struct repacking repackings[] = {{.constant = 1,
                                               .bytes = sizeof(float),
                                               .rows = ROWS,
                                               .columns = COLUMNS,
                                               .size = ROWS * COLUMNS * sizeof(float),
                                               .needed = ROWS * COLUMNS * sizeof(float)}};
static const struct sequence sequence = {.packing = 0xabc,
                                         .constant_count = 2,
                                         .repacking_count = 1,
                                         .sums = sums,
                                         .repackings = repackings,
                                         .places = places};

/* What the linker has the run time call instead of the system. */
static const char *scenario;

uid_t __real_geteuid(void);
uid_t __wrap_geteuid(void) { return __real_geteuid() + (strcmp(scenario, "other user") == 0); }

ssize_t __real_write(int, const void *, size_t);
ssize_t __wrap_write(int file, const void *bytes, size_t size) {
  static int calls;
  if (calls++ > 0 && strcmp(scenario, "full disk") == 0) {
    errno = ENOSPC;
    return -1;
  }
  if (calls > 1 && strcmp(scenario, "killed") == 0) _exit(9);
  return __real_write(file, bytes, size < 100000 ? size : 100000);
}

int main(int count, char **words) {
  if (count != 3) return 2;
  scenario = words[2];
  for (int32_t row = 0; row < ROWS; ++row) {
    places[row] = row * COLUMNS;
    places[ROWS + row] = row;
  }
  for (int32_t column = 0; column < COLUMNS; ++column) {
    places[2 * ROWS + column] = column;
    places[2 * ROWS + COLUMNS + column] = column * ROWS;
  }
  static char report[REPORT_BYTES];
  struct weights weights, packed = {0};
  struct pool *pool = pool_create(2, 1);
  if (weights_open(&weights, words[1], 0, 0) != 0 ||
      packed_open(&sequence, &packed, &weights, words[1], NULL, pool, report) != 0) {
    puts(last_error());
    return 1;
  }
  const float *made = (const float *)(packed.bytes + packed.offsets[0]);
  for (int place = 0; place < ROWS * COLUMNS; ++place) {
    int source = place % COLUMNS * ROWS + place / COLUMNS;
    if (made[place] == (float)source) continue;
    printf("number %d is %g\n", place, (double)made[place]);
    return 3;
  }
  printf("%s%s", report, last_error());
  weights_close(&packed);
  weights_close(&weights);
  pool_destroy(pool);
  return 0;
}
