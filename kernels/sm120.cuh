// SM120 and SM121 (RTX PRO 6000, RTX 5090, DGX Spark): block-scaled FP4 and FP8xFP4 grouped GEMM,
// TMA + mma.sync, pointer-array schedules. Both SMs run the same CUTLASS code; they differ in -gencode only.
//
// Rules read in CUTLASS 4.5.0, gemm/collective/builders/sm120_blockscaled_mma_builder.inl:
// - the cluster is 1x1x1 (no multicast on this architecture); tile N >= 32;
// - scale factors lie in shared memory in blocks of 128 rows x 4 columns, counted by whole-number division,
//   so a tile that is not a multiple of a block gets too little room: zero for tile M 64, or for tile K 64
//   with 32-element scales. It would compile and be wrong, hence the assertions below;
// - for B 4.5.0 stores max(N, 128) columns of scales, 4.2.0 N / 128 blocks: none for N < 128;
// - cooperative runs 4x2 warps on one tile, pingpong 2x2 warps on each of two;
// - FP8 x FP4 unpacks FP4 to bytes in shared memory (the mxf8f6f4 instruction), FP4 x FP4 does not.
// epilogue/collective/builders/sm120_builder.inl, 4.5.0: the automatic epilogue tile is 64x32; an explicit
// one must divide the tile.
#pragma once

#include "common.cuh"

namespace tf::sm120 {

template <int Format> struct Formats {
  static_assert(Format >= TF_FORMAT_NVFP4 && Format <= TF_FORMAT_MXFP8_MXFP4,
                "tileforge: SM120 has nvfp4, mxfp4 and mxfp8_mxfp4 only");
};
template <> struct Formats<TF_FORMAT_NVFP4> {
  using Activations = cutlass::nv_float4_t<cutlass::float_e2m1_t>;
  using Weights = Activations;
  static constexpr int vector = 16;  // elements that share a scale
  static constexpr int align_activations = 32, align_weights = 32;
  static constexpr int align_bytes = 16;
};
template <> struct Formats<TF_FORMAT_MXFP4> {
  using Activations = cutlass::mx_float4_t<cutlass::float_e2m1_t>;
  using Weights = Activations;
  static constexpr int vector = 32;
  static constexpr int align_activations = 32, align_weights = 32;
  static constexpr int align_bytes = 16;
};
// TMA unpacks FP4 to bytes in blocks of 128 elements, from addresses on 32 bytes
// (get_input_alignment_bits in detail/collective.hpp, 4.5.0; CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B).
template <> struct Formats<TF_FORMAT_MXFP8_MXFP4> {
  using Activations = cutlass::mx_float8_t<cutlass::float_e4m3_t>;
  using Weights = cutlass::mx_float4_t<cutlass::float_e2m1_t>;
  static constexpr int vector = 32;
  static constexpr int align_activations = 128, align_weights = 128;
  static constexpr int align_bytes = 32;
};

template <int Schedule> struct Schedules;
template <> struct Schedules<TF_SCHEDULE_COOPERATIVE> {
  using Mainloop = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperative;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative;
};
template <> struct Schedules<TF_SCHEDULE_PINGPONG> {
  using Mainloop = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong;
};

#if CUTLASS_VERSION < 450
// CUTLASS 4.2.0 writes Int<SFVectorSize> with an unsigned SFVectorSize (sm120_blockscaled_mma_builder.inl).
// nvcc makes that C<16>, g++ 12 C<16u>: two types, and the launch stub does not compile. 4.5.0 casts to int.
template <class T> struct WithInts { using type = T; };
template <auto V> struct WithInts<cute::C<V>> { using type = cute::C<static_cast<int>(V)>; };
template <class... T> struct WithInts<cute::tuple<T...>> { using type = cute::tuple<typename WithInts<T>::type...>; };
template <class S, class D> struct WithInts<cute::Layout<S, D>> {
  using type = cute::Layout<typename WithInts<S>::type, typename WithInts<D>::type>;
};
template <class P, class T, class EA, class SA, class EB, class SB, class M, class GA, class LA, class CA, class XA,
          class GB, class LB, class CB, class XB>
struct WithInts<cutlass::gemm::collective::CollectiveMma<P, T, EA, SA, EB, SB, M, GA, LA, CA, XA, GB, LB, CB, XB>> {
  using type = cutlass::gemm::collective::CollectiveMma<P, T, EA, SA, EB, SB, M, GA, typename WithInts<LA>::type, CA, XA,
                                                        GB, typename WithInts<LB>::type, CB, XB>;
};
#else
template <class T> struct WithInts { using type = T; };
#endif

template <int Format_, int Out_, int TileM, int TileN, int TileK, int ClusterM, int ClusterN, int Schedule_,
          int Stages_, int EpiM, int EpiN, int SwapAB_>
struct Kernel {
  static_assert(ClusterM == 1 && ClusterN == 1, "tileforge: SM120 has no multicast, the cluster must be 1x1");
  static_assert(TileM % 128 == 0, "tileforge: block-scaled tile M must be a multiple of 128 (scale block)");
  static_assert(TileK % (4 * Formats<Format_>::vector) == 0,
                "tileforge: block-scaled tile K must be a multiple of 4 scale vectors (scale block)");
  static_assert(TileN % 128 == 0 || 128 % TileN == 0,
                "tileforge: block-scaled tile N must divide 128 or be a multiple of it (scale block)");
  static_assert(CUTLASS_VERSION >= 450 || TileN % 128 == 0,
                "tileforge: block-scaled tile N below 128 needs CUTLASS 4.5.0 or later");

  static constexpr int format = Format_, out = Out_, schedule = Schedule_;
  static constexpr int tile_m = TileM, tile_n = TileN, tile_k = TileK;
  static constexpr int cluster_m = 1, cluster_n = 1;
  static constexpr bool swap_ab = SwapAB_ != 0;
  static constexpr bool scaled = true;

  using Format = Formats<Format_>;
  using ElementD = typename OutElement<Out_>::type;
  using Ops = Operands<swap_ab, typename Format::Activations, typename Format::Weights>;
  using LayoutD = typename Ops::LayoutD;
  using TileShape = cute::Shape<cute::Int<TileM>, cute::Int<TileN>, cute::Int<TileK>>;
  using ClusterShape = cute::Shape<cute::_1, cute::_1, cute::_1>;
  using Tags = Schedules<Schedule_>;

  static constexpr int align_a = swap_ab ? Format::align_weights : Format::align_activations;
  static constexpr int align_b = swap_ab ? Format::align_activations : Format::align_weights;
  static constexpr int align_d = 128 / cutlass::sizeof_bits<ElementD>::value;
  static constexpr int k_multiple = align_a > align_b ? align_a : align_b, n_multiple = align_d;
  static constexpr int align_bytes = Format::align_bytes;

  using CollectiveEpilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm120, cutlass::arch::OpClassBlockScaledTensorOp, TileShape, ClusterShape,
      typename EpilogueTile<EpiM, EpiN>::type, float, float, void, LayoutD *, align_d, ElementD, LayoutD *, align_d,
      typename Tags::Epilogue>::CollectiveOp;

  using CollectiveMainloop = typename WithInts<typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm120, cutlass::arch::OpClassBlockScaledTensorOp, typename Ops::A, cutlass::layout::RowMajor *,
      align_a, typename Ops::B, cutlass::layout::ColumnMajor *, align_b, float, TileShape, ClusterShape,
      typename StageCount<Stages_, CollectiveEpilogue>::type, typename Tags::Mainloop>::CollectiveOp>::type;

  using GemmKernel = cutlass::gemm::kernel::GemmUniversal<ProblemShape, CollectiveMainloop, CollectiveEpilogue>;
  using Facts = Derived<GemmKernel>;
};

}  // namespace tf::sm120
