/* Of which sources the code generator was built, in skycc and in code_generator.so. */
#include "code_generator_sources.h"

const char code_generator_sources[] = CODE_GENERATOR_SOURCES;
