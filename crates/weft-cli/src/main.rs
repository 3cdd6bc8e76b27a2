//! The program `weft`. Its code is in the library, so that a static link compiles this file alone.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    weft_cli::main()
}
