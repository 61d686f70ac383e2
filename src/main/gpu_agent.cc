#include "node/agent/agent_main.h"

int main(int argc, char** argv) { return gpusched::run_agent(argc, argv); }
