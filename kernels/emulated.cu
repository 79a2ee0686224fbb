// The entry file of an emulated kernel: SM120's kernel, built for SM90 on headers that tileforge/toolchain/overlay.py
// edited (docs/emulation.md). The same macros as entry.cu; TF_SM is 120 or 121. tf_query answers SM 90, where it runs,
// so that nothing takes it for a kernel of SM120.
#if !defined(TF_EMULATED)
#error "tileforge: emulated.cu is compiled by `tileforge verify`, on edited CUTLASS headers (docs/emulation.md)"
#endif
#include "emulated/device.cuh"
#include "emulated/tma.cuh"

// This project's own rules are off: what a tactic would compute that they forbid is what one may want to see
// (`tileforge verify --force`). CUTLASS's own assertions stay.
#include "common.cuh"
#define static_assert(...) static_assert(true)
#include "sm120.cuh"
#undef static_assert

#include "host.cuh"

namespace tf {

struct Tactic : sm120::Kernel<TF_FORMAT, TF_OUT, TF_TILE_M, TF_TILE_N, TF_TILE_K, TF_CLUSTER_M, TF_CLUSTER_N,
                              TF_SCHEDULE, TF_STAGES, TF_EPI_M, TF_EPI_N, TF_SWAP_AB> {
  static constexpr int sm = 90;
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
