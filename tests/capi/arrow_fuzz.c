/* Arrow streams with bytes changed at random: each is opened and, as far as it can be, written anew, which reads what its metadata says there is.
 * Run under AddressSanitizer; tests/capi/test_arrow_abi.py makes the stream. */
#include "abi_arrow.h"
#include "no_engine.h"
#include <stdio.h>

static uint64_t state = 0x9e3779b97f4a7c15u;
static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

static void change(uint8_t *p, size_t n) {
  static const uint32_t edges[] = {0, 1, 7, 8, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff8};
  for (uint64_t i = next() % 4 + 1; i; i--) {
    size_t at = next() % n;
    if (next() % 2) p[at] = (uint8_t)next();
    else if (n - at / 4 * 4 >= 4) memcpy(p + at / 4 * 4, &edges[next() % 8], 4);
  }
}

int main(int argc, char **argv) {
  FILE *f = argc == 3 ? fopen(argv[1], "rb") : NULL;
  static uint8_t whole[1 << 20];
  size_t n = f ? fread(whole, 1, sizeof whole, f) : 0;
  unsigned long opened = 0, kept = 0;
  if (!n) return 1;
  fclose(f);
  for (long round = atol(argv[2]); round >= 0; round--) {
    size_t len = next() % 8 ? n : next() % n;
    void *p = NULL;
    raygo_buf buf, again;
    struct ArrowArrayStream stream;
    if (posix_memalign(&p, 64, len + 1)) return 1;
    memcpy(p, whole, len);
    if (round && len) change(p, len);   /* the last one is as it was */
    p = realloc(p, len ? len : 1);
    if (!p || !rga_buf_take(&buf, p, len, RAYGO_ARROW)) return 1;
    if (raygo_arrow_stream(&buf, &stream, NULL)) continue;
    opened++;
    if (!raygo_arrow_bytes(&stream, &again, NULL)) {
      kept++;
      raygo_buf_release(&again);
    } else if (!round) {
      return 1;
    }
  }
  printf("%lu were opened, %lu written\nok\n", opened, kept);
  return 0;
}
