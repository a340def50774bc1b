// What CUDA source needs to be compiled as C++ and run by fibers, one for each thread of a block.
// A barrier gives the processor to the next thread. Threads run in ascending or in descending
// order between barriers, so that what depends on the order (a barrier is missing) shows.

#include <ucontext.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __global__
#define __device__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __forceinline__ inline
#define __launch_bounds__(...)
// GCC takes ``alignas`` at the beginning of a declaration alone.
#define alignas(bytes) __attribute__((aligned(bytes)))
// All static shared memory of a block lies between two symbols of the linker.
#define __shared__ static __attribute__((section("block_shared")))
extern "C" char __start_block_shared[] __attribute__((weak));
extern "C" char __stop_block_shared[] __attribute__((weak));

struct __attribute__((aligned(8))) float2 { float x, y; };
struct __attribute__((aligned(16))) float4 { float x, y, z, w; };
struct __attribute__((aligned(8))) uint2 { unsigned x, y; };
struct __attribute__((aligned(16))) uint4 { unsigned x, y, z, w; };
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
using half = _Float16;
struct __attribute__((aligned(4))) half2 { half x, y; };
struct __attribute__((aligned(8))) half4 { half x, y, z, w; };
// Two bytes of a float, rounded to the nearest, ties to even; computed with as floats.
struct nv_bfloat16 {
  uint16_t bits = 0;
  nv_bfloat16() = default;
  nv_bfloat16(float value) {
    uint32_t all;
    memcpy(&all, &value, 4);
    bits = value != value ? 0x7fc0 : (all + 0x7fff + ((all >> 16) & 1)) >> 16;
  }
  operator float() const {
    uint32_t all = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &all, 4);
    return value;
  }
};
inline nv_bfloat16 __float2bfloat16_rn(float value) { return value; }
struct __attribute__((aligned(4))) nv_bfloat162 { nv_bfloat16 x, y; };
struct __attribute__((aligned(8))) nv_bfloat164 { nv_bfloat16 x, y, z, w; };
inline half __float2half_rn(float value) { return value; }
inline half2 make_half2(half x, half y) { return {x, y}; }
inline half4 make_half4(half x, half y, half z, half w) { return {x, y, z, w}; }
inline nv_bfloat162 make_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return {x, y}; }
inline nv_bfloat164 make_nv_bfloat164(nv_bfloat16 x, nv_bfloat16 y, nv_bfloat16 z, nv_bfloat16 w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
template <class T>
unsigned packed(T x, T y) {
  T both[2] = {x, y};
  unsigned made;
  memcpy(&made, both, 4);
  return made;
}
inline unsigned __pack_half2(half x, half y) { return packed(x, y); }
inline unsigned __pack_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return packed(x, y); }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float max(float a, float b) { return a > b ? a : b; }
inline float min(float a, float b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }

struct Index { unsigned x = 0, y = 0, z = 0; };
static Index threadIdx, blockIdx;

namespace emulation {

constexpr size_t kStack = 1 << 18;
static char dynamic_shared[48 << 10] __attribute__((aligned(64)));
constexpr unsigned kMostThreads = 1024;
static ucontext_t scheduler, fibers[kMostThreads];
static bool finished[kMostThreads];
static unsigned current;
static void (*body)();

static void run_one() {
  body();
  finished[current] = true;
  swapcontext(&fibers[current], &scheduler);
}

inline void barrier() {
  unsigned own = current;
  swapcontext(&fibers[own], &scheduler);
}

inline void fail(const char* problem) {
  fprintf(stderr, "emulation: %s\n", problem);
  exit(3);
}

inline void launch(unsigned blocks, unsigned width, unsigned threads, bool descending,
                   void (*kernel)()) {
  body = kernel;
  char* stacks = static_cast<char*>(malloc(kStack * threads));
  for (unsigned block = 0; block < blocks; ++block) {
    blockIdx.x = block;
    // Not a number wherever a block reads what it has not written.
    if (__start_block_shared)
      memset(__start_block_shared, 0xff, __stop_block_shared - __start_block_shared);
    memset(dynamic_shared, 0xff, sizeof dynamic_shared);
    for (unsigned t = 0; t < threads; ++t) {
      finished[t] = false;
      getcontext(&fibers[t]);
      fibers[t].uc_stack.ss_sp = stacks + kStack * t;
      fibers[t].uc_stack.ss_size = kStack;
      fibers[t].uc_link = &scheduler;
      makecontext(&fibers[t], run_one, 0);
    }
    for (unsigned done = 0; done < threads;) {
      if (done) fail("some threads wait at a barrier that others never reach");
      for (unsigned turn = 0; turn < threads; ++turn) {
        current = descending ? threads - 1 - turn : turn;
        threadIdx.x = current % width;
        threadIdx.y = current / width;
        swapcontext(&scheduler, &fibers[current]);
        done += finished[current];
      }
    }
  }
  free(stacks);
}

// The bytes of a file, in an allocation that ends with them: reading beyond them is found.
inline void* read_file(const char* name, size_t bytes) {
  void* made = malloc(bytes);
  FILE* file = fopen(name, "rb");
  if (!file || fread(made, 1, bytes, file) != bytes) fail("an input is missing");
  fclose(file);
  return made;
}

inline void write_file(const char* name, const void* from, size_t bytes) {
  FILE* file = fopen(name, "wb");
  fwrite(from, 1, bytes, file);
  fclose(file);
}

}  // namespace emulation

// Every lane of a warp holds all of a fragment and computes all of it.
namespace nvcuda::wmma {
struct row_major { static size_t at(int row, int column, int step) { return row * step + column; } };
struct col_major { static size_t at(int row, int column, int step) { return column * step + row; } };
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major };
template <class Use, int M, int N, int K, class T, class Layout = row_major>
struct fragment { T held[16][16]; };
template <class F>
void fill_fragment(F& to, float value) {
  for (auto& row : to.held) for (auto& one : row) one = value;
}
template <class Use, int M, int N, int K, class T, class Layout>
void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& to, const T* from, unsigned step) {
  if (reinterpret_cast<uintptr_t>(from) % 32) emulation::fail("a fragment is misaligned");
  for (int r = 0; r < 16; ++r) for (int c = 0; c < 16; ++c) to.held[r][c] = from[Layout::at(r, c, step)];
}
template <class A, class B, class C>
void mma_sync(C& to, const A& a, const B& b, const C& c) {
  C sums = c;
  for (int i = 0; i < 16; ++i) for (int k = 0; k < 16; ++k) for (int j = 0; j < 16; ++j)
    sums.held[i][j] += static_cast<float>(a.held[i][k]) * static_cast<float>(b.held[k][j]);
  to = sums;
}
template <class F, class T>
void store_matrix_sync(T* to, const F& from, unsigned step, layout_t) {
  if (reinterpret_cast<uintptr_t>(to) % 32) emulation::fail("a fragment is misaligned");
  for (int r = 0; r < 16; ++r) for (int c = 0; c < 16; ++c) to[r * step + c] = from.held[r][c];
}
}  // namespace nvcuda::wmma

inline void __syncthreads() { emulation::barrier(); }
