/* Included before pool.c: there is time now and then before an atomic operation, so that threads meet
 * in places where they seldom do. */

#include <stdatomic.h>

void delay(void);

#define atomic_load(at) (delay(), atomic_load_explicit(at, memory_order_seq_cst))
#define atomic_store(at, value) (delay(), atomic_store_explicit(at, value, memory_order_seq_cst))
#define atomic_fetch_add(at, value) \
  (delay(), atomic_fetch_add_explicit(at, value, memory_order_seq_cst))
#define atomic_compare_exchange_weak_explicit(at, expected, value, success, failure) \
  (delay(), atomic_compare_exchange_strong_explicit(at, expected, value, success, failure))
