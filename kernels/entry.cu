// The one entry file: compiled once per tactic, it turns the TF_* macros into a kernel type and implements abi.h.
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "abi.h"

#if !defined(TF_SM) || !defined(TF_FORMAT) || !defined(TF_OUT) || !defined(TF_TILE_M) || !defined(TF_TILE_N) || \
    !defined(TF_TILE_K) || !defined(TF_SCHEDULE)
#error "tileforge: define TF_SM, TF_FORMAT, TF_OUT, TF_TILE_M, TF_TILE_N, TF_TILE_K, TF_SCHEDULE (kernels/README.md)"
#endif
#ifndef TF_CLUSTER_M
#define TF_CLUSTER_M 1
#endif
#ifndef TF_CLUSTER_N
#define TF_CLUSTER_N 1
#endif
#ifndef TF_STAGES
#define TF_STAGES 0
#endif
#ifndef TF_EPI_M
#define TF_EPI_M 0
#endif
#ifndef TF_EPI_N
#define TF_EPI_N 0
#endif
#ifndef TF_SWAP_AB
#define TF_SWAP_AB 0
#endif

#if TF_SM == 90
#include "sm90.cuh"
namespace sm = tf::sm90;
#elif TF_SM == 120 || TF_SM == 121
#include "sm120.cuh"
namespace sm = tf::sm120;
#else
#error "tileforge: TF_SM is 90, 120 or 121"
#endif
#include "groups.cuh"

#include "cutlass/device_kernel.h"

namespace {

using Kernel = sm::Kernel<TF_FORMAT, TF_OUT, TF_TILE_M, TF_TILE_N, TF_TILE_K, TF_CLUSTER_M, TF_CLUSTER_N, TF_SCHEDULE,
                          TF_STAGES, TF_EPI_M, TF_EPI_N, TF_SWAP_AB>;
using GemmKernel = Kernel::GemmKernel;
using Facts = Kernel::Facts;
using Arrays = tf::GroupArrays<Kernel>;
using Arguments = GemmKernel::Arguments;

thread_local char last_error[512] = "";

int fail(int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(last_error, sizeof(last_error), format, list);
  va_end(list);
  return code;
}

int ok() {
  last_error[0] = 0;
  return TF_OK;
}

int fail_cuda(int code, const char *what, cudaError_t error) {
  cudaGetLastError();  // so that the next call of this thread does not report it again
  return fail(code, "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

// Makes args.device current for one call, and puts the caller's device back.
struct DeviceScope {
  int before = -1;
  cudaError_t error;
  explicit DeviceScope(int device) {
    error = cudaGetDevice(&before);
    if (error == cudaSuccess && before != device) error = cudaSetDevice(device);
    if (error != cudaSuccess || before == device) before = -1;
  }
  ~DeviceScope() {
    if (before >= 0) cudaSetDevice(before);
  }
};

Arguments make_arguments(const tf_args &args, Arrays &arrays, int sm_count) {
  Arguments out{};
  out.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
  out.problem_shape = {args.groups, arrays.shape, nullptr};  // no host shapes: sizes live on the device
  out.hw_info.device_id = args.device;
  out.hw_info.sm_count = sm_count;

  tf::read_operands_from(arrays, out.mainloop);

  auto &epi = out.epilogue;
  epi.ptr_D = reinterpret_cast<decltype(epi.ptr_D)>(arrays.d);
  epi.dD = arrays.dd;
  epi.thread.beta = 0.f;
  epi.thread.alpha = 1.f;
  if (args.alpha) {
    // Group g reads alpha_ptr[g * dAlpha.L]: Sm90ScalarBroadcastPtrArray in
    // epilogue/fusion/sm90_visitor_load_tma_warpspecialized.hpp, 4.2.0 and 4.5.0.
    epi.thread.alpha_ptr = args.alpha;
    epi.thread.dAlpha = {cute::_0{}, cute::_0{}, 1};
  }

  // With device-only sizes CUTLASS's heuristic always answers AlongN, and 4.2.0 ignores max_swizzle
  // (PersistentTileSchedulerSm90GroupParams in gemm/kernel/tile_scheduler_params.h, 4.2.0 and 4.5.0).
  using Raster = typename GemmKernel::TileScheduler::RasterOrderOptions;
  out.scheduler.raster_order = args.raster == 1 ? Raster::AlongM : args.raster == 2 ? Raster::AlongN : Raster::Heuristic;
  out.scheduler.max_swizzle_size = args.max_swizzle < 1 ? 1 : args.max_swizzle;
  return out;
}

// SMs to size the workspace for when the caller leaves sm_count to us: no GPU of these families has more.
constexpr int kMaxSms = 256;

uint64_t workspace_bytes(const tf_args &args, int sm_count) {
  Arrays arrays;
  const uint64_t groups_part = arrays.carve(nullptr, args.groups < 0 ? 0 : args.groups);
  return groups_part + GemmKernel::get_workspace_size(make_arguments(args, arrays, sm_count));
}

int check_pointer(const void *p, const char *name, int alignment) {
  if (!p) return fail(TF_ERR_ARGUMENT, "%s is null", name);
  if (reinterpret_cast<uintptr_t>(p) % alignment)
    return fail(TF_ERR_ARGUMENT, "%s = %p is not aligned to %d bytes", name, p, alignment);
  return TF_OK;
}

// Everything that can be known without asking the device. Sets `empty` when there is nothing to compute.
int check(const tf_args *args, bool &empty) {
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
  if ((code = check_pointer(args->a, "a", Kernel::align_bytes_a))) return code;
  if ((code = check_pointer(args->b, "b", Kernel::align_bytes_b))) return code;
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

int check_workspace(const tf_args &args, uint64_t needed) {
  if (args.workspace_bytes >= needed) return TF_OK;
  return fail(TF_ERR_WORKSPACE, "workspace has %llu bytes, %llu are needed",
              (unsigned long long)args.workspace_bytes, (unsigned long long)needed);
}

// The device can run this kernel; raises the kernel's shared memory limit. The limit is asked for by name
// because inside CUTLASS an excess would surface only as an "internal error".
int make_launchable(int device) {
  int major = 0, minor = 0, smem = 0;
  cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (!error) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (!error) error = cudaDeviceGetAttribute(&smem, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error) return fail_cuda(TF_ERR_DEVICE, "cannot query the device", error);
  if (major * 10 + minor != TF_SM)
    return fail(TF_ERR_DEVICE, "device %d is sm_%d%d, this kernel was built for sm_%d", device, major, minor, TF_SM);
  if (Facts::smem_bytes > smem)
    return fail(TF_ERR_SMEM, "needs %d B of shared memory, device %d offers %d B per block: %d B over",
                Facts::smem_bytes, device, smem, Facts::smem_bytes - smem);
  error = cudaFuncSetAttribute(reinterpret_cast<const void *>(cutlass::device_kernel<GemmKernel>),
                               cudaFuncAttributeMaxDynamicSharedMemorySize, Facts::smem_bytes);
  if (error) return fail_cuda(TF_ERR_LAUNCH, "cannot load the kernel or raise its shared memory limit", error);
  return TF_OK;
}

// CUTLASS's own launcher swallows the CUDA error; this one reports it.
int launch(GemmKernel::Params &params, cudaStream_t stream) {
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
  cudaError_t error = cudaLaunchKernelExC(
      &config, reinterpret_cast<const void *>(cutlass::device_kernel<GemmKernel>), pointers);
  if (error) return fail_cuda(TF_ERR_LAUNCH, "the GEMM did not launch", error);
  return ok();
}

}  // namespace

extern "C" {

int tf_query(tf_info *info) {
  if (!info) return fail(TF_ERR_ARGUMENT, "info is null");
  *info = {TF_ABI_VERSION, TF_SM, TF_FORMAT, TF_OUT, TF_TILE_M, TF_TILE_N, TF_TILE_K, TF_CLUSTER_M, TF_CLUSTER_N,
           TF_SCHEDULE, Kernel::swap_ab, Facts::epi_m, Facts::epi_n, Facts::stages, Facts::threads, Facts::smem_bytes,
           Facts::mainloop_bytes, Facts::epilogue_bytes, CUTLASS_VERSION, Kernel::k_multiple, Kernel::n_multiple};
  return ok();
}

uint64_t tf_workspace_size(const tf_args *args) {
  return args ? workspace_bytes(*args, args->sm_count > 0 ? args->sm_count : kMaxSms) : 0;
}

int tf_load(int32_t device) {
  DeviceScope scope(device);
  if (scope.error) return fail_cuda(TF_ERR_DEVICE, "cannot select the device", scope.error);
  if (int code = make_launchable(device)) return code;
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(tf::derive_groups<Kernel>));
  if (error) return fail_cuda(TF_ERR_LAUNCH, "cannot load the prepare kernel", error);
  return ok();
}

int tf_prepare(const tf_args *args) {
  bool empty = false;
  if (int code = check(args, empty)) return code;
  if (empty) return ok();
  Arrays arrays;
  if (int code = check_workspace(*args, arrays.carve(args->workspace, args->groups))) return code;
  DeviceScope scope(args->device);
  if (scope.error) return fail_cuda(TF_ERR_DEVICE, "cannot select the device", scope.error);

  tf::ProblemTensors in{static_cast<const char *>(args->a),   static_cast<const char *>(args->b),
                        static_cast<const char *>(args->sfa), static_cast<const char *>(args->sfb),
                        static_cast<char *>(args->d),         args->offsets,
                        args->groups, args->m, args->n, args->k};
  cudaError_t error = tf::launch_derive_groups<Kernel>(arrays, in, static_cast<cudaStream_t>(args->stream));
  if (error) return fail_cuda(TF_ERR_LAUNCH, "the prepare kernel did not launch", error);
  return ok();
}

int tf_run(const tf_args *args) {
  bool empty = false;
  if (int code = check(args, empty)) return code;
  if (empty) return ok();
  DeviceScope scope(args->device);
  if (scope.error) return fail_cuda(TF_ERR_DEVICE, "cannot select the device", scope.error);
  if (int code = make_launchable(args->device)) return code;
  int sms = args->sm_count;
  if (sms == 0) {
    cudaError_t error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, args->device);
    if (error) return fail_cuda(TF_ERR_DEVICE, "cannot query the SM count", error);
  }
  if (int code = check_workspace(*args, workspace_bytes(*args, sms))) return code;

  Arrays arrays;
  char *cutlass_workspace = static_cast<char *>(args->workspace) + arrays.carve(args->workspace, args->groups);
  Arguments arguments = make_arguments(*args, arrays, sms);
  if (!GemmKernel::can_implement(arguments)) return fail(TF_ERR_CUTLASS, "CUTLASS cannot implement these arguments");
  cudaStream_t stream = static_cast<cudaStream_t>(args->stream);
  cutlass::Status status = GemmKernel::initialize_workspace(arguments, cutlass_workspace, stream);
  if (status != cutlass::Status::kSuccess)
    return fail(TF_ERR_CUTLASS, "CUTLASS workspace: %s", cutlass::cutlassGetStatusString(status));
  GemmKernel::Params params = GemmKernel::to_underlying_arguments(arguments, cutlass_workspace);
  return launch(params, stream);
}

const char *tf_last_error(void) { return last_error; }

}  // extern "C"
