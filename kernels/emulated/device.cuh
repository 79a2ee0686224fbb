// What takes the place of SM120's instructions in CUTLASS's headers when a kernel is built for SM90
// (tileforge/toolchain/overlay.py puts the calls there): block-scaled MMA, TMA of 4-bit elements, ldmatrix of 4-bit
// elements that TMA unpacked to bytes. Functions are not inlined: a kernel then compiles in half the time.
#pragma once

#include "mma.cuh"

#include <cuda_fp16.h>

namespace tf::emulated {

// One lane of a warp.
struct Lane {
  using U32 = uint32_t;
  using F32 = float;
  __device__ static uint32_t lane() {
    uint32_t id;
    asm("mov.u32 %0, %%laneid;" : "=r"(id));
    return id;
  }
  __device__ static uint32_t shuffle(uint32_t value, uint32_t from) { return __shfl_sync(0xffffffffu, value, from); }
  template <class T> __device__ static T select(bool which, T yes, T no) { return which ? yes : no; }
  __device__ static float as_float(uint32_t bits) { return __uint_as_float(bits); }
  __device__ static int as_int(uint32_t value) { return static_cast<int>(value); }
  __device__ static float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
  __device__ static float power_of_two(int exponent) { return __int_as_float((127 + exponent) << 23); }
  __device__ static float scale_by_power(float x, int exponent) { return ldexpf(x, exponent); }
  __device__ static void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
using Mma = BlockScaledMma<Lane>;

template <int Vector, Scale S>
__device__ __noinline__ float4 mma_k64(uint4 a, uint2 b, float4 c, uint32_t sfa, uint32_t sfb) {
  float d[4] = {c.x, c.y, c.z, c.w};
  Mma::k64<Vector, S>(d, {a.x, a.y, a.z, a.w}, {b.x, b.y}, sfa, sfb);
  return make_float4(d[0], d[1], d[2], d[3]);
}

template <Element A, Element B>
__device__ __noinline__ float4 mma_k32(uint4 a, uint2 b, float4 c, uint32_t sfa, uint32_t sfb) {
  float d[4] = {c.x, c.y, c.z, c.w};
  Mma::k32<A, B>(d, {a.x, a.y, a.z, a.w}, {b.x, b.y}, sfa, sfb);
  return make_float4(d[0], d[1], d[2], d[3]);
}

// ldmatrix.m8n16.x4.b8x16.b4x16_p64: four matrices of 8 rows x 16 elements. Lane 8i + r names row r of matrix i, which
// on SM120 is 8 bytes of packed elements and 8 bytes of padding; lane 4r + j receives elements 4j..4j+3 of row r, one
// in the low half of each byte.
//
// TMA does not unpack on SM90. `TmaBox` has it leave the 64 packed bytes of a row's 128 elements in the first half of
// the row's 128 bytes, where chunk c (16 bytes, 32 elements) lies at chunk c ^ (row % 8) by the 128-byte swizzle. So the
// address that the kernel has computed, of chunk c ^ (row % 8) for elements 16c.., is turned into that of the same
// elements: half c % 2 of chunk (c / 2) ^ (row % 8).
__device__ __noinline__ uint4 load_nibbles(uint32_t address) {
  const uint32_t row = (address >> 7) & 7u, chunk = ((address >> 4) & 7u) ^ row;
  const uint32_t packed = (address & ~127u) | (((chunk >> 1) ^ row) << 4);
  uint4 r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "r"(packed)
               : "memory");
  // Lane 4r + j now has word j of row r's chunk: it wants halfword j of half c % 2, that is of word 2 (c % 2) + j / 2.
  const uint32_t lane = Lane::lane();
  const auto take = [&](uint32_t word, int matrix) {
    const uint32_t half = Lane::shuffle(chunk & 1u, matrix * 8 + lane / 4);
    const uint32_t pair = Lane::shuffle(word, (lane & 28u) | (half << 1) | ((lane >> 1) & 1u));
    const uint32_t x = (pair >> (16 * (lane & 1u))) & 0xffffu;
    return (x & 0xfu) | ((x & 0xf0u) << 4) | ((x & 0xf00u) << 8) | ((x & 0xf000u) << 12);
  };
  return make_uint4(take(r.x, 0), take(r.y, 1), take(r.z, 2), take(r.w, 3));
}

}  // namespace tf::emulated
