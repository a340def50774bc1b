/* Checksums of files. */

#ifndef CHAMELEON_CRC32_H
#define CHAMELEON_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SLICES 16
#define POLYNOMIAL 0xedb88320u /* of the CRC-32, the bits of the highest powers last */

/* The CRC-32 of zlib, sixteen bytes at a time: "slicing" of Kounavis and Berry, A Systematic
 * Approach to Building High Performance Software-based CRC Generators, 2005. */
static uint32_t table[SLICES][256];

__attribute__((constructor)) static void make_table(void) {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? POLYNOMIAL : 0);
    table[0][byte] = value;
  }
  for (int slice = 1; slice < SLICES; ++slice) {
    for (int byte = 0; byte < 256; ++byte) {
      uint32_t value = table[slice - 1][byte];
      table[slice][byte] = value >> 8 ^ table[0][value & 255];
    }
  }
}

static uint32_t crc32(uint32_t value, const char *bytes, size_t size) {
  const unsigned char *at = (const unsigned char *)bytes, *end = at + size;
  value = ~value;
  for (; end - at >= SLICES; at += SLICES) {
    uint32_t words[4];
    memcpy(words, at, SLICES);
    words[0] ^= value;
    value = 0;
    for (int word = 0; word < 4; ++word) {
      for (int byte = 0; byte < 4; ++byte) {
        value ^= table[SLICES - 1 - 4 * word - byte][words[word] >> 8 * byte & 255];
      }
    }
  }
  for (; at < end; ++at) value = value >> 8 ^ table[0][(value ^ *at) & 255];
  return ~value;
}

#endif
