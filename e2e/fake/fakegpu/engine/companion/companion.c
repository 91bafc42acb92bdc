/* A driver library of which only the file and its SONAME matter. */
__attribute__((visibility("default"))) int fakegpu_companion;
