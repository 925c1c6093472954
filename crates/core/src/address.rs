//! The names of jobs at each door: every job has one name there, whichever door it came through.

use crate::job::{JOB_ID_END, JobId};

/// The first bytes of the UUIDs by which Workq clients see jobs of other doors: `spindl` in ASCII,
/// then a version 8 UUID whose last 60 bits are the job's number.
const FOREIGN_UUID: u128 = 0x7370696e_646c_8000_8000_000000000000;
/// The bits that hold the number: 15 hex digits.
const FOREIGN_NUMBER: u128 = (1 << 60) - 1;

/// The UUID by which Workq shows a job of another door.
pub fn foreign_uuid(id: JobId) -> [u8; 16] {
    (FOREIGN_UUID | u128::from(id.0)).to_be_bytes()
}

/// The job a UUID of this form names. No client may give a job such a UUID.
pub fn foreign_job(uuid: &[u8; 16]) -> Option<JobId> {
    let value = u128::from_be_bytes(*uuid);
    if value & !FOREIGN_NUMBER != FOREIGN_UUID {
        return None;
    }
    u64::try_from(value & FOREIGN_NUMBER).ok().filter(|id| *id > 0 && *id < JOB_ID_END).map(JobId)
}

/// Whether a UUID lies in the range kept for jobs of other doors, whether or not it names one.
pub fn is_foreign(uuid: &[u8; 16]) -> bool {
    u128::from_be_bytes(*uuid) & !FOREIGN_NUMBER == FOREIGN_UUID
}

/// Gearman's handle of a job.
pub fn gearman_handle(host: &str, id: JobId) -> String {
    format!("H:{host}:{id}")
}

/// The job a Gearman handle names; the host part is not looked at, so that handles survive a
/// change of the host's name.
pub fn from_gearman_handle(handle: &[u8]) -> Option<JobId> {
    let rest = handle.strip_prefix(b"H:")?;
    let at = rest.iter().rposition(|byte| *byte == b':')?;
    from_decimal(rest.get(at + 1..)?)
}

/// The job a decimal number names (LightJQ's strings, Jobq, the API, the command line).
pub fn from_decimal(digits: &[u8]) -> Option<JobId> {
    if digits.is_empty() || digits.len() > 16 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let id: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (id > 0 && id < JOB_ID_END).then_some(JobId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_another_door_has_the_documented_uuid() {
        let uuid = foreign_uuid(JobId(0x1_2345));
        assert_eq!(u128::from_be_bytes(uuid), 0x7370696e_646c_8000_8000_000000012345);
        let last = foreign_uuid(JobId(JOB_ID_END - 1));
        assert_eq!(u128::from_be_bytes(last), 0x7370696e_646c_8000_801f_ffffffffffff);
        for id in [1, 7, 1 << 45, JOB_ID_END - 1] {
            assert_eq!(foreign_job(&foreign_uuid(JobId(id))), Some(JobId(id)));
        }
    }

    #[test]
    fn uuids_near_the_form_name_no_foreign_job() {
        let beyond = (FOREIGN_UUID | u128::from(JOB_ID_END)).to_be_bytes();
        assert_eq!((foreign_job(&beyond), is_foreign(&beyond)), (None, true));
        let zero = FOREIGN_UUID.to_be_bytes();
        assert_eq!((foreign_job(&zero), is_foreign(&zero)), (None, true));
        let other = 0x7370696e_646c_8000_9000_000000000001u128.to_be_bytes();
        assert_eq!((foreign_job(&other), is_foreign(&other)), (None, false));
    }

    #[test]
    fn gearman_handles_carry_the_number_behind_any_host() {
        assert_eq!(gearman_handle("db1", JobId(42)), "H:db1:42");
        assert_eq!(from_gearman_handle(b"H:db1:42"), Some(JobId(42)));
        assert_eq!(from_gearman_handle(b"H:fe80::1:42"), Some(JobId(42)));
        for bad in [&b"H:db1:"[..], b"H:db1:4x", b"db1:42", b"H:42", b"", b"H:db1:0", b"H:a:-1"] {
            assert_eq!(from_gearman_handle(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn decimal_names_end_at_two_to_the_53() {
        assert_eq!(from_decimal(b"9007199254740991"), Some(JobId(JOB_ID_END - 1)));
        for bad in [&b"9007199254740992"[..], b"0", b"", b"+1", b" 1", b"99999999999999999999"] {
            assert_eq!(from_decimal(bad), None, "{bad:?}");
        }
    }
}
