/* How threads of the run time start, and the floating-point mode in which they compute. */

#ifndef CHAMELEON_THREADS_H
#define CHAMELEON_THREADS_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>

/* Start a thread, as pthread_create does. Signals are for the program's own threads, but for those
 * about what a thread itself does. */
static inline int start_thread(pthread_t *thread, void *(*work)(void *), void *argument) {
  static const int own[] = {SIGILL, SIGBUS, SIGFPE, SIGSEGV};
  sigset_t all, before;
  sigfillset(&all);
  for (size_t fault = 0; fault < sizeof(own) / sizeof(own[0]); ++fault) sigdelset(&all, own[fault]);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int status = pthread_create(thread, NULL, work, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return status;
}

#define RAISED 0x3fu /* bits of x86's MXCSR that say what has happened, and belong to no mode */

/* The rounding of this thread, whether it takes subnormal numbers as zeros, and what it traps. */
static inline uint64_t floating_mode(void) {
  uint64_t mode = 0;
#if defined(__SSE__)
  mode = __builtin_ia32_stmxcsr() & ~RAISED;
#elif defined(__aarch64__)
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
#endif
  return mode;
}

static inline void set_floating_mode(uint64_t mode) {
  if (mode == floating_mode()) return;
#if defined(__SSE__)
  __builtin_ia32_ldmxcsr((unsigned)mode | (__builtin_ia32_stmxcsr() & RAISED));
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(mode));
#endif
}

#endif
