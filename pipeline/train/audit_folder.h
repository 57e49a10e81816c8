// The folder of an audit: what `pipetrain --audit DIR` promises before the first step.
//
// DIR/audit.json holds what all steps share, DIR/step_000019/rank_2.safetensors what rank 2 used
// and made in step 19 (audit.h). docs/audit.md lists the keys.
// Any thread; a folder's start_audit once, before its ranks write.
#pragma once

#include <cstdint>
#include <string>

#include "pipeline/train/job.h"

namespace stagecraft {

inline constexpr char kAuditFormat[] = "stagecraft audit 1";

// "DIR/step_000019".
std::string audit_step_folder(const std::string& audit, int64_t step);

// Makes the folder and writes audit.json. Throws Error(kOutputInUse) when something else is in it
// already, InputError(kIo) when it cannot be written or the disk is too small. Returns a line that
// says what the audit takes. Blocks on the disk.
std::string start_audit(const Job& job);

}  // namespace stagecraft
