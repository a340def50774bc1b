/* A file in the user's cache folder with the constants that a library makes of those in its weights.
 *
 * It has the form of a file of weights, so that all processes share its memory which map it. Its name
 * is a digest of all that its content depends on. A load that finds no such file writes one; if that
 * fails, the constants stay in memory of the process.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sequence.h"

#define MOST_BYTES ((int64_t)4 << 30) /* of all files in the folder, as in Chameleon's other caches */

/* The paths of the folder and of the file; 0, or -1 if the user has no cache folder. */
static int find_file(const struct sequence *sequence, char *folder, char *path) {
  const char *cache = secure_getenv("XDG_CACHE_HOME"), *rest = "";
  if (cache == NULL || cache[0] == '\0') {
    cache = secure_getenv("HOME");
    rest = "/.cache";
  }
  if (cache == NULL || cache[0] == '\0' || strlen(cache) > PATH_MAX - 100) return -1;
  sprintf(folder, "%s%s/chameleon/weights", cache, rest);
  sprintf(path, "%s/%016" PRIx64, folder, (uint64_t)sequence->packing);
  return 0;
}

/* Map a file that an earlier load has written; 0, or -1 with an error. */
static int map_packed(const struct sequence *sequence, struct weights *packed, const char *path,
                      int threads) {
  if (weights_open(packed, path, sequence->packing, 1) != 0) return -1;
  int fits = packed->count == sequence->repacking_count;
  for (int32_t number = 0; fits && number < sequence->repacking_count; ++number) {
    int64_t size = packed->offsets[number + 1] - packed->offsets[number];
    fits = size >= sequence->repackings[number].size;
  }
  if (fits && weights_check(packed, path, NULL, threads) == 0) {
    utimensat(AT_FDCWD, path, NULL, 0); /* it was used now */
    return 0;
  }
  weights_close(packed);
  return -1;
}

/* Remove the least recently used files of a folder above the limit of size, but never the newest. */
static void evict(const char *folder) {
  int64_t bytes = MOST_BYTES + 1;
  for (int removed = 0; removed == 0 && bytes > MOST_BYTES;) {
    char oldest[NAME_MAX + 1] = "";
    struct stat about;
    time_t first = 0;
    int count = 0;
    DIR *files = opendir(folder);
    if (files == NULL) return;
    bytes = 0;
    for (struct dirent *file; (file = readdir(files)) != NULL;) {
      if (fstatat(dirfd(files), file->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (!S_ISREG(about.st_mode)) continue;
      bytes += about.st_size;
      if (count++ > 0 && about.st_mtime >= first) continue;
      first = about.st_mtime;
      strcpy(oldest, file->d_name);
    }
    removed = count > 1 && bytes > MOST_BYTES ? unlinkat(dirfd(files), oldest, 0) : -1;
    closedir(files);
  }
}

static int write_all(int file, const char *bytes, size_t size) {
  while (size > 0) {
    ssize_t written = write(file, bytes, size);
    if (written < 0 && errno != EINTR) return -1;
    if (written < 0) continue;
    bytes += written;
    size -= (size_t)written;
  }
  return 0;
}

/* Write a file under another name and rename it; 0, or -1 with `errno`. */
static int write_packed(struct weights *packed, const char *folder, const char *path) {
  char part[PATH_MAX + 64];
  uint64_t random = 0;
  struct rlimit most;
  if (getrlimit(RLIMIT_FSIZE, &most) == 0 && packed->size > most.rlim_cur) {
    errno = EFBIG; /* a signal would end the process */
    return -1;
  }
  for (char *end = strcpy(part, folder); (end = strchr(end + 1, '/')) != NULL; *end = '/') {
    *end = '\0';
    mkdir(part, 0700);
  }
  mkdir(folder, 0700);
  /* Numbers of processes are not unique: containers may share the folder. */
  if (getrandom(&random, sizeof(random), 0) < 0) return -1;
  sprintf(part, "%s.%016" PRIx64 ".part", path, random);
  int file = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return -1;
  weights_seal(packed);
  errno = EPERM;
  int failed = !is_own_file(file) || write_all(file, packed->bytes, packed->size) != 0;
  int why = errno;
  if (close(file) != 0 && !failed) failed = 1, why = errno;
  if (!failed && rename(part, path) != 0) failed = 1, why = errno;
  if (failed) unlink(part);
  errno = why;
  return failed ? -1 : 0;
}

/* Make the constants, and take those of the file after it is written, so that processes share it. */
static int make_packed(const struct sequence *sequence, struct weights *packed,
                       const struct weights *weights, const int *numbers, struct pool *pool,
                       const char *folder, const char *path, char *report) {
  if (repack(sequence, packed, weights, numbers, pool) != 0) return -1;
  struct weights shared;
  if (path[0] == '\0') {
    set_error("neither XDG_CACHE_HOME nor HOME names a folder");
  } else if (write_packed(packed, folder, path) != 0) {
    set_error("%s cannot be written: %s", path, strerror(errno));
  } else if (map_packed(sequence, &shared, path, pool_threads(pool)) == 0) {
    weights_close(packed);
    *packed = shared;
    evict(folder);
    snprintf(report, REPORT_BYTES, "its weights are packed for these kernels, and kept in %s", path);
    set_error("%s", "");
    return 0;
  }
  snprintf(report, REPORT_BYTES, "its weights are packed for these kernels at each load, because %s",
           last_error());
  set_error("%s", "");
  return 0;
}

/* Marks of the constants in the file of weights that kernels read as they are; freed by the caller.
 * NULL with an error if the file does not have the data of the other ones. */
static char *used_constants(const struct sequence *sequence, const struct weights *weights,
                            const int *numbers) {
  char *used = calloc((size_t)weights->count + (size_t)sequence->constant_count + 1, 1);
  if (used == NULL) {
    set_error("there is not enough memory for the weights");
    return NULL;
  }
  char *repacked = used + weights->count;
  for (int32_t number = 0; number < sequence->repacking_count; ++number) {
    const struct repacking *about = &sequence->repackings[number];
    repacked[about->constant] = 1;
    if (repacked_data(sequence, weights, numbers, about) != NULL) continue;
    free(used);
    set_error("the file does not hold the weights of this library");
    return NULL;
  }
  for (int32_t position = 0; position < sequence->constant_count; ++position) {
    int64_t number = numbers == NULL ? position : numbers[position];
    if (!repacked[position] && number >= 0 && number < weights->count) used[number] = 1;
  }
  return used;
}

int packed_open(const struct sequence *sequence, struct weights *packed,
                const struct weights *weights, const char *path, const int *numbers,
                struct pool *pool, char *report) {
  int threads = pool_threads(pool);
  if (sequence->repacking_count == 0) return weights_check(weights, path, NULL, threads);
  char folder[PATH_MAX] = "", file[PATH_MAX] = "";
  char *used = used_constants(sequence, weights, numbers);
  if (used == NULL) return -1;
  int found = find_file(sequence, folder, file) == 0 &&
              map_packed(sequence, packed, file, threads) == 0;
  int status = weights_check(weights, path, found ? used : NULL, threads);
  free(used);
  if (status != 0 || found) return status;
  return make_packed(sequence, packed, weights, numbers, pool, folder, file, report);
}
