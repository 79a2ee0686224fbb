// Epilogues that tileforge's own kernels do not have, for comparing tileforge.smem with the compiler:
//   tf::with_c      a C operand of the output's type and layout
//   tf::finalize    FlashInfer's fused MoE finalize: C as above, D scattered to global memory
// Template parameters and facts are those of tf::sm120::Kernel and tf::sm90::Kernel, so that TF_ORACLE can ask.
// The shape of FlashInfer's epilogue was read in its moe_gemm_tma_ws_launcher.inl, 0.7.4.
#pragma once

#if defined(TF_EPILOGUE_SM90)
#include "sm90.cuh"
#define TF_EPILOGUE_BASE tf::sm90::Kernel
#define TF_EPILOGUE_ARCH cutlass::arch::Sm90
#define TF_EPILOGUE_CLASS cutlass::arch::OpClassTensorOp
#else
#include "sm120.cuh"
#define TF_EPILOGUE_BASE tf::sm120::Kernel
#define TF_EPILOGUE_ARCH cutlass::arch::Sm120
#define TF_EPILOGUE_CLASS cutlass::arch::OpClassBlockScaledTensorOp
#endif
#if defined(TF_EPILOGUE_FINALIZE)
#include "cutlass_extensions/epilogue/fusion/sm90_visitor_scatter.hpp"
#endif

namespace tf {

// The kernel of `Base` with another epilogue; automatic stages are counted beside that one.
template <class Base, class Epilogue, int Stages> struct Replaced : Base {
  template <bool Scaled, class B> struct Aligns { static constexpr int a = B::align_a, b = B::align_b; };
  template <class B> struct Aligns<false, B> { static constexpr int a = B::align_ab, b = B::align_ab; };
  using Align = Aligns<Base::scaled, Base>;
  using CollectiveEpilogue = Epilogue;
  using CollectiveMainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      TF_EPILOGUE_ARCH, TF_EPILOGUE_CLASS, typename Base::Ops::A, cutlass::layout::RowMajor *, Align::a,
      typename Base::Ops::B, cutlass::layout::ColumnMajor *, Align::b, float, typename Base::TileShape,
      typename Base::ClusterShape, typename StageCount<Stages, Epilogue>::type,
      typename Base::Tags::Mainloop>::CollectiveOp;
  using GemmKernel = cutlass::gemm::kernel::GemmUniversal<ProblemShape, CollectiveMainloop, CollectiveEpilogue>;
  using Facts = Derived<GemmKernel>;
};

namespace with_c {
template <class Base, int EpiM, int EpiN>
using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    TF_EPILOGUE_ARCH, TF_EPILOGUE_CLASS, typename Base::TileShape, typename Base::ClusterShape,
    typename EpilogueTile<EpiM, EpiN>::type, float, float, typename Base::ElementD, typename Base::LayoutD *,
    Base::align_d, typename Base::ElementD, typename Base::LayoutD *, Base::align_d,
    typename Base::Tags::Epilogue>::CollectiveOp;

template <int F, int O, int M, int N, int K, int CM, int CN, int S, int Stages, int EM, int EN, int Swap>
struct Kernel : Replaced<TF_EPILOGUE_BASE<F, O, M, N, K, CM, CN, S, 2, EM, EN, Swap>,
                         Epilogue<TF_EPILOGUE_BASE<F, O, M, N, K, CM, CN, S, 2, EM, EN, Swap>, EM, EN>, Stages> {};
}  // namespace with_c

#if defined(TF_EPILOGUE_FINALIZE)
namespace finalize {
template <class Base>
using Fusion = cute::conditional_t<
    Base::swap_ab,
    cutlass::epilogue::fusion::ScaledAccPerRowBiasPerColScaleScatter<typename Base::LayoutD, typename Base::ElementD,
                                                                     float, typename Base::ElementD, float>,
    cutlass::epilogue::fusion::ScaledAccPerColBiasPerRowScaleScatter<typename Base::LayoutD, typename Base::ElementD,
                                                                     float, typename Base::ElementD, float>>;

template <class Base, int EpiM, int EpiN>
using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    TF_EPILOGUE_ARCH, TF_EPILOGUE_CLASS, typename Base::TileShape, typename Base::ClusterShape,
    typename EpilogueTile<EpiM, EpiN>::type, float, float, typename Base::ElementD, typename Base::LayoutD *,
    Base::align_d, void, typename Base::LayoutD *, Base::align_d, typename Base::Tags::Epilogue,
    Fusion<Base>>::CollectiveOp;

template <int F, int O, int M, int N, int K, int CM, int CN, int S, int Stages, int EM, int EN, int Swap>
struct Kernel : Replaced<TF_EPILOGUE_BASE<F, O, M, N, K, CM, CN, S, 2, EM, EN, Swap>,
                         Epilogue<TF_EPILOGUE_BASE<F, O, M, N, K, CM, CN, S, 2, EM, EN, Swap>, EM, EN>, Stages> {};
}  // namespace finalize
#endif

}  // namespace tf
