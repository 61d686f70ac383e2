#include "cli/framework/run.h"

int main(int argument_count, char** arguments) {
  return gpusched::cli::run_cli(argument_count - 1, arguments + 1, gpusched::cli::process_io());
}
