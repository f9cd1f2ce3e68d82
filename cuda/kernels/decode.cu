#include "few.cuh"
#include "state.cuh"
