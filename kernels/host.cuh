// The host side of one tactic: checks arguments, sizes the workspace, launches.
//
// Everything is a template over Kernel on purpose: nvcc then hands the host compiler the names as written,
// instead of spelling out CUTLASS types of several thousand characters, and symbols stay short.
#pragma once

#include "errors.cuh"
#include "groups.cuh"

#include "cutlass/device_kernel.h"

namespace tf {

// Gives the CUTLASS kernel a short name, hence short symbols.
template <class Kernel> struct Gemm : Kernel::GemmKernel {};

template <class Kernel> struct Host {
  using GemmKernel = Gemm<Kernel>;
  using Arrays = GroupArrays<Kernel>;
  using Arguments = typename GemmKernel::Arguments;
  using Params = typename GemmKernel::Params;
  using Facts = typename Kernel::Facts;

  // SMs to size the workspace for when the caller leaves sm_count to us: no GPU of these families has more.
  static constexpr int max_sms = 256;

  static const void *gemm_function() { return reinterpret_cast<const void *>(cutlass::device_kernel<GemmKernel>); }

  static Arguments make_arguments(const tf_args &args, const Arrays &arrays, int sm_count) {
    Arguments out{};
    out.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
    out.problem_shape = {args.groups, arrays.shape, nullptr};  // no host shapes: sizes live on the device
    out.hw_info.device_id = args.device;
    out.hw_info.sm_count = sm_count;
    read_operands_from(arrays, out.mainloop);

    auto &epi = out.epilogue;
    epi.ptr_D = reinterpret_cast<decltype(epi.ptr_D)>(arrays.d);
    epi.dD = arrays.dd;
    epi.thread.alpha = 1.f;
    epi.thread.beta = 0.f;
    if (args.alpha) {
      // Group g reads alpha_ptr[g * dAlpha.L]: Sm90ScalarBroadcastPtrArray in
      // epilogue/fusion/sm90_visitor_load_tma_warpspecialized.hpp, 4.2.0 and 4.5.0.
      epi.thread.alpha_ptr = args.alpha;
      epi.thread.dAlpha = {cute::_0{}, cute::_0{}, 1};
    }

    // With device-only sizes CUTLASS's heuristic always answers AlongN, and 4.2.0 ignores max_swizzle
    // (PersistentTileSchedulerSm90GroupParams in gemm/kernel/tile_scheduler_params.h, 4.2.0 and 4.5.0).
    using Raster = typename GemmKernel::TileScheduler::RasterOrderOptions;
    out.scheduler.raster_order = args.raster == 1   ? Raster::AlongM
                                 : args.raster == 2 ? Raster::AlongN
                                                    : Raster::Heuristic;
    out.scheduler.max_swizzle_size = args.max_swizzle < 1 ? 1 : args.max_swizzle;
    return out;
  }

  static uint64_t workspace_bytes(const tf_args &args, int sm_count) {
    Arrays arrays;
    const uint64_t groups_part = arrays.carve(nullptr, args.groups < 0 ? 0 : args.groups);
    return groups_part + GemmKernel::get_workspace_size(make_arguments(args, arrays, sm_count));
  }

  static uint64_t workspace_size(const tf_args &args) {
    return workspace_bytes(args, args.sm_count > 0 ? args.sm_count : max_sms);
  }

  static int check_pointer(const void *p, const char *name, int alignment) {
    if (!p) return fail(TF_ERR_ARGUMENT, "%s is null", name);
    if (reinterpret_cast<uintptr_t>(p) % alignment)
      return fail(TF_ERR_ARGUMENT, "%s = %p is not aligned to %d bytes", name, p, alignment);
    return TF_OK;
  }

  // Everything that can be known without asking the device. Sets `empty` when there is nothing to compute.
  static int check(const tf_args *args, bool &empty) {
    if (!args) return fail(TF_ERR_ARGUMENT, "args is null");
    if (args->abi_version != TF_ABI_VERSION)
      return fail(TF_ERR_ABI, "args.abi_version is %d, this kernel speaks %d", args->abi_version, TF_ABI_VERSION);
    if (args->groups < 0 || args->m < 0)
      return fail(TF_ERR_ARGUMENT, "groups = %d and m = %d must not be negative", args->groups, args->m);
    if (args->n <= 0 || args->n % Kernel::n_multiple)
      return fail(TF_ERR_ARGUMENT, "n = %d must be a positive multiple of %d", args->n, Kernel::n_multiple);
    if (args->k <= 0 || args->k % Kernel::k_multiple)
      return fail(TF_ERR_ARGUMENT, "k = %d must be a positive multiple of %d", args->k, Kernel::k_multiple);
    if (args->raster < 0 || args->raster > 2)
      return fail(TF_ERR_ARGUMENT, "raster = %d must be 0 (heuristic), 1 (along M) or 2 (along N)", args->raster);
    const int swizzle = args->max_swizzle;
    if (swizzle != 0 && swizzle != 1 && swizzle != 2 && swizzle != 4 && swizzle != 8)
      return fail(TF_ERR_ARGUMENT, "max_swizzle = %d must be 0, 1, 2, 4 or 8", swizzle);
    if (args->sm_count < 0) return fail(TF_ERR_ARGUMENT, "sm_count = %d must not be negative", args->sm_count);
    empty = args->m == 0;
    if (empty) return TF_OK;
    if (args->groups == 0) return fail(TF_ERR_ARGUMENT, "groups is 0 but m = %d", args->m);

    int code = TF_OK;
    if ((code = check_pointer(args->a, "a", Kernel::align_bytes))) return code;
    if ((code = check_pointer(args->b, "b", Kernel::align_bytes))) return code;
    if ((code = check_pointer(args->d, "d", 16))) return code;
    if ((code = check_pointer(args->offsets, "offsets", 4))) return code;
    if (Kernel::scaled) {
      if ((code = check_pointer(args->sfa, "sfa", 16))) return code;
      if ((code = check_pointer(args->sfb, "sfb", 16))) return code;
    }
    if (!args->workspace) return fail(TF_ERR_WORKSPACE, "workspace is null");
    if (reinterpret_cast<uintptr_t>(args->workspace) % 256)
      return fail(TF_ERR_WORKSPACE, "workspace = %p is not aligned to 256 bytes", args->workspace);
    return TF_OK;
  }

  static int check_workspace(const tf_args &args, uint64_t needed) {
    if (args.workspace_bytes >= needed) return TF_OK;
    return fail(TF_ERR_WORKSPACE, "workspace has %llu bytes, %llu are needed",
                (unsigned long long)args.workspace_bytes, (unsigned long long)needed);
  }

  // The device can run this kernel; raises the kernel's shared memory limit. The limit is looked up first
  // because inside CUTLASS an excess would surface only as an "internal error".
  static int make_launchable(int device) {
    int major = 0, minor = 0, smem = 0;
    cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (!error) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (!error) error = cudaDeviceGetAttribute(&smem, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error) return fail_cuda(TF_ERR_DEVICE, "cannot query the device", error);
    if (major * 10 + minor != Kernel::sm)
      return fail(TF_ERR_DEVICE, "device %d is sm_%d%d, this kernel was built for sm_%d", device, major, minor,
                  Kernel::sm);
    if (Facts::smem_bytes > smem)
      return fail(TF_ERR_SMEM, "needs %d B of shared memory, device %d offers a block %d B: %d B over",
                  Facts::smem_bytes, device, smem, Facts::smem_bytes - smem);
    error = cudaFuncSetAttribute(gemm_function(), cudaFuncAttributeMaxDynamicSharedMemorySize, Facts::smem_bytes);
    if (error) return fail_cuda(TF_ERR_LAUNCH, "cannot load the kernel or raise its shared memory limit", error);
    return TF_OK;
  }

  static int load(int device) {
    DeviceScope scope(device);
    if (scope.error) return fail_cuda(TF_ERR_DEVICE, "cannot select the device", scope.error);
    if (int code = make_launchable(device)) return code;
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(derive_groups<Kernel>));
    if (error) return fail_cuda(TF_ERR_LAUNCH, "cannot load the prepare kernel", error);
    return ok();
  }

  static int prepare(const tf_args *args) {
    bool empty = false;
    if (int code = check(args, empty)) return code;
    if (empty) return ok();
    Arrays arrays;
    if (int code = check_workspace(*args, arrays.carve(args->workspace, args->groups))) return code;
    DeviceScope scope(args->device);
    if (scope.error) return fail_cuda(TF_ERR_DEVICE, "cannot select the device", scope.error);

    ProblemTensors in{static_cast<const char *>(args->a),   static_cast<const char *>(args->b),
                      static_cast<const char *>(args->sfa), static_cast<const char *>(args->sfb),
                      static_cast<char *>(args->d),         args->offsets,
                      args->groups, args->m, args->n, args->k};
    cudaError_t error = launch_derive_groups<Kernel>(arrays, in, static_cast<cudaStream_t>(args->stream));
    if (error) return fail_cuda(TF_ERR_LAUNCH, "the prepare kernel did not launch", error);
    return ok();
  }

  static int run(const tf_args *args) {
    bool empty = false;
    if (int code = check(args, empty)) return code;
    if (empty) return ok();
    if (int code = check_workspace(*args, workspace_bytes(*args, args->sm_count > 0 ? args->sm_count : 1))) return code;
    DeviceScope scope(args->device);
    if (scope.error) return fail_cuda(TF_ERR_DEVICE, "cannot select the device", scope.error);
    if (int code = make_launchable(args->device)) return code;
    int sms = args->sm_count;
    if (sms == 0) {
      cudaError_t error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, args->device);
      if (error) return fail_cuda(TF_ERR_DEVICE, "cannot query the SM count", error);
      if (int code = check_workspace(*args, workspace_bytes(*args, sms))) return code;
    }

    Arrays arrays;
    char *cutlass_workspace = static_cast<char *>(args->workspace) + arrays.carve(args->workspace, args->groups);
    Arguments arguments = make_arguments(*args, arrays, sms);
    if (!GemmKernel::can_implement(arguments)) return fail(TF_ERR_CUTLASS, "CUTLASS cannot implement these arguments");
    cudaStream_t stream = static_cast<cudaStream_t>(args->stream);
    cutlass::Status status = GemmKernel::initialize_workspace(arguments, cutlass_workspace, stream);
    if (status != cutlass::Status::kSuccess)
      return fail(TF_ERR_CUTLASS, "CUTLASS workspace: %s", cutlass::cutlassGetStatusString(status));
    Params params = GemmKernel::to_underlying_arguments(arguments, cutlass_workspace);
    return launch(params, stream);
  }

  // CUTLASS's own launcher swallows the CUDA error; this one reports it.
  static int launch(Params &params, cudaStream_t stream) {
    cudaLaunchConfig_t config{};
    cudaLaunchAttribute cluster{};
    config.gridDim = GemmKernel::get_grid_shape(params);
    config.blockDim = GemmKernel::get_block_shape();
    config.dynamicSmemBytes = Facts::smem_bytes;
    config.stream = stream;
    if (Kernel::cluster_m * Kernel::cluster_n > 1) {
      cluster.id = cudaLaunchAttributeClusterDimension;
      cluster.val.clusterDim = {unsigned(Kernel::cluster_m), unsigned(Kernel::cluster_n), 1u};
      config.attrs = &cluster;
      config.numAttrs = 1;
    }
    void *pointers[] = {&params};
    cudaError_t error = cudaLaunchKernelExC(&config, gemm_function(), pointers);
    if (error) return fail_cuda(TF_ERR_LAUNCH, "the GEMM did not launch", error);
    return ok();
  }
};

}  // namespace tf
