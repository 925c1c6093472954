//! `jobctl`, which asks the daemons.

fn main() -> std::process::ExitCode {
    spindle_jobd::ctl::main()
}
