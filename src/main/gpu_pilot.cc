#include "pilot/pilot_main.h"

int main(int argc, char** argv) { return gpusched::pilot::run_pilot(argc, argv); }
