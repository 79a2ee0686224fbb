// kernels/emulated/mma.cuh on the host, against a float64 model of the instructions that it stands for.
//
// All 32 lanes are computed in one call: a value of `Warp` is what each lane holds. The model works on matrices. What
// lies between the two, the fragments, is packed here by the layouts of CUTLASS's MMA_Traits
// (cute/atom/mma_traits_sm120.hpp, mma_traits_sm80.hpp), copied as they stand there.
//
// One line per check: name, cases, mismatches, largest error in ulps. Exit status 1 where anything mismatches.
// --plant NAME makes one mistake in the packing or in the model, which the checks must then notice.
#include "../kernels/emulated/mma.cuh"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>

namespace {

using tf::emulated::Element;
using tf::emulated::Scale;

template <class T> struct Lanes {
  T of[32];
  Lanes() = default;
  Lanes(T all) { std::fill(of, of + 32, all); }
  T operator[](int t) const { return of[t]; }
};
template <class T, class F> Lanes<T> each(F f) {
  Lanes<T> r;
  for (int t = 0; t < 32; ++t) r.of[t] = f(t);
  return r;
}
#define TF_EACH(T, value) each<T>([&](int t) -> T { return value; })  // lane t's value

using U32 = Lanes<uint32_t>;
using F32 = Lanes<float>;
using I32 = Lanes<int>;
using Bool = Lanes<bool>;
#define TF_OPERATOR(R, T, op) \
  Lanes<R> operator op(const Lanes<T> &x, const Lanes<T> &y) { return TF_EACH(R, x[t] op y[t]); }
TF_OPERATOR(uint32_t, uint32_t, &) TF_OPERATOR(uint32_t, uint32_t, |) TF_OPERATOR(uint32_t, uint32_t, +)
TF_OPERATOR(uint32_t, uint32_t, <<) TF_OPERATOR(uint32_t, uint32_t, >>) TF_OPERATOR(bool, uint32_t, ==)
TF_OPERATOR(bool, bool, |) TF_OPERATOR(int, int, +) TF_OPERATOR(float, float, +) TF_OPERATOR(float, float, *)

double half(uint32_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction ? std::nan("") : sign * HUGE_VAL;
  return sign * std::ldexp(exponent ? 1024 + fraction : fraction, std::max(exponent, 1) - 25);
}
float float_of(uint32_t bits) {
  float x;
  return std::memcpy(&x, &bits, sizeof x), x;
}

struct Warp {
  using U32 = ::U32;
  using F32 = ::F32;
  static U32 lane() { return TF_EACH(uint32_t, t); }
  static U32 shuffle(const U32 &x, const U32 &from) { return TF_EACH(uint32_t, x[from[t] % 32]); }
  template <class T> static Lanes<T> select(const Bool &which, const Lanes<T> &yes, const Lanes<T> &no) {
    return TF_EACH(T, which[t] ? yes[t] : no[t]);
  }
  static F32 as_float(const U32 &bits) { return TF_EACH(float, float_of(bits[t])); }
  static I32 as_int(const U32 &x) { return TF_EACH(int, int(x[t])); }
  static F32 fma(const F32 &x, const F32 &y, const F32 &z) { return TF_EACH(float, std::fma(x[t], y[t], z[t])); }
  static F32 power_of_two(int exponent) { return std::ldexp(1.f, exponent); }
  static F32 scale_by_power(const F32 &x, const I32 &power) { return TF_EACH(float, std::ldexp(x[t], power[t])); }
  // The layout of PTX ISA's "matrix fragments for mma.m16n8k16 with floating point type"; rounds once.
  static void mma_m16n8k16(F32 (&d)[4], const U32 (&a)[4], const U32 (&b)[2]) {
    double A[16][16], B[16][8];
    for (int i = 0; i < 256; ++i) {
      const int t = i / 8, reg = i % 8 / 2, k = 2 * (t % 4) + i % 2, shift = 16 * (i % 2);
      A[t / 4 + 8 * (reg % 2)][k + 8 * (reg / 2)] = half(a[reg][t] >> shift);
      if (reg < 2) B[k + 8 * reg][t / 4] = half(b[reg][t] >> shift);
    }
    for (int i = 0; i < 128; ++i) {
      const int t = i / 4, m = t / 4 + 8 * (i % 4 / 2), n = 2 * (t % 4) + i % 2;
      double sum = d[i % 4][t];
      for (int k = 0; k < 16; ++k) sum += A[m][k] * B[k][n];
      d[i % 4].of[t] = float(sum);
    }
  }
};
using Mma = tf::emulated::BlockScaledMma<Warp>;

// CuTe layouts: an index is split over modes, the first the fastest.
struct Mode { int shape, stride; };
struct Layout {
  std::array<Mode, 3> thread, value;
  int operator()(int t, int v) const {
    int sum = 0;
    for (const Mode &mode : thread) sum += t % mode.shape * mode.stride, t /= mode.shape;
    for (const Mode &mode : value) sum += v % mode.shape * mode.stride, v /= mode.shape;
    return sum;
  }
};
constexpr Mode NONE{1, 0};
constexpr Layout A64{{{{4, 128}, {8, 1}, NONE}}, {{{8, 16}, {2, 8}, {2, 512}}}};
constexpr Layout B64{{{{4, 64}, {8, 1}, NONE}}, {{{8, 8}, {2, 256}, NONE}}};
constexpr Layout A32{{{{4, 64}, {8, 1}, NONE}}, {{{4, 16}, {2, 8}, {2, 256}}}};
constexpr Layout B32{{{{4, 32}, {8, 1}, NONE}}, {{{4, 8}, {2, 128}, NONE}}};
constexpr Layout SFA{{{{2, 8}, {2, 0}, {8, 1}}}, {{{64, 16}, NONE, NONE}}};
constexpr Layout SFB{{{{4, 0}, {8, 1}, NONE}}, {{{64, 8}, NONE, NONE}}};
constexpr Layout CD{{{{4, 32}, {8, 1}, NONE}}, {{{2, 16}, {2, 8}, NONE}}};

constexpr const char *PLANTS[] = {"rows", "halves", "order", "unshifted", "block", "sfa_rows", "sfb_columns",
                                  "sfa_thread", "sfb_thread", "columns", "nan", "sign", "flush", "exponent", "c"};
std::string plant;
bool planted(const char *name) { return plant == name; }

struct Format {
  const char *name;
  int k, vector;
  Element a, b;
  Scale scale;
  void (*mma)(F32 (&)[4], const U32 (&)[4], const U32 (&)[2], U32, U32);
  int blocks() const { return k / vector; }
};
constexpr Element E2M1 = Element::e2m1, E4M3 = Element::e4m3;
const Format FORMATS[] = {
    {"nvfp4", 64, 16, E2M1, E2M1, Scale::ue4m3, &Mma::k64<16, Scale::ue4m3>},
    {"mxfp4", 64, 32, E2M1, E2M1, Scale::ue8m0, &Mma::k64<32, Scale::ue8m0>},
    {"fp4_v16_ue8m0", 64, 16, E2M1, E2M1, Scale::ue8m0, &Mma::k64<16, Scale::ue8m0>},
    {"mxfp8_mxfp4", 32, 32, E4M3, E2M1, Scale::ue8m0, &Mma::k32<E4M3, E2M1>},
    {"mxfp4_mxfp8", 32, 32, E2M1, E4M3, Scale::ue8m0, &Mma::k32<E2M1, E4M3>},
};

double minifloat(int code) {  // e4m3 without its sign
  if (code == 0x7f && !planted("nan")) return std::nan("");
  return std::ldexp(code >> 3 ? 8 + code % 8 : code, std::max(code >> 3, 1) - 10);
}
double value(Element type, int code) {
  constexpr double e2m1[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  return type == E2M1 ? (code & 8 ? -1 : 1) * e2m1[code & 7] : (code & 128 ? -1 : 1) * minifloat(code & 127);
}
double value(Scale type, int code) {  // the top bit of ue4m3 is not read
  if (type == Scale::ue4m3) return (planted("sign") && code & 128 ? -1 : 1) * minifloat(code & 127);
  return code == 255 && !planted("nan") ? std::nan("") : std::ldexp(1, code - (planted("exponent") ? 126 : 127));
}

std::mt19937 dice;
int any(int end) { return int(dice() % unsigned(end)); }

struct Matrices {
  uint8_t a[16][64], b[8][64], sfa[16][4], sfb[8][4];
  float c[16][8];
};

// Registers of a fragment; a 4-bit element of k32 lies in bits 2..5 of its byte, with anything about it.
template <int Rows, int Registers>
void pack(U32 (&r)[Registers], const uint8_t (&codes)[Rows][64], const Format &f, Element type) {
  const int bits = f.k == 64 ? 4 : 8, per_register = 32 / bits;
  const Layout &layout = Rows == 16 ? (f.k == 64 ? A64 : A32) : (f.k == 64 ? B64 : B32);
  for (int t = 0; t < 32; ++t)
    for (int v = 0; v < Registers * per_register; ++v) {
      int row = layout(t, v) % Rows, k = layout(t, v) / Rows;
      if (Rows == 16 && planted("rows")) row ^= 8;
      if (Rows == 16 && planted("halves")) k ^= f.k / 2;
      if (Rows == 16 && planted("order")) k ^= per_register - 1;
      uint32_t code = codes[row][k];
      if (bits == 8 && type == E2M1) code = planted("unshifted") ? code : code << 2 | (any(256) & 0xc3);
      uint32_t &word = r[v / per_register].of[t];
      word = (v % per_register ? word : 0) | code << (bits * (v % per_register));
    }
}

// The instruction reads one of the lanes that may hold a row's scales (thread-id 0), and only as many bytes as there
// are blocks: whatever else is in the registers must not matter.
template <int Rows> U32 pack_scales(const uint8_t (&codes)[Rows][4], const Format &f) {
  U32 r = each<uint32_t>([](int) { return dice(); });
  const int lanes = Rows == 16 ? 2 : 1, thread = planted(Rows == 16 ? "sfa_thread" : "sfb_thread");
  for (int t = 0; t < 32; ++t)
    for (int v = 0; v < f.k && t % 4 / lanes == thread; v += f.vector) {
      const int index = (Rows == 16 ? SFA : SFB)(t, v);
      int row = index % Rows, block = index / Rows / f.vector;
      const int byte = 8 * block;
      if (Rows == 16 && planted("block")) block = (block + 1) % f.blocks();
      if (planted(Rows == 16 ? "sfa_rows" : "sfb_columns")) row ^= Rows == 16 ? 8 : 1;
      r.of[t] = (r.of[t] & ~(0xffu << byte)) | uint32_t(codes[row][block]) << byte;
    }
  return r;
}

struct Check {
  std::string name;
  double tolerance;  // in ulps of the sum of the terms' magnitudes; 0: the float nearest to the model's value
  long cases = 0, mismatches = 0;
  double max_ulp = 0;

  void compare(const Format &f, const Matrices &x) {
    U32 a[4], b[2];
    pack(a, x.a, f, f.a);
    pack(b, x.b, f, f.b);
    const U32 sfa = pack_scales(x.sfa, f), sfb = pack_scales(x.sfb, f);
    F32 d[4];
    for (int i = 0; i < 128; ++i) d[i % 4].of[i / 4] = x.c[CD(i / 4, i % 4) % 16][CD(i / 4, i % 4) / 16];
    f.mma(d, a, b, sfa, sfb);
    for (int i = 0; i < 128; ++i)
      judge(d[i % 4][i / 4], f, x, CD(i / 4, i % 4) % 16, CD(i / 4, i % 4) / 16 ^ planted("columns"));
  }

  void judge(float got, const Format &f, const Matrices &x, int m, int n) {
    double want = planted("c") ? 0 : x.c[m][n], magnitude = std::fabs(want);
    for (int block = 0; block < f.blocks(); ++block) {
      const double scale = value(f.scale, x.sfa[m][block]) * value(f.scale, x.sfb[n][block]);
      double dot = 0, size = 0;
      for (int k = block * f.vector; k < (block + 1) * f.vector; ++k) {
        const double product = value(f.a, x.a[m][k]) * value(f.b, x.b[n][k]);
        dot += product, size += std::fabs(product);
      }
      want += dot * scale, magnitude += size * std::fabs(scale);
    }
    if (planted("flush") && std::fabs(want) < std::numeric_limits<float>::min()) want = 0;
    ++cases;
    const float nearest = float(want);
    if (got == nearest || (std::isnan(got) && std::isnan(nearest))) return;
    const double error = std::fabs(got - want) / std::ldexp(1, std::max(std::ilogb(magnitude), -126) - 23);
    mismatches += !(error <= tolerance);
    max_ulp = std::fmax(max_ulp, error);
  }
};

int codes(Element type) { return type == E2M1 ? 16 : 256; }

// `wide` is any finite number; otherwise so few binades that every sum of 64 products fits float32's 24 bits.
int number(Element type, bool wide) {
  if (type == E2M1) return any(16);
  return any(2) * 128 + (wide ? any(127) : 40 + any(40));
}
int scale(Scale type, bool wide) {
  if (type == Scale::ue4m3) return any(2) * 128 + (wide ? any(127) : 56 + any(16));
  return wide ? 107 + any(41) : 126 + any(3);
}
float accumulator(bool wide) {
  const int x = any(2047) - 1023;
  return wide ? std::ldexp(x + any(4096) / 4096.f, any(41) - 30) : x / 16.f;
}
template <class T, int R, int C, class F> void fill(T (&x)[R][C], F f) { std::generate_n(&x[0][0], R * C, f); }
Matrices roll(const Format &f, bool wide) {
  Matrices x;
  fill(x.a, [&] { return number(f.a, wide); });
  fill(x.b, [&] { return number(f.b, wide); });
  fill(x.sfa, [&] { return scale(f.scale, wide); });
  fill(x.sfb, [&] { return scale(f.scale, wide); });
  fill(x.c, [&] { return accumulator(wide); });
  return x;
}
// A and B become zero, of either sign, outside [begin, end) of K.
void keep(Matrices &x, const Format &f, int begin, int end) {
  for (int k = 0; k < f.k; ++k)
    if (k < begin || k >= end) {
      for (auto &row : x.a) row[k] = any(2) * codes(f.a) / 2;
      for (auto &row : x.b) row[k] = any(2) * codes(f.b) / 2;
    }
}

bool check(const Format &f) {
  const std::string name = f.name;
  dice.seed(1);
  Check pairs{name + ".pairs", 0};  // every pair of codes at every k
  for (int k = 0; k < f.k; ++k)
    for (int i = 0; i < codes(f.a); i += 16)
      for (int j = 0; j < codes(f.b); j += 8) {
        Matrices x = roll(f, false);
        keep(x, f, k, k + 1);
        for (int m = 0; m < 16; ++m) x.a[m][k] = (i + m + k) % codes(f.a);
        for (int n = 0; n < 8; ++n) x.b[n][k] = j + n;
        pairs.compare(f, x);
      }

  Check scales{name + ".scales", 0};  // every pair of scale codes in every block
  for (int block = 0; block < f.blocks(); ++block)
    for (int i = 0; i < 256; i += 16)
      for (int j = 0; j < 256; j += 8) {
        Matrices x = roll(f, false);
        keep(x, f, block * f.vector, (block + 1) * f.vector);
        fill(x.c, [] { return 0.f; });  // so that the product's own rounding shows
        for (int m = 0; m < 16; ++m) x.sfa[m][block] = i + m;
        for (int n = 0; n < 8; ++n) x.sfb[n][block] = j + n;
        scales.compare(f, x);
      }

  Check exact{name + ".exact", 0}, wide{name + ".wide", 2};  // 2: at most four roundings, each of half an ulp
  for (unsigned seed = 1; seed <= 64; ++seed) {
    dice.seed(seed);
    exact.compare(f, roll(f, false));
    wide.compare(f, roll(f, true));
  }

  long mismatches = 0;
  for (const Check &c : {pairs, scales, exact, wide}) {
    std::printf("%s %ld %ld %.3g\n", c.name.c_str(), c.cases, c.mismatches, c.max_ulp);
    mismatches += c.mismatches;
  }
  return mismatches == 0;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc == 3 && !std::strcmp(argv[1], "--plant")) plant = argv[2];
  if (argc != 1 && std::find(std::begin(PLANTS), std::end(PLANTS), plant) == std::end(PLANTS)) return 2;
  return std::count_if(std::begin(FORMATS), std::end(FORMATS), check) != int(std::size(FORMATS));
}
