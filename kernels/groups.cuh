// Per-group arrays that a CUTLASS pointer-array kernel reads, and the device kernel that derives them from
// the offsets vector. The host never learns the group sizes, so nothing here synchronises.
#pragma once

#include "common.cuh"

#include <cuda_runtime_api.h>

namespace tf {

// Types of the scale-factor arrays; empty for dense formats.
template <class Kernel, bool Scaled = Kernel::scaled> struct ScaleTypes {
  using Element = void;
  struct LayoutA {};
  struct LayoutB {};
};
template <class Kernel> struct ScaleTypes<Kernel, true> {
  using Mainloop = typename Kernel::CollectiveMainloop;
  using Element = typename Mainloop::ElementSF;
  using LayoutA = typename Mainloop::InternalLayoutSFA;
  using LayoutB = typename Mainloop::InternalLayoutSFB;
  using Config = typename Mainloop::Sm1xxBlkScaledConfig;
};

template <class Kernel> struct GroupArrays {
  using GemmKernel = typename Kernel::GemmKernel;
  using StrideA = typename GemmKernel::InternalStrideA;
  using StrideB = typename GemmKernel::InternalStrideB;
  using StrideD = typename GemmKernel::InternalStrideD;
  using Scales = ScaleTypes<Kernel>;
  using LayoutSFA = typename Scales::LayoutA;
  using LayoutSFB = typename Scales::LayoutB;

  typename ProblemShape::UnderlyingProblemShape *shape;
  const void **a, **b, **sfa, **sfb;
  void **d;
  StrideA *da;
  StrideB *db;
  StrideD *dd;
  LayoutSFA *lsfa;
  LayoutSFB *lsfb;

  // Lays the arrays out from `base` (null only to measure) and returns the bytes used. Sections start on
  // 256 bytes so that what follows them, CUTLASS's tensor maps, is aligned as well.
  uint64_t carve(void *base, int groups) {
    uint64_t used = 0;
    auto take = [&](auto *&p) {
      p = reinterpret_cast<std::remove_reference_t<decltype(p)>>(reinterpret_cast<uintptr_t>(base) + used);
      used += (uint64_t(groups) * sizeof(*p) + 255) / 256 * 256;
    };
    take(shape), take(a), take(b), take(d), take(da), take(db), take(dd);
    sfa = sfb = nullptr, lsfa = nullptr, lsfb = nullptr;
    if constexpr (Kernel::scaled) take(sfa), take(sfb), take(lsfa), take(lsfb);
    return used;
  }
};

struct ProblemTensors {
  const char *a, *b, *sfa, *sfb;
  char *d;
  const int32_t *offsets;
  int32_t groups, m, n, k;
};

template <class Element> __host__ __device__ constexpr int64_t bytes_of(int64_t elements) {
  return elements * cutlass::sizeof_bits<Element>::value / 8;
}

// One thread per group. Offsets are clamped to [0, m] and to be non-decreasing, so that a bad vector gives
// a wrong result instead of an access outside the tensors, which would cost the whole CUDA context.
template <class Kernel> __global__ void derive_groups(GroupArrays<Kernel> out, ProblemTensors in) {
  using Arrays = GroupArrays<Kernel>;
  using ElementA = typename Kernel::CollectiveMainloop::ElementA;
  using ElementB = typename Kernel::CollectiveMainloop::ElementB;
  constexpr bool swap = Kernel::swap_ab;
  using Activation = cute::conditional_t<swap, ElementB, ElementA>;
  using Weight = cute::conditional_t<swap, ElementA, ElementB>;

  for (int g = blockIdx.x * blockDim.x + threadIdx.x; g < in.groups; g += gridDim.x * blockDim.x) {
    const int first = min(max(in.offsets[g], 0), in.m);
    const int rows = min(max(in.offsets[g + 1], first), in.m) - first;

    const char *acts = in.a + bytes_of<Activation>(int64_t(first) * in.k);
    const char *weights = in.b + bytes_of<Weight>(int64_t(g) * in.n * in.k);
    out.shape[g] = swap ? cute::make_shape(in.n, rows, in.k) : cute::make_shape(rows, in.n, in.k);
    out.a[g] = swap ? weights : acts;
    out.b[g] = swap ? acts : weights;
    out.d[g] = in.d + bytes_of<typename Kernel::ElementD>(int64_t(first) * in.n);

    typename Arrays::StrideA da{};
    typename Arrays::StrideB db{};
    typename Arrays::StrideD dd{};
    cute::get<0>(da) = in.k;
    cute::get<0>(db) = in.k;
    cute::get<swap ? 1 : 0>(dd) = in.n;
    out.da[g] = da, out.db[g] = db, out.dd[g] = dd;

    if constexpr (Kernel::scaled) {
      // Scales lie in blocks of 128 rows x 4 columns (cutlass/detail/sm100_blockscaled_layout.hpp, 4.5.0).
      // Group starts follow FlashInfer 0.7.4: rounding offset + 127 g down to 128 leaves each group room
      // for its own padding without anybody adding up the sizes of the groups before it.
      using Config = typename Arrays::Scales::Config;
      constexpr int per_column_block = 4 * Config::SFVecSize;
      const int64_t columns = int64_t(in.k + per_column_block - 1) / per_column_block * 4;
      const int64_t act_row = (int64_t(first) + 127 * int64_t(g)) / 128 * 128;
      const int64_t weight_row = int64_t(g) * ((in.n + 127) / 128 * 128);
      const char *act_scales = in.sfa + act_row * columns;
      const char *weight_scales = in.sfb + weight_row * columns;
      const auto mnkl = swap ? cute::make_shape(in.n, rows, in.k, 1) : cute::make_shape(rows, in.n, in.k, 1);
      out.sfa[g] = swap ? weight_scales : act_scales;
      out.sfb[g] = swap ? act_scales : weight_scales;
      out.lsfa[g] = Config::tile_atom_to_shape_SFA(mnkl);
      out.lsfb[g] = Config::tile_atom_to_shape_SFB(mnkl);
    }
  }
}

// Fills the mainloop arguments of the GEMM. A template so that dense formats never see the scale members.
template <class Kernel, class MainloopArguments>
void read_operands_from(const GroupArrays<Kernel> &arrays, MainloopArguments &out) {
  out.ptr_A = reinterpret_cast<decltype(out.ptr_A)>(arrays.a);
  out.ptr_B = reinterpret_cast<decltype(out.ptr_B)>(arrays.b);
  out.dA = arrays.da;
  out.dB = arrays.db;
  if constexpr (Kernel::scaled) {
    out.ptr_SFA = reinterpret_cast<decltype(out.ptr_SFA)>(arrays.sfa);
    out.ptr_SFB = reinterpret_cast<decltype(out.ptr_SFB)>(arrays.sfb);
    out.layout_SFA = arrays.lsfa;
    out.layout_SFB = arrays.lsfb;
  }
}

template <class Kernel>
cudaError_t launch_derive_groups(const GroupArrays<Kernel> &out, const ProblemTensors &in, cudaStream_t stream) {
  const int threads = 128;
  const int blocks = in.groups < threads * 64 ? (in.groups + threads - 1) / threads : 64;
  derive_groups<Kernel><<<blocks, threads, 0, stream>>>(out, in);
  return cudaGetLastError();
}

}  // namespace tf
