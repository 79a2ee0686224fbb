// What the headers of all SMs share: element types, epilogue tile and stage count selection, derived facts.
#pragma once

#include "abi.h"

#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/dispatch_policy.hpp"
#include "cutlass/gemm/group_array_problem_shape.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/numeric_types.h"
#include "cutlass/version.h"

namespace tf {

using ProblemShape = cutlass::gemm::GroupProblemShape<cute::Shape<int, int, int>>;

template <int Out> struct OutElement;
template <> struct OutElement<TF_OUT_BF16> { using type = cutlass::bfloat16_t; };
template <> struct OutElement<TF_OUT_FP16> { using type = cutlass::half_t; };
template <> struct OutElement<TF_OUT_FP32> { using type = float; };

// 0x0 leaves the epilogue tile to the CUTLASS builder.
template <int M, int N> struct EpilogueTile { using type = cute::Shape<cute::Int<M>, cute::Int<N>>; };
template <> struct EpilogueTile<0, 0> { using type = cutlass::epilogue::collective::EpilogueTileAuto; };

// 0 takes as many stages as fit beside the epilogue, by the builder's own reckoning.
template <int Stages, class CollectiveEpilogue> struct StageCount {
  using type = cutlass::gemm::collective::StageCount<Stages>;
};
template <class CollectiveEpilogue> struct StageCount<0, CollectiveEpilogue> {
  using type = cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
      sizeof(typename CollectiveEpilogue::SharedStorage))>;
};

// swap_ab computes D^T = B A^T: the weights become the kernel's A, the rows its N, and the row-major D
// of the problem is column-major for the kernel.
template <bool SwapAB, class Activations, class Weights> struct Operands {
  using A = Activations;
  using B = Weights;
  using LayoutD = cutlass::layout::RowMajor;
};
template <class Activations, class Weights> struct Operands<true, Activations, Weights> {
  using A = Weights;
  using B = Activations;
  using LayoutD = cutlass::layout::ColumnMajor;
};

// Facts that follow from the chosen fields. All are compile-time: nvcc -ptx can answer them (oracle.cuh).
template <class GemmKernel> struct Derived {
  using Mainloop = typename GemmKernel::CollectiveMainloop;
  using Epilogue = typename GemmKernel::CollectiveEpilogue;
  using EpiTile = typename Epilogue::EpilogueTile;
  using Storage = typename GemmKernel::SharedStorage;
  static constexpr int stages = Mainloop::DispatchPolicy::Stages;
  static constexpr int smem_bytes = GemmKernel::SharedStorageSize;
  static constexpr int mainloop_bytes = static_cast<int>(sizeof(typename Mainloop::TensorStorage));
  static constexpr int epilogue_bytes = static_cast<int>(sizeof(typename Epilogue::SharedStorage));
  static constexpr int epilogue_tensor_bytes = static_cast<int>(sizeof(typename Epilogue::TensorStorage));
  static constexpr int pipeline_bytes = static_cast<int>(sizeof(typename Storage::PipelineStorage));
  static constexpr int tensormap_bytes = static_cast<int>(sizeof(typename Storage::TensorMapStorage));
  static constexpr int threads = static_cast<int>(GemmKernel::MaxThreadsPerBlock);
  static constexpr int epi_m = cute::size<0>(cute::shape(EpiTile{}));
  static constexpr int epi_n = cute::size<1>(cute::shape(EpiTile{}));
};

}  // namespace tf
