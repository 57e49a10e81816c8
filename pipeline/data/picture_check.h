// Looks at every picture of a data set before anything is encoded. Any thread; blocks on the disk.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "pipeline/data/images.h"
#include "pipeline/dataset/dataset.h"
#include "pipeline/dataset/manifest.h"

namespace stagecraft {

// A picture as it is now on disk. Throws InputError(kDataInvalid) without a position.
struct LoadedPicture {
  Picture picture;
  PictureFacts facts;
};
LoadedPicture load_picture(const Dataset& dataset, const std::string& path);

struct PictureCheck {
  const Dataset& dataset;
  // From an earlier run; a file with the same size and time stamp is not opened again.
  const std::map<std::string, PictureFacts>& known;
  int64_t width = 0, height = 0;  // resolution
  std::function<void(int64_t done, int64_t total)> progress;
};
// Facts of all good pictures. A missing or broken file, a source that differs from its target in
// size (upright), a picture too small for the resolution: each is added to `faults` with its line.
std::map<std::string, PictureFacts> check_pictures(const PictureCheck& check, DataFaults& faults);

}  // namespace stagecraft
