// Asking the compiler what a tactic would be. No kernel body is generated, no GPU is needed: reading the headers takes
// about 4 s, each tactic then 0.05 to 0.15 s (nvcc 13.0, 2 cores, 2026-12-01).
//
//   // q.cu: one line per tactic
//   #include "oracle.cuh"
//   TF_ORACLE(0, TF_FORMAT_NVFP4, TF_OUT_BF16, 128,128,128, 1,1, TF_SCHEDULE_COOPERATIVE, 0, 0,0, 0, TF_C_NONE, 0)
//   //           format           output       tile         cluster                    stages epi swap C     finalize
//
//   nvcc -std=c++17 --expt-relaxed-constexpr -DNDEBUG -DTF_SM=120 -arch=sm_120a -ptx -I$CUTLASS/include -Ikernels q.cu
//
// Each line becomes, in the PTX, TF_ORACLE_FIELDS little-endian int32 in the order below, trailing zero bytes left out:
//   .global .align 4 .b8 tf_oracle_0[56] = {4, 0, 0, 0, 0, 76, 1, 0, ...};
// A tactic that CUTLASS refuses fails the whole file, and the error's trace names its line.
//
// The types are put together here from CUTLASS's builders alone, apart from sm120.cuh and sm90.cuh, and without the
// assertions that those make: what is asked is CUTLASS, not tileforge. So the bytes of the scale factors are answered
// as well, because CUTLASS instantiates some tiles with less room for them than the tile has.
//
// TF_ORACLE_BODY in place of TF_ORACLE instantiates the kernel's body (-fdevice-syntax-only: no code is generated,
// about 20 s each): it answers nothing, and fails where an assertion of the body does.
#pragma once

#if TF_SM == 90
#include "sm90.cuh"
#else
#include "sm120.cuh"
#endif
#include "cutlass/device_kernel.h"
#if defined(TF_ORACLE_FINALIZE)  // FlashInfer's fused MoE finalize; its headers come with FlashInfer
#include "cutlass_extensions/epilogue/fusion/sm90_visitor_scatter.hpp"
#endif

#define TF_C_NONE -1  // no C operand; else TF_OUT_BF16, TF_OUT_FP16 or TF_OUT_FP32

namespace tf::oracle {

#if TF_SM == 90
using Arch = cutlass::arch::Sm90;
using OpClass = cutlass::arch::OpClassTensorOp;
template <int Format, int Schedule> struct Design {
  using Activations = typename sm90::Element<Format>::type;
  using Weights = Activations;
  using Tags = sm90::Schedules<Format, Schedule>;
  static constexpr int align_activations = 128 / cutlass::sizeof_bits<Activations>::value;
  static constexpr int align_weights = align_activations;
};
template <class Mainloop> struct Scales { static constexpr int a = 0, b = 0; };
#else
using Arch = cutlass::arch::Sm120;
using OpClass = cutlass::arch::OpClassBlockScaledTensorOp;
template <int Format, int Schedule> struct Design : sm120::Formats<Format> {
  using Tags = sm120::Schedules<Schedule>;
};
// Bytes, all stages; a scale factor is a byte.
template <class Mainloop> struct Scales {
  static constexpr int a = cute::cosize_v<typename Mainloop::SmemLayoutSFA>;
  static constexpr int b = cute::cosize_v<typename Mainloop::SmemLayoutSFB>;
};
#endif

template <int C> struct Source { using type = typename OutElement<C>::type; };
template <> struct Source<TF_C_NONE> { using type = void; };
template <class T> struct Align { static constexpr int value = 128 / cutlass::sizeof_bits<T>::value; };

// Epilogue: adds C (which may be void) and stores D.
template <class Tile, class Cluster, class EpiTile, class C, class D, class Layout, class Tag, bool Swap, bool Finalize>
struct Epilogues {
  static constexpr int align_c = Align<cute::conditional_t<cute::is_void_v<C>, D, C>>::value;
  using type = typename cutlass::epilogue::collective::CollectiveBuilder<
      Arch, OpClass, Tile, Cluster, EpiTile, float, float, C, Layout *, align_c, D, Layout *, Align<D>::value,
      Tag>::CollectiveOp;
};
#if defined(TF_ORACLE_FINALIZE)
// D is void and scattered; the shape of this epilogue was read in FlashInfer 0.7.4, moe_gemm_tma_ws_launcher.inl.
template <class Tile, class Cluster, class EpiTile, class C, class D, class Layout, class Tag, bool Swap>
struct Epilogues<Tile, Cluster, EpiTile, C, D, Layout, Tag, Swap, true> {
  using Fusion = cute::conditional_t<
      Swap, cutlass::epilogue::fusion::ScaledAccPerRowBiasPerColScaleScatter<Layout, D, float, D, float>,
      cutlass::epilogue::fusion::ScaledAccPerColBiasPerRowScaleScatter<Layout, D, float, D, float>>;
  using type = typename cutlass::epilogue::collective::CollectiveBuilder<
      Arch, OpClass, Tile, Cluster, EpiTile, float, float, D, Layout *, Align<D>::value, void, Layout *,
      Align<D>::value, Tag, Fusion>::CollectiveOp;
};
#endif

template <int Format, int Out, int TileM, int TileN, int TileK, int ClusterM, int ClusterN, int Schedule, int Stages,
          int EpiM, int EpiN, int Swap, int C, int Finalize>
struct Kernel {
  using D = Design<Format, Schedule>;
  using Ops = Operands<Swap != 0, typename D::Activations, typename D::Weights>;
  using Tile = cute::Shape<cute::Int<TileM>, cute::Int<TileN>, cute::Int<TileK>>;
  using Cluster = cute::Shape<cute::Int<ClusterM>, cute::Int<ClusterN>, cute::_1>;
  using CollectiveEpilogue =
      typename Epilogues<Tile, Cluster, typename EpilogueTile<EpiM, EpiN>::type, typename Source<C>::type,
                         typename OutElement<Out>::type, typename Ops::LayoutD, typename D::Tags::Epilogue, Swap != 0,
                         Finalize != 0>::type;
  using CollectiveMainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      Arch, OpClass, typename Ops::A, cutlass::layout::RowMajor *, Swap ? D::align_weights : D::align_activations,
      typename Ops::B, cutlass::layout::ColumnMajor *, Swap ? D::align_activations : D::align_weights, float, Tile,
      Cluster, typename StageCount<Stages, CollectiveEpilogue>::type, typename D::Tags::Mainloop>::CollectiveOp;
  using GemmKernel = cutlass::gemm::kernel::GemmUniversal<ProblemShape, CollectiveMainloop, CollectiveEpilogue>;
};

template <class Kernel> struct Facts : Derived<typename Kernel::GemmKernel> {
  using S = Scales<typename Kernel::CollectiveMainloop>;
};

// Gives the kernel a short name.
template <class Kernel> struct Gemm : Kernel::GemmKernel {};

}  // namespace tf::oracle

#define TF_ORACLE_FIELDS 14

#define TF_ORACLE(name, ...)                                                                                     \
  using tf_kernel_##name = tf::oracle::Kernel<__VA_ARGS__>;                                                      \
  extern "C" {                                                                                                   \
  __device__ int tf_oracle_##name[TF_ORACLE_FIELDS] = {                                                          \
      tf::oracle::Facts<tf_kernel_##name>::stages,                                                               \
      tf::oracle::Facts<tf_kernel_##name>::smem_bytes,             /* sizeof(GemmKernel::SharedStorage) */       \
      tf::oracle::Facts<tf_kernel_##name>::mainloop_bytes,         /* operand and scale tiles, all stages */     \
      tf::oracle::Facts<tf_kernel_##name>::epilogue_bytes,         /* what the auto stage count sets aside */    \
      tf::oracle::Facts<tf_kernel_##name>::epilogue_tensor_bytes,  /* what the epilogue tensors really take */   \
      tf::oracle::Facts<tf_kernel_##name>::pipeline_bytes,                                                       \
      tf::oracle::Facts<tf_kernel_##name>::tensormap_bytes,                                                      \
      tf::oracle::Facts<tf_kernel_##name>::threads,                                                              \
      tf::oracle::Facts<tf_kernel_##name>::epi_m,                                                                \
      tf::oracle::Facts<tf_kernel_##name>::epi_n,                                                                \
      tf::oracle::Facts<tf_kernel_##name>::S::a,                   /* scale factors, all stages */               \
      tf::oracle::Facts<tf_kernel_##name>::S::b,                                                                 \
      CUTLASS_VERSION,                                                                                           \
      1 /* end */};                                                                                              \
  }

#define TF_ORACLE_BODY(name, ...)                                                                                \
  template __global__ void cutlass::device_kernel<tf::oracle::Gemm<tf::oracle::Kernel<__VA_ARGS__>>>(            \
      const __grid_constant__ typename tf::oracle::Gemm<tf::oracle::Kernel<__VA_ARGS__>>::Params);
