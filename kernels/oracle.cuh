// Asking the compiler: what would this tactic be? No kernel body is generated, so a dozen tactics take
// about ten seconds, and no GPU is needed.
//
//   // q.cu: one line per tactic, fields in the order of Kernel<...>
//   #include "sm120.cuh"   // or sm90.cuh: one SM per file
//   #include "oracle.cuh"
//   TF_ORACLE(t0, tf::sm120, TF_FORMAT_NVFP4, TF_OUT_BF16, 128, 128, 128, 1, 1, TF_SCHEDULE_COOPERATIVE, 0, 0, 0, 0)
//   TF_ORACLE(t1, tf::sm120, TF_FORMAT_NVFP4, TF_OUT_BF16, 128,  64, 256, 1, 1, TF_SCHEDULE_PINGPONG,    2, 0, 0, 1)
//
//   nvcc -std=c++17 --expt-relaxed-constexpr -DNDEBUG -arch=sm_120a -ptx -I$CUTLASS/include -Ikernels q.cu -o q.ptx
//
// Each line becomes, in the PTX, the bytes of TF_ORACLE_FIELDS little-endian int32 in the order below:
//   .global .align 4 .b8 tf_oracle_t0[60] = {1, 0, 0, 0, 4, 0, 0, 0, 0, 76, 1, 0, ...};
// PTX leaves trailing zero bytes out, so pad to the size in brackets. In Python:
//   pattern = r"tf_oracle_(\w+)\[(\d+)\] = \{([^}]*)\}"
//   fields = struct.unpack("<15i", bytes(map(int, numbers.split(","))).ljust(int(size), b"\0"))
// A tactic that CUTLASS refuses fails the whole file: bisect, and keep the first "error:" line.
// What compiles here may still fail in a full compile: kernel bodies hold assertions of their own.
#pragma once

#include "common.cuh"

#define TF_ORACLE_FIELDS 15

#define TF_ORACLE(name, sm, ...)                                                                          \
  extern "C" {                                                                                            \
  __device__ int tf_oracle_##name[TF_ORACLE_FIELDS] = {                                                   \
      TF_ABI_VERSION,                                                                                     \
      sm::Kernel<__VA_ARGS__>::Facts::stages,                                                             \
      sm::Kernel<__VA_ARGS__>::Facts::smem_bytes,             /* sizeof(GemmKernel::SharedStorage) */     \
      sm::Kernel<__VA_ARGS__>::Facts::mainloop_bytes,         /* operand and scale tiles, all stages */   \
      sm::Kernel<__VA_ARGS__>::Facts::epilogue_bytes,         /* what the auto stage count sets aside */  \
      sm::Kernel<__VA_ARGS__>::Facts::epilogue_tensor_bytes,  /* what the epilogue tensors really take */ \
      sm::Kernel<__VA_ARGS__>::Facts::pipeline_bytes,                                                     \
      sm::Kernel<__VA_ARGS__>::Facts::tensormap_bytes,                                                    \
      sm::Kernel<__VA_ARGS__>::Facts::threads,                                                            \
      sm::Kernel<__VA_ARGS__>::Facts::epi_m,                                                              \
      sm::Kernel<__VA_ARGS__>::Facts::epi_n,                                                              \
      sm::Kernel<__VA_ARGS__>::k_multiple,                                                                \
      sm::Kernel<__VA_ARGS__>::n_multiple,                                                                \
      CUTLASS_VERSION,                                                                                    \
      1 /* end */};                                                                                       \
  }
