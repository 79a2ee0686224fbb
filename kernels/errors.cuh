// The error line of this thread, and the guard that makes a device current for one call.
#pragma once

#include "abi.h"

#include <cuda_runtime_api.h>

#include <cstdarg>
#include <cstdio>

namespace tf {

inline thread_local char last_error[512] = "";

inline int fail(int code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(last_error, sizeof(last_error), format, list);
  va_end(list);
  return code;
}

inline int ok() {
  last_error[0] = 0;
  return TF_OK;
}

inline int fail_cuda(int code, const char *what, cudaError_t error) {
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

}  // namespace tf
