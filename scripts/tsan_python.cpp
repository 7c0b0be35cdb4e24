// The interpreter of the tests under ThreadSanitizer: clang's runtime works where it is part of the program, not where
// LD_PRELOAD brings it.
#include <Python.h>

int main(int argc, char** argv) { return Py_BytesMain(argc, argv); }
