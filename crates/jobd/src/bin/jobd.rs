//! `jobd`, the worker daemon.

fn main() -> std::process::ExitCode {
    spindle_jobd::daemon::worker_main()
}
