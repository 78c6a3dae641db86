// What a model file is, by content.
#pragma once

#include <string>
#include <vector>

#include "staffel/cluster.h"
#include "staffel/model_file.h"

namespace staffel {

// The content identity of a model: 64 hexadecimal digits of a SHA-256 over
//   - the words "staffel model 1",
//   - for each file: its size, the size of its header, and every byte of the header (metadata,
//     tokenizer, tensor table, padding),
//   - for each tensor, in the order of the tables: the first and the last 4 KiB of its data.
// So two files of one digest have the same metadata, tokenizer, shapes, types and places, and
// agree in samples of all weights. Other bytes of the weights are not read (a model of hundreds of
// gigabytes is named in a second): it tells files apart, other quantisations and fine-tunings
// included; it does not prove that a disk has kept every byte. Names and paths do not count.
// FailedPrecondition: a model that exists in memory only.
Result<std::string> ModelDigest(const ModelFile& file);

// The reference that workers get. Errors as ModelDigest.
Result<ModelRef> MakeModelRef(const ModelFile& file, std::string served_name);

}  // namespace staffel
