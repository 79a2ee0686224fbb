// A kernel of the C interface that computes on the CPU, straight from the documented layouts, in double precision: what
// `tileforge verify` says of a right kernel, and of ones with a fault in them, is tested with it where there is no GPU.
// Nothing of it is shared with the project's kernels or its Python code but abi.h.
//
// TF_PLANT chooses a fault, 0 none. The macros of kernels/entry.cu choose format and output type.
#include "abi.h"

#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <unistd.h>

#ifndef TF_PLANT
#define TF_PLANT 0
#endif

enum Plant {
  kRight,
  kPlainScales,     // reads A's scale factors in row-major order
  kSecondGroupLost, // computes nothing for group 1
  kRowOff,          // A's rows of the last group are those one further up
  kColumnTail,      // leaves out columns beyond the last multiple of 64
  kDepthTail,       // leaves out K beyond the last multiple of 128
  kNextAlpha,       // group g takes alpha of g + 1
  kBeforeOutput,    // writes one element before the output
  kBeyondRows,      // writes whole tiles of 64 rows
  kBeyondWorkspace, // writes one byte behind the workspace
  kIntoOperands,    // changes A
  kSmallGrid,       // with 2 blocks, computes every other tile of columns only
  kSwizzle,         // with swizzle 4, exchanges two tiles of columns
  kManyGroups,      // knows no more than 128 groups
  kScalePadding,    // multiplies by the scales of padding rows as well, by 1 if they were 0
  kHalfPrecision,   // rounds every partial sum to 11 bits
  kCrash,
  kHang,
  kRefuses,
};

namespace {

constexpr int format = TF_FORMAT, plant = TF_PLANT;
constexpr bool scaled = format >= TF_FORMAT_NVFP4;
constexpr int vector = format == TF_FORMAT_NVFP4 ? 16 : 32;
const char *message = "";

int fail(int code, const char *line) { return message = line, code; }

double e2m1(int code) {
  static const double table[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -table[code & 7] : table[code];
}
double slow_e4m3(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 127) == 127) return NAN;
  const double x = exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
  return code & 128 ? -x : x;
}
double slow_scale(int byte) {
  if (format == TF_FORMAT_NVFP4) return slow_e4m3(byte & 127);
  return byte == 255 ? NAN : std::ldexp(1.0, byte - 127);
}
template <double (*F)(int)> struct ByteTable {
  double of[256];
  ByteTable() {
    for (int byte = 0; byte < 256; ++byte) of[byte] = F(byte);
  }
};
const ByteTable<slow_e4m3> e4m3_table;
const ByteTable<slow_scale> scale_table;
double e4m3(int code) { return e4m3_table.of[code]; }
double scale(int byte) { return scale_table.of[byte]; }
double nibble(const void *p, int64_t i) {
  return e2m1(static_cast<const uint8_t *>(p)[i / 2] >> (i % 2 * 4) & 15);
}
double bf16(const void *p, int64_t i) {
  const uint32_t bits = uint32_t(static_cast<const uint16_t *>(p)[i]) << 16;
  float x;
  return std::memcpy(&x, &bits, 4), x;
}
double activation(const void *p, int64_t i) {
  if (format == TF_FORMAT_BF16) return bf16(p, i);
  if (format == TF_FORMAT_FP8 || format == TF_FORMAT_MXFP8_MXFP4) return e4m3(static_cast<const uint8_t *>(p)[i]);
  return nibble(p, i);
}
double weight(const void *p, int64_t i) {
  if (format == TF_FORMAT_BF16) return bf16(p, i);
  if (format == TF_FORMAT_FP8) return e4m3(static_cast<const uint8_t *>(p)[i]);
  return nibble(p, i);
}

// Byte of (row, column) in the 128x4 layout: atoms of 512 bytes along the columns, then along the rows.
double scale_at(const void *p, int64_t row, int column, int columns, bool plain) {
  const int64_t swizzled =
      (row / 128 * (columns / 4) + column / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + column % 4;
  return scale(static_cast<const uint8_t *>(p)[plain ? row * columns + column : swizzled]);
}

void store(void *d, int64_t i, double value) {
  const float x = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (TF_OUT == TF_OUT_FP32) {
    static_cast<float *>(d)[i] = x;
  } else if (TF_OUT == TF_OUT_BF16) {
    bits += 0x7fff + (bits >> 16 & 1);
    static_cast<uint16_t *>(d)[i] = uint16_t(bits >> 16);
  } else {
    const _Float16 half = static_cast<_Float16>(x);
    static_cast<_Float16 *>(d)[i] = half;
  }
}

double product(const tf_args &t, int group, int64_t row, int64_t scale_row, int64_t n) {
  const int columns = (t.k + 4 * vector - 1) / (4 * vector) * 4;
  const int depth = plant == kDepthTail ? t.k / 128 * 128 : t.k;
  const int64_t weight_row = int64_t(group) * t.n + n;
  const int64_t weight_scale_row = int64_t(group) * ((t.n + 127) / 128 * 128) + n;
  double sum = 0;
  for (int k = 0; k < depth; k += vector) {
    double dot = 0;
    for (int i = k; i < k + vector && i < depth; ++i)
      dot += activation(t.a, row * t.k + i) * weight(t.b, weight_row * t.k + i);
    if (scaled) {
      dot *= scale_at(t.sfa, scale_row, k / vector, columns, plant == kPlainScales);
      dot *= scale_at(t.sfb, weight_scale_row, k / vector, columns, false);
      if (plant == kScalePadding && row == t.offsets[group + 1] - 1) {
        const double beyond = scale_at(t.sfa, scale_row + 1, k / vector, columns, false);
        dot *= beyond == 0 ? 1 : beyond;
      }
    }
    sum += dot;
    if (plant == kHalfPrecision) {
      int exponent;
      const double mantissa = std::frexp(sum, &exponent);
      sum = std::ldexp(std::nearbyint(std::ldexp(mantissa, 11)), exponent - 11);
    }
  }
  return sum;
}

}  // namespace

extern "C" {

int tf_query(tf_info *info) {
  *info = {TF_ABI_VERSION, TF_SM, format, TF_OUT, TF_TILE_M, TF_TILE_N, TF_TILE_K, TF_CLUSTER_M, TF_CLUSTER_N, TF_SCHEDULE,
           TF_SWAP_AB, 64, 32, 3, 384, 90112, 74240, 9216, 450, format == TF_FORMAT_MXFP8_MXFP4 ? 128 : 32, 8};
  return TF_OK;
}

uint64_t tf_workspace_size(const tf_args *t) { return 128 * uint64_t(t->groups); }
int tf_load(int32_t) { return plant == kRefuses ? fail(TF_ERR_SMEM, "needs 12 B more than there is") : TF_OK; }

int tf_prepare(const tf_args *t) {
  if (t->m == 0) return TF_OK;
  if (uintptr_t(t->workspace) % 256) return fail(TF_ERR_WORKSPACE, "the workspace is not aligned to 256 bytes");
  if (t->workspace_bytes < tf_workspace_size(t)) return fail(TF_ERR_WORKSPACE, "the workspace is too small");
  std::memset(t->workspace, 0, tf_workspace_size(t) + (plant == kBeyondWorkspace));
  return TF_OK;
}

int tf_run(const tf_args *t) {
  if (plant == kCrash && t->n == 200) raise(SIGSEGV);
  while (plant == kHang && t->n == 200) usleep(1000);
  if (t->m == 0) return TF_OK;
  if (plant == kIntoOperands) static_cast<uint8_t *>(const_cast<void *>(t->a))[0] ^= 1;
  if (plant == kBeforeOutput) store(t->d, -1, 0);
  const int columns = plant == kColumnTail ? t->n / 64 * 64 : t->n;
  const int known = plant == kManyGroups && t->groups > 128 ? 128 : t->groups;
  for (int group = 0; group < known; ++group) {
    if (plant == kSecondGroupLost && group == 1) continue;
    const int first = t->offsets[group], last = t->offsets[group + 1];
    const int64_t scale_start = (int64_t(first) + 127 * int64_t(group)) / 128 * 128;
    const double alpha = t->alpha[plant == kNextAlpha ? (group + 1) % t->groups : group];
    for (int row = first; row < last; ++row) {
      const bool off = plant == kRowOff && group == t->groups - 1 && row > first;
      for (int n = 0; n < columns; ++n) {
        if (plant == kSmallGrid && t->sm_count == 2 && n / 64 % 2) continue;
        const int column = plant == kSwizzle && t->max_swizzle == 4 && n < 128 ? n ^ 64 : n;
        // A sum in float32 starts at +0, so it is never -0.
        const double sum = product(*t, group, row - off, scale_start + row - first - off, column) + 0.0;
        store(t->d, int64_t(row) * t->n + n, double(float(sum)) * alpha);
      }
    }
    for (int row = last; plant == kBeyondRows && row < first + (last - first + 63) / 64 * 64; ++row)
      if (group == t->groups - 1)
        for (int n = 0; n < t->n; ++n) store(t->d, int64_t(row) * t->n + n, 0);
  }
  return TF_OK;
}

const char *tf_last_error(void) { return message; }
}
