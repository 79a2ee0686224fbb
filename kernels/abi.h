/* The plain C interface of one compiled tactic (one shared object = one tactic = all problem sizes).
 *
 * Problem: D[g] = alpha[g] * A[g] . B[g]^T for g in 0..groups-1, float32 accumulation.
 *   a        [m, k]          row-major, rows sorted by group
 *   b        [groups, n, k]  k contiguous
 *   d        [m, n]          row-major
 *   offsets  [groups + 1]    int32 ON THE DEVICE; group g has rows offsets[g]..offsets[g+1], maybe none
 *   sfa, sfb scale factors of block-scaled formats in the 128x4-swizzled layout (README.md), else null
 *
 * Every call returns TF_OK or a code below; tf_last_error() then has one line about it (thread-local).
 * tf_prepare and tf_run only enqueue work on `stream`: no synchronisation, so both can be captured
 * into a CUDA graph. Call tf_load once before capturing: a first launch loads the module.
 */
#ifndef TILEFORGE_KERNELS_ABI_H
#define TILEFORGE_KERNELS_ABI_H

#include <stdint.h>

#define TF_ABI_VERSION 1

/* TF_FORMAT: A activations x B weights */
#define TF_FORMAT_BF16 1        /* bf16 x bf16 */
#define TF_FORMAT_FP8 2         /* e4m3 x e4m3, one scale per tensor or group folded into alpha */
#define TF_FORMAT_NVFP4 3       /* e2m1 x e2m1, ue4m3 scale per 16 along k */
#define TF_FORMAT_MXFP4 4       /* e2m1 x e2m1, ue8m0 scale per 32 */
#define TF_FORMAT_MXFP8_MXFP4 5 /* e4m3 x e2m1, ue8m0 scale per 32 */

/* TF_OUT */
#define TF_OUT_BF16 1
#define TF_OUT_FP16 2
#define TF_OUT_FP32 3

/* TF_SCHEDULE */
#define TF_SCHEDULE_COOPERATIVE 1
#define TF_SCHEDULE_PINGPONG 2

/* Return codes. */
#define TF_OK 0
#define TF_ERR_ABI 1       /* abi_version differs from TF_ABI_VERSION */
#define TF_ERR_ARGUMENT 2  /* null pointer, misaligned pointer, n or k not a legal multiple, ... */
#define TF_ERR_WORKSPACE 3 /* workspace null or smaller than tf_workspace_size */
#define TF_ERR_DEVICE 4    /* wrong compute capability, or the device cannot be queried */
#define TF_ERR_SMEM 5      /* the kernel needs more shared memory than the device offers a block */
#define TF_ERR_CUTLASS 6   /* CUTLASS refused the arguments */
#define TF_ERR_LAUNCH 7    /* a CUDA call or launch failed */

#if defined(__GNUC__)
#define TF_API __attribute__((visibility("default")))
#else
#define TF_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What was compiled. Tiles are those of the kernel: with swap_ab the kernel's M is the problem's n
 * and the kernel's N is the rows. epi_m, epi_n, stages are what came out, never 0 (= automatic). */
typedef struct {
  int32_t abi_version, sm, format, out;
  int32_t tile_m, tile_n, tile_k; /* elements */
  int32_t cluster_m, cluster_n;
  int32_t schedule, swap_ab;
  int32_t epi_m, epi_n, stages;
  int32_t threads;         /* per block */
  int32_t smem_bytes;      /* dynamic shared memory of the launch */
  int32_t mainloop_bytes;  /* of it, operand and scale tiles of all stages */
  int32_t epilogue_bytes;  /* epilogue SharedStorage: what the automatic stage count sets aside */
  int32_t cutlass_version; /* major * 100 + minor * 10 + patch */
  int32_t k_multiple, n_multiple; /* k and n of a problem must be multiples of these */
} tf_info;

typedef struct {
  int32_t abi_version; /* TF_ABI_VERSION */
  int32_t device;      /* CUDA ordinal */
  const void *a, *b, *sfa, *sfb;
  const float *alpha;  /* [groups] on the device; null means 1 */
  void *d;
  const int32_t *offsets;
  int32_t groups, n, k;
  int32_t m;           /* rows that a and d hold; offsets beyond it are clamped to it */
  int32_t raster;      /* 0 heuristic, 1 along M, 2 along N: the KERNEL's M and N (see tf_info) */
  int32_t max_swizzle; /* 0 or 1 none, 2, 4, 8 */
  int32_t sm_count;    /* blocks of the persistent grid; 0: all SMs of the device */
  int32_t reserved;    /* 0 */
  void *workspace;     /* device memory, 256-byte aligned; tf_prepare fills it, tf_run reads it */
  uint64_t workspace_bytes;
  void *stream;        /* cudaStream_t */
} tf_args;

TF_API int tf_query(tf_info *info);                    /* makes no CUDA call */
TF_API uint64_t tf_workspace_size(const tf_args *args); /* bytes; reads groups and sm_count only, no CUDA call */
TF_API int tf_load(int32_t device);                    /* optional: load the module, check that it can launch */
TF_API int tf_prepare(const tf_args *args);            /* enqueue: per-group sizes, pointers, strides into workspace */
TF_API int tf_run(const tf_args *args);                /* enqueue: the GEMM, on what tf_prepare left */
TF_API const char *tf_last_error(void);                /* "" if this thread's last call succeeded */

#ifdef __cplusplus
}
#endif
#endif
