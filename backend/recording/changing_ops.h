#pragma once

#include <string>
#include <vector>

namespace lazyplug {

// Ops may be given other kernels, and cease to be, while a program runs: the cell
// of a notebook that defines one is run again. What has been recorded means the
// kernels of its time. Names are as in find_op(); that no such op is known is no
// mistake.

// Before it happens: runs what has been recorded, in case it calls one of these
// ops. Does nothing on a thread that is running an op.
void finish_calls_of(const std::vector<std::string>& ops);

// Likewise before a setting changes that kernels read.
void finish_before_setting();

// After it has happened: what the old kernels said of results is forgotten.
void note_new_kernels(const std::vector<std::string>& ops);

} // namespace lazyplug
