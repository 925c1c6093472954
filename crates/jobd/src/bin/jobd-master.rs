//! `jobd-master`, which polls workers when there is work.

fn main() -> std::process::ExitCode {
    spindle_jobd::daemon::master_main()
}
