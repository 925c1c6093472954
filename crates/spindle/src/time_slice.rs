//! How long a thread of the server runs before another one has its turn.
//!
//! When more threads want to run than there are processors, Linux gives each of them 1 to 4 ms. The
//! server's threads need much less for most of their work, and wait that long for threads that compute.
//! Since Linux 6.12 a thread may ask for shorter turns: its next turn comes sooner, and it gets no more
//! time in all. On two busy cores that halves the 99th percentile of small requests.

use std::io;
use std::time::Duration;

/// The shortest turn that the kernel gives.
const SLICE: Duration = Duration::from_micros(100);

/// Asks for short turns: for the calling thread, and for all that it starts from now on. Older kernels
/// take it and change nothing.
pub fn shorten() {
    if let Err(error) = set(SLICE) {
        tracing::debug!(%error, "threads have turns on the processor as long as those of other programs");
    }
}

fn set(slice: Duration) -> io::Result<()> {
    let mut attributes = get()?;
    // A server that was started with another policy keeps the turns that this policy gives.
    if attributes.sched_policy == SCHED_OTHER {
        attributes.sched_runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
        #[expect(unsafe_code, reason = "no library has this call")]
        // SAFETY: the kernel reads as many bytes as the attributes say they are (sched_setattr(2)).
        let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The calling thread's attributes: its policy and its nice value, which are kept.
fn get() -> io::Result<libc::sched_attr> {
    let size = u32::try_from(size_of::<libc::sched_attr>()).unwrap_or(u32::MAX);
    let mut attributes = std::mem::MaybeUninit::<libc::sched_attr>::zeroed();
    let place = attributes.as_mut_ptr();
    #[expect(unsafe_code, reason = "no library has this call")]
    // SAFETY: the kernel writes no more than `size` bytes (sched_getattr(2)), and all zeros are attributes.
    unsafe {
        match libc::syscall(libc::SYS_sched_getattr, 0, place, size, 0) {
            0 => Ok(attributes.assume_init()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The policy of programs that ask for no other (SCHED_OTHER; libc has it as a signed number).
const SCHED_OTHER: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_and_those_that_it_starts_have_short_turns_and_are_no_less_nice() {
        std::thread::spawn(|| {
            let before = get().unwrap();
            shorten();
            let now = get().unwrap();
            // Kernels that do not let threads choose their turns do not report any.
            let knows = before.sched_runtime != 0;
            assert_eq!(now.sched_runtime, if knows { 100_000 } else { 0 });
            let of_another = std::thread::spawn(|| get().unwrap().sched_runtime).join().unwrap();
            assert_eq!(of_another, now.sched_runtime);
            assert_eq!(
                (now.sched_policy, now.sched_nice, now.sched_flags),
                (before.sched_policy, before.sched_nice, before.sched_flags)
            );
        })
        .join()
        .unwrap();
    }
}
