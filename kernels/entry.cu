// The one entry file: compiled once per tactic, it turns the TF_* macros into a kernel type and implements abi.h.
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
namespace tf {
namespace arch = sm90;
}
#elif TF_SM == 120 || TF_SM == 121
#include "sm120.cuh"
namespace tf {
namespace arch = sm120;
}
#else
#error "tileforge: TF_SM is 90, 120 or 121"
#endif
#include "host.cuh"

namespace tf {

struct Tactic : arch::Kernel<TF_FORMAT, TF_OUT, TF_TILE_M, TF_TILE_N, TF_TILE_K, TF_CLUSTER_M, TF_CLUSTER_N,
                             TF_SCHEDULE, TF_STAGES, TF_EPI_M, TF_EPI_N, TF_SWAP_AB> {
  static constexpr int sm = TF_SM;
};

template <class Kernel> void describe(tf_info &info) {
  using F = typename Kernel::Facts;
  info = {TF_ABI_VERSION, Kernel::sm, Kernel::format, Kernel::out, Kernel::tile_m, Kernel::tile_n, Kernel::tile_k,
          Kernel::cluster_m, Kernel::cluster_n, Kernel::schedule, Kernel::swap_ab, F::epi_m, F::epi_n, F::stages,
          F::threads, F::smem_bytes, F::mainloop_bytes, F::epilogue_bytes, CUTLASS_VERSION, Kernel::k_multiple,
          Kernel::n_multiple};
}

}  // namespace tf

extern "C" {

int tf_query(tf_info *info) {
  if (!info) return tf::fail(TF_ERR_ARGUMENT, "info is null");
  tf::describe<tf::Tactic>(*info);
  return tf::ok();
}

uint64_t tf_workspace_size(const tf_args *args) { return args ? tf::Host<tf::Tactic>::workspace_size(*args) : 0; }
int tf_load(int32_t device) { return tf::Host<tf::Tactic>::load(device); }
int tf_prepare(const tf_args *args) { return tf::Host<tf::Tactic>::prepare(args); }
int tf_run(const tf_args *args) { return tf::Host<tf::Tactic>::run(args); }
const char *tf_last_error(void) { return tf::last_error; }

}  // extern "C"
