//! The `eventmesh` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    mesh_runtime::cli::run()
}
