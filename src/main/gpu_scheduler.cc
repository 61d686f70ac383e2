#include "main/scheduler_main.h"

int main(int argc, char** argv) { return gpusched::run_scheduler(argc, argv); }
