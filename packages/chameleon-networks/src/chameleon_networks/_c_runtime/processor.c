/* What this machine's processor has, and how much of it this process may use. */

#define _GNU_SOURCE
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime.h"

#define MOST_THREADS 1024
#define LONGEST 4096 /* bytes of a path or line that is looked at */

#if defined(__x86_64__)
/* The lower half of XCR0: which registers the system saves. */
static uint32_t saved_registers(void) {
  uint32_t low, high, unused[3], flags;
  if (!__get_cpuid(1, &unused[0], &unused[1], &flags, &unused[2]) || !(flags & bit_OSXSAVE)) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static int has(const struct feature *feature) {
  uint32_t found[4], most[4];
  uint32_t leaf = feature->leaf, subleaf = feature->subleaf, saved = feature->saved;
  if (!__get_cpuid_count(leaf, 0, &most[0], &most[1], &most[2], &most[3])) return 0;
  if (subleaf > 0 && most[0] < subleaf) return 0;
  __cpuid_count(leaf, subleaf, found[0], found[1], found[2], found[3]);
  if (!(found[feature->where] >> feature->bit & 1)) return 0;
  return saved == 0 || (saved_registers() & saved) == saved;
}
#else
static int has(const struct feature *feature) { return getauxval(feature->leaf) >> feature->bit & 1; }
#endif

int check_processor(const struct feature *features, int count) {
  char lacking[256] = "";
  for (int number = 0; number < count; ++number) {
    if (has(&features[number])) continue;
    size_t length = strlen(lacking);
    snprintf(lacking + length, sizeof(lacking) - length, "%s%s", length > 0 ? ", " : "",
             features[number].name);
  }
  if (lacking[0] == '\0') return 0;
  set_error("this CPU lacks %s, which the kernels were compiled for", lacking);
  return -1;
}

int ask_for_tiles(void) {
  static _Atomic int answer = -1; /* the first one, which a handle's buckets depend on */
  if (answer < 0) {
    int failed = ENOSYS;
#if defined(__x86_64__)
    /* arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) */
    failed = syscall(SYS_arch_prctl, 0x1023, 18) == 0 ? 0 : errno;
#endif
    answer = failed;
  }
  if (answer == 0) return 0;
  set_error("the kernels need AMX, and the system refuses arch_prctl: %s", strerror(answer));
  return -1;
}

/* The numbers in a file of a control group; how many of at most two there are. */
static int read_numbers(const char *folder, const char *name, double *numbers) {
  char path[LONGEST + 64];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  FILE *file = fopen(path, "r");
  if (file == NULL) return 0;
  int count = fscanf(file, "%lf %lf", &numbers[0], &numbers[1]);
  fclose(file);
  return count < 0 ? 0 : count;
}

/* Cores that a control group and those above it may use together; 0 if there is no limit. */
static double quota_of(char *folder, size_t top) {
  double least = 0;
  for (;;) {
    double numbers[2] = {0}, period[2] = {0}, cores = 0;
    if (read_numbers(folder, "cpu.max", numbers) == 2 && numbers[1] > 0) {
      cores = numbers[0] / numbers[1];
    } else if (read_numbers(folder, "cpu.cfs_quota_us", numbers) > 0 && numbers[0] > 0 &&
               read_numbers(folder, "cpu.cfs_period_us", period) > 0 && period[0] > 0) {
      cores = numbers[0] / period[0];
    }
    if (cores > 0 && (least == 0 || cores < least)) least = cores;
    char *last = strrchr(folder, '/');
    if (last == NULL || (size_t)(last - folder) < top) return least;
    *last = '\0';
  }
}

/* Whether a list with commas has a word. */
static int lists(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list; (at = strstr(at, word)) != NULL; at += length) {
    if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0')) return 1;
  }
  return 0;
}

/* The path of this process's control group that limits cores; 0 if there is none. */
static int group_of(int version, char *path) {
  FILE *file = fopen("/proc/self/cgroup", "r");
  if (file == NULL) return 0;
  char line[LONGEST], controllers[LONGEST];
  int known = 0;
  while (!known && fgets(line, sizeof(line), file) != NULL) {
    int number = -1;
    controllers[0] = '\0';
    if (sscanf(line, "%d:%4095[^:]:%4095[^\n]", &number, controllers, path) == 3) {
      known = version == 1 && lists(controllers, "cpu");
    } else {
      known = version == 2 && sscanf(line, "0::%4095[^\n]", path) == 1;
    }
  }
  fclose(file);
  return known;
}

/* Cores that this process's control groups of a version allow; 0 if there is no limit. */
static double quota(int version) {
  char group[LONGEST], line[LONGEST], root[LONGEST], mount[LONGEST], options[LONGEST];
  double least = 0;
  if (!group_of(version, group)) return 0;
  FILE *file = fopen("/proc/self/mountinfo", "r");
  if (file == NULL) return 0;
  while (fgets(line, sizeof(line), file) != NULL) {
    char kind[64];
    const char *rest = strstr(line, " - ");
    if (rest == NULL || sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount) != 2) continue;
    if (sscanf(rest, " - %63s %*s %4095s", kind, options) != 2) continue;
    if (strcmp(kind, version == 2 ? "cgroup2" : "cgroup") != 0) continue;
    if (version == 1 && !lists(options, "cpu")) continue;
    /* A container sees its own group, or one above it, as the root of what is mounted. */
    const char *below = group;
    size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);
    below = strncmp(group, root, length) == 0 ? group + length : "";
    if (below[0] != '/' || strstr(below, "..") != NULL || below[1] == '\0') below = "";
    char folder[2 * LONGEST];
    snprintf(folder, sizeof(folder), "%s%s", mount, below);
    double cores = quota_of(folder, strlen(mount));
    if (cores > 0 && (least == 0 || cores < least)) least = cores;
  }
  fclose(file);
  return least;
}

int usable_threads(void) {
  static const int most = MOST_THREADS;
  int usable = (int)sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t *cores = CPU_ALLOC(most * 8);
  if (cores != NULL) {
    size_t size = CPU_ALLOC_SIZE(most * 8);
    if (sched_getaffinity(0, size, cores) == 0) usable = CPU_COUNT_S(size, cores);
    CPU_FREE(cores);
  }
  for (int version = 1; version <= 2; ++version) {
    double limit = quota(version);
    if (limit > 0 && limit < usable) usable = (int)limit;
  }
  return usable < 1 ? 1 : usable > most ? most : usable;
}

/* A variable's number, the first one of a list; 0 if it is none. */
static int number_in(const char *name) {
  const char *text = getenv(name);
  long number = text == NULL ? 0 : strtol(text, NULL, 10);
  return number < 0 ? 0 : number > MOST_THREADS ? MOST_THREADS : (int)number;
}

int chosen_threads(int asked, const char *name, int measured) {
  if (asked > 0) return asked > MOST_THREADS ? MOST_THREADS : asked;
  int own = number_in(name);
  if (own > 0) return own;
  int general = number_in("OMP_NUM_THREADS"), usable = usable_threads();
  int wanted = general > 0 ? general : measured;
  return wanted < usable ? wanted : usable;
}
