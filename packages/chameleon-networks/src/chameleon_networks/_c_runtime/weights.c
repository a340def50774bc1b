/* Files of weights: mapped, and compared with their checksums.
 *
 * A file is a table of int64: MAGIC, the layout, the number of constants, their offsets, the size
 * of the file, the CRC-32 of each constant up to where the next one begins, and the CRC-32 of the
 * table up to there. graph/sequence/weights.py writes it.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crc32.h"
#include "runtime.h"
#include "threads.h"

#define MAGIC INT64_C(0x32544857454c4843) /* "CHLEWHT2" */
#define ALIGNMENT 64 /* of each constant */
#define HUGE_PAGE ((size_t)2 << 20)
#define MOST_CHECKERS 8
#define CHUNK ((int64_t)1 << 20) /* bytes of a constant that a thread checks at a time */
#define ONE 0x80000000u
#define BYTE 0x00800000u /* the power of a byte of zeros */

static uint32_t product(uint32_t one, uint32_t other) {
  uint32_t result = 0;
  for (; one != 0; one <<= 1) {
    if (one & ONE) result ^= other;
    other = other >> 1 ^ (other & 1 ? POLYNOMIAL : 0);
  }
  return result;
}

/* The CRC-32 of bytes with the CRC-32 `first` and then `size` bytes with the CRC-32 `second`. */
static uint32_t joined_crc32(uint32_t first, uint32_t second, int64_t size) {
  for (uint32_t power = BYTE; size > 0; size >>= 1, power = product(power, power)) {
    if (size & 1) first = product(power, first);
  }
  return first ^ second;
}

/* Constants whose chunks several threads compute the checksums of, the next one each. */
struct checking {
  const struct weights *weights;
  const char *needed; /* marks of the constants to check; NULL for all */
  uint32_t *sums;     /* of the chunks of all constants */
  _Atomic int64_t next;
};

static int64_t size_of(const struct weights *weights, int64_t number) {
  return weights->offsets[number + 1] - weights->offsets[number];
}

static int64_t chunks_of(const struct checking *all, int64_t number) {
  if (all->needed != NULL && !all->needed[number]) return 0;
  return (size_of(all->weights, number) + CHUNK - 1) / CHUNK;
}

static int64_t chunk_size(int64_t size, int64_t chunk) {
  return size - chunk * CHUNK < CHUNK ? size - chunk * CHUNK : CHUNK;
}

static void *check_constants(void *argument) {
  struct checking *all = argument;
  const struct weights *weights = all->weights;
  int64_t next = atomic_fetch_add(&all->next, 1), before = 0;
  for (int64_t number = 0; number < weights->count; ++number) {
    int64_t size = size_of(weights, number), chunks = chunks_of(all, number);
    for (; next < before + chunks; next = atomic_fetch_add(&all->next, 1)) {
      int64_t chunk = next - before;
      const char *bytes = weights->bytes + weights->offsets[number] + chunk * CHUNK;
      all->sums[next] = crc32(0, bytes, (size_t)chunk_size(size, chunk));
    }
    before += chunks;
  }
  return NULL;
}

int weights_check(const struct weights *weights, const char *path, const char *needed, int threads) {
  struct checking all = {.weights = weights, .needed = needed};
  int64_t chunks = 0;
  for (int64_t number = 0; number < weights->count; ++number) chunks += chunks_of(&all, number);
  all.sums = calloc((size_t)chunks + 1, sizeof(*all.sums));
  if (all.sums == NULL) {
    set_error("the file of weights %s cannot be checked: there is not enough memory", path);
    return -1;
  }
  pthread_t others[MOST_CHECKERS];
  int started = 0;
  for (; started < threads - 1 && started < MOST_CHECKERS; ++started) {
    if (start_thread(&others[started], check_constants, &all) != 0) break;
  }
  check_constants(&all);
  for (int other = 0; other < started; ++other) pthread_join(others[other], NULL);
  int wrong = 0;
  const uint32_t *sums = all.sums;
  for (int64_t number = 0; number < weights->count; ++number) {
    if (needed != NULL && !needed[number]) continue;
    uint32_t sum = 0;
    for (int64_t chunk = 0; chunk < chunks_of(&all, number); ++chunk) {
      sum = joined_crc32(sum, *sums++, chunk_size(size_of(weights, number), chunk));
    }
    if (sum != (uint32_t)weights->sums[number]) wrong = 1;
  }
  free(all.sums);
  if (wrong) set_error("the file of weights %s is damaged: its content was changed", path);
  return wrong ? -1 : 0;
}

/* Why a mapped file is not what it should be; NULL if it is. */
static const char *problem(struct weights *weights, int64_t layout) {
  const int64_t *words = (const int64_t *)weights->bytes;
  int64_t size = (int64_t)weights->size;
  if (size < 48 || words[0] != MAGIC) return "does not hold the weights of this library";
  int64_t count = words[2];
  if (count < 0 || count > size / 16 - 3) return "is damaged";
  const int64_t *offsets = words + 3, *sums = offsets + count + 1;
  size_t length = 8 * (size_t)(4 + 2 * count);
  if (length + 8 > weights->size) return "is cut off";
  if ((int64_t)crc32(0, weights->bytes, length) != sums[count]) return "is damaged";
  if (offsets[count] != size) return "is cut off";
  for (int64_t number = 0; number < count; ++number) {
    int64_t start = offsets[number];
    if (start < (int64_t)length + 8 || start > offsets[number + 1] || start % ALIGNMENT != 0) {
      return "is damaged";
    }
  }
  weights->count = count;
  weights->offsets = offsets;
  weights->sums = sums;
  if (words[1] != layout) return "does not hold the weights of this library";
  return NULL;
}

/* A file, or memory if it is -1, at the start of a huge page, so that the system may map it by huge
 * pages: the processor's page tables reach more of them. NULL if it cannot be mapped. */
static char *map_file(int file, size_t size) {
  char *room = mmap(NULL, size + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return NULL;
  char *start = (char *)(((uintptr_t)room + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
  int access = file < 0 ? PROT_READ | PROT_WRITE : PROT_READ;
  int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  char *bytes = mmap(start, size, access, kind | MAP_FIXED, file, 0);
  if (bytes == MAP_FAILED) {
    int why = errno;
    munmap(room, size + HUGE_PAGE);
    errno = why;
    return NULL;
  }
  if (start > room) munmap(room, (size_t)(start - room));
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
  size_t rest = (size_t)(room + (size + HUGE_PAGE + page - 1) / page * page - (start + whole));
  if (rest > 0) munmap(start + whole, rest);
  madvise(bytes, size, MADV_HUGEPAGE);
  return bytes;
}

int is_own_file(int file) {
  struct stat about;
  return fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
         (about.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

int weights_open(struct weights *weights, const char *path, int64_t layout, int own) {
  *weights = (struct weights){0};
  int file = open(path, O_RDONLY | O_CLOEXEC | (own ? O_NOFOLLOW | O_NONBLOCK : 0));
  struct stat about;
  if (file < 0 || fstat(file, &about) != 0 || about.st_size == 0) {
    set_error("the weights %s cannot be read: %s", path,
              file < 0 ? strerror(errno) : "the file is empty");
    if (file >= 0) close(file);
    return -1;
  }
  if (own && !is_own_file(file)) {
    set_error("others may have written the weights %s", path);
    close(file);
    return -1;
  }
  size_t size = (size_t)about.st_size;
  const char *bytes = map_file(file, size);
  close(file);
  if (bytes == NULL) {
    set_error("the weights %s cannot be mapped: %s", path, strerror(errno));
    return -1;
  }
  *weights = (struct weights){.bytes = bytes, .size = size};
  const char *why = problem(weights, layout);
  if (why == NULL) return 0;
  set_error("the file of weights %s %s", path, why);
  weights_close(weights);
  return -1;
}

static int64_t aligned(int64_t size) { return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

int weights_make(struct weights *weights, int64_t layout, const int64_t *sizes, int64_t count) {
  int64_t start = aligned(8 * (5 + 2 * count)), size = start;
  for (int64_t number = 0; number < count; ++number) size += aligned(sizes[number]);
  int64_t *words = (int64_t *)map_file(-1, (size_t)size), *offsets = words + 3;
  *weights = (struct weights){0};
  if (words == NULL) {
    set_error("there is not enough memory for the weights");
    return -1;
  }
  words[0] = MAGIC;
  words[1] = layout;
  words[2] = count;
  offsets[0] = start;
  for (int64_t number = 0; number < count; ++number) {
    offsets[number + 1] = offsets[number] + aligned(sizes[number]);
  }
  *weights = (struct weights){(char *)words, (size_t)size, count, offsets, offsets + count + 1};
  return 0;
}

void weights_seal(struct weights *weights) {
  int64_t *sums = (int64_t *)weights->sums, count = weights->count;
  for (int64_t number = 0; number < count; ++number) {
    const char *bytes = weights->bytes + weights->offsets[number];
    sums[number] = crc32(0, bytes, (size_t)size_of(weights, number));
  }
  sums[count] = crc32(0, weights->bytes, 8 * (size_t)(4 + 2 * count));
}

void weights_close(struct weights *weights) {
  if (weights->bytes != NULL) munmap((void *)weights->bytes, weights->size);
  *weights = (struct weights){0};
}
