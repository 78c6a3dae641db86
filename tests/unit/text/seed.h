#pragma once

#include "tests/support/seed.h"
