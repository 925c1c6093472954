//! `jobd-master`, which tells workers that there is work.

fn main() -> std::process::ExitCode {
    spindle_jobd::daemon::master_main()
}
