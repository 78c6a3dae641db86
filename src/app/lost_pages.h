// SIGBUS: a mapped file became shorter under us, or its disk failed.
#pragma once

namespace staffel {

// From now on such a fault ends the process with exit code 1 and a sentence in place of a core
// dump. (Files are mapped so that weights need not be read twice; the price is that their loss
// shows here.)
void ExplainLostPages();

}  // namespace staffel
