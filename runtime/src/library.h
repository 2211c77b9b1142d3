// Kernel libraries: opened once per path, never closed (a kernel may be running).
// May include: abi.h, error.h.
#pragma once
#include <string>

#include "opwright/abi.h"

namespace ow {

struct KernelSymbols {
  OwKernel run;
  OwKernel infer;
  OwWorkspace workspace;
};

// Throws Error(Runtime) that names the path, and the symbol when one is missing.
KernelSymbols load_kernel(const std::string& library, const std::string& symbol);

}  // namespace ow
