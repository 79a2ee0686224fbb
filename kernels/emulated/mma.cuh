// SM120's block-scaled MMA instructions computed by a warp that has none of them: exact products, one dot product per
// scale block, then its scale, then float32 accumulation in the order of K.
//
// Fragments and scale registers are laid out as the PTX ISA 8.7 documents mma.sync.m16n8k64 (kind::mxf4nvf4) and
// m16n8k32 (kind::mxf8f6f4), with thread-id and byte-id 0. Lane 4g + j of the warp holds, of A, rows g and g + 8; of B,
// column g; of C and D, columns 2j and 2j + 1 of rows g and g + 8. The scale of A's row g comes from lane 4g, of row
// g + 8 from lane 4g + 1, of B's column g from lane 4g.
//
// The dot products are m16n8k16 half-precision MMAs, which every GPU since SM80 has: an e2m1 or e4m3 number becomes a
// half by shifting its bits, 2^14 or 2^8 too small, and products of two such halves are exact in float32. K may be
// permuted, as long as A and B are permuted alike: a register's elements are taken in the order that shifts are cheap.
//
// Written once for any Warp: on a GPU a value is one lane's (device.cuh), in the test on the host it is all 32 lanes'
// (tests/emulated_mma.cpp), where m16n8k16 is computed in double precision from its documented layout.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define TF_LANE __host__ __device__ __forceinline__
#else
#define TF_LANE inline
#endif

namespace tf::emulated {

enum class Element { e2m1, e4m3 };
enum class Scale { ue4m3, ue8m0 };

template <class Warp> struct BlockScaledMma {
  using U32 = typename Warp::U32;
  using F32 = typename Warp::F32;

  // Elements i and i + 4 of eight packed e2m1, as two halves in a register; times 2^-14.
  TF_LANE static U32 halves_of_nibbles(U32 packed, int i) {
    const U32 x = packed >> (4 * i);
    return ((x & 0x00070007u) << 9) | ((x & 0x00080008u) << 12);
  }

  // Elements i and i + 2 of four bytes. e2m1 lies in bits 2..5 of its byte and comes out times 2^-14, e4m3 times 2^-8.
  template <Element E> TF_LANE static U32 halves_of_bytes(U32 bytes, int i) {
    const U32 x = bytes >> (8 * i);
    if constexpr (E == Element::e2m1) {
      return ((x & 0x001c001cu) << 7) | ((x & 0x00200020u) << 10);
    } else {
      const U32 magnitude = x & 0x007f007fu;
      const U32 nan = (magnitude + 0x00010001u) & 0x00800080u;  // 0x7f and 0xff are e4m3's NaNs
      return (magnitude << 7) | ((x & 0x00800080u) << 8) | (nan << 3) | (nan << 4) | (nan << 5) | (nan << 6) | (nan << 7);
    }
  }
  static constexpr int exponent_lost(Element e) { return e == Element::e2m1 ? 14 : 8; }

  // What a lane's four accumulators are scaled by: byte `block` of the registers of rows g, g + 8 and columns 2j, 2j + 1.
  struct Scales {
    U32 row[2], column[2];
    TF_LANE Scales(U32 sfa, U32 sfb) {
      const U32 lane = Warp::lane(), quad = lane & 28u, pair = (lane & 3u) << 3;
      row[0] = Warp::shuffle(sfa, quad);
      row[1] = Warp::shuffle(sfa, quad | 1u);
      column[0] = Warp::shuffle(sfb, pair);
      column[1] = Warp::shuffle(sfb, pair | 4u);
    }
  };

  // ue4m3 as a float: its seven bits shifted to where float32 has them are 2^-120 of it.
  TF_LANE static F32 of_ue4m3(U32 byte) {
    const U32 bits = byte & 0x7fu;
    return Warp::select(bits == 0x7fu, Warp::as_float(U32(0x7fffffffu)),
                        Warp::as_float(bits << 20) * 0x1p120f);
  }

  // d += dot * 2^exponent * scale of the row * scale of the column
  template <Scale S>
  TF_LANE static void accumulate(F32 (&d)[4], const F32 (&dot)[4], const Scales &scales, int block, int exponent) {
    for (int i = 0; i < 4; ++i) {
      const U32 row = (scales.row[i / 2] >> (8 * block)) & 0xffu;
      const U32 column = (scales.column[i % 2] >> (8 * block)) & 0xffu;
      if constexpr (S == Scale::ue4m3) {
        d[i] = Warp::fma(dot[i], of_ue4m3(row) * of_ue4m3(column) * Warp::power_of_two(exponent), d[i]);
      } else {
        // One power of two, applied once: the two scales may leave float32's range where their product does not.
        const F32 scaled = Warp::scale_by_power(dot[i], Warp::as_int(row + column) + (exponent - 254));
        d[i] = Warp::select((row == 0xffu) | (column == 0xffu), Warp::as_float(U32(0x7fffffffu)), scaled) + d[i];
      }
    }
  }

  // D = A . B + C over K = 64 of e2m1; Vector elements share a scale.
  template <int Vector, Scale S>
  TF_LANE static void k64(F32 (&d)[4], const U32 (&a)[4], const U32 (&b)[2], U32 sfa, U32 sfb) {
    static_assert(Vector == 16 || Vector == 32);
    const Scales scales(sfa, sfb);
    constexpr int exponent = 2 * exponent_lost(Element::e2m1);
    for (int half = 0; half < 2; ++half) {  // K 0..31 lies in a[0], a[1], b[0], K 32..63 in the others
      const U32 low = a[2 * half], high = a[2 * half + 1];
      // 16 elements are those of two of the four lanes that share a row: the others contribute zeros.
      for (int part = 0; part < 32 / Vector; ++part) {
        U32 column = b[half];
        if (Vector == 16) column = Warp::select(((Warp::lane() >> 1) & 1u) == U32(part), column, U32(0u));
        F32 dot[4] = {F32(0.f), F32(0.f), F32(0.f), F32(0.f)};
        for (int i = 0; i < 4; i += 2) {
          const U32 rows[4] = {halves_of_nibbles(low, i), halves_of_nibbles(high, i), halves_of_nibbles(low, i + 1),
                               halves_of_nibbles(high, i + 1)};
          const U32 columns[2] = {halves_of_nibbles(column, i), halves_of_nibbles(column, i + 1)};
          Warp::mma_m16n8k16(dot, rows, columns);
        }
        accumulate<S>(d, dot, scales, half * (32 / Vector) + part, exponent);
      }
    }
  }

  // D = A . B + C over K = 32 of one byte each; all 32 share a ue8m0 scale.
  template <Element A, Element B>
  TF_LANE static void k32(F32 (&d)[4], const U32 (&a)[4], const U32 (&b)[2], U32 sfa, U32 sfb) {
    const Scales scales(sfa, sfb);
    F32 dot[4] = {F32(0.f), F32(0.f), F32(0.f), F32(0.f)};
    for (int half = 0; half < 2; ++half) {
      const U32 low = a[2 * half], high = a[2 * half + 1], column = b[half];
      const U32 rows[4] = {halves_of_bytes<A>(low, 0), halves_of_bytes<A>(high, 0), halves_of_bytes<A>(low, 1),
                           halves_of_bytes<A>(high, 1)};
      const U32 columns[2] = {halves_of_bytes<B>(column, 0), halves_of_bytes<B>(column, 1)};
      Warp::mma_m16n8k16(dot, rows, columns);
    }
    accumulate<Scale::ue8m0>(d, dot, scales, 0, exponent_lost(A) + exponent_lost(B));
  }
};

}  // namespace tf::emulated
