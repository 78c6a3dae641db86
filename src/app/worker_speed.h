// How fast a device is beside others.
#pragma once

#include "staffel/backend.h"
#include "staffel/clock.h"

namespace staffel {

// Reads weights as a decode step does, for 40 to 160 ms, and not while another worker of the machine
// measures: gigabytes per second of a quantised matrix times one row, rounded to a power of 1.25. 1
// when it cannot be measured.
double MeasureSpeed(Backend& backend, const Clock& clock);

}  // namespace staffel
