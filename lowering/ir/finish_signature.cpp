#include "lowering/ir/finish_signature.h"

namespace lazyplug {

void finish_signature(Signature& signature) {
  signature.hash = signature.identity;
  signature.output_bytes.clear();
  for (const Geometry& output : signature.outputs) {
    signature.hash = hash_combine(signature.hash, output);
    signature.output_bytes.push_back(output.extent_bytes());
  }
}

} // namespace lazyplug
