/* Preloaded, lets a process run code for another x86 CPU than this one:
 *
 *   cc -O2 -shared -fPIC -o other_cpu.so other_cpu.c
 *   OTHER_CPUINFO=FILE LD_PRELOAD=$PWD/other_cpu.so program
 *
 * The process reads FILE instead of /proc/cpuinfo. On a CPU without AMX, Linux seems to grant
 * tiles, and AMX's instructions, which end in SIGILL there, are computed in the signal's handler.
 * (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.) OTHER_CPU_COUNTS=FILE
 * then gets the number of these products of tiles when the process ends. A CPU with AMX computes
 * them itself: it runs ldtilecfg without Linux's permission, so a handler would never see it. */

#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <xmmintrin.h>

#define TILES 8
#define ROWS 16
#define ROW_BYTES 64
#define DENORMALS_ARE_ZERO 0x40
#define TILE_STATE 0x60000 /* XTILECFG and XTILEDATA in XCR0 */

/* Memory of a thread that a signal's handler may use: it is there from the thread's start. */
#define OF_THREAD static __thread __attribute__((tls_model("initial-exec")))

struct tile {
  uint8_t bytes[ROWS][ROW_BYTES];
};

OF_THREAD struct tile tiles[TILES];
OF_THREAD uint8_t rows[TILES];
OF_THREAD uint16_t row_bytes[TILES];
static long float_products, integer_products;
static int emulated; /* whether this CPU has no AMX */

static const int registers[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                REG_R12, REG_R13, REG_R14, REG_R15};

/* An instruction of AMX: VEX prefix of three bytes, opcode, ModRM, and an address. */
struct instruction {
  int opcode, prefix, mode, reg, rm, vvvv;
  uint8_t *address;
  int64_t stride;
  const uint8_t *end;
};

static int64_t number_at(const uint8_t *bytes, int size) {
  int32_t wide;
  if (size == 1) return (int8_t)bytes[0];
  memcpy(&wide, bytes, sizeof(wide));
  return wide;
}

static int decode(const greg_t *values, struct instruction *found) {
  const uint8_t *at = (const uint8_t *)values[REG_RIP];
  /* Map 2, with W and L zero. */
  if (at[0] != 0xC4 || (at[1] & 31) != 2 || (at[2] & 0x84) != 0) return 0;
  int x = (at[1] & 0x40) ? 0 : 8, b = (at[1] & 0x20) ? 0 : 8;
  found->vvvv = ~(at[2] >> 3) & 15;
  found->prefix = at[2] & 3;
  found->opcode = at[3];
  found->mode = at[4] >> 6;
  found->reg = at[4] >> 3 & 7;
  found->rm = at[4] & 7;
  found->stride = 0;
  found->address = NULL;
  at += 5;
  if (found->mode != 3) {
    int size = found->mode == 1 ? 1 : found->mode == 2 ? 4 : 0, base = found->rm | b;
    int64_t address = 0;
    if (found->rm == 4) {
      int sib = *at++, index = (sib >> 3 & 7) | x;
      base = (sib & 7) | b;
      if (index != 4) found->stride = values[registers[index]] << (sib >> 6);
      if ((sib & 7) == 5 && found->mode == 0) base = -1, size = 4;
    } else if (found->rm == 5 && found->mode == 0) {
      base = -1, size = 4;
      address = (int64_t)(at + size); /* relative to the next instruction */
    }
    if (base >= 0) address += values[registers[base]];
    if (size > 0) address += number_at(at, size);
    found->address = (uint8_t *)address;
    at += size;
  }
  found->end = at;
  return 1;
}

static int configure(const struct instruction *given) {
  const uint8_t *table = given->address + given->stride;
  if (table[0] != 1) return 0;
  memset(tiles, 0, sizeof(tiles));
  for (int tile = 0; tile < TILES; ++tile) {
    memcpy(&row_bytes[tile], table + 16 + 2 * tile, sizeof(uint16_t));
    rows[tile] = table[48 + tile];
    if (row_bytes[tile] > ROW_BYTES || rows[tile] > ROWS) return 0;
  }
  return 1;
}

static void move(const struct instruction *given, int stores) {
  struct tile *tile = &tiles[given->reg];
  if (!stores) memset(tile, 0, sizeof(*tile));
  for (int row = 0; row < rows[given->reg]; ++row) {
    uint8_t *memory = given->address + row * given->stride;
    uint8_t *to = stores ? memory : tile->bytes[row], *from = stores ? tile->bytes[row] : memory;
    memcpy(to, from, row_bytes[given->reg]);
  }
}

static float from_bfloat16(const uint8_t *bytes) {
  uint32_t bits = (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 24;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/* One sum of a tile product: of `count` groups of four bytes of a row and of a column. It is exact:
 * integers modulo 2**32, and each bit of a float32 but for which NaN a NaN is. Products of even and
 * of odd places have a sum each, in which each multiply-add is rounded once. */
__attribute__((target("fma"))) static uint32_t summed(const struct instruction *given, uint32_t sum, const uint8_t *left,
                       const uint8_t *right, int count) {
  float total, parts[2] = {0, 0};
  for (int group = 0; group < count; ++group, left += 4, right += ROW_BYTES) {
    if (given->opcode == 0x5C) {
      for (int part = 0; part < 2; ++part) {
        float first = from_bfloat16(left + 2 * part), second = from_bfloat16(right + 2 * part);
        parts[part] = __builtin_fmaf(first, second, parts[part]);
      }
    } else {
      for (int part = 0; part < 4; ++part) {
        /* Prefixes: none for two unsigned ones, 1 and 2 for a signed second and first one. */
        int first = given->prefix & 2 ? (int8_t)left[part] : left[part];
        int second = given->prefix & 1 ? (int8_t)right[part] : right[part];
        sum += (uint32_t)(first * second);
      }
    }
  }
  if (given->opcode != 0x5C) return sum;
  memcpy(&total, &sum, sizeof(total));
  total += parts[0] + parts[1];
  memcpy(&sum, &total, sizeof(sum));
  return sum;
}

static int multiply(const struct instruction *given) {
  int sums = given->reg, left = given->rm, right = given->vvvv & 7, groups = row_bytes[left] / 4;
  if (rows[left] != rows[sums] || row_bytes[right] != row_bytes[sums] || rows[right] != groups) {
    return 0;
  }
  if (sums == left || sums == right || left == right) return 0;
  /* Denormal operands and results count as zero, as with DAZ and FTZ. The interrupted code has its
   * own control register, which the kernel puts back. */
  _mm_setcsr(_MM_MASK_MASK | _MM_ROUND_NEAREST | _MM_FLUSH_ZERO_ON | DENORMALS_ARE_ZERO);
  for (int row = 0; row < rows[sums]; ++row) {
    for (int column = 0; column < row_bytes[sums] / 4; ++column) {
      uint8_t *place = &tiles[sums].bytes[row][4 * column];
      uint32_t sum;
      memcpy(&sum, place, sizeof(sum));
      sum = summed(given, sum, tiles[left].bytes[row], &tiles[right].bytes[0][4 * column], groups);
      memcpy(place, &sum, sizeof(sum));
    }
  }
  __atomic_fetch_add(given->opcode == 0x5C ? &float_products : &integer_products, 1,
                     __ATOMIC_RELAXED);
  return 1;
}

static int execute(const struct instruction *given) {
  int memory = given->mode != 3;
  switch (given->opcode) {
    case 0x49:
      if (memory) return given->prefix == 0 && configure(given);
      if (given->prefix == 3) memset(&tiles[given->reg], 0, sizeof(*tiles));
      return given->prefix == 3 || given->prefix == 0; /* tilezero, tilerelease */
    case 0x4B:
      if (memory && given->prefix != 0) move(given, given->prefix == 2);
      return memory && given->prefix != 0;
    case 0x5C:
      return !memory && given->prefix == 2 && multiply(given);
    case 0x5E:
      return !memory && multiply(given);
    default:
      return 0;
  }
}

static void handle(int signal_number, siginfo_t *info, void *context) {
  (void)info;
  greg_t *values = ((ucontext_t *)context)->uc_mcontext.gregs;
  struct instruction given;
  if (decode(values, &given) && execute(&given)) {
    values[REG_RIP] = (greg_t)given.end;
  } else {
    signal(signal_number, SIG_DFL); /* it is met again, and ends the process */
  }
}

/* Whether this CPU has AMX, and the system lets processes ask for it. */
static int has_tiles(void) {
  uint32_t a, b, c, d, enabled;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & bit_AMX_TILE)) return 0;
  __asm__("xgetbv" : "=a"(enabled), "=d"(d) : "c"(0));
  return (enabled & TILE_STATE) == TILE_STATE;
}

__attribute__((constructor)) static void start(void) {
  struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
  emulated = !has_tiles();
  if (emulated) sigaction(SIGILL, &action, NULL);
}

__attribute__((destructor)) static void tell(void) {
  const char *name = getenv("OTHER_CPU_COUNTS");
  long products = float_products + integer_products;
  FILE *file = name == NULL || products == 0 ? NULL : fopen(name, "a");
  if (file == NULL) return;
  fprintf(file, "%ld %ld\n", float_products, integer_products);
  fclose(file);
}

static const char *replaced(const char *path) {
  const char *other = getenv("OTHER_CPUINFO");
  return other != NULL && strcmp(path, "/proc/cpuinfo") == 0 ? other : path;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

FILE *fopen(const char *path, const char *mode) { return NEXT(fopen)(replaced(path), mode); }
FILE *fopen64(const char *path, const char *mode) { return NEXT(fopen64)(replaced(path), mode); }

#define OPEN(name)                              \
  int name(const char *path, int flags, ...) {  \
    va_list more;                               \
    va_start(more, flags);                      \
    mode_t mode = va_arg(more, mode_t);         \
    va_end(more);                               \
    return NEXT(name)(replaced(path), flags, mode); \
  }
OPEN(open)
OPEN(open64)

long syscall(long number, ...) {
  long words[6];
  va_list more;
  va_start(more, number);
  for (int word = 0; word < 6; ++word) words[word] = va_arg(more, long);
  va_end(more);
  /* arch_prctl(ARCH_REQ_XCOMP_PERM) */
  if (emulated && number == SYS_arch_prctl && words[0] == 0x1023) return 0;
  return NEXT(syscall)(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
