// SM90 (Hopper): dense bf16 and fp8 grouped GEMM, TMA + WGMMA, pointer-array schedules.
//
// Rules read in CUTLASS 4.2.0 and 4.5.0 (the same in both):
// - cute/arch/mma_sm90.hpp, ss_op_selector: tile M is a multiple of 64; tile K of 16 (bf16) or 32 (fp8);
//   the WGMMA takes the largest N of 8, 16, 32, 64, 96, 128, 192, 256 that divides tile N.
// - gemm/collective/builders/sm90_gmma_builder.inl: cooperative puts two consumer warp groups along M,
//   hence tile M >= 128; pingpong gives each a tile of its own, hence 64 works.
// - epilogue/collective/builders/sm90_builder.inl: the automatic epilogue tile is 128x32 (cooperative) or
//   64x32 (pingpong), narrower if tile N is; an explicit one must have that M, and N a multiple of 16.
#pragma once

#include "common.cuh"

namespace tf::sm90 {

template <int Format> struct Element {
  static_assert(Format == TF_FORMAT_BF16 || Format == TF_FORMAT_FP8, "tileforge: SM90 has bf16 and fp8 only");
};
template <> struct Element<TF_FORMAT_BF16> { using type = cutlass::bfloat16_t; };
template <> struct Element<TF_FORMAT_FP8> { using type = cutlass::float_e4m3_t; };

template <int Format, int Schedule> struct Schedules;
template <> struct Schedules<TF_FORMAT_BF16, TF_SCHEDULE_COOPERATIVE> {
  using Mainloop = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperative;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative;
};
template <> struct Schedules<TF_FORMAT_BF16, TF_SCHEDULE_PINGPONG> {
  using Mainloop = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong;
};
// FastAccum: the tensor core's own accumulation, without promotion to float32 every few steps.
template <> struct Schedules<TF_FORMAT_FP8, TF_SCHEDULE_COOPERATIVE> {
  using Mainloop = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperativeFP8FastAccum;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative;
};
template <> struct Schedules<TF_FORMAT_FP8, TF_SCHEDULE_PINGPONG> {
  using Mainloop = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpongFP8FastAccum;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong;
};

template <int Format_, int Out_, int TileM, int TileN, int TileK, int ClusterM, int ClusterN, int Schedule_,
          int Stages_, int EpiM, int EpiN, int SwapAB_>
struct Kernel {
  static_assert(Schedule_ != TF_SCHEDULE_COOPERATIVE || TileM >= 128,
                "tileforge: SM90 cooperative needs tile M >= 128 (two consumer warp groups along M)");

  static constexpr int format = Format_, out = Out_, schedule = Schedule_;
  static constexpr int tile_m = TileM, tile_n = TileN, tile_k = TileK;
  static constexpr int cluster_m = ClusterM, cluster_n = ClusterN;
  static constexpr bool swap_ab = SwapAB_ != 0;
  static constexpr bool scaled = false;

  using ElementAB = typename Element<Format_>::type;
  using ElementD = typename OutElement<Out_>::type;
  using Ops = Operands<swap_ab, ElementAB, ElementAB>;
  using LayoutD = typename Ops::LayoutD;
  using TileShape = cute::Shape<cute::Int<TileM>, cute::Int<TileN>, cute::Int<TileK>>;
  using ClusterShape = cute::Shape<cute::Int<ClusterM>, cute::Int<ClusterN>, cute::_1>;
  using Tags = Schedules<Format_, Schedule_>;

  // Rows of all operands start on 16 bytes: TMA.
  static constexpr int align_ab = 128 / cutlass::sizeof_bits<ElementAB>::value;
  static constexpr int align_d = 128 / cutlass::sizeof_bits<ElementD>::value;
  static constexpr int k_multiple = align_ab, n_multiple = align_d;
  static constexpr int align_bytes = 16;

  using CollectiveEpilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
      typename EpilogueTile<EpiM, EpiN>::type, float, float, void, LayoutD *, align_d, ElementD, LayoutD *, align_d,
      typename Tags::Epilogue>::CollectiveOp;

  using CollectiveMainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, typename Ops::A, cutlass::layout::RowMajor *, align_ab,
      typename Ops::B, cutlass::layout::ColumnMajor *, align_ab, float, TileShape, ClusterShape,
      typename StageCount<Stages_, CollectiveEpilogue>::type, typename Tags::Mainloop>::CollectiveOp;

  using GemmKernel = cutlass::gemm::kernel::GemmUniversal<ProblemShape, CollectiveMainloop, CollectiveEpilogue>;
  using Facts = Derived<GemmKernel>;
};

}  // namespace tf::sm90
