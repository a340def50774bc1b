/* Constants that other constants of the file of weights are moved to when a network is opened.
 *
 * A network whose kernels need tiles comes with kernels for vectors, which read the same weights in
 * another order. So the file holds the weights once. compile/sequence/repacking.py finds the order.
 */

#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sequence.h"

#define BAND 64 /* rows that a thread moves at a time: where they come from stays in its cache */

/* One constant that is made of another one. */
struct move {
  const struct sequence *sequence;
  const struct repacking *about;
  const char *from;
  char *to;
};

static float widened(uint16_t bits) {
  uint32_t word = (uint32_t)bits << 16;
  float number;
  memcpy(&number, &word, sizeof(number));
  return number;
}

/* The sum of the parts of a number, the smallest first. */
static float joined(const uint16_t *parts, const struct repacking *about) {
  float sum = 0;
  for (int32_t part = about->parts; part-- > 0;) sum += widened(parts[part * about->stride]);
  return sum;
}

static int move_band(int band, TVMParallelGroupEnv *environment, void *data) {
  (void)environment;
  const struct move *move = data;
  /* Stores through `to` cannot change a copy, which stays in registers. */
  const struct repacking copy = *move->about, *about = &copy;
  const int32_t *to_rows = move->sequence->places + about->first;
  const int32_t *from_rows = to_rows + about->rows;
  const int32_t *to_columns = from_rows + about->rows, *from_columns = to_columns + about->columns;
  int32_t start = band * BAND, end = start + BAND < about->rows ? start + BAND : about->rows;
  for (int32_t column = 0; column < about->columns; ++column) {
    for (int32_t row = start; row < end; ++row) {
      size_t to = (size_t)to_rows[row] + (size_t)to_columns[column];
      size_t from = (size_t)from_rows[row] + (size_t)from_columns[column];
      if (about->parts > 0) {
        ((float *)move->to)[to] = joined((const uint16_t *)move->from + from, about);
      } else if (about->bytes == sizeof(uint32_t)) { /* a call of memcpy takes longer */
        ((uint32_t *)move->to)[to] = ((const uint32_t *)move->from)[from];
      } else {
        size_t bytes = (size_t)about->bytes;
        memcpy(move->to + to * bytes, move->from + from * bytes, bytes);
      }
    }
  }
  return 0;
}

const char *repacked_data(const struct sequence *sequence, const struct weights *weights,
                          const int *numbers, const struct repacking *about) {
  struct tensor whole = {.position = about->constant, .size = about->needed};
  return constant_data(sequence, weights, numbers, &whole);
}

/* The weights are needed no more: give back the memory that their pages take in this process. */
static void forget(const char *start, const char *end) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uintptr_t first = ((uintptr_t)start + page - 1) / page * page, last = (uintptr_t)end / page * page;
  if (first < last) madvise((void *)first, last - first, MADV_DONTNEED);
}

int repack(const struct sequence *sequence, struct weights *packed, const struct weights *weights,
           const int *numbers, struct pool *pool) {
  int32_t count = sequence->repacking_count;
  int64_t sizes[count + 1];
  sizes[count] = 0; /* so that the compiler sees no uninitialized ones */
  for (int32_t number = 0; number < count; ++number) sizes[number] = sequence->repackings[number].size;
  if (weights_make(packed, sequence->packing, sizes, count) != 0) return -1;
  for (int32_t number = 0; number < count; ++number) {
    const struct repacking *about = &sequence->repackings[number];
    const char *from = repacked_data(sequence, weights, numbers, about);
    char *to = (char *)packed->bytes + packed->offsets[number];
    struct move move = {sequence, about, from, to};
    pool_enter(pool);
    pool_run(pool, 0, move_band, &move, (about->rows + BAND - 1) / BAND);
    pool_leave(pool);
    forget(from, from + about->needed);
  }
  return 0;
}
